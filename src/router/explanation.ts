import type { CandidateVerdict, ChosenBecause, NotChosenBecause } from '../domain/balancing/candidate.js';
import type { ApiErrorCode } from '../shared/errors.js';
import type { StandInReason } from './resolve-model.js';
import type { Usage } from './bytes/usage.js';

/** `fallback`: the first attempt with another model, after those with the one before had failed. */
export type AttemptKind = 'first' | 'retry' | 'fresh_socket' | 'hedge' | 'fallback';

/** One choice of an endpoint: every candidate, and what became of it. */
export interface ExplainedChoice {
  /** Milliseconds after the request's arrival. */
  readonly atMs: number;
  readonly policy: string;
  readonly chosen: string | undefined;
  readonly because: ChosenBecause | NotChosenBecause;
  readonly predictedCachedTokens?: number;
  readonly costSeconds?: number;
  readonly candidates: readonly CandidateVerdict[];
}

/** One attempt on an engine, times in milliseconds after the request's arrival. */
export interface ExplainedAttempt {
  /** 1 is the first. */
  readonly number: number;
  readonly endpoint: string;
  readonly generation: number;
  readonly kind: AttemptKind;
  readonly startedMs: number;
  readonly connectedMs?: number;
  /** The engine's headers. */
  readonly headMs?: number;
  readonly firstEventMs?: number;
  readonly endedMs?: number;
  readonly reusedSocket?: boolean;
  readonly status?: number;
  /** `ok`, or what went wrong. */
  readonly outcome?: string;
  /** What was decided after a failure, e.g. `retry_elsewhere`. */
  readonly next?: string;
  readonly nextBecause?: string;
}

/** Everything the router knows about one request; what it does not know (yet) is absent. */
export interface RequestExplanation {
  readonly requestId: string;
  readonly receivedWallMs: number;
  readonly route: string;
  readonly model?: string;
  /** The name the client used, when it is an alias. */
  readonly alias?: string;
  /** The model the client asked for, when another one took the request, and why that did. */
  readonly insteadOf?: string;
  readonly insteadBecause?: StandInReason;
  /** Where the model asked for has canaries: `stable`, or the pool or model whose share the request is of. */
  readonly split?: string;
  /** Id of the API key, where keys are used. */
  readonly key?: string;
  readonly routingProfile?: string;
  readonly stream?: boolean;
  readonly bodyBytes?: number;
  readonly estimatedPromptTokens?: number;
  /** Requests that waited for the model already when this one had to; by priority and share some of them go after it. */
  readonly queuedBehind?: number;
  /** Phases reached, in order, with the time of each. */
  readonly phases: readonly { readonly phase: string; readonly atMs: number }[];
  readonly choices: readonly ExplainedChoice[];
  readonly attempts: readonly ExplainedAttempt[];
  readonly status?: number;
  /** Code of the gateway's own error or, after commit, of what broke the answer. */
  readonly error?: ApiErrorCode;
  /** `x-should-retry: false` was sent: every replica was tried, or nobody else was asked on purpose. */
  readonly allTried?: boolean;
  readonly usage?: Usage;
  readonly endedMs?: number;
}
