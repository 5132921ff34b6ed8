/** How an attempt failed, as far as the transport knows. A status is a failure only when it is an error status. */
export type AttemptFailure =
  | { readonly kind: 'connect_refused' | 'connect_timeout' | 'connect_failed' }
  /** Reset before any response byte. `reusedSocket`: on a keep-alive socket that had served a request before. */
  | { readonly kind: 'reset_before_response'; readonly reusedSocket: boolean }
  /** Headers came, then the connection ended before the answer was complete. */
  | { readonly kind: 'reset_in_response' }
  | { readonly kind: 'protocol_error' | 'redirect' }
  | { readonly kind: 'first_token_timeout' | 'idle_timeout' | 'total_timeout' }
  | { readonly kind: 'status'; readonly status: number; readonly retryAfterMs?: number | undefined }
  /** A 200 whose first event is an error; `status` where the event carries one. */
  | { readonly kind: 'error_event'; readonly status: number | undefined }
  | { readonly kind: 'client_closed' | 'shutting_down' };

/** Reason of a retry, as metric label and in explain. */
export type RetryReason =
  | 'connect_refused'
  | 'connect_timeout'
  | 'connect_failed'
  | 'stale_socket'
  | 'reset_before_response'
  | 'reset_before_answer'
  | 'protocol_error'
  | 'first_token_timeout'
  | 'engine_busy'
  | 'engine_error'
  | 'bad_gateway';

/**
 * What a failure says about the endpoint. `fault` counts towards ejection, `first_token_timeout` towards proof of
 * death, `busy` earns a short cool-down and no fault, `none` is nobody's or the client's doing.
 */
export type Blame = 'fault' | 'first_token_timeout' | 'busy' | 'none';

/** Why there is no further attempt. */
export type GiveUpReason =
  | 'committed'
  | 'client_closed'
  | 'shutting_down'
  | 'deadline'
  | 'not_retryable'
  /** Somebody else might answer, but a further try would only repeat work that is too dear to be done in vain. */
  | 'not_worth_repeating'
  | 'attempts_exhausted'
  | 'budget_exhausted'
  | 'all_tried';

export type RetryDecision =
  /** Another endpoint; the failed one is excluded. */
  | { readonly action: 'retry_elsewhere'; readonly reason: RetryReason; readonly blame: Blame }
  /** The same endpoint once more on a fresh connection; costs no budget and blames nobody. */
  | { readonly action: 'retry_fresh_socket'; readonly reason: 'stale_socket'; readonly blame: 'none' }
  /** The engine's own error answer goes to the client as it is. */
  | { readonly action: 'relay'; readonly because: GiveUpReason; readonly blame: Blame }
  /** The gateway's own error, or after commit the one error event. */
  | { readonly action: 'give_up'; readonly because: GiveUpReason; readonly blame: Blame };

/** Where the request stands when an attempt of it fails. */
export interface RetryState {
  /** The first engine event has been relayed: from here on there is no other answer. */
  readonly answerCommitted: boolean;
  /** Attempts made, the failed one included; a fresh-socket retry counts as the same attempt. */
  readonly attempts: number;
  readonly maxAttempts: number;
  /** The failed attempt already was a fresh-socket retry. */
  readonly freshSocketTried: boolean;
  /**
   * Retries so far whose failed attempt may have made the engine work: after a reset, a 500, a first-token timeout.
   * One is allowed per request. A prompt that kills its engine would otherwise kill every engine in turn, and no
   * byte received is no proof that nothing was begun.
   */
  readonly retriesOfStartedWork: number;
  /** Endpoints of the model that this request has not tried and that might take it. */
  readonly endpointsLeft: number;
  /** Whether the retry budget grants one more; see `RetryBudget`. */
  readonly budgetLeft: boolean;
  /** Estimated prompt tokens; see `MAX_TIMEOUT_RETRY_TOKENS`. */
  readonly promptTokens: number;
}

/**
 * Above this, a first-token timeout is final: the prompt takes long everywhere, and a second engine that starts the
 * same prefill only doubles the load that made the first one slow.
 */
export const MAX_TIMEOUT_RETRY_TOKENS = 32_000;

/** See `RetryState.retriesOfStartedWork`. */
const MAX_RETRIES_OF_STARTED_WORK = 1;

/** How a kind of failure is treated before commit. */
interface Treatment {
  readonly retry: RetryReason | undefined;
  readonly blame: Blame;
  /** The engine gave an answer that can be relayed. */
  readonly answered: boolean;
}

/** Decides what follows a failed attempt. After commit there is no retry, whatever happened. */
export function decideRetry(failure: AttemptFailure, state: RetryState): RetryDecision {
  const treatment = treat(failure);
  const { blame } = treatment;
  const ended = endedBy(failure);
  if (ended !== undefined) return { action: 'give_up', because: ended, blame };
  if (state.answerCommitted) return { action: 'give_up', because: 'committed', blame };
  if (isStaleSocket(failure) && !state.freshSocketTried) {
    return { action: 'retry_fresh_socket', reason: 'stale_socket', blame: 'none' };
  }
  const because = noRetryBecause(failure, treatment, state);
  if (because === undefined && treatment.retry !== undefined) {
    return { action: 'retry_elsewhere', reason: treatment.retry, blame };
  }
  return { action: treatment.answered ? 'relay' : 'give_up', because: because ?? 'not_retryable', blame };
}

/**
 * True when the client is to be told `x-should-retry: false`: its SDK tries every 5xx again, and those tries would only
 * repeat ours. So it is when every endpoint that might have answered was tried, and when there was no further try on
 * purpose: the work is not worth repeating, or the failure would be the same everywhere (a redirect, a 501). Limits that
 * protect the fleet are no such ending: later, somebody who was not asked may well answer. `engines`: how many were asked.
 */
export function clientShouldNotRetry(
  decision: RetryDecision,
  failure: AttemptFailure,
  engines: number,
): boolean {
  if (decision.action !== 'give_up' && decision.action !== 'relay') return false;
  switch (decision.because) {
    case 'all_tried':
      // A single busy engine asks the client to come back; only when all were asked is that pointless.
      return engines > 1 || decision.blame !== 'busy';
    case 'not_worth_repeating':
      return true;
    case 'not_retryable':
      return sameEverywhere(failure);
    case 'committed':
    case 'client_closed':
    case 'shutting_down':
    case 'deadline':
    case 'attempts_exhausted':
    case 'budget_exhausted':
      return false;
  }
}

/**
 * Whether another model may answer in the place of one that gave up for this reason: its endpoints did not do it. Not
 * where the request itself is at fault, or is suspected to be.
 */
export function othersMayDo(because: GiveUpReason): boolean {
  return because === 'all_tried' || because === 'attempts_exhausted' || because === 'budget_exhausted';
}

/** The client would retry this by its status, though it says "cannot", not "broken". */
function sameEverywhere(failure: AttemptFailure): boolean {
  if (failure.kind === 'redirect') return true;
  if (failure.kind !== 'status' && failure.kind !== 'error_event') return false;
  return failure.status === 501 || failure.status === 505;
}

function endedBy(failure: AttemptFailure): GiveUpReason | undefined {
  if (failure.kind === 'client_closed' || failure.kind === 'shutting_down') return failure.kind;
  return failure.kind === 'total_timeout' ? 'deadline' : undefined;
}

function isStaleSocket(failure: AttemptFailure): boolean {
  return failure.kind === 'reset_before_response' && failure.reusedSocket;
}

function noRetryBecause(
  failure: AttemptFailure,
  treatment: Treatment,
  state: RetryState,
): GiveUpReason | undefined {
  if (treatment.retry === undefined) return 'not_retryable';
  // Before any other limit: only this reason tells the client that its own retries are in vain too.
  if (state.endpointsLeft <= 0) return 'all_tried';
  if (mayHaveStarted(treatment.retry)) {
    if (state.retriesOfStartedWork >= MAX_RETRIES_OF_STARTED_WORK) return 'not_worth_repeating';
    const timedOut = failure.kind === 'first_token_timeout';
    if (timedOut && state.promptTokens > MAX_TIMEOUT_RETRY_TOKENS) return 'not_worth_repeating';
  }
  if (state.attempts >= state.maxAttempts) return 'attempts_exhausted';
  return state.budgetLeft || !costsBudget(treatment.retry) ? undefined : 'budget_exhausted';
}

/**
 * Whether a retry for this reason is taken out of the retry budget. The budget keeps a slow or failing fleet from being
 * asked everything twice. A lost connection is another matter: whatever the engine was doing for the request ended with
 * it, so moving on adds no load, and a dying engine drops all its requests at once, more than any share would allow.
 */
export function costsBudget(reason: RetryReason): boolean {
  switch (reason) {
    case 'connect_refused':
    case 'connect_failed':
    case 'stale_socket':
    case 'reset_before_response':
    case 'reset_before_answer':
      return false;
    case 'connect_timeout':
    case 'protocol_error':
    case 'first_token_timeout':
    case 'engine_busy':
    case 'engine_error':
    case 'bad_gateway':
      return true;
  }
}

/** Whether a retry for this reason counts as `RetryState.retriesOfStartedWork`. */
export function mayHaveStarted(reason: RetryReason): boolean {
  switch (reason) {
    case 'reset_before_response':
    case 'reset_before_answer':
    case 'protocol_error':
    case 'first_token_timeout':
    case 'engine_error':
      return true;
    case 'connect_refused':
    case 'connect_timeout':
    case 'connect_failed':
    case 'stale_socket':
    case 'engine_busy':
    case 'bad_gateway':
      return false;
  }
}

function treat(failure: AttemptFailure): Treatment {
  switch (failure.kind) {
    case 'connect_refused':
    case 'connect_timeout':
    case 'connect_failed':
    case 'protocol_error':
      return { retry: failure.kind, blame: 'fault', answered: false };
    case 'reset_before_response':
      return { retry: 'reset_before_response', blame: 'fault', answered: false };
    case 'reset_in_response':
      return { retry: 'reset_before_answer', blame: 'fault', answered: false };
    case 'redirect':
      // An engine that redirects is set up wrongly; following could leak the prompt, repeating helps nobody.
      return { retry: undefined, blame: 'fault', answered: false };
    case 'first_token_timeout':
      return { retry: 'first_token_timeout', blame: 'first_token_timeout', answered: false };
    case 'idle_timeout':
      return { retry: undefined, blame: 'fault', answered: false };
    case 'total_timeout':
    case 'client_closed':
    case 'shutting_down':
      return { retry: undefined, blame: 'none', answered: false };
    case 'status':
      return treatStatus(failure.status);
    case 'error_event':
      // An event without a status is an engine's own failure: clean refusals carry one.
      return treatStatus(failure.status ?? 500);
  }
}

function treatStatus(status: number): Treatment {
  switch (status) {
    case 429:
    case 503:
    // Anthropic's "overloaded".
    case 529:
      return { retry: 'engine_busy', blame: 'busy', answered: true };
    case 502:
    case 504:
      return { retry: 'bad_gateway', blame: 'fault', answered: true };
    case 500:
      return { retry: 'engine_error', blame: 'fault', answered: true };
    default:
      // 4xx is the request's own fault everywhere; other 5xx (501, 505) say "cannot", not "broken".
      return { retry: undefined, blame: 'none', answered: true };
  }
}
