import type { Ranking, Scan } from './balancer.js';
import type { Candidate, ChooseContext, RequestFacts } from './candidate.js';
import type { EndpointLoad } from './endpoint-load.js';
import { BOUND_FACTOR, BOUND_SLACK_REQUESTS } from './load-bound.js';
import type { ReusePrediction } from './prefix-cache-model.js';
import { PrefixHeat } from './prefix-heat.js';
import type { PrefixIndex } from './prefix-index.js';
import { bytesOfBlocks } from './prompt-chain.js';
import { rendezvousScore } from './text-hash.js';

/**
 * No endpoint is given more while it has this times the mean of outstanding tokens (by weight). Of what it has to
 * compute, so that nobody waits behind twice what others have to do; and of what it holds, cached parts of prompts
 * included, for that fills its KV cache, and a full one makes everything wait for somebody's last token. The promise is
 * twice; the tenth below it is for answers that get longer than estimated.
 */
const TOKEN_BOUND = 1.9;
/**
 * So many requests any endpoint may have whatever the mean, which at night is a fraction of one request; where tokens to
 * compute are counted, so many of this one's size.
 */
const SLACK_REQUESTS = 2;

/**
 * What computing a prompt costs beyond this request's own wait, in shares of it: the time is taken from others that
 * come to the same engine. Without it, a busy home loses its prefixes to every idle neighbour in turn.
 */
const COST_TO_OTHERS = 1;
/** How much more that is on an endpoint whose cache takes in twice the mean of new text: it pushes out others' prefixes. */
const COST_OF_EVICTION = 0.6;
/** Intake below which endpoints are not told apart, bytes. */
const INTAKE_FLOOR_BYTES = 32 << 10;

/** A running sequence slows a step by about this share of the time a step takes. */
const DECODE_SHARE = 0.003;
/** Foreseen work of no request is less than a block of an engine. */
const MIN_UNCACHED_TOKENS = 16;

/** Costs this close are equal: estimates are not better than that. */
const INDIFFERENT_SECONDS = 0.001;
const INDIFFERENT_SHARE = 0.02;
/**
 * A prefix stays at its home while that costs at most this share of computing it anew, and never more than the limit:
 * copies on every replica push other prefixes out.
 */
const HOME_SHARE = 0.1;
const HOME_LIMIT_SECONDS = 0.01;

/** An endpoint has as much of the prompt as another one when it has at least this share of it. */
const SAME_REUSE = 0.9;
/** From this share of cached prompt on, where the rest goes is no question of cache space. */
const MOSTLY_CACHED = 0.75;

/** Requests per endpoint that a prefix's count looks back over. */
const HEAT_MEMORY_REQUESTS = 8;
/** A prefix is hot when it makes up half of an endpoint's fair share of these. */
const HOT_COUNT = 6;

/**
 * Learned speeds within this factor of the mean count as equal: they are noisy, and neither bounds nor the choice
 * between idle endpoints should be.
 */
const SPEED_ALIKE = 1.5;

/** Sums over the candidates of one choice. */
interface Survey {
  weights: number;
  /** Weights times relative speed. */
  shares: number;
  meanRate: number;
  /** Of all candidates and this request, to compute and to hold. */
  dueTokens: number;
  heldTokens: number;
  /** This one included. */
  requests: number;
  mostCached: number;
  /** Hash of the longest stretch of the prompt that any candidate has cached; undefined when none has any. */
  prefixHash: number | undefined;
  hot: boolean;
  meanIntake: number;
}

/**
 * The endpoint where the answer is expected to start soonest, everybody's answers considered: one cost in estimated
 * seconds, no switch between modes that flips under load.
 *
 *   cost = uncached x (1 + cost to others) / prefill rate + (backlog / prefill rate + decode) / weight
 *
 * With nothing cached anywhere this is least load in seconds. Loads beyond the bounds are passed over.
 * The learned overhead is no part of it: it differs by noise and by past congestion, and whoever once looked a few
 * milliseconds worse would get nothing, learn nothing and stay idle.
 */
export class PrefixAware implements Ranking {
  readonly name = 'prefixAware';
  private intake = new Float64Array(64);
  private readonly survey: Survey = {
    weights: 0,
    shares: 0,
    meanRate: 0,
    dueTokens: 0,
    heldTokens: 0,
    requests: 0,
    mostCached: 0,
    prefixHash: undefined,
    hot: false,
    meanIntake: 0,
  };
  private readonly heat = new PrefixHeat();

  constructor(private readonly index: PrefixIndex) {}

  rank(scan: Scan, request: RequestFacts, context: ChooseContext): number {
    this.look(scan, request);
    this.bound(scan, request);
    const least = this.price(scan, request, context);
    const home = Math.min(HOME_LIMIT_SECONDS, (HOME_SHARE * this.survey.mostCached) / this.survey.meanRate);
    return this.pick(scan, context, least * (1 + INDIFFERENT_SHARE) + INDIFFERENT_SECONDS + home);
  }

  chosen(endpoint: Candidate, request: RequestFacts): ReusePrediction | undefined {
    return request.chain === undefined ? undefined : this.index.record(endpoint, request.chain);
  }

  /** First pass: what each has cached, and the sums that bounds and costs are relative to. */
  private look(scan: Scan, request: RequestFacts): void {
    if (this.intake.length < scan.cost.length) this.intake = new Float64Array(scan.cost.length);
    const survey = this.survey;
    survey.weights = 0;
    survey.meanRate = 0;
    survey.dueTokens = 0;
    survey.heldTokens = request.promptTokens + request.outputTokens;
    survey.requests = 1;
    survey.mostCached = 0;
    let intakes = 0;
    let mostBlocks = 0;
    for (let at = 0; at < scan.count; at++) {
      const candidate = scan.eligible[at]!;
      survey.weights += candidate.weight;
      survey.meanRate += candidate.rates.prefillTokensPerSecond / scan.count;
      survey.dueTokens += candidate.load.outstandingTokens;
      survey.heldTokens += candidate.load.heldTokens;
      survey.requests += candidate.load.requests;
      const blocks = this.cachedBlocks(candidate, request);
      if (blocks > mostBlocks) mostBlocks = blocks;
      const cached = blocks === 0 ? 0 : this.cachedTokens(candidate, request, blocks);
      scan.cached[at] = cached;
      if (cached > survey.mostCached) survey.mostCached = cached;
      const intake = this.index.recentIntake(candidate) / candidate.weight;
      this.intake[at] = intake;
      intakes += intake;
    }
    survey.dueTokens += request.outputTokens + Math.max(0, request.promptTokens - survey.mostCached);
    survey.prefixHash = mostBlocks === 0 ? undefined : request.chain?.words[2 * mostBlocks - 2];
    survey.hot = this.isHot(survey.prefixHash, scan.count);
    survey.meanIntake = Math.max(INTAKE_FLOOR_BYTES, intakes / scan.count);
    survey.shares = 0;
    for (let at = 0; at < scan.count; at++) survey.shares += this.capacity(scan.eligible[at]!);
  }

  /**
   * Marks who is over a bound. Whoever has the least to compute per weight never is over the first one; those that follow
   * hold only where they leave somebody.
   */
  private bound(scan: Scan, request: RequestFacts): void {
    const { dueTokens, heldTokens, weights } = this.survey;
    const slackTokens = SLACK_REQUESTS * (request.promptTokens + request.outputTokens);
    let left = 0;
    for (let at = 0; at < scan.count; at++) {
      const { load, weight } = scan.eligible[at]!;
      const share = weight / weights;
      const over = load.outstandingTokens > TOKEN_BOUND * Math.max(slackTokens, dueTokens * share);
      scan.overBound[at] = over ? 1 : 0;
      if (!over && !holdsTooMuch(load, heldTokens * share)) left += 1;
    }
    for (let at = 0; at < scan.count && left > 0; at++) {
      const { load, weight } = scan.eligible[at]!;
      if (holdsTooMuch(load, (heldTokens * weight) / weights)) scan.overBound[at] = 1;
    }
    this.boundHot(scan, request);
  }

  /** One prefix that everybody asks for must not gather everybody in one place. */
  private boundHot(scan: Scan, request: RequestFacts): void {
    const { mostCached, hot } = this.survey;
    if (mostCached < MOSTLY_CACHED * request.promptTokens) return;
    let roomElsewhere = false;
    for (let at = 0; at < scan.count && !roomElsewhere; at++) {
      // A prefix that others have costs nothing to spread, and a hot one is soon worth computing again.
      const same = hot || scan.cached[at]! >= SAME_REUSE * mostCached;
      roomElsewhere = scan.overBound[at] === 0 && same && this.isBelowHotBound(scan.eligible[at]!);
    }
    if (!roomElsewhere) return;
    for (let at = 0; at < scan.count; at++) {
      if (!this.isBelowHotBound(scan.eligible[at]!)) scan.overBound[at] = 1;
    }
  }

  /** Last pass: costs, and the least of them within bounds. */
  private price(scan: Scan, request: RequestFacts, context: ChooseContext): number {
    const { meanIntake } = this.survey;
    let least = Number.POSITIVE_INFINITY;
    for (let at = 0; at < scan.count; at++) {
      const candidate = scan.eligible[at]!;
      const { load, rates, weight } = candidate;
      const rate = this.survey.meanRate * this.relativeSpeed(candidate);
      const cached = scan.cached[at]!;
      const uncached = Math.max(MIN_UNCACHED_TOKENS, request.promptTokens - cached);
      const places = cached < MOSTLY_CACHED * request.promptTokens;
      const eviction = places ? COST_OF_EVICTION * (this.intake[at]! / meanIntake - 1) : 0;
      const own = (uncached * (1 + COST_TO_OTHERS + eviction)) / rate;
      const waiting = load.foreignWaitingAt(context.nowMs) * request.promptTokens;
      const backlog = (load.prefillBacklogTokens(rate, context.nowMs) + waiting) / rate;
      const running = load.foreignRunningAt(context.nowMs) * request.outputTokens;
      const decode = (load.outputTokens + running) * DECODE_SHARE * rates.secondsPerOutputToken;
      const cost = own + (backlog + decode) / weight;
      scan.cost[at] = cost;
      if (scan.overBound[at] === 0 && cost < least) least = cost;
    }
    return least;
  }

  /**
   * Among costs that are as good as equal: the home of the shared prefix, which is the same for all prompts that
   * begin with it; for a prompt that nobody has seen, a lot drawn by weight.
   */
  private pick(scan: Scan, context: ChooseContext, limit: number): number {
    const { mostCached, prefixHash } = this.survey;
    let best = -1;
    let bestScore = -1;
    for (let at = 0; at < scan.count; at++) {
      if (scan.overBound[at] === 1 || scan.cost[at]! > limit) continue;
      const { id, weight } = scan.eligible[at]!;
      const lot =
        prefixHash === undefined
          ? -weight / Math.log(context.random())
          : rendezvousScore(prefixHash, id, weight);
      // Who has the prefix goes before who would have to compute it at the same cost.
      const score = scan.cached[at]! >= SAME_REUSE * mostCached ? 1 + lot : lot / (1 + lot);
      if (score > bestScore) {
        best = at;
        bestScore = score;
      }
    }
    return best;
  }

  private isHot(prefixHash: number | undefined, endpoints: number): boolean {
    this.heat.tick();
    if (prefixHash === undefined) return false;
    return this.heat.add(prefixHash, HEAT_MEMORY_REQUESTS * endpoints) >= HOT_COUNT;
  }

  private cachedBlocks(candidate: Candidate, request: RequestFacts): number {
    const { chain } = request;
    if (chain === undefined || chain.blocks === 0) return 0;
    return this.index.find(candidate)?.cachedBlocks(chain) ?? 0;
  }

  private cachedTokens(candidate: Candidate, request: RequestFacts, blocks: number): number {
    const share = bytesOfBlocks(blocks) / (request.chain?.bytes ?? Number.POSITIVE_INFINITY);
    return share * request.promptTokens * (this.index.find(candidate)?.confidence ?? 0);
  }

  private isBelowHotBound(candidate: Candidate): boolean {
    const { requests, shares } = this.survey;
    const share = this.capacity(candidate) / shares;
    return candidate.load.requests + 1 <= BOUND_FACTOR * requests * share + BOUND_SLACK_REQUESTS;
  }

  private capacity(candidate: Candidate): number {
    return candidate.weight * this.relativeSpeed(candidate);
  }

  /** Learned prefill rate over the mean; 1 where the difference may be noise. */
  private relativeSpeed(candidate: Candidate): number {
    const relative = candidate.rates.prefillTokensPerSecond / this.survey.meanRate;
    return relative < SPEED_ALIKE && relative > 1 / SPEED_ALIKE ? 1 : relative;
  }
}

function holdsTooMuch({ requests, heldTokens }: EndpointLoad, fairTokens: number): boolean {
  return requests >= SLACK_REQUESTS && heldTokens > TOKEN_BOUND * fairTokens;
}
