import { brotliDecompressSync, constants, gunzipSync, inflateSync } from 'node:zlib';
import { clampRetryAfter, readRetryAfter } from '../domain/request/drain-rate.js';
import { hasEscapedLetter } from './bytes/escaped-letter.js';
import { isErrorEvent } from './bytes/event-meaning.js';
import { errorMembers } from './engine-error-shape.js';
import type { HeaderList } from './front.js';
import type { UpstreamHead } from './upstream/response-head.js';

/** Bytes of an engine's error body that are read; what is longer is no message for people. */
export const ERROR_BODY_MAX_BYTES = 64 * 1024;
/** Characters of a non-JSON error body that are shown. */
const WRAPPED_MAX_CHARS = 1024;

/**
 * Response headers of an engine that reach the client. A list of what passes: engines echo, set cookies and name
 * themselves and their keys in headers nobody listed.
 */
const PASSED: ReadonlySet<string> = new Set([
  'content-encoding',
  'content-language',
  'content-disposition',
  'openai-processing-ms',
]);

/** The headers of `head` a client may see, content type included, content length not. */
export function passedHeaders(head: UpstreamHead): string[] {
  const headers: string[] = [];
  const type = head.contentType ?? (head.framing === 'none' ? undefined : 'application/octet-stream');
  if (type !== undefined) headers.push('content-type', type);
  for (let i = 0; i < head.headers.length; i += 2) {
    const name = head.headers[i] as string;
    if (PASSED.has(name)) headers.push(name, head.headers[i + 1] as string);
  }
  return headers;
}

const EVENT_STREAM = /^text\/event-stream\b/i;

/** True if the body is an event stream this side can read: not one that some middleware compressed. */
export function isEventStream(head: UpstreamHead): boolean {
  if (head.contentType === undefined || !EVENT_STREAM.test(head.contentType)) return false;
  const encoding = head.get('content-encoding');
  return encoding === undefined || encoding.toLowerCase() === 'identity';
}

const PAGE = /^text\/html\b/i;

/** True for a page meant for people: a proxy's or a login's, for no route has such an answer. */
export function isPage(head: UpstreamHead): boolean {
  return head.contentType !== undefined && PAGE.test(head.contentType);
}

/** An error an engine answered with, kept so that it can still be relayed when no other engine does better. */
export interface EngineErrorAnswer {
  readonly status: number;
  readonly body: Buffer;
  /** Seconds, when the engine said something sensible. */
  readonly retryAfterSeconds: number | undefined;
  /** The body is JSON, an object or a list. */
  readonly json: boolean;
}

/** @param apiKey the endpoint's credential, which some engines repeat when they do not know it */
export function engineErrorAnswer(
  head: UpstreamHead,
  received: Buffer,
  apiKey: string | undefined,
  wallMs: number,
): EngineErrorAnswer {
  const retryAfter = head.get('retry-after');
  const isStream = head.contentType !== undefined && EVENT_STREAM.test(head.contentType);
  const words = withoutKey(unpacked(received, head.get('content-encoding')), apiKey);
  const body = isStream ? firstEventData(words) : words;
  return {
    status: head.status,
    body,
    retryAfterSeconds:
      retryAfter === undefined ? undefined : readRetryAfter(retryAfter, (text) => Date.parse(text), wallMs),
    json: isJsonObject(body),
  };
}

/**
 * An error's words are looked at here, so one that came packed, though nobody asked for that, is unpacked. What cannot be
 * says nothing.
 */
function unpacked(body: Buffer, encoding = 'identity'): Buffer {
  try {
    return UNPACKERS[encoding.trim().toLowerCase()]?.(body) ?? NOTHING;
  } catch {
    return NOTHING;
  }
}

const NOTHING = Buffer.alloc(0);
/** One that was cut off at our own limit still says how it begins. */
const ZLIB = { finishFlush: constants.Z_SYNC_FLUSH, maxOutputLength: ERROR_BODY_MAX_BYTES };
const BROTLI = { finishFlush: constants.BROTLI_OPERATION_FLUSH, maxOutputLength: ERROR_BODY_MAX_BYTES };
const UNPACKERS: Readonly<Record<string, ((body: Buffer) => Buffer) | undefined>> = {
  '': (body) => body,
  identity: (body) => body,
  gzip: (body) => gunzipSync(body, ZLIB),
  'x-gzip': (body) => gunzipSync(body, ZLIB),
  deflate: (body) => inflateSync(body, ZLIB),
  br: (body) => brotliDecompressSync(body, BROTLI),
};

/** Shorter ones stand in ordinary words, and keep nobody out. */
const KEY_MIN_CHARS = 8;
const HIDDEN = '[hidden]';

/** The same bytes without the endpoint's own credential: an engine that does not accept it may quote it. */
export function withoutKey(body: Buffer, apiKey: string | undefined): Buffer {
  if (apiKey === undefined || apiKey.length < KEY_MIN_CHARS) return body;
  let text = body.toString('latin1');
  for (const written of [apiKey, JSON.stringify(apiKey).slice(1, -1)]) {
    text = text.replaceAll(Buffer.from(written).toString('latin1'), HIDDEN);
  }
  return Buffer.from(text, 'latin1');
}

/** An error event on a 200 as if it had been an answer with a status. */
export function errorEventAnswer(data: string): EngineErrorAnswer {
  const status = statusInEvent(data) ?? 500;
  const body = Buffer.from(data);
  return { status, body, retryAfterSeconds: undefined, json: isJsonObject(body) };
}

/** TGI writes the error of a stream as an event, under a real status. */
function firstEventData(body: Buffer): Buffer {
  const line = /^data:(.*)$/m.exec(body.toString('utf8'));
  return line?.[1] === undefined ? body : Buffer.from(line[1].trim());
}

/** Bytes of a JSON answer that are looked at when more is to come. */
const PEEKED_BYTES = 64;
/** Largest answer that is parsed to see whether it is an error; errors are short. */
const PARSED_MAX_BYTES = 16 * 1024;

const ERROR_START = /^\s*\{\s*"(?:error"\s*:\s*[{"]|object"\s*:\s*"error")/;

/**
 * True if a body that came with a 200 is an error all the same. The whole of a short one is parsed when the word stands
 * in it anywhere, of others only the first bytes count.
 */
export function isErrorBody(body: Buffer, from: number, to: number, whole: boolean): boolean {
  if (whole && to - from <= PARSED_MAX_BYTES) {
    const text = body.toString('latin1', from, to);
    if (!text.includes('error') && !hasEscapedLetter(body, from, to)) return false;
    return isErrorJson(body.toString('utf8', from, to));
  }
  return ERROR_START.test(body.toString('latin1', from, Math.min(to, from + PEEKED_BYTES)));
}

function isErrorJson(text: string): boolean {
  try {
    return isErrorEvent('', JSON.parse(text));
  } catch {
    return false;
  }
}

/** Statuses of errors that say only what they are called, on Anthropic's routes and in Responses. */
const STATUS_OF_NAME: ReadonlyMap<unknown, number> = new Map([
  ['invalid_request_error', 400],
  ['authentication_error', 401],
  ['permission_error', 403],
  ['not_found_error', 404],
  ['request_too_large', 413],
  ['rate_limit_error', 429],
  ['rate_limit_exceeded', 429],
  ['timeout_error', 504],
  ['overloaded_error', 529],
]);

/** The HTTP status an error event names in `code` or `status`, if it does. */
export function statusInEvent(data: string): number | undefined {
  try {
    const parsed = JSON.parse(data) as Record<string, unknown>;
    const inner = errorMembers(data) ?? parsed;
    for (const value of [inner['code'], inner['status'], inner['status_code']]) {
      const status = Number(value);
      if (Number.isInteger(status) && status >= 400 && status <= 599) return status;
    }
    return STATUS_OF_NAME.get(inner['type']) ?? STATUS_OF_NAME.get(inner['code']);
  } catch {
    // Not JSON: then it names nothing.
  }
  return undefined;
}

/** The first part of a body that is no JSON, as a message. */
export function wrappedMessage(answer: EngineErrorAnswer): string {
  const text = answer.body.toString('utf8').slice(0, WRAPPED_MAX_CHARS);
  // oxlint-disable-next-line no-control-regex
  const clean = text.replace(/[\0-\x08\x0b-\x1f\x7f]/g, ' ').trim();
  return clean === '' ? `the engine answered with status ${answer.status}` : clean;
}

/** `Retry-After` for an engine's 429 or 503: clients give up on one without it. */
export function retryAfterHeaders(answer: EngineErrorAnswer): HeaderList {
  if (answer.retryAfterSeconds !== undefined) return ['retry-after', String(answer.retryAfterSeconds)];
  const busy = answer.status === 429 || answer.status === 503 || answer.status === 529;
  return busy ? ['retry-after', String(clampRetryAfter(2))] : [];
}

function isJsonObject(body: Buffer): boolean {
  try {
    const parsed: unknown = JSON.parse(body.toString('utf8'));
    return typeof parsed === 'object' && parsed !== null;
  } catch {
    return false;
  }
}
