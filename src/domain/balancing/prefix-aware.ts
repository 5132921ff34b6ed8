import type { Ranking, Scan } from './balancer.js';
import type { ChooseContext, RequestFacts } from './candidate.js';

/** The endpoint where the answer is expected to start and flow soonest: one cost, in seconds. */
export class PrefixAware implements Ranking {
  readonly name = 'prefixAware';

  rank(scan: Scan, request: RequestFacts, context: ChooseContext): number {
    let best = 0;
    let bestCost = Number.POSITIVE_INFINITY;
    for (let at = 0; at < scan.count; at++) {
      const { load, rates } = scan.eligible[at]!;
      const tokens = load.prefillBacklogTokens(rates.prefillTokensPerSecond, context.nowMs);
      const prefill = (tokens + request.promptTokens) / rates.prefillTokensPerSecond;
      const decode = load.requests * rates.secondsPerOutputToken;
      const cost = prefill + decode;
      scan.cost[at] = cost;
      if (cost < bestCost) {
        best = at;
        bestCost = cost;
      }
    }
    return best;
  }
}
