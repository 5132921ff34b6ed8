import { API_ERRORS, type ApiErrorCode } from '../shared/errors.js';
import { errorMembers, isShapedFor } from './engine-error-shape.js';
import type { DialectName } from './routes.js';

/** An error the gateway makes, before a dialect gives it a form. */
export interface GatewayError {
  readonly code: ApiErrorCode;
  readonly message: string;
  /** The request field at fault. */
  readonly param?: string;
}

/** How one family of clients expects errors, heartbeats and endings to look. */
export interface Dialect {
  readonly name: DialectName;
  /** JSON body of an error response. */
  errorBody(error: GatewayError): string;
  /** The one event that ends a stream which cannot be completed. `events` = events the client already got. */
  errorEvent(error: GatewayError, events: number): string;
  /** The same for an error the engine reported itself: its own JSON is kept where the dialect allows. */
  engineErrorEvent(engineJson: string, fallback: GatewayError, events: number): string;
  /** JSON body of an error response for members an engine reported, with what clients look for filled in. */
  engineErrorBody(status: number, members: Readonly<Record<string, unknown>>): string;
  /** What is sent so that nobody in between gives up; only ever between two events. */
  readonly heartbeat: string;
}

/**
 * Anthropic's names for the same classes. Unknown types are treated by its SDK like `api_error`, so these are exact
 * where the SDK tells them apart.
 */
function anthropicType(status: number): string {
  switch (status) {
    case 401:
      return 'authentication_error';
    case 403:
      return 'permission_error';
    case 404:
      return 'not_found_error';
    case 413:
      return 'request_too_large';
    case 429:
      return 'rate_limit_error';
    case 503:
    case 529:
      return 'overloaded_error';
    case 504:
      return 'timeout_error';
    default:
      return status < 500 ? 'invalid_request_error' : 'api_error';
  }
}

const ANTHROPIC_TYPES: ReadonlySet<unknown> = new Set(
  [400, 401, 403, 404, 413, 429, 500, 503, 504].map(anthropicType),
);

function openaiError(error: GatewayError): object {
  return {
    message: error.message,
    type: API_ERRORS[error.code].type,
    param: error.param ?? null,
    code: error.code,
  };
}

function anthropicError(error: GatewayError): object {
  return {
    type: 'error',
    error: {
      type: anthropicType(API_ERRORS[error.code].status),
      message: error.message,
      param: error.param ?? null,
      code: error.code,
    },
  };
}

const KEEP_ALIVE_COMMENT = ': keep-alive\n\n';

/** An engine's error with every member that readers of OpenAI's errors expect. */
function openaiEngineError(status: number, members: Readonly<Record<string, unknown>>): string {
  return JSON.stringify({ error: { type: 'upstream_error', param: null, code: status, ...members } });
}

const openai: Dialect = {
  name: 'openai',
  errorBody: (error) => JSON.stringify({ error: openaiError(error) }),
  errorEvent: (error) => `data: ${JSON.stringify({ error: openaiError(error) })}\n\n`,
  engineErrorEvent: (engineJson, fallback) =>
    `data: ${errorObjectOf(engineJson) ?? JSON.stringify({ error: openaiError(fallback) })}\n\n`,
  engineErrorBody: openaiEngineError,
  heartbeat: KEEP_ALIVE_COMMENT,
};

/** The SDKs look for `error` in the data, other readers for the fields of OpenAI's own `error` event: both are there. */
function responsesEvent(error: object, events: number): string {
  const fields = error as { message?: unknown; code?: unknown; param?: unknown };
  const data = {
    type: 'error',
    code: fields.code ?? null,
    message: fields.message ?? '',
    param: fields.param ?? null,
    sequence_number: events,
    error,
  };
  return `event: error\ndata: ${JSON.stringify(data)}\n\n`;
}

const responses: Dialect = {
  name: 'responses',
  errorBody: (error) => openai.errorBody(error),
  errorEvent: (error, events) => responsesEvent(openaiError(error), events),
  engineErrorEvent: (engineJson, fallback, events) =>
    responsesEvent(errorMembers(engineJson) ?? openaiError(fallback), events),
  engineErrorBody: openaiEngineError,
  heartbeat: KEEP_ALIVE_COMMENT,
};

const anthropicEvent = (data: object): string => `event: error\ndata: ${JSON.stringify(data)}\n\n`;

/** Other engines' names for a kind of error are none to Anthropic's SDK. */
function anthropicEngineError(status: number, members: Readonly<Record<string, unknown>>): object {
  const type = ANTHROPIC_TYPES.has(members['type']) ? members['type'] : anthropicType(status);
  return { type: 'error', error: { ...members, type } };
}

const anthropic: Dialect = {
  name: 'anthropic',
  errorBody: (error) => JSON.stringify(anthropicError(error)),
  errorEvent: (error) => anthropicEvent(anthropicError(error)),
  engineErrorEvent: (engineJson, fallback) => {
    const members = errorMembers(engineJson);
    if (members === undefined) return anthropicEvent(anthropicError(fallback));
    return anthropicEvent(anthropicEngineError(API_ERRORS[fallback.code].status, members));
  },
  engineErrorBody: (status, members) => JSON.stringify(anthropicEngineError(status, members)),
  // A comment would do for the SDK, but Anthropic's own service sends pings and some readers wait for events.
  heartbeat: 'event: ping\ndata: {"type": "ping"}\n\n',
};

const DIALECTS: Record<DialectName, Dialect> = { openai, responses, anthropic };

export function dialectOf(name: DialectName): Dialect {
  return DIALECTS[name];
}

/** The engine's JSON on one line with a top-level `error`, or undefined when it says nothing. */
function errorObjectOf(json: string): string | undefined {
  if (isShapedFor('openai', json)) return JSON.stringify(JSON.parse(json));
  const members = errorMembers(json);
  return members === undefined ? undefined : JSON.stringify({ error: members });
}
