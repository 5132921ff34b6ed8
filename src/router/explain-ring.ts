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
  /** 1 is the first. */
  number = 0;
  endpoint = '';
  generation = 0;
  kind: AttemptKind = 'first';
  startedMs = 0;
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

  begin(number: number, endpoint: string, generation: number, kind: AttemptKind, startedMs: number): void {
    this.number = number;
    this.endpoint = endpoint;
    this.generation = generation;
    this.kind = kind;
    this.startedMs = startedMs;
    this.connectedMs = this.firstEventMs = this.endedMs = undefined;
    this.reusedSocket = this.status = this.outcome = undefined;
    this.next = this.nextBecause = undefined;
  }
}

export type AttemptKind = 'first' | 'retry' | 'fresh_socket' | 'hedge';

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

type AnyChoice = Choice<{ readonly id: string } & Candidate>;

/**
 * What a request leaves behind, kept as it falls: only one that is asked about is put into words. Traces are used over
 * and over, since thousands of small objects that live a second and die are what garbage collection is slowest at.
 */
export class RequestTrace {
  requestId = '';
  receivedWallMs = 0;
  route = '';
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
  private readonly phases: string[] = [];
  private readonly phaseAtMs: number[] = [];
  private phaseCount = 0;
  private readonly choices: AnyChoice[] = [];
  private readonly choiceAtMs: number[] = [];
  private choiceCount = 0;
  private readonly attempts: ExplainedAttempt[] = [];
  private attemptCount = 0;

  begin(requestId: string, receivedWallMs: number, route: string): this {
    this.requestId = requestId;
    this.receivedWallMs = receivedWallMs;
    this.route = route;
    this.model = this.alias = this.routingProfile = undefined;
    this.stream = this.bodyBytes = this.estimatedPromptTokens = undefined;
    this.status = this.error = this.usage = this.endedMs = undefined;
    this.allTried = false;
    this.phaseCount = this.choiceCount = this.attemptCount = 0;
    return this;
  }

  entered(phase: string, atMs: number): void {
    this.phases[this.phaseCount] = phase;
    this.phaseAtMs[this.phaseCount++] = atMs;
  }

  chose(choice: AnyChoice, atMs: number): void {
    this.choices[this.choiceCount] = choice;
    this.choiceAtMs[this.choiceCount++] = atMs;
  }

  attempt(endpoint: string, generation: number, kind: AttemptKind, startedMs: number): ExplainedAttempt {
    const attempt = (this.attempts[this.attemptCount++] ??= new ExplainedAttempt());
    attempt.begin(this.attemptCount, endpoint, generation, kind, startedMs);
    return attempt;
  }

  /** Policy of the last choice; empty before the first. */
  get policy(): string {
    return this.choices[this.choiceCount - 1]?.policy ?? '';
  }

  /** Where the request went last. */
  get lastEndpoint(): string | undefined {
    return this.attempts[this.attemptCount - 1]?.endpoint;
  }

  explanation(): RequestExplanation {
    const { requestId, receivedWallMs, route } = this;
    const { model, alias, routingProfile, stream, bodyBytes, estimatedPromptTokens } = this;
    const { status, error, usage, endedMs } = this;
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
      phases: this.phases
        .slice(0, this.phaseCount)
        .map((phase, i) => ({ phase, atMs: this.phaseAtMs[i] ?? 0 })),
      choices: this.choices
        .slice(0, this.choiceCount)
        .map((choice, i) => explainedChoice(choice, this.choiceAtMs[i] ?? 0)),
      attempts: this.attempts.slice(0, this.attemptCount).map((attempt) => Object.assign({}, attempt)),
      ...(status === undefined ? {} : { status }),
      ...(error === undefined ? {} : { error }),
      ...(this.allTried ? { allTried: true } : {}),
      ...(usage === undefined ? {} : { usage }),
      ...(endedMs === undefined ? {} : { endedMs }),
    };
  }
}

function explainedChoice(choice: AnyChoice, atMs: number): ExplainedChoice {
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

/** The last requests, running ones included; bounded. A repeated id shows its newest request. */
export class ExplainRing {
  private readonly slots: (RequestTrace | undefined)[];
  private at = 0;

  constructor(size = EXPLAIN_RING_MAX) {
    this.slots = Array.from<RequestTrace | undefined>({ length: size });
  }

  /** The trace of a request that begins, in place of the oldest one. */
  begin(requestId: string, receivedWallMs: number, route: string): RequestTrace {
    const old = this.slots[this.at];
    // A request that still runs keeps writing into its own; it only is no longer found.
    const trace = old?.endedMs === undefined ? new RequestTrace() : old;
    this.slots[this.at] = trace;
    this.at = (this.at + 1) % this.slots.length;
    return trace.begin(requestId, receivedWallMs, route);
  }

  /** Looks through all of them: asked by people, seldom, where an index would be kept up by every request. */
  get(requestId: string): RequestExplanation | undefined {
    const { length } = this.slots;
    for (let back = 1; back <= length; back++) {
      const trace = this.slots[(this.at - back + length) % length];
      if (trace?.requestId === requestId) return trace.explanation();
    }
    return undefined;
  }
}
