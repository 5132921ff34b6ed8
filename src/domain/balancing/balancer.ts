import type {
  Candidate,
  CandidateVerdict,
  Choice,
  ChooseContext,
  ChosenBecause,
  HealthVerdict,
  NotChosenBecause,
  PolicyName,
  RejectReason,
  RequestFacts,
} from './candidate.js';
import type { ReusePrediction } from './prefix-cache-model.js';

/**
 * The candidates that passed every filter, with room for what the policy finds out about them. One per balancer and
 * reused: a choice happens between two awaits, so nobody else can be in the middle of one.
 */
export class Scan<C extends Candidate = Candidate> {
  /** Candidates 0..count-1 may be chosen. */
  count = 0;
  readonly eligible: C[] = [];
  /** Estimated seconds per eligible candidate; NaN until ranked. */
  cost = new Float64Array(64);
  /** Predicted cached prompt tokens per eligible candidate. */
  cached = new Float64Array(64);
  /** 1 where the policy would have liked the candidate, were it not over the load bound. */
  overBound = new Uint8Array(64);

  reset(): void {
    this.count = 0;
  }

  add(candidate: C): void {
    const at = this.count++;
    if (at >= this.cost.length) this.grow();
    this.eligible[at] = candidate;
    this.cost[at] = Number.NaN;
    this.cached[at] = 0;
    this.overBound[at] = 0;
  }

  /** Where `candidate` stands among the eligible; -1 when it is not one of them. */
  positionOf(candidate: C): number {
    for (let at = 0; at < this.count; at++) if (this.eligible[at] === candidate) return at;
    return -1;
  }

  private grow(): void {
    const size = this.cost.length * 2;
    const cost = new Float64Array(size);
    const cached = new Float64Array(size);
    const overBound = new Uint8Array(size);
    cost.set(this.cost);
    cached.set(this.cached);
    overBound.set(this.overBound);
    this.cost = cost;
    this.cached = cached;
    this.overBound = overBound;
  }
}

/** What distinguishes one policy from another: the order among endpoints that may be chosen. */
export interface Ranking {
  readonly name: PolicyName;
  /** Position of the best candidate in `scan.eligible`; only called with at least one. */
  rank(scan: Scan, request: RequestFacts, context: ChooseContext): number;
  /** The endpoint was chosen and the request is about to be sent to it. Returns what reuse was predicted. */
  chosen?(endpoint: Candidate, request: RequestFacts): ReusePrediction | undefined;
}

/**
 * Chooses an endpoint for a request: filters (each with its reason), a trial that is due, then the policy's ranking.
 * Holds the policy's state (a turn counter, a prefix index), so keep one per model and routing profile.
 */
export class Balancer {
  private readonly scan = new Scan();

  constructor(private readonly ranking: Ranking) {}

  get policy(): PolicyName {
    return this.ranking.name;
  }

  /**
   * Decides where `request` goes; pure but for the policy's own state. The caller acquires load on the chosen
   * endpoint before it awaits anything, and tells its health about a trial.
   */
  choose<C extends Candidate>(
    candidates: readonly C[],
    request: RequestFacts,
    context: ChooseContext,
  ): Choice<C> {
    const picky = request.pool !== undefined || request.otherSides !== undefined;
    if (picky && request.poolRequired !== true) {
      // Another pool in good standing is better than a last resort in the wanted one.
      const choice = this.chooseIn(true, false, candidates, request, context);
      return choice.endpoint === undefined
        ? this.chooseIn(false, true, candidates, request, context)
        : choice;
    }
    return this.chooseIn(picky, true, candidates, request, context);
  }

  private chooseIn<C extends Candidate>(
    picky: boolean,
    lastResort: boolean,
    candidates: readonly C[],
    request: RequestFacts,
    context: ChooseContext,
  ): Choice<C> {
    const scan = this.scan as Scan<C>;
    scan.reset();
    let serving = false;
    for (const candidate of candidates) {
      if (misfit(candidate, request, picky) !== undefined) continue;
      const verdict = candidate.health.verdict(context.nowMs);
      if (verdict === 'serving') serving = true;
      if (unavailable(candidate, context) !== undefined) continue;
      // A retry has one fault behind it already; it goes where answers are known to come from.
      if (verdict === 'trial_due' && context.tried.length === 0) {
        return this.take(scan, candidate, 'trial', picky, candidates, request, context);
      }
      if (verdict === 'serving') scan.add(candidate);
    }
    if (scan.count > 0) return this.ranked(scan, 'ranked', picky, candidates, request, context);
    if (lastResort && !serving) addLastResort(scan, picky, candidates, request, context);
    if (scan.count > 0) return this.ranked(scan, 'last_resort', picky, candidates, request, context);
    return this.none(scan, picky, candidates, request, context);
  }

  private ranked<C extends Candidate>(
    scan: Scan<C>,
    because: ChosenBecause,
    picky: boolean,
    candidates: readonly C[],
    request: RequestFacts,
    context: ChooseContext,
  ): Choice<C> {
    const best = scan.eligible[this.ranking.rank(scan, request, context)];
    if (best === undefined) throw new RangeError(`policy ${this.policy} chose outside its candidates`);
    return this.take(scan, best, because, picky, candidates, request, context);
  }

  private take<C extends Candidate>(
    scan: Scan<C>,
    endpoint: C,
    because: ChosenBecause,
    picky: boolean,
    candidates: readonly C[],
    request: RequestFacts,
    context: ChooseContext,
  ): Choice<C> {
    const at = scan.positionOf(endpoint);
    const verdicts = context.explain
      ? explain(scan, endpoint, picky, candidates, request, context)
      : undefined;
    return {
      endpoint,
      because,
      policy: this.policy,
      predictedCachedTokens: at < 0 ? 0 : (scan.cached[at] ?? 0),
      reuse: this.ranking.chosen?.(endpoint, request),
      costSeconds: at < 0 ? Number.NaN : (scan.cost[at] ?? Number.NaN),
      candidates: verdicts,
    };
  }

  private none<C extends Candidate>(
    scan: Scan<C>,
    picky: boolean,
    candidates: readonly C[],
    request: RequestFacts,
    context: ChooseContext,
  ): Choice<C> {
    let because: NotChosenBecause = 'no_endpoint';
    for (const candidate of candidates) {
      if (misfit(candidate, request, picky) !== undefined) continue;
      const reason = unavailable(candidate, context);
      if (reason === 'at_capacity') because = 'at_capacity';
      else if (because === 'no_endpoint' && reason === 'excluded_by_retry') because = 'all_tried';
    }
    const verdicts = context.explain
      ? explain(scan, undefined, picky, candidates, request, context)
      : undefined;
    return { endpoint: undefined, because, policy: this.policy, candidates: verdicts };
  }
}

/** Whether an endpoint would be found for a request: at once, perhaps later, or never among these. */
export type Prospect = 'now' | 'later' | 'never';

/**
 * What `choose` would come to, without choosing: for requests that wait, of whom most cannot go each time one ends
 * somewhere. Room alone says little: endpoints that are out for faults have plenty of it.
 */
export function prospectOf(
  candidates: readonly Candidate[],
  request: Pick<RequestFacts, 'model' | 'closedPools'>,
  context: Pick<ChooseContext, 'nowMs' | 'tried'>,
): Prospect {
  let serving = false;
  let room = false;
  let full = false;
  for (const candidate of candidates) {
    if (misfit(candidate, request, false) !== undefined) continue;
    const verdict = candidate.health.verdict(context.nowMs);
    if (verdict === 'serving') serving = true;
    const reason = unavailable(candidate, context);
    if (reason === 'at_capacity') full = true;
    if (reason !== undefined) continue;
    if (verdict === 'serving' || (verdict === 'trial_due' && context.tried.length === 0)) return 'now';
    room = true;
  }
  if (room) return serving ? 'later' : 'now';
  return full ? 'later' : 'never';
}

/** Why the candidate can never take this request, whatever its state; `picky`: only the wanted side of a split will do. */
function misfit(
  candidate: Candidate,
  request: Pick<RequestFacts, 'model' | 'pool' | 'otherSides' | 'closedPools'>,
  picky: boolean,
): RejectReason | undefined {
  if (!candidate.models.has(request.model)) return 'not_serving_model';
  if (candidate.draining) return 'draining';
  if (!(candidate.weight > 0)) return 'zero_weight';
  const { pool, otherSides, closedPools } = request;
  if (closedPools?.includes(candidate.pool) === true) return 'zero_weight';
  if (!picky) return undefined;
  if (pool !== undefined) return candidate.pool === pool ? undefined : 'wrong_pool';
  return otherSides?.includes(candidate.pool) === true ? 'wrong_pool' : undefined;
}

/** Why the candidate cannot take this request now, its health apart. */
function unavailable(
  candidate: Candidate,
  context: Pick<ChooseContext, 'tried'>,
): 'excluded_by_retry' | 'at_capacity' | undefined {
  if (context.tried.includes(candidate.id)) return 'excluded_by_retry';
  return candidate.load.requests >= candidate.maxConcurrency ? 'at_capacity' : undefined;
}

function unhealthy(verdict: HealthVerdict): RejectReason | undefined {
  switch (verdict) {
    case 'serving':
      return undefined;
    case 'cooling_down':
      return 'cooling_down';
    case 'ejected':
    case 'trial_due':
      return 'ejected';
    case 'trial_running':
      return 'trial_running';
  }
}

/**
 * When nothing of the model is in good standing, what is left is tried all the same: refusing everything would be
 * an outage that the gateway makes itself.
 */
function addLastResort<C extends Candidate>(
  scan: Scan<C>,
  picky: boolean,
  candidates: readonly C[],
  request: RequestFacts,
  context: ChooseContext,
): void {
  for (const candidate of candidates) {
    if (misfit(candidate, request, picky) === undefined && unavailable(candidate, context) === undefined) {
      scan.add(candidate);
    }
  }
}

function explain<C extends Candidate>(
  scan: Scan<C>,
  chosen: C | undefined,
  picky: boolean,
  candidates: readonly C[],
  request: RequestFacts,
  context: ChooseContext,
): CandidateVerdict[] {
  return candidates.map((candidate) => {
    const at = scan.positionOf(candidate);
    const ranked = at < 0 ? undefined : scan.overBound[at] === 1 ? 'over_bounded_load' : 'costlier';
    const reason =
      misfit(candidate, request, picky) ??
      unavailable(candidate, context) ??
      ranked ??
      unhealthy(candidate.health.verdict(context.nowMs)) ??
      'costlier';
    return {
      endpoint: candidate.id,
      generation: candidate.generation,
      outstandingRequests: candidate.load.requests,
      outstandingTokens: candidate.load.outstandingTokens,
      predictedCachedTokens: at < 0 ? 0 : (scan.cached[at] ?? 0),
      costSeconds: at < 0 ? Number.NaN : (scan.cost[at] ?? Number.NaN),
      rejected: candidate === chosen ? undefined : reason,
    };
  });
}
