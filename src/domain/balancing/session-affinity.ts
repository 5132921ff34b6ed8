import type { Ranking, Scan } from './balancer.js';
import type { ChooseContext, RequestFacts } from './candidate.js';
import { LeastLoad } from './least-load.js';
import { markOverBound } from './load-bound.js';
import { hashText, rendezvousScore } from './text-hash.js';

/**
 * Equal session keys go to the same endpoint (rendezvous hashing) while it is below the load bound; over it, to the
 * next of that key's own order, so that overflow is as stable as the first choice. No key: least load.
 */
export class SessionAffinity implements Ranking {
  readonly name = 'sessionAffinity';
  private readonly leastLoad = new LeastLoad();

  rank(scan: Scan, request: RequestFacts, context: ChooseContext): number {
    if (request.sessionKey === undefined) return this.leastLoad.rank(scan, request, context);
    const key = hashText(request.sessionKey);
    markOverBound(scan);
    let best = 0;
    let bestScore = Number.NEGATIVE_INFINITY;
    for (let at = 0; at < scan.count; at++) {
      if (scan.overBound[at] === 1) continue;
      const candidate = scan.eligible[at]!;
      const score = rendezvousScore(key, candidate.id, candidate.weight);
      if (score > bestScore) {
        best = at;
        bestScore = score;
      }
    }
    return best;
  }
}
