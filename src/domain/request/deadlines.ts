/** The five waits a request may be cut at; each has its own error code and metric label. */
export type DeadlineKind = 'queue' | 'connect' | 'firstToken' | 'idle' | 'total';

/** Deadlines of a routing profile, milliseconds; 0 switches one off. */
export interface DeadlinePolicy {
  /** Waiting for an endpoint with room. */
  readonly queueMs: number;
  /** Until the engine's socket is connected. */
  readonly connectMs: number;
  /** From the request being sent to the first event of the answer (the whole answer when it is not a stream). */
  readonly firstTokenMs: number;
  /** Added to `firstTokenMs` per 1,000 estimated prompt tokens. */
  readonly firstTokenPer1kTokensMs: number;
  /** Between two events of a stream. Comments are no progress; time the client is the slow one does not count. */
  readonly idleMs: number;
  /** From the request's arrival to its end. */
  readonly totalMs: number;
  /** How long a stream's status may be held back for failover; then headers and keep-alive comments go out. */
  readonly holdHeadersMs: number;
}

/** What DESIGN and configuration call the `interactive` profile. */
export const DEFAULT_DEADLINES: DeadlinePolicy = {
  queueMs: 30_000,
  connectMs: 2_000,
  firstTokenMs: 60_000,
  firstTokenPer1kTokensMs: 1_000,
  idleMs: 60_000,
  totalMs: 0,
  holdHeadersMs: 10_000,
};

/**
 * Milliseconds to wait for the first token, or undefined when that deadline is off. Grows with the prompt: a fixed
 * wait gives up on an engine in the middle of a long prefill and makes the next one start it all over.
 */
export function firstTokenDeadlineMs(policy: DeadlinePolicy, promptTokens: number): number | undefined {
  if (policy.firstTokenMs === 0) return undefined;
  return policy.firstTokenMs + (Math.max(0, promptTokens) / 1_000) * policy.firstTokenPer1kTokensMs;
}

/**
 * Milliseconds a phase may still take when it starts at `nowMs`: its own deadline cut by what is left of the whole.
 * Undefined: no limit. `kind` names the deadline that would strike, for code and metric.
 */
export function phaseDeadline(
  kind: Exclude<DeadlineKind, 'total'>,
  policy: DeadlinePolicy,
  facts: { readonly arrivedAtMs: number; readonly promptTokens: number },
  nowMs: number,
): { readonly kind: DeadlineKind; readonly inMs: number } | undefined {
  const own = ownDeadlineMs(kind, policy, facts.promptTokens);
  const total = policy.totalMs === 0 ? undefined : Math.max(0, facts.arrivedAtMs + policy.totalMs - nowMs);
  if (own === undefined) return total === undefined ? undefined : { kind: 'total', inMs: total };
  return total !== undefined && total < own ? { kind: 'total', inMs: total } : { kind, inMs: own };
}

function ownDeadlineMs(
  kind: Exclude<DeadlineKind, 'total'>,
  policy: DeadlinePolicy,
  promptTokens: number,
): number | undefined {
  switch (kind) {
    case 'queue':
      return policy.queueMs || undefined;
    case 'connect':
      return policy.connectMs || undefined;
    case 'firstToken':
      return firstTokenDeadlineMs(policy, promptTokens);
    case 'idle':
      return policy.idleMs || undefined;
  }
}

/** Where a stream stands when it is asked whether the idle deadline has struck. */
export interface StreamProgress {
  /** When the engine last sent an event. */
  readonly lastEventAtMs: number;
  /** When the client last stopped (true) or resumed taking bytes. */
  readonly clientSlow: boolean;
  readonly clientResumedAtMs: number;
}

/**
 * Milliseconds until the idle deadline strikes; undefined while it does not run, because the client is the slow one
 * or because it is off. An engine that is paused by back-pressure cannot send and must not be blamed.
 */
export function idleLeftMs(
  policy: DeadlinePolicy,
  progress: StreamProgress,
  nowMs: number,
): number | undefined {
  if (policy.idleMs === 0 || progress.clientSlow) return undefined;
  const since = Math.max(progress.lastEventAtMs, progress.clientResumedAtMs);
  return Math.max(0, since + policy.idleMs - nowMs);
}

/** Bytes of prompt text per token, before a model's own ratio is learned: English in JSON. */
export const PRIOR_BYTES_PER_TOKEN = 4;

/** Prompt tokens a body of `promptBytes` is likely to hold. */
export function estimatePromptTokens(promptBytes: number, bytesPerToken = PRIOR_BYTES_PER_TOKEN): number {
  return Math.ceil(promptBytes / bytesPerToken);
}
