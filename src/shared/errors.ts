/**
 * The one catalogue of errors. `docs/errors.md` is held equal to it by a test.
 *
 * Operating errors (a client's mistake, an engine's failure, a refused command) are values with a code from here;
 * programmer errors are plain exceptions and end the process loudly.
 */

/** Exit codes of every `llmgw` command. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  notAuthorised: 4,
  unreachable: 5,
  timedOut: 6,
  conflict: 7,
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** OpenAI's coarse error classes, used in `error.type`. */
export type ApiErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'permission_error'
  | 'not_found_error'
  | 'rate_limit_error'
  | 'upstream_error'
  | 'timeout_error'
  | 'service_unavailable_error'
  | 'server_error';

interface ApiErrorEntry {
  /** HTTP status while the status is not committed. */
  readonly status: number;
  readonly type: ApiErrorType;
  /** When it happens, one sentence for docs/errors.md. */
  readonly when: string;
}

/** Errors the gateway makes on the client API. */
export const API_ERRORS = {
  invalid_json: {
    status: 400,
    type: 'invalid_request_error',
    when: 'The body is not valid JSON, so it cannot be routed.',
  },
  missing_model: { status: 400, type: 'invalid_request_error', when: 'The body names no model.' },
  invalid_model: { status: 400, type: 'invalid_request_error', when: 'The model is not a non-empty string.' },
  duplicate_model: {
    status: 400,
    type: 'invalid_request_error',
    when: 'The body names the model more than once.',
  },
  bad_request: {
    status: 400,
    type: 'invalid_request_error',
    when: 'The request itself is malformed: no Host header or two, a body on GET, chunks that are none, a form that cannot be read.',
  },
  invalid_api_key: {
    status: 401,
    type: 'authentication_error',
    when: 'API keys are required and the given one is missing, unknown, expired or revoked; without the requirement, only what begins like a key and is none.',
  },
  model_not_allowed: { status: 403, type: 'permission_error', when: 'The API key does not cover the model.' },
  model_not_found: {
    status: 404,
    type: 'invalid_request_error',
    when: 'No model or alias of that name is configured.',
  },
  not_found: { status: 404, type: 'invalid_request_error', when: 'The path is not part of the API.' },
  method_not_allowed: {
    status: 405,
    type: 'invalid_request_error',
    when: 'The path exists, the method does not; `Allow` lists what does.',
  },
  request_too_large: {
    status: 413,
    type: 'invalid_request_error',
    when: 'The body is larger than `router.bodyLimit`.',
  },
  unsupported_media_type: {
    status: 415,
    type: 'invalid_request_error',
    when: 'The content type or content encoding is not one this route takes.',
  },
  header_fields_too_large: {
    status: 431,
    type: 'invalid_request_error',
    when: 'More than 16 KiB or 100 fields of request headers.',
  },
  rate_limit_exceeded: { status: 429, type: 'rate_limit_error', when: 'A limit of the API key is used up.' },
  queue_full: { status: 429, type: 'rate_limit_error', when: 'The queue of the model is full.' },
  client_closed: {
    status: 499,
    type: 'invalid_request_error',
    when: 'The client left; only in logs and metrics.',
  },
  internal_error: {
    status: 500,
    type: 'server_error',
    when: 'A fault of the gateway itself; the log has it under the request id.',
  },
  upstream_connect_failed: {
    status: 502,
    type: 'upstream_error',
    when: 'No engine could be connected to, after retries.',
  },
  upstream_reset: {
    status: 502,
    type: 'upstream_error',
    when: 'The engine closed the connection before it answered, after retries.',
  },
  upstream_protocol_error: {
    status: 502,
    type: 'upstream_error',
    when: 'The engine answered something that is not valid HTTP, or a page for browsers.',
  },
  bad_upstream_redirect: {
    status: 502,
    type: 'upstream_error',
    when: 'The engine answered with a redirect; redirects are never followed.',
  },
  upstream_aborted: {
    status: 502,
    type: 'upstream_error',
    when: 'The engine broke off in the middle of the answer; one event in the stream.',
  },
  no_ready_replica: {
    status: 503,
    type: 'service_unavailable_error',
    when: 'The model is known but nothing can serve it now.',
  },
  queue_timeout: {
    status: 503,
    type: 'service_unavailable_error',
    when: 'The request waited as long as `deadlines.queue` allows, or would have had to wait longer.',
  },
  shutting_down: {
    status: 503,
    type: 'service_unavailable_error',
    when: 'The gateway or the replica is being stopped.',
  },
  connect_timeout: {
    status: 504,
    type: 'timeout_error',
    when: 'No connection to an engine within `deadlines.connect`, after retries.',
  },
  first_token_timeout: {
    status: 504,
    type: 'timeout_error',
    when: 'No first token within `deadlines.firstToken`.',
  },
  idle_timeout: {
    status: 504,
    type: 'timeout_error',
    when: 'No event for `deadlines.idle` in the middle of the answer; one event in the stream.',
  },
  total_timeout: {
    status: 504,
    type: 'timeout_error',
    when: 'The request took longer than `deadlines.total`.',
  },
} as const satisfies Record<string, ApiErrorEntry>;

export type ApiErrorCode = keyof typeof API_ERRORS;

/** An error of the admin API and of `ctl`. */
export const ADMIN_ERRORS = {
  invalid_argument: {
    status: 400,
    exit: EXIT.usage,
    when: 'A field or parameter is wrong; `field` names it.',
  },
  invalid_configuration: {
    status: 400,
    exit: EXIT.usage,
    when: 'A configuration is not valid; `problems` lists everything that is wrong, with file, line and column. Nothing was changed.',
  },
  unauthenticated: {
    status: 401,
    exit: EXIT.notAuthorised,
    when: 'A token is needed and the given one is missing or unknown.',
  },
  forbidden: {
    status: 403,
    exit: EXIT.notAuthorised,
    when: 'The role of the token, or the Host or Origin header, does not allow the call.',
  },
  not_found: { status: 404, exit: EXIT.notFound, when: 'No such object; the message suggests near names.' },
  method_not_allowed: { status: 405, exit: EXIT.usage, when: 'The path exists, the method does not.' },
  conflict: { status: 409, exit: EXIT.conflict, when: 'The call contradicts the present state.' },
  refused: {
    status: 409,
    exit: EXIT.conflict,
    when: 'The call would break a promise, e.g. leave a model without a replica; the message names the consent it needs.',
  },
  request_too_large: { status: 413, exit: EXIT.usage, when: 'The body is larger than 1 MiB.' },
  unsupported_media_type: {
    status: 415,
    exit: EXIT.usage,
    when: 'State-changing calls need a JSON content type.',
  },
  store_unavailable: {
    status: 503,
    exit: EXIT.failed,
    when: 'The state store takes no writes; the message has the reason. Routing goes on.',
  },
  unreachable: { status: 0, exit: EXIT.unreachable, when: '`ctl` could not reach the server.' },
  timed_out: { status: 504, exit: EXIT.timedOut, when: 'What was waited for did not happen in time.' },
  internal_error: { status: 500, exit: EXIT.failed, when: 'A fault of the server itself; its log has it.' },
} as const satisfies Record<string, { status: number; exit: ExitCode; when: string }>;

export type AdminErrorCode = keyof typeof ADMIN_ERRORS;

/** An operating error on its way to an operator: through the admin API, or to the command line. */
export class OperatorError extends Error {
  override readonly name = 'OperatorError';
  constructor(
    readonly code: AdminErrorCode,
    message: string,
    readonly details: {
      /** The field or parameter at fault. */
      readonly field?: string;
      /** Next step for the operator. */
      readonly hint?: string;
      readonly cause?: unknown;
      /** Everything that is wrong with a configuration. */
      readonly problems?: readonly ConfigProblem[];
    } = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
  }
}

/** Refuses to start or reload: every problem of a configuration, at once. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  constructor(readonly problems: readonly ConfigProblem[]) {
    super(problems.map(formatProblem).join('\n'));
  }
}

export interface ConfigProblem {
  /** File name, environment variable or flag it stands in. */
  readonly source: string;
  readonly line?: number;
  readonly column?: number;
  /** Full path of the key, e.g. `models[1].profiles[0].gpus`. */
  readonly path?: string;
  readonly message: string;
}

/** `file:line:column: path: message`, without the parts that are unknown. */
export function formatProblem(problem: ConfigProblem): string {
  const place = [problem.source, problem.line, problem.column].filter((part) => part !== undefined).join(':');
  return [place, problem.path, problem.message]
    .filter((part) => part !== undefined && part !== '')
    .join(': ');
}

/** The messages of an error and its causes, outermost first; each says only its own part. */
export function errorChain(error: unknown): string[] {
  const messages: string[] = [];
  // Causes can form a ring by mistake; eight levels say everything a person reads.
  for (let at = error, depth = 0; at !== undefined && at !== null && depth < 8; depth++) {
    const message = at instanceof Error ? at.message : typeof at === 'string' ? at : JSON.stringify(at);
    // Whoever wraps an error in its own words needs no second saying.
    if (messages.at(-1)?.endsWith(message) !== true) messages.push(message);
    at = at instanceof Error ? at.cause : undefined;
  }
  return messages;
}
