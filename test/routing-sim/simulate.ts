import { seededRandom } from '../../src/shared/random.js';
import { SimEngine, TOKENS_PER_BLOCK } from './engine.js';
import type { SimPolicyMaker } from './policies.js';
import type { SimRequest, Workload } from './workloads.js';

/** The caches of a fleet that has just started are empty under every policy; measuring begins when they are warm. */
const WARM_UP_MS = 20_000;

/** What one policy made of one workload. */
export interface SimResult {
  readonly ttftMs: Float64Array;
  /** Prompt tokens found in the caches, of those an endless cache on a single replica would have found. */
  readonly hitShare: number;
  /** Most tokens of whole prompts and answers at a replica over the mean, at the worst moment of real load. */
  readonly peakImbalance: number;
  /** The same for what the policy itself counts as still to be computed there; 0 for those that do not count tokens. */
  readonly peakDueImbalance: number;
  /** Requests of the busiest replica over the mean. */
  readonly shareImbalance: number;
}

type Happening =
  | { readonly atMs: number; readonly order: number; readonly request: SimRequest }
  | { readonly atMs: number; readonly order: number; readonly stepOf: number };

/** A small binary heap by time, then by order of making. */
class Agenda {
  private readonly items: Happening[] = [];
  private made = 0;

  get order(): number {
    return this.made++;
  }

  push(item: Happening): void {
    const { items } = this;
    let at = items.length;
    items.push(item);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!earlier(item, items[parent]!)) break;
      items[at] = items[parent]!;
      at = parent;
    }
    items[at] = item;
  }

  pop(): Happening | undefined {
    const { items } = this;
    const first = items[0];
    const last = items.pop();
    if (last === undefined || items.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && earlier(items[child + 1]!, items[child]!)) child += 1;
      if (!earlier(items[child]!, last)) break;
      items[at] = items[child]!;
      at = child;
    }
    items[at] = last;
    return first;
  }
}

function earlier(a: Happening, b: Happening): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

/** Runs `workload` under a policy; the same seed gives the same result. */
export function simulate(workload: Workload, make: SimPolicyMaker, seed: number): SimResult {
  const engines = workload.replicas.map((replica) => new SimEngine(replica.engine, workload.blockIds));
  const ids = workload.replicas.map((replica) => replica.id);
  const policy = make(ids, seededRandom(seed));
  const agenda = new Agenda();
  const meter = new Meter(engines.length);
  const placed = new Map<number, number>();
  for (const { atMs, request } of workload.arrivals) agenda.push({ atMs, order: agenda.order, request });

  const wake = (replica: number, nowMs: number): void => {
    const lengthMs = engines[replica]!.startStep();
    if (lengthMs !== undefined) agenda.push({ atMs: nowMs + lengthMs, order: agenda.order, stepOf: replica });
  };
  for (let happening = agenda.pop(); happening !== undefined; happening = agenda.pop()) {
    const { atMs } = happening;
    if ('request' in happening) {
      const { request } = happening;
      const serving = ids.map((_, at) => at).filter((at) => workload.replicas[at]!.joinsAtMs <= atMs);
      const dueTokens = serving.map((at) => policy.dueTokens?.(at) ?? 0);
      const replica = policy.pick(request, serving, atMs);
      placed.set(request.id, replica);
      meter.sent(request, replica, serving, atMs);
      meter.chosen(request, dueTokens, serving.indexOf(replica));
      engines[replica]!.submit(request);
      wake(replica, atMs);
      continue;
    }
    const replica = happening.stepOf;
    const { firstTokens, finished } = engines[replica]!.endStep();
    for (const { request, cachedTokens } of firstTokens) {
      policy.firstToken(request, replica, atMs);
      meter.firstToken(request, replica, cachedTokens, atMs);
    }
    for (const { request, cachedTokens } of finished) {
      policy.finished(request, placed.get(request.id)!, cachedTokens, atMs);
      meter.finished(request, replica);
      if (request.next === undefined) continue;
      const { request: next, thinkMs } = request.next;
      agenda.push({ atMs: atMs + thinkMs, order: agenda.order, request: next });
    }
    wake(replica, atMs);
  }
  return meter.result();
}

/** Measures from outside; knows what no router knows. */
class Meter {
  private readonly measured = new Set<number>();
  private readonly sentAtMs = new Map<number, number>();
  private readonly ttftMs: number[] = [];
  private readonly outstanding: number[];
  private readonly requests: number[];
  private readonly seen = new Set<number>();
  private hitTokens = 0;
  private oracleTokens = 0;
  private peak = 0;
  private peakDue = 0;

  constructor(replicas: number) {
    this.outstanding = Array.from({ length: replicas }, () => 0);
    this.requests = Array.from({ length: replicas }, () => 0);
  }

  sent(request: SimRequest, replica: number, serving: readonly number[], nowMs: number): void {
    this.sentAtMs.set(request.id, nowMs);
    const size = request.promptTokens + request.outputTokens;
    this.outstanding[replica]! += size;
    this.requests[replica]! += 1;
    let known = 0;
    while (known < request.blocks.length && this.seen.has(request.blocks[known]!)) known += 1;
    if (nowMs >= WARM_UP_MS) this.measured.add(request.id);
    if (nowMs >= WARM_UP_MS) this.oracleTokens += known * TOKENS_PER_BLOCK;
    for (const block of request.blocksWithAnswer) this.seen.add(block);
    const mean = serving.reduce((sum, at) => sum + this.outstanding[at]!, 0) / serving.length;
    // One request more than fair is unavoidable; what is left over the mean is the policy's doing.
    if (mean > 2 * size) this.peak = Math.max(this.peak, (this.outstanding[replica]! - size) / mean);
  }

  /** `dueTokens`: what each of those that serve had to compute before the request. */
  chosen({ promptTokens, outputTokens }: SimRequest, dueTokens: readonly number[], position: number): void {
    const mean = dueTokens.reduce((sum, due) => sum + due, 0) / dueTokens.length;
    if (mean > 2 * (promptTokens + outputTokens))
      this.peakDue = Math.max(this.peakDue, dueTokens[position]! / mean);
  }

  firstToken(request: SimRequest, _replica: number, cachedTokens: number, nowMs: number): void {
    if (!this.measured.has(request.id)) return;
    this.ttftMs.push(nowMs - this.sentAtMs.get(request.id)!);
    this.hitTokens += cachedTokens;
  }

  finished(request: SimRequest, replica: number): void {
    this.outstanding[replica]! -= request.promptTokens + request.outputTokens;
  }

  result(): SimResult {
    const total = this.requests.reduce((sum, n) => sum + n, 0);
    return {
      ttftMs: Float64Array.from(this.ttftMs).sort(),
      hitShare: this.oracleTokens === 0 ? Number.NaN : this.hitTokens / this.oracleTokens,
      peakImbalance: this.peak,
      peakDueImbalance: this.peakDue,
      shareImbalance: (Math.max(...this.requests) * this.requests.length) / total,
    };
  }
}

/** The value below which `share` of the sorted samples lie. */
export function percentile(sorted: Float64Array, share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}
