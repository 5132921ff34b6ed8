import type { CandidateVerdict, ChosenBecause, NotChosenBecause } from '../domain/balancing/candidate.js';
import type { Usage } from './bytes/usage.js';
import type { ApiErrorCode } from '../shared/errors.js';

/** Requests remembered; older ones are forgotten. About 1 KiB each with a few endpoints. */
export const EXPLAIN_RING_MAX = 2_048;

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
  readonly kind: 'first' | 'retry' | 'fresh_socket' | 'hedge';
  readonly startedMs: number;
  connectedMs?: number;
  headMs?: number;
  firstEventMs?: number;
  endedMs?: number;
  reusedSocket?: boolean;
  status?: number;
  /** `ok`, or what went wrong. */
  outcome?: string;
  /** What was decided after a failure, e.g. `retry_elsewhere`. */
  next?: string;
  nextBecause?: string;
}

/** Everything the router knows about one request. */
export interface RequestExplanation {
  readonly requestId: string;
  readonly receivedWallMs: number;
  readonly route: string;
  model?: string;
  /** The name the client used, when it is an alias. */
  alias?: string;
  routingProfile?: string;
  stream?: boolean;
  bodyBytes?: number;
  estimatedPromptTokens?: number;
  /** Phases reached, in order, with the time of each. */
  readonly phases: { readonly phase: string; readonly atMs: number }[];
  readonly choices: ExplainedChoice[];
  readonly attempts: ExplainedAttempt[];
  status?: number;
  /** Code of the gateway's own error or, after commit, of what broke the answer. */
  error?: ApiErrorCode;
  /** `x-should-retry: false` was sent: every replica that might have answered was tried. */
  allTried?: boolean;
  usage?: Usage;
  endedMs?: number;
}

/** The last requests, by id; bounded. A repeated id shows its newest request. */
export class ExplainRing {
  private readonly slots: (RequestExplanation | undefined)[];
  private readonly byId = new Map<string, RequestExplanation>();
  private at = 0;

  constructor(size = EXPLAIN_RING_MAX) {
    this.slots = Array.from<RequestExplanation | undefined>({ length: size });
  }

  add(explanation: RequestExplanation): void {
    const old = this.slots[this.at];
    if (old !== undefined && this.byId.get(old.requestId) === old) this.byId.delete(old.requestId);
    this.slots[this.at] = explanation;
    this.at = (this.at + 1) % this.slots.length;
    this.byId.set(explanation.requestId, explanation);
  }

  get(requestId: string): RequestExplanation | undefined {
    return this.byId.get(requestId);
  }
}
