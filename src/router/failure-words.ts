import type { AdmissionRefusal, AdmissionRefusalReason } from '../domain/request/admission.js';
import type { AttemptFailure } from '../domain/request/retry.js';
import type { ApiErrorCode } from '../shared/errors.js';
import type { GatewayError } from './dialects.js';

/** Longest part of a client's text that is shown back, characters. */
const SHOWN_MAX_CHARS = 100;

/** A name from a client, short and printable. */
export function shown(name: string): string {
  // oxlint-disable-next-line no-control-regex
  const clean = name.slice(0, SHOWN_MAX_CHARS + 1).replace(/[\0-\x1f\x7f-\x9f\u2028\u2029]/g, '?');
  return clean.length > SHOWN_MAX_CHARS ? `${clean.slice(0, SHOWN_MAX_CHARS)}…` : clean;
}

/** Why the queue sent a request away, and when somebody is expected to be there where nobody is. */
export function errorOfRefusal(
  { refused }: AdmissionRefusal,
  coming: { readonly expectedReadyMs?: number } | undefined,
): GatewayError {
  const words = REFUSAL_WORDS[refused];
  const expectedReadyMs = coming?.expectedReadyMs;
  if (expectedReadyMs === undefined) return { code: refused, message: words };
  const seconds = Math.max(1, Math.ceil(expectedReadyMs / 1_000));
  return { code: refused, message: `${words}; one is expected in about ${seconds} s` };
}

const REFUSAL_WORDS: Record<AdmissionRefusalReason, string> = {
  queue_full: 'too many requests are waiting for this model',
  queue_timeout: 'no replica of the model has room in time',
  no_ready_replica: 'no replica of the model is ready',
};

/** The error a client is told when no attempt worked; never where the engine is or what it is called. */
export function errorOfFailure(failure: AttemptFailure): GatewayError {
  switch (failure.kind) {
    case 'connect_refused':
    case 'connect_failed':
      return { code: 'upstream_connect_failed', message: 'no engine could be connected to' };
    case 'connect_timeout':
      return { code: 'connect_timeout', message: 'no connection to an engine in time' };
    case 'reset_before_response':
    case 'reset_in_response':
      return { code: 'upstream_reset', message: 'the engine closed the connection before it answered' };
    case 'protocol_error':
      return { code: 'upstream_protocol_error', message: 'the engine gave no valid answer' };
    case 'redirect':
      return { code: 'bad_upstream_redirect', message: 'the engine answered with a redirect' };
    case 'first_token_timeout':
      return { code: 'first_token_timeout', message: 'no first token in time' };
    case 'idle_timeout':
      return { code: 'idle_timeout', message: 'the engine sent nothing for longer than the idle deadline' };
    case 'total_timeout':
      return { code: 'total_timeout', message: 'the request took longer than its deadline' };
    case 'shutting_down':
      return { code: 'shutting_down', message: 'the replica is being stopped' };
    case 'client_closed':
      return { code: 'client_closed', message: 'the client left' };
    case 'status':
    case 'error_event':
      return { code: codeOfStatus(failure.status ?? 500), message: 'the engine reported an error' };
  }
}

/** The same after the answer had begun. */
export function errorOfBreak(failure: AttemptFailure): GatewayError {
  const { kind } = failure;
  if (kind !== 'reset_in_response' && kind !== 'reset_before_response' && kind !== 'protocol_error') {
    return errorOfFailure(failure);
  }
  return { code: 'upstream_aborted', message: 'the engine broke off in the middle of the answer' };
}

/** Class of an engine's status, for the form an error takes in a stream. */
function codeOfStatus(status: number): ApiErrorCode {
  if (status === 429) return 'rate_limit_exceeded';
  if (status === 503 || status === 529) return 'no_ready_replica';
  return status < 500 ? 'bad_request' : 'upstream_aborted';
}
