import type { Ranking, Scan } from './balancer.js';
import type { Candidate, ChooseContext, RequestFacts } from './candidate.js';

/**
 * Outstanding tokens per weight, this request included; 0 for an idle endpoint, so that idle ones are equal and the
 * lot decides by weight. What others send to the same engine counts as requests of this one's size: their real size
 * is unknown.
 */
export function loadPerWeight(candidate: Candidate, request: RequestFacts, nowMs: number): number {
  const { load, weight } = candidate;
  const foreign = load.foreignRunningAt(nowMs) + load.foreignWaitingAt(nowMs);
  if (load.requests + foreign === 0) return 0;
  const own = request.promptTokens + request.outputTokens;
  return (load.outstandingTokens + (foreign + 1) * own) / weight;
}

/** The endpoint with the fewest outstanding tokens per weight; between equals a lot is drawn by weight. */
export class LeastLoad implements Ranking {
  readonly name = 'leastLoad';

  rank(scan: Scan, request: RequestFacts, context: ChooseContext): number {
    let best = 0;
    let bestLoad = Number.POSITIVE_INFINITY;
    let equalWeights = 0;
    for (let at = 0; at < scan.count; at++) {
      const candidate = scan.eligible[at]!;
      const load = loadPerWeight(candidate, request, context.nowMs);
      if (load > bestLoad) continue;
      equalWeights = load < bestLoad ? candidate.weight : equalWeights + candidate.weight;
      if (load < bestLoad || context.random() * equalWeights < candidate.weight) best = at;
      bestLoad = load;
    }
    return best;
  }
}

/** The less loaded of two drawn by weight: nearly as even as least load, and blind to small differences. */
export class PowerOfTwo implements Ranking {
  readonly name = 'powerOfTwo';

  rank(scan: Scan, request: RequestFacts, context: ChooseContext): number {
    const first = drawByWeight(scan, -1, context.random());
    const second = drawByWeight(scan, first, context.random());
    const loadFirst = loadPerWeight(scan.eligible[first]!, request, context.nowMs);
    const loadSecond = loadPerWeight(scan.eligible[second]!, request, context.nowMs);
    return loadSecond < loadFirst ? second : first;
  }
}

/** Draws a position in proportion to weight, leaving out `except` where there is another. */
function drawByWeight(scan: Scan, except: number, point: number): number {
  if (scan.count === 1) return 0;
  let weights = 0;
  for (let at = 0; at < scan.count; at++) if (at !== except) weights += scan.eligible[at]!.weight;
  let left = point * weights;
  let last = 0;
  for (let at = 0; at < scan.count; at++) {
    if (at === except) continue;
    last = at;
    left -= scan.eligible[at]!.weight;
    if (left < 0) return at;
  }
  return last;
}
