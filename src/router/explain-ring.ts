import type {
  Candidate,
  CandidateVerdict,
  Choice,
  ChosenBecause,
  NotChosenBecause,
} from '../domain/balancing/candidate.js';
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
export class ExplainedAttempt {
  connectedMs: number | undefined = undefined;
  firstEventMs: number | undefined = undefined;
  endedMs: number | undefined = undefined;
  reusedSocket: boolean | undefined = undefined;
  status: number | undefined = undefined;
  /** `ok`, or what went wrong. */
  outcome: string | undefined = undefined;
  /** What was decided after a failure, e.g. `retry_elsewhere`. */
  next: string | undefined = undefined;
  nextBecause: string | undefined = undefined;

  constructor(
    /** 1 is the first. */
    readonly number: number,
    readonly endpoint: string,
    readonly generation: number,
    readonly kind: 'first' | 'retry' | 'fresh_socket' | 'hedge',
    readonly startedMs: number,
  ) {}
}

/** Everything the router knows about one request; what it does not know (yet) is absent. */
export interface RequestExplanation {
  readonly requestId: string;
  readonly receivedWallMs: number;
  readonly route: string;
  readonly model?: string;
  /** The name the client used, when it is an alias. */
  readonly alias?: string;
  readonly routingProfile?: string;
  readonly stream?: boolean;
  readonly bodyBytes?: number;
  readonly estimatedPromptTokens?: number;
  /** Phases reached, in order, with the time of each. */
  readonly phases: readonly { readonly phase: string; readonly atMs: number }[];
  readonly choices: readonly ExplainedChoice[];
  readonly attempts: readonly ExplainedAttempt[];
  readonly status?: number;
  /** Code of the gateway's own error or, after commit, of what broke the answer. */
  readonly error?: ApiErrorCode;
  /** `x-should-retry: false` was sent: every replica that might have answered was tried. */
  readonly allTried?: boolean;
  readonly usage?: Usage;
  readonly endedMs?: number;
}

/**
 * What a request leaves behind while it runs, kept as it falls: a request costs a handful of objects here, and only
 * one that is asked about is put into words.
 */
export class RequestTrace {
  /** Name, time, name, time … in ms after arrival. */
  readonly phases: (string | number)[] = [];
  readonly choices: Choice<{ readonly id: string } & Candidate>[] = [];
  readonly choiceAtMs: number[] = [];
  readonly attempts: ExplainedAttempt[] = [];
  model: string | undefined;
  alias: string | undefined;
  routingProfile: string | undefined;
  stream: boolean | undefined;
  bodyBytes: number | undefined;
  estimatedPromptTokens: number | undefined;
  status: number | undefined;
  error: ApiErrorCode | undefined;
  allTried = false;
  usage: Usage | undefined;
  endedMs: number | undefined;

  constructor(
    readonly requestId: string,
    readonly receivedWallMs: number,
    readonly route: string,
  ) {}

  explanation(): RequestExplanation {
    const { requestId, receivedWallMs, route, attempts } = this;
    const { model, alias, routingProfile, stream, bodyBytes, estimatedPromptTokens } = this;
    const { status, error, usage, endedMs } = this;
    const phases = Array.from({ length: this.phases.length / 2 }, (_, i) => ({
      phase: String(this.phases[2 * i]),
      atMs: Number(this.phases[2 * i + 1]),
    }));
    return {
      requestId,
      receivedWallMs,
      route,
      ...(model === undefined ? {} : { model }),
      ...(alias === undefined ? {} : { alias }),
      ...(routingProfile === undefined ? {} : { routingProfile }),
      ...(stream === undefined ? {} : { stream }),
      ...(bodyBytes === undefined ? {} : { bodyBytes }),
      ...(estimatedPromptTokens === undefined ? {} : { estimatedPromptTokens }),
      phases,
      choices: this.choices.map((choice, i) => explainedChoice(choice, this.choiceAtMs[i] ?? 0)),
      attempts,
      ...(status === undefined ? {} : { status }),
      ...(error === undefined ? {} : { error }),
      ...(this.allTried ? { allTried: true } : {}),
      ...(usage === undefined ? {} : { usage }),
      ...(endedMs === undefined ? {} : { endedMs }),
    };
  }
}

function explainedChoice(choice: Choice<{ readonly id: string } & Candidate>, atMs: number): ExplainedChoice {
  const common = {
    atMs,
    policy: choice.policy,
    chosen: choice.endpoint?.id,
    because: choice.because,
    candidates: choice.candidates ?? [],
  };
  if (choice.endpoint === undefined) return common;
  const { predictedCachedTokens, costSeconds } = choice;
  return { ...common, predictedCachedTokens, costSeconds };
}

/** The last requests, by id; bounded. A repeated id shows its newest request. */
export class ExplainRing {
  private readonly slots: (RequestTrace | undefined)[];
  private readonly byId = new Map<string, RequestTrace>();
  private at = 0;

  constructor(size = EXPLAIN_RING_MAX) {
    this.slots = Array.from<RequestTrace | undefined>({ length: size });
  }

  add(trace: RequestTrace): void {
    const old = this.slots[this.at];
    if (old !== undefined && this.byId.get(old.requestId) === old) this.byId.delete(old.requestId);
    this.slots[this.at] = trace;
    this.at = (this.at + 1) % this.slots.length;
    this.byId.set(trace.requestId, trace);
  }

  get(requestId: string): RequestExplanation | undefined {
    return this.byId.get(requestId)?.explanation();
  }
}
