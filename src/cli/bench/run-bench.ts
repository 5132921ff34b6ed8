/** The load: who sends when, and what is kept of it. */
import type { Clock } from '../../shared/clock.js';
import { seededRandom } from '../../shared/random.js';
import type { Misbehaviour, PlannedFault } from './faults.js';
import { pickFault } from './faults.js';
import { LogHistogram } from './log-histogram.js';
import type { CompletionClient, Outcome } from './completion-client.js';
import { ask, type ShapeName } from './shapes.js';

export interface BenchPlan {
  readonly shape: ShapeName;
  readonly seed: number;
  readonly faults: readonly PlannedFault[];
  /** Overrides the shape's own lengths. */
  readonly maxTokens?: number;
  /** Ends after so many requests, or after this time, whatever is first. */
  readonly requests?: number;
  readonly durationMs?: number;
  /** Closed loop: so many clients, each sends its next request when it has the answer. */
  readonly concurrency: number;
  /** Open loop: so many requests a second whatever the answers do. */
  readonly ratePerSecond?: number;
}

/** Requests of an open loop that may run at once; beyond it they count as `not_sent`. */
export const OPEN_MAX = 5_000;
/** Different results that are told apart; a server that invents codes fills no memory. */
const RESULTS_MAX = 64;

/** Results that are no failure: answered, or broken off by us. */
const HARMLESS: ReadonlySet<string> = new Set(['ok', 'cancelled', 'interrupted']);

/** What was measured so far. */
export class BenchResult {
  readonly firstToken = new LogHistogram();
  readonly gap = new LogHistogram();
  readonly total = new LogHistogram();
  readonly results = new Map<string, number>();
  completed = 0;
  failures = 0;
  promptTokens = 0;
  cachedTokens = 0;
  completionTokens = 0;
  events = 0;
  withUsage = 0;
  withCached = 0;
  elapsedMs = 0;

  take(outcome: Outcome): void {
    const known = this.results.has(outcome.result) || this.results.size < RESULTS_MAX;
    const result = known ? outcome.result : 'other';
    this.results.set(result, (this.results.get(result) ?? 0) + 1);
    if (result === 'interrupted') return;
    this.completed += 1;
    if (!HARMLESS.has(result)) this.failures += 1;
    this.events += outcome.events;
    for (const gapMs of outcome.gapsMs) this.gap.add(gapMs);
    if (outcome.firstTokenMs !== undefined) this.firstToken.add(outcome.firstTokenMs);
    if (result === 'ok') this.total.add(outcome.totalMs);
    if (outcome.usage !== undefined) this.takeUsage(outcome.usage);
  }

  /** Requests with some answer, of whatever kind. */
  get reached(): boolean {
    return [...this.results.keys()].some(
      (result) => result === 'ok' || /^\d{3}|^in stream|^cancel/.test(result),
    );
  }

  private takeUsage({ prompt, completion, cached }: NonNullable<Outcome['usage']>): void {
    this.withUsage += 1;
    this.promptTokens += prompt;
    this.completionTokens += completion;
    if (cached === undefined) return;
    this.withCached += 1;
    this.cachedTokens += cached;
  }
}

/** A run that can be broken off. */
export class BenchRun {
  readonly result = new BenchResult();
  private sent = 0;
  private stopped = false;
  private wake: () => void = () => undefined;
  private readonly startedMs: number;
  private readonly random;

  constructor(
    private readonly plan: BenchPlan,
    private readonly client: CompletionClient,
    private readonly clock: Clock,
  ) {
    this.startedMs = clock.monotonicMs();
    this.random = seededRandom(plan.seed);
  }

  /** Sends nothing more and breaks off what runs; `run` then settles with what was measured. */
  stop(): void {
    this.stopped = true;
    this.wake();
    this.client.interrupt();
  }

  async run(): Promise<BenchResult> {
    const { ratePerSecond } = this.plan;
    if (ratePerSecond === undefined) await this.closedLoop();
    else await this.openLoop(ratePerSecond);
    this.result.elapsedMs = this.clock.monotonicMs() - this.startedMs;
    return this.result;
  }

  private get over(): boolean {
    const { requests = Infinity, durationMs = Infinity } = this.plan;
    return this.stopped || this.sent >= requests || this.clock.monotonicMs() - this.startedMs >= durationMs;
  }

  private async closedLoop(): Promise<void> {
    const client = async (): Promise<void> => {
      while (!this.over) await this.send(this.clock.monotonicMs());
    };
    await Promise.all(Array.from({ length: this.plan.concurrency }, client));
  }

  /**
   * Request n leaves at n / rate, however long the others take, and its times count from then. A generator that waits
   * for a slow server would send less just when it hurts, and hide it.
   */
  private async openLoop(ratePerSecond: number): Promise<void> {
    const running = new Set<Promise<void>>();
    while (!this.over) {
      const intendedMs = this.startedMs + (this.sent * 1_000) / ratePerSecond;
      await this.until(intendedMs);
      if (this.over) break;
      if (running.size >= OPEN_MAX) {
        this.sent += 1;
        this.result.take(NOT_SENT);
        continue;
      }
      const one: Promise<void> = this.send(intendedMs).finally(() => running.delete(one));
      running.add(one);
    }
    await Promise.all(running);
  }

  private async until(atMs: number): Promise<void> {
    const leftMs = atMs - this.clock.monotonicMs();
    if (leftMs <= 0) return;
    await new Promise<void>((resolve) => {
      this.wake = resolve;
      this.clock.setTimer(leftMs, resolve);
    });
  }

  private async send(intendedMs: number): Promise<void> {
    const index = this.sent++;
    const wrong: Misbehaviour = pickFault(this.plan.faults, this.random);
    const shaped = ask(this.plan.shape, index, this.plan.seed);
    const { maxTokens } = this.plan;
    const what = maxTokens === undefined ? shaped : { ...shaped, maxTokens };
    this.result.take(await this.client.send(what, wrong, intendedMs));
  }
}

const NOT_SENT: Outcome = { result: 'not_sent', totalMs: 0, gapsMs: [], events: 0 };
