import { API_ERRORS } from '../shared/errors.js';
import { clampRetryAfter } from '../domain/request/drain-rate.js';
import type { CorsConfig } from '../config/server-config.js';
import { oneRun } from './byte-runs.js';
import { dialectOf, type GatewayError } from './dialects.js';
import { passedHeaders, retryAfterHeaders, wrappedMessage, type EngineErrorAnswer } from './engine-answer.js';
import { errorMembers, isShapedFor } from './engine-error-shape.js';
import type { Front, HeaderList } from './front.js';
import type { RequestHead } from './request-head.js';
import type { DialectName } from './routes.js';
import type { UpstreamHead } from './upstream/response-head.js';

/** Headers every answer carries: the request id and, where it is configured, CORS. */
export function commonHeaders(head: RequestHead, cors: CorsConfig): string[] {
  const headers = ['x-request-id', head.requestId];
  if (cors.origins.length > 0) pushCors(headers, head, cors);
  return headers;
}

/** Names the model that answers as a fallback of the one asked for; on every such answer. */
export const FALLBACK_HEADER = 'x-llmgw-fallback';

/** What `x-llmgw-explain` adds to an answer: who gave it, or failed last, by which policy, and how often it was sent. */
export const explainHeaders = (
  { policy, split }: { readonly policy: string; readonly split: string | undefined },
  endpoint: string | undefined,
  sends: number,
): HeaderList => [
  ...(endpoint === undefined ? [] : ['x-llmgw-endpoint', endpoint]),
  'x-llmgw-policy',
  policy,
  ...(split === undefined ? [] : ['x-llmgw-split', headerText(split)]),
  'x-llmgw-attempts',
  String(sends),
];

/** A configured name as a header may carry it: what is not plain ASCII is percent-encoded. */
export const headerText = (name: string): string =>
  /^[\x21-\x7e]+$/.test(name) ? name : encodeURIComponent(name);

/** What browsers may read of an answer beside the basics. */
const EXPOSED =
  'x-request-id, retry-after, x-should-retry, x-llmgw-endpoint, x-llmgw-policy, x-llmgw-attempts, ' +
  `${FALLBACK_HEADER}, x-llmgw-split, ` +
  ['limit', 'remaining', 'reset']
    .flatMap((what) => [`x-ratelimit-${what}-requests`, `x-ratelimit-${what}-tokens`])
    .join(', ');

function allowedOrigin(head: RequestHead, cors: CorsConfig): string | undefined {
  if (head.origin === undefined) return undefined;
  if (cors.origins.includes('*')) return '*';
  return cors.origins.includes(head.origin) ? head.origin : undefined;
}

function pushCors(headers: string[], head: RequestHead, cors: CorsConfig): void {
  const origin = allowedOrigin(head, cors);
  // Caches must not hand one origin's answer to another, nor the answer without CORS to anybody.
  if (origin !== '*') headers.push('vary', 'Origin');
  if (origin === undefined) return;
  headers.push('access-control-allow-origin', origin, 'access-control-expose-headers', EXPOSED);
}

/** Headers of the answer to a preflight; it carries no credentials, so it is answered before any are asked for. */
export function preflightHeaders(head: RequestHead, cors: CorsConfig): string[] {
  const headers = commonHeaders(head, cors);
  if (allowedOrigin(head, cors) === undefined) return headers;
  headers.push('access-control-allow-methods', 'GET, HEAD, POST, OPTIONS', 'access-control-max-age', '600');
  // SDKs add headers with each release; echoing is what keeps browsers working, and grants nothing by itself.
  if (head.corsRequestHeaders !== undefined) {
    headers.push('access-control-allow-headers', head.corsRequestHeaders);
  }
  return headers;
}

/** Head of a stream whose engine has answered, or is still waited for. */
export function streamHeaders(common: readonly string[], contentType: string): string[] {
  return [
    ...common,
    'content-type',
    contentType,
    'cache-control',
    'no-cache',
    // nginx and its like collect a response before they pass it on, unless told.
    'x-accel-buffering',
    'no',
  ];
}

export function plainHeaders(common: readonly string[], head: UpstreamHead): string[] {
  return [...common, ...passedHeaders(head)];
}

/** Gives an error of the gateway's own as the whole answer. */
export function giveError(
  front: Front,
  dialect: DialectName,
  common: readonly string[],
  error: GatewayError,
  extra: {
    readonly retryAfterSeconds?: number | undefined;
    readonly allow?: string;
    readonly noRetry?: boolean;
  } = {},
): number {
  const { status } = API_ERRORS[error.code];
  const headers = [...common, 'content-type', 'application/json'];
  if (status === 429 || status === 503) {
    headers.push('retry-after', String(clampRetryAfter(extra.retryAfterSeconds ?? 1)));
  }
  if (status === 401) headers.push('www-authenticate', 'Bearer');
  if (extra.allow !== undefined) headers.push('allow', extra.allow);
  if (extra.noRetry === true) headers.push('x-should-retry', 'false');
  giveBody(front, status, headers, Buffer.from(dialectOf(dialect).errorBody(error)));
  return status;
}

/** Relays an engine's error answer; what a client of the dialect could not read is wrapped once. */
export function giveEngineError(
  front: Front,
  dialect: DialectName,
  common: readonly string[],
  answer: EngineErrorAnswer,
  noRetry: boolean,
): void {
  const headers = [...common, 'content-type', 'application/json', ...retryAfterHeaders(answer)];
  if (noRetry) headers.push('x-should-retry', 'false');
  giveBody(front, answer.status, headers, engineErrorBody(dialect, answer));
}

/** The engine's own bytes where the client finds the message in them, else the same words in the route's dialect. */
function engineErrorBody(dialect: DialectName, answer: EngineErrorAnswer): Buffer {
  const json = answer.json ? answer.body.toString('utf8') : '';
  if (answer.json && isShapedFor(dialect, json)) return answer.body;
  const members = errorMembers(json) ?? {};
  const message = typeof members['message'] === 'string' ? members['message'] : wrappedMessage(answer);
  return Buffer.from(dialectOf(dialect).engineErrorBody(answer.status, { ...members, message }));
}

export function giveBody(front: Front, status: number, headers: readonly string[], body: Buffer): void {
  front.head(status, headers, body.length);
  front.finish(oneRun(body, 0, body.length));
}
