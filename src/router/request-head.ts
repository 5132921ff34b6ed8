import type { IncomingMessage } from 'node:http';
import type { ApiErrorCode } from '../shared/errors.js';
import type { CanonicalReader } from './bytes/canonical-request.js';
import { withoutCredentials } from './query.js';

/** Header lines of one request. Real SDKs send about twenty. */
export const REQUEST_HEADERS_MAX = 100;

/** Longest request id taken over from a client. */
const REQUEST_ID_MAX = 128;
const REQUEST_ID = /^[\x21-\x7e]+$/;

/**
 * Request headers that reach an engine. A list of what passes, never of what does not: credentials, cookies, forwarding
 * headers and switches such as llama.cpp's `x-conversation-id` (which keeps generating after a disconnect) stay out
 * without anybody having to think of them.
 */
const PASSED = new Set([
  'accept',
  'user-agent',
  'anthropic-version',
  'anthropic-beta',
  'openai-beta',
  'idempotency-key',
  'traceparent',
  'tracestate',
]);

/** Every header line of a canonical request that is read here, in lower case. */
export const HEADERS_READ: readonly string[] = [
  ...PASSED,
  'content-type',
  'content-encoding',
  'authorization',
  'x-api-key',
  'origin',
  'access-control-request-headers',
  'x-request-id',
  'x-llmgw-profile',
  'x-llmgw-session',
  'x-llmgw-explain',
  'x-stainless-retry-count',
];

/** Why a request is refused before its route is looked at. */
export interface HeadProblem {
  readonly code: Extract<ApiErrorCode, 'bad_request' | 'header_fields_too_large'>;
  readonly message: string;
}

/** What the gateway reads of a request's head, in one pass over the raw lines. */
export class RequestHead {
  method = '';
  /** Without the query. */
  path = '';
  /** `?…` as sent, but for what is a credential, or empty. */
  query = '';
  /** Kept from the client when it is presentable, else made. */
  requestId = '';
  contentType: string | undefined;
  contentEncoding: string | undefined;
  /** Announced length of the body, bytes; -1 when none is announced. */
  contentLength = -1;
  chunkedBody = false;
  /** The body is coded in a way that is not undone here, so that its bytes would be taken for what they are not. */
  unknownCoding = false;
  /**
   * From `Authorization: Bearer` or `x-api-key`; never passed on or logged. Empty where what was sent is no single
   * credential: another scheme, two that differ, or one header twice.
   */
  credential: string | undefined;
  private authorized = false;
  private keyed = false;
  origin: string | undefined;
  /** `access-control-request-headers` of a preflight. */
  corsRequestHeaders: string | undefined;
  /** `x-llmgw-profile`. */
  profile: string | undefined;
  /** `x-llmgw-session`. */
  session: string | undefined;
  /** `x-llmgw-explain`. */
  explain = false;
  /** How often the client's SDK says it already tried, for the log. */
  clientRetries: string | undefined;
  /** Who connected; the nearest proxy where there is one. */
  clientAddress = '';
  /** The lines that pass to the engine, as `name: value\r\n…`. */
  passed = '';

  /** @internal */
  takeAuthorization(value: string): void {
    this.takeCredential(bearer(value), this.authorized);
    this.authorized = true;
  }

  /** @internal */
  takeApiKey(value: string): void {
    this.takeCredential(value, this.keyed);
    this.keyed = true;
  }

  /** Which of two is meant nobody can tell, and a proxy in front may have read the other one: then it is neither. */
  private takeCredential(value: string, again: boolean): void {
    const fits = !again && (this.credential === undefined || this.credential === value);
    this.credential = fits ? value : '';
  }
}

/** Reads and judges a request's head. */
export function readRequestHead(request: IncomingMessage, makeId: () => string): RequestHead | HeadProblem {
  const raw = request.rawHeaders;
  if (raw.length > REQUEST_HEADERS_MAX * 2) {
    return {
      code: 'header_fields_too_large',
      message: `more than ${REQUEST_HEADERS_MAX} header fields`,
    };
  }
  if (request.httpVersionMajor !== 1) return { code: 'bad_request', message: 'this server speaks HTTP/1.1' };
  const head = new RequestHead();
  head.method = request.method ?? '';
  head.clientAddress = request.socket.remoteAddress ?? '';
  const target = request.url ?? '';
  // `OPTIONS *` asks what the server as a whole takes.
  if (target.charCodeAt(0) !== SLASH && !(target === '*' && head.method === 'OPTIONS'))
    return { code: 'bad_request', message: 'the request target must be a path' };
  // A fragment is never sent; readers that get one cut it off or take it for a part of the path.
  if (target.includes('#')) return { code: 'bad_request', message: 'a request target has no fragment' };
  const queryAt = target.indexOf('?');
  head.path = queryAt < 0 ? target : target.slice(0, queryAt);
  if (queryAt >= 0) head.query = withoutCredentials(target.slice(queryAt));
  let hosts = 0;
  for (let i = 0; i < raw.length; i += 2) {
    const name = lowerCase(raw[i] as string);
    if (name === 'host') hosts++;
    else takeHeader(head, name, raw[i + 1] as string);
  }
  if (hosts > 1) return { code: 'bad_request', message: 'more than one Host header' };
  if (hosts === 0 && request.httpVersionMinor > 0) return { code: 'bad_request', message: 'no Host header' };
  if (head.unknownCoding) return { code: 'bad_request', message: 'a transfer coding other than chunked' };
  if (head.requestId === '') head.requestId = makeId();
  const bodyless = head.method === 'GET' || head.method === 'HEAD';
  // A body here is what request smuggling is made of: the next reader takes it for a second request.
  if (bodyless && (head.chunkedBody || head.contentLength > 0)) {
    return { code: 'bad_request', message: `${head.method} takes no body` };
  }
  return head;
}

/** The same of a canonical request, in whose head nothing can be wrong any more. */
export function canonicalRequestHead(
  canonical: CanonicalReader,
  clientAddress: string,
  makeId: () => string,
): RequestHead {
  const head = new RequestHead();
  head.method = 'POST';
  head.path = canonical.path;
  if (canonical.query !== '') head.query = withoutCredentials(canonical.query);
  head.clientAddress = clientAddress;
  head.contentLength = canonical.contentLength;
  for (let i = 0; i < canonical.count; i++) takeHeader(head, canonical.name(i), canonical.value(i));
  if (head.requestId === '') head.requestId = makeId();
  return head;
}

const SLASH = 47;
const RETRY_COUNT = /^\d{1,4}$/;

function takeHeader(head: RequestHead, name: string, value: string): void {
  switch (name) {
    case 'content-length':
      // Its syntax and uniqueness were checked by node's parser.
      head.contentLength = Number(value);
      return;
    case 'content-type':
      head.contentType = value;
      return;
    case 'content-encoding':
      head.contentEncoding = value;
      return;
    case 'transfer-encoding':
      head.unknownCoding = head.chunkedBody || value.toLowerCase() !== 'chunked';
      head.chunkedBody = true;
      return;
    case 'authorization':
      head.takeAuthorization(value);
      return;
    case 'x-api-key':
      head.takeApiKey(value);
      return;
    case 'origin':
      head.origin = value;
      return;
    case 'access-control-request-headers':
      head.corsRequestHeaders = value;
      return;
    case 'x-request-id':
      if (head.requestId === '' && value.length <= REQUEST_ID_MAX && REQUEST_ID.test(value)) {
        head.requestId = value;
      }
      return;
    case 'x-llmgw-profile':
      head.profile = value;
      return;
    case 'x-llmgw-session':
      head.session = value;
      return;
    case 'x-llmgw-explain':
      head.explain = value === '1' || value === 'true';
      return;
    case 'x-stainless-retry-count':
      if (RETRY_COUNT.test(value)) head.clientRetries = value;
      return;
    default:
      if (PASSED.has(name)) head.passed += `${name}: ${value}\r\n`;
  }
}

const BEARER = /^bearer +/i;

/** The token of `Bearer …`; any other scheme, or none, is a wrong credential rather than no credential. */
function bearer(value: string): string {
  return BEARER.test(value) ? value.slice(6).trim() : '';
}

/** Most clients send lower case already; then nothing is allocated. */
function lowerCase(name: string): string {
  for (let i = 0; i < name.length; i++) {
    const char = name.charCodeAt(i);
    if (char >= 65 && char <= 90) return name.toLowerCase();
  }
  return name;
}
