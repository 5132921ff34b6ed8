import { EndpointLoad } from '../../src/domain/balancing/endpoint-load.js';
import type { LoadLease } from '../../src/domain/balancing/endpoint-load.js';
import type { Candidate, PolicyName } from '../../src/domain/balancing/candidate.js';
import type { Balancer } from '../../src/domain/balancing/balancer.js';
import type { ReusePrediction } from '../../src/domain/balancing/prefix-cache-model.js';
import { createBalancer } from '../../src/domain/balancing/policies.js';
import { PrefixIndex } from '../../src/domain/balancing/prefix-index.js';
import { LearnedRates } from '../../src/domain/request/learned-rates.js';
import type { Random } from '../../src/shared/random.js';
import type { SimRequest } from './workloads.js';

/** What a router sees of the fleet: nothing but its own requests coming and going. */
export interface SimPolicy {
  /** Index of the replica; `serving` are the indexes that may be chosen. */
  pick(request: SimRequest, serving: readonly number[], nowMs: number): number;
  firstToken(request: SimRequest, replica: number, nowMs: number): void;
  finished(request: SimRequest, replica: number, cachedTokens: number, nowMs: number): void;
  /** What it counts as still to be computed at a replica, where it counts tokens. */
  dueTokens?(replica: number): number;
}

/** Makes a policy for `replicas` ids. */
export type SimPolicyMaker = (ids: readonly string[], random: Random) => SimPolicy;

interface Open {
  readonly lease: LoadLease;
  readonly reuse: ReusePrediction | undefined;
  readonly sentAtMs: number;
  readonly tokensAhead: number;
  firstTokenAtMs: number;
}

/** One of our own policies, fed exactly as the router feeds it. */
class OwnPolicy implements SimPolicy {
  private readonly index = new PrefixIndex(16 << 20);
  private readonly balancer: Balancer;
  private readonly endpoints: Candidate[];
  private readonly open = new Map<number, Open>();
  private meanOutputTokens = 150;

  constructor(
    policy: PolicyName,
    ids: readonly string[],
    private readonly random: Random,
  ) {
    this.balancer = createBalancer(policy, this.index);
    this.endpoints = ids.map((id) => ({
      id,
      generation: 1,
      models: new Set(['m']),
      pool: 'static',
      weight: 1,
      maxConcurrency: Number.POSITIVE_INFINITY,
      draining: false,
      load: new EndpointLoad(),
      rates: new LearnedRates(),
      health: { verdict: () => 'serving' as const },
    }));
  }

  pick(request: SimRequest, serving: readonly number[], nowMs: number): number {
    const outputTokens = this.meanOutputTokens;
    const facts = { model: 'm', promptTokens: request.promptTokens, outputTokens, chain: request.chain };
    const candidates = serving.map((at) => this.endpoints[at]!);
    const context = { nowMs, random: this.random, tried: [], explain: false };
    const choice = this.balancer.choose(candidates, facts, context);
    if (choice.endpoint === undefined) throw new Error(`nothing chosen: ${choice.because}`);
    const { endpoint, predictedCachedTokens, reuse } = choice;
    const uncached = request.promptTokens - predictedCachedTokens;
    const backlog = endpoint.load.prefillBacklogTokens(endpoint.rates.prefillTokensPerSecond, nowMs);
    this.open.set(request.id, {
      lease: endpoint.load.acquire(uncached, outputTokens, nowMs, predictedCachedTokens),
      reuse,
      sentAtMs: nowMs,
      tokensAhead: backlog + uncached,
      firstTokenAtMs: nowMs,
    });
    return this.endpoints.indexOf(endpoint);
  }

  dueTokens(replica: number): number {
    return this.endpoints[replica]!.load.outstandingTokens;
  }

  firstToken(request: SimRequest, replica: number, nowMs: number): void {
    const open = this.open.get(request.id)!;
    open.lease.prefilled(nowMs);
    open.firstTokenAtMs = nowMs;
    this.endpoints[replica]!.rates.firstToken(open.tokensAhead, (nowMs - open.sentAtMs) / 1000);
  }

  finished(request: SimRequest, replica: number, cachedTokens: number, nowMs: number): void {
    const open = this.open.get(request.id)!;
    this.open.delete(request.id);
    open.lease.release();
    const { promptTokens, outputTokens } = request;
    this.meanOutputTokens += (outputTokens - this.meanOutputTokens) * 0.02;
    const endpoint = this.endpoints[replica]!;
    endpoint.rates.decoded(outputTokens - 1, (nowMs - open.firstTokenAtMs) / 1000);
    if (open.reuse !== undefined) {
      this.index.learn(endpoint, open.reuse, { promptTokens, cachedTokens, completionTokens: outputTokens });
    }
  }
}

/** In-flight requests per replica: all that the simpler policies elsewhere look at. */
abstract class CountingPolicy implements SimPolicy {
  protected readonly inFlight: number[];

  constructor(
    protected readonly ids: readonly string[],
    protected readonly random: Random,
  ) {
    this.inFlight = ids.map(() => 0);
  }

  pick(request: SimRequest, serving: readonly number[], nowMs: number): number {
    const chosen = this.choose(request, serving, nowMs);
    this.inFlight[chosen]! += 1;
    return chosen;
  }

  firstToken(): void {}

  finished(_request: SimRequest, replica: number): void {
    this.inFlight[replica]! -= 1;
  }

  protected abstract choose(request: SimRequest, serving: readonly number[], nowMs: number): number;

  /** Fewest in flight, equals by lot. */
  protected shortest(serving: readonly number[]): number {
    let best = serving[0]!;
    let equals = 0;
    for (const at of serving) {
      const difference = this.inFlight[at]! - this.inFlight[best]!;
      if (difference < 0) {
        best = at;
        equals = 1;
      } else if (difference === 0 && this.random() * ++equals < 1) best = at;
    }
    return best;
  }
}

class PlainRoundRobin extends CountingPolicy {
  private turn = 0;
  protected choose(_request: SimRequest, serving: readonly number[]): number {
    return serving[this.turn++ % serving.length]!;
  }
}

class LeastRequests extends CountingPolicy {
  protected choose(_request: SimRequest, serving: readonly number[]): number {
    return this.shortest(serving);
  }
}

class TwoChoices extends CountingPolicy {
  protected choose(_request: SimRequest, serving: readonly number[]): number {
    const first = Math.floor(this.random() * serving.length);
    let second = Math.floor(this.random() * (serving.length - 1));
    if (second >= first) second += 1;
    const a = serving[first]!;
    const b = serving[second] ?? a;
    return this.inFlight[b]! < this.inFlight[a]! ? b : a;
  }
}

/**
 * Consistent hashing with bounded loads: a ring with 256 places per replica, the key being the first 100 characters of
 * the first user message; replicas with more than 1.25 times the mean load are walked past.
 */
class BoundedRing extends CountingPolicy {
  private readonly ring: { readonly hash: number; readonly replica: number }[];

  constructor(ids: readonly string[], random: Random) {
    super(ids, random);
    const places = ids.map((id, replica) =>
      Array.from({ length: 256 }, (_, place) => ({ hash: ringHash(`${id}#${place}`), replica })),
    );
    this.ring = places.flat().sort((a, b) => a.hash - b.hash);
  }

  protected choose(request: SimRequest, serving: readonly number[]): number {
    const total = serving.reduce((sum, at) => sum + this.inFlight[at]!, 0);
    const bound = Math.ceil(((total + 1) / serving.length) * 1.25);
    let from = 0;
    while (from < this.ring.length && this.ring[from]!.hash < request.firstUserHash) from += 1;
    for (let step = 0; step < this.ring.length; step++) {
      const { replica } = this.ring[(from + step) % this.ring.length]!;
      if (serving.includes(replica) && this.inFlight[replica]! + 1 <= bound) return replica;
    }
    return this.shortest(serving);
  }
}

function ringHash(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  return (hash ^ (hash >>> 13)) >>> 0;
}

/**
 * The published switch between two modes: while loads are balanced (difference at most 32, or ratio at most 1.1) a
 * request goes to the replica whose tree matches more than half of it, else to the one with the smallest tree; out of
 * balance, to the shortest queue.
 */
class ThresholdSwitch extends CountingPolicy {
  private readonly trees = this.ids.map(() => new Set<number>());

  protected choose(request: SimRequest, serving: readonly number[]): number {
    const chosen = this.balanced(serving) ? this.byTree(request, serving) : this.shortest(serving);
    for (const block of request.blocks) this.trees[chosen]!.add(block);
    return chosen;
  }

  private balanced(serving: readonly number[]): boolean {
    const loads = serving.map((at) => this.inFlight[at]!);
    const most = Math.max(...loads);
    const least = Math.min(...loads);
    return !(most - least > 32 && most > 1.1 * least);
  }

  private byTree(request: SimRequest, serving: readonly number[]): number {
    let best = serving[0]!;
    let bestMatch = -1;
    let smallest = serving[0]!;
    for (const at of serving) {
      const tree = this.trees[at]!;
      let matched = 0;
      while (matched < request.blocks.length && tree.has(request.blocks[matched]!)) matched += 1;
      if (matched > bestMatch) {
        best = at;
        bestMatch = matched;
      }
      if (tree.size < this.trees[smallest]!.size) smallest = at;
    }
    return bestMatch / Math.max(1, request.blocks.length) > 0.5 ? best : smallest;
  }
}

/** Ours first, then what others do. */
export const SIM_POLICIES: readonly (readonly [name: string, make: SimPolicyMaker])[] = [
  ['prefixAware', (ids, random) => new OwnPolicy('prefixAware', ids, random)],
  ['leastLoad (ours)', (ids, random) => new OwnPolicy('leastLoad', ids, random)],
  ['round robin', (ids, random) => new PlainRoundRobin(ids, random)],
  ['least load', (ids, random) => new LeastRequests(ids, random)],
  ['power of two', (ids, random) => new TwoChoices(ids, random)],
  ['bounded ring 1.25', (ids, random) => new BoundedRing(ids, random)],
  ['threshold switch', (ids, random) => new ThresholdSwitch(ids, random)],
];
