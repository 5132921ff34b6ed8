import type { Route } from './generation-request.js';
import { dataEvent, DONE_EVENT, namedEvent } from './formats/answer-format.js';
import type { Dialect } from './options.js';

/** When the head of a stream leaves the engine. */
export type HeaderMoment = 'accepted' | 'slot' | 'first-token';

/** Where the three engines differ on the wire; the rest of the simulated engine asks here. */
export interface DialectTraits {
  readonly headers: HeaderMoment;
  /** Header lines of every answer. */
  readonly headerLines: string;
  readonly streamHeaderLines: string;
  /** Refuses a model it does not serve. */
  readonly checksModel: boolean;
  /** Status for a body that is no JSON. */
  readonly badJsonStatus: 400 | 500;
  /** Waits without limit instead of refusing. */
  readonly endlessQueue: boolean;
  /** A stream that failed still ends with `[DONE]`. */
  readonly doneAfterError: boolean;
}

const UVICORN = 'server: uvicorn\r\ncontent-type: application/json\r\n';
const UVICORN_STREAM = 'server: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n';

export const DIALECT_TRAITS: Readonly<Record<Dialect, DialectTraits>> = {
  vllm: {
    headers: 'accepted',
    headerLines: UVICORN,
    streamHeaderLines: UVICORN_STREAM,
    checksModel: true,
    badJsonStatus: 400,
    endlessQueue: false,
    doneAfterError: true,
  },
  sglang: {
    headers: 'first-token',
    headerLines: UVICORN,
    streamHeaderLines: UVICORN_STREAM,
    checksModel: true,
    badJsonStatus: 400,
    endlessQueue: false,
    doneAfterError: true,
  },
  llamacpp: {
    headers: 'slot',
    headerLines:
      'Server: llama.cpp\r\nContent-Type: application/json; charset=utf-8\r\nKeep-Alive: timeout=5, max=100\r\n',
    streamHeaderLines:
      'Server: llama.cpp\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\nKeep-Alive: timeout=5, max=100\r\n',
    checksModel: false,
    badJsonStatus: 500,
    endlessQueue: true,
    doneAfterError: false,
  },
};

/** A refusal in words; each dialect and API writes it in its own shape. */
export interface EngineError {
  readonly status: number;
  readonly message: string;
  /** The class of the error in the dialect's own words; the status's usual one when left out. */
  readonly type?: string;
  readonly param?: string;
  /** Members that only this error has (llama.cpp puts numbers beside the message). */
  readonly extra?: Readonly<Record<string, unknown>>;
}

const PYTHON_TYPES: Readonly<Record<number, string>> = {
  400: 'BadRequestError',
  404: 'NotFoundError',
  429: 'RateLimitError',
  501: 'NotImplementedError',
  503: 'ServiceUnavailableError',
};

const LLAMACPP_TYPES: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  404: 'not_found_error',
  501: 'not_supported_error',
  503: 'unavailable_error',
};

const ANTHROPIC_TYPES: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
  503: 'overloaded_error',
};

function errorFields(dialect: Dialect, error: EngineError) {
  const types = dialect === 'llamacpp' ? LLAMACPP_TYPES : PYTHON_TYPES;
  const type =
    error.type ?? types[error.status] ?? (dialect === 'llamacpp' ? 'server_error' : 'InternalServerError');
  return { message: error.message, type, param: error.param ?? null, code: error.status };
}

/** The JSON body of a refusal. */
export function errorBody(dialect: Dialect, route: Route | undefined, error: EngineError): string {
  if (route === 'messages') {
    const type = ANTHROPIC_TYPES[error.status] ?? 'api_error';
    return JSON.stringify({ type: 'error', error: { type, message: error.message } });
  }
  const fields = errorFields(dialect, error);
  switch (dialect) {
    case 'vllm':
      return JSON.stringify({ error: fields });
    case 'sglang':
      return JSON.stringify({ object: 'error', ...fields });
    case 'llamacpp': {
      const { message, type, code } = fields;
      return JSON.stringify({ error: { code, message, type, ...error.extra } });
    }
  }
}

/** The events that end a stream with an error. */
export function errorEvents(dialect: Dialect, route: Route, error: EngineError): string[] {
  if (route === 'messages') {
    const type = ANTHROPIC_TYPES[error.status] ?? 'api_error';
    return [namedEvent('error', { error: { type, message: error.message } })];
  }
  if (route === 'responses') {
    return [namedEvent('error', { code: 'server_error', message: error.message, param: null })];
  }
  const fields = errorFields(dialect, error);
  const event = dataEvent({ error: dialect === 'sglang' ? { object: 'error', ...fields } : fields });
  return DIALECT_TRAITS[dialect].doneAfterError ? [event, DONE_EVENT] : [event];
}
