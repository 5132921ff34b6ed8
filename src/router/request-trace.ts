import type {
  Candidate,
  CandidateVerdict,
  Choice,
  ChosenBecause,
  NotChosenBecause,
  RejectReason,
} from '../domain/balancing/candidate.js';
import type { ApiErrorCode } from '../shared/errors.js';
import type { Usage } from './bytes/usage.js';
import type { StandInReason } from './resolve-model.js';
import type { AttemptKind, ExplainedAttempt, ExplainedChoice, RequestExplanation } from './explanation.js';

/*
 * Traces outlive their requests by seconds, which is the worst age for garbage collection: everything they hold is copied
 * twice and then thrown away, and that cost more than all other work on a small request. So traces are used over and
 * over, and hold numbers in typed arrays (a number in a field that may also be undefined is an object of its own) and
 * text only where it lives long anyway. The names below say what is where; unknown is NaN.
 */

type AnyChoice = Choice<{ readonly id: string } & Candidate>;

/** Phases remembered; a request that queues again and again has more, and the first ones tell enough. */
const PHASES_MAX = 12;
/**
 * Choices remembered; the last one stands in for all beyond them. One that waits long looks around many times, and traces
 * keep the memory they once needed.
 */
const CHOICES_MAX = 12;
/** Longest id kept; the front takes over no longer one. */
const ID_MAX_BYTES = 128;

const NUMBERS = {
  receivedWall: 0,
  bodyBytes: 1,
  promptTokens: 2,
  status: 3,
  ended: 4,
  queuedBehind: 5,
} as const;
const USAGE_AT = 6;
const NUMBER_COUNT = 9;

const TIMES = { started: 0, connected: 1, head: 2, firstEvent: 3, ended: 4, status: 5 } as const;
const TIME_COUNT = 6;

/** One attempt as it goes. */
export class AttemptTrace {
  number = 0;
  endpoint = '';
  generation = 0;
  kind: AttemptKind = 'first';
  reusedSocket: boolean | undefined;
  /** `ok`, or what went wrong. */
  outcome: string | undefined;
  /** What was decided after a failure, and why not more. */
  next: string | undefined;
  nextBecause: string | undefined;
  private readonly times = new Float64Array(TIME_COUNT);

  begin(number: number, endpoint: string, generation: number, kind: AttemptKind, startedMs: number): void {
    this.number = number;
    this.endpoint = endpoint;
    this.generation = generation;
    this.kind = kind;
    this.reusedSocket = undefined;
    this.outcome = this.next = this.nextBecause = undefined;
    forget(this.times);
    this.times[TIMES.started] = startedMs;
  }

  set connectedMs(atMs: number) {
    this.times[TIMES.connected] = atMs;
  }
  /** The engine's headers came so long after the connection stood. */
  set headAfterMs(ms: number) {
    const connected = this.times[TIMES.connected] ?? Number.NaN;
    this.times[TIMES.head] = (Number.isNaN(connected) ? (this.times[TIMES.started] ?? 0) : connected) + ms;
  }
  set firstEventMs(atMs: number) {
    this.times[TIMES.firstEvent] = atMs;
  }
  set endedMs(atMs: number) {
    this.times[TIMES.ended] = atMs;
  }
  set status(status: number) {
    this.times[TIMES.status] = status;
  }

  explained(): ExplainedAttempt {
    const { number, endpoint, generation, kind, reusedSocket, outcome, next, nextBecause, times } = this;
    return {
      number,
      endpoint,
      generation,
      kind,
      startedMs: times[TIMES.started] ?? 0,
      ...known('connectedMs', times[TIMES.connected]),
      ...known('headMs', times[TIMES.head]),
      ...known('firstEventMs', times[TIMES.firstEvent]),
      ...known('endedMs', times[TIMES.ended]),
      ...known('status', times[TIMES.status]),
      ...(reusedSocket === undefined ? {} : { reusedSocket }),
      ...(outcome === undefined ? {} : { outcome }),
      ...(next === undefined ? {} : { next }),
      ...(nextBecause === undefined ? {} : { nextBecause }),
    };
  }
}

const CHOICE = { at: 0, cachedTokens: 1, cost: 2 } as const;
const CHOICE_COUNT = 3;
const CANDIDATE = { generation: 0, requests: 1, tokens: 2, cachedTokens: 3, cost: 4 } as const;
const CANDIDATE_COUNT = 5;

/** One choice with all its candidates. */
class ChoiceTrace {
  private policy: string = '';
  private chosen: string | undefined;
  private because: ChosenBecause | NotChosenBecause = 'no_endpoint';
  private readonly numbers = new Float64Array(CHOICE_COUNT);
  private count = 0;
  private readonly ids: string[] = [];
  private readonly rejected: (RejectReason | undefined)[] = [];
  /** Grows to the fleet's size once and stays. */
  private candidates = new Float64Array(4 * CANDIDATE_COUNT);

  get policyName(): string {
    return this.policy;
  }

  take(choice: AnyChoice, atMs: number): void {
    this.policy = choice.policy;
    this.chosen = choice.endpoint?.id;
    this.because = choice.because;
    this.numbers[CHOICE.at] = atMs;
    this.numbers[CHOICE.cachedTokens] =
      choice.endpoint === undefined ? Number.NaN : choice.predictedCachedTokens;
    this.numbers[CHOICE.cost] = choice.endpoint === undefined ? Number.NaN : choice.costSeconds;
    const verdicts = choice.candidates ?? [];
    this.count = verdicts.length;
    if (this.candidates.length < this.count * CANDIDATE_COUNT) {
      this.candidates = new Float64Array(this.count * CANDIDATE_COUNT);
    }
    for (let i = 0; i < this.count; i++) this.takeCandidate(i, verdicts[i] as CandidateVerdict);
  }

  private takeCandidate(i: number, verdict: CandidateVerdict): void {
    const at = i * CANDIDATE_COUNT;
    const { candidates } = this;
    this.ids[i] = verdict.endpoint;
    this.rejected[i] = verdict.rejected;
    candidates[at + CANDIDATE.generation] = verdict.generation;
    candidates[at + CANDIDATE.requests] = verdict.outstandingRequests;
    candidates[at + CANDIDATE.tokens] = verdict.outstandingTokens;
    candidates[at + CANDIDATE.cachedTokens] = verdict.predictedCachedTokens;
    candidates[at + CANDIDATE.cost] = verdict.costSeconds;
  }

  explained(): ExplainedChoice {
    const { policy, chosen, because, numbers } = this;
    return {
      atMs: numbers[CHOICE.at] ?? 0,
      policy,
      chosen,
      because,
      ...known('predictedCachedTokens', numbers[CHOICE.cachedTokens]),
      ...known('costSeconds', numbers[CHOICE.cost]),
      candidates: Array.from({ length: this.count }, (_, i) => this.candidate(i)),
    };
  }

  private candidate(i: number): CandidateVerdict {
    const at = i * CANDIDATE_COUNT;
    const number = (index: number) => this.candidates[at + index] ?? Number.NaN;
    return {
      endpoint: this.ids[i] ?? '',
      generation: number(CANDIDATE.generation),
      outstandingRequests: number(CANDIDATE.requests),
      outstandingTokens: number(CANDIDATE.tokens),
      predictedCachedTokens: number(CANDIDATE.cachedTokens),
      costSeconds: number(CANDIDATE.cost),
      rejected: this.rejected[i],
    };
  }
}

/** What a request leaves behind, kept as it falls; only one that is asked about is put into words. */
export class RequestTrace {
  route = '';
  model: string | undefined;
  alias: string | undefined;
  /** Names of models and pools, and a key's id: all of them live as long as their configuration. */
  insteadOf: string | undefined;
  insteadBecause: StandInReason | undefined;
  split: string | undefined;
  key: string | undefined;
  routingProfile: string | undefined;
  stream: boolean | undefined;
  error: ApiErrorCode | undefined;
  allTried = false;
  private readonly id = Buffer.allocUnsafe(ID_MAX_BYTES);
  private idBytes = 0;
  private readonly numbers = new Float64Array(NUMBER_COUNT);
  private readonly phases: string[] = [];
  private readonly phaseAtMs = new Float64Array(PHASES_MAX);
  private phaseCount = 0;
  private readonly choices: ChoiceTrace[] = [];
  private choiceCount = 0;
  private readonly attempts: AttemptTrace[] = [];
  private attemptCount = 0;

  begin(requestId: string, receivedWallMs: number, route: string): this {
    this.idBytes = this.id.write(requestId, 0, 'latin1');
    this.route = route;
    this.model = this.alias = this.routingProfile = undefined;
    this.insteadOf = this.insteadBecause = this.split = this.key = undefined;
    this.stream = this.error = undefined;
    this.allTried = false;
    this.phaseCount = this.choiceCount = this.attemptCount = 0;
    forget(this.numbers);
    this.numbers[NUMBERS.receivedWall] = receivedWallMs;
    return this;
  }

  /** The request is over, so the trace may be used for another one. */
  get ended(): boolean {
    return !Number.isNaN(this.numbers[NUMBERS.ended]);
  }

  get requestId(): string {
    return this.id.toString('latin1', 0, this.idBytes);
  }

  set bodyBytes(bytes: number) {
    this.numbers[NUMBERS.bodyBytes] = bytes;
  }
  set estimatedPromptTokens(tokens: number) {
    this.numbers[NUMBERS.promptTokens] = tokens;
  }
  set queuedBehind(requests: number) {
    this.numbers[NUMBERS.queuedBehind] = requests;
  }
  set status(status: number) {
    this.numbers[NUMBERS.status] = status;
  }
  set endedMs(atMs: number) {
    this.numbers[NUMBERS.ended] = atMs;
  }
  set usage(usage: Usage) {
    this.numbers[USAGE_AT] = usage.promptTokens ?? Number.NaN;
    this.numbers[USAGE_AT + 1] = usage.completionTokens ?? Number.NaN;
    this.numbers[USAGE_AT + 2] = usage.cachedTokens ?? Number.NaN;
  }

  entered(phase: string, atMs: number): void {
    if (this.phaseCount === PHASES_MAX) return;
    this.phases[this.phaseCount] = phase;
    this.phaseAtMs[this.phaseCount++] = atMs;
  }

  chose(choice: AnyChoice, atMs: number): void {
    if (this.choiceCount < CHOICES_MAX) this.choiceCount += 1;
    (this.choices[this.choiceCount - 1] ??= new ChoiceTrace()).take(choice, atMs);
  }

  attempt(endpoint: string, generation: number, kind: AttemptKind, startedMs: number): AttemptTrace {
    const attempt = (this.attempts[this.attemptCount++] ??= new AttemptTrace());
    attempt.begin(this.attemptCount, endpoint, generation, kind, startedMs);
    return attempt;
  }

  /** Policy of the last choice; empty before the first. */
  get policy(): string {
    return this.choices[this.choiceCount - 1]?.policyName ?? '';
  }

  /** Where the request went last. */
  get lastEndpoint(): string | undefined {
    return this.attempts[this.attemptCount - 1]?.endpoint;
  }

  explanation(): RequestExplanation {
    const { requestId, route, model, alias, routingProfile, stream, error, numbers } = this;
    const { insteadOf, insteadBecause, split, key } = this;
    return {
      requestId,
      receivedWallMs: numbers[NUMBERS.receivedWall] ?? 0,
      route,
      ...(model === undefined ? {} : { model }),
      ...(alias === undefined ? {} : { alias }),
      ...(insteadOf === undefined ? {} : { insteadOf }),
      ...(insteadBecause === undefined ? {} : { insteadBecause }),
      ...(split === undefined ? {} : { split }),
      ...(key === undefined ? {} : { key }),
      ...(routingProfile === undefined ? {} : { routingProfile }),
      ...(stream === undefined ? {} : { stream }),
      ...known('bodyBytes', numbers[NUMBERS.bodyBytes]),
      ...known('estimatedPromptTokens', numbers[NUMBERS.promptTokens]),
      ...known('queuedBehind', numbers[NUMBERS.queuedBehind]),
      phases: this.phases
        .slice(0, this.phaseCount)
        .map((phase, i) => ({ phase, atMs: this.phaseAtMs[i] ?? 0 })),
      choices: this.choices.slice(0, this.choiceCount).map((choice) => choice.explained()),
      attempts: this.attempts.slice(0, this.attemptCount).map((attempt) => attempt.explained()),
      ...known('status', numbers[NUMBERS.status]),
      ...(error === undefined ? {} : { error }),
      ...(this.allTried ? { allTried: true } : {}),
      ...this.explainedUsage(),
      ...known('endedMs', numbers[NUMBERS.ended]),
    };
  }

  private explainedUsage(): { usage?: Usage } {
    const [promptTokens, completionTokens, cachedTokens] = [0, 1, 2].map((i) => {
      const value = this.numbers[USAGE_AT + i] ?? Number.NaN;
      return Number.isNaN(value) ? undefined : value;
    });
    if (promptTokens === undefined && completionTokens === undefined) return {};
    return { usage: { promptTokens, completionTokens, cachedTokens } };
  }
}

/** For so few, `fill` costs more than the loop it saves. */
function forget(numbers: Float64Array): void {
  for (let i = 0; i < numbers.length; i++) numbers[i] = Number.NaN;
}

/** A member that is only there when its number is known. */
function known<N extends string>(name: N, value: number | undefined): Partial<Record<N, number>> {
  return value === undefined || Number.isNaN(value) ? {} : ({ [name]: value } as Record<N, number>);
}
