import type { Ranking, Scan } from './balancer.js';
import type { Candidate } from './candidate.js';

/**
 * Smooth weighted turns: each time everybody gains its weight, the richest goes and pays for all. With equal weights
 * a plain cycle; with 5:1:1 the heavy one is spread out instead of served five times in a row.
 */
export class RoundRobin implements Ranking {
  readonly name = 'roundRobin';
  private readonly credit = new WeakMap<Candidate, number>();

  rank(scan: Scan): number {
    let best = 0;
    let bestCredit = Number.NEGATIVE_INFINITY;
    let weights = 0;
    for (let at = 0; at < scan.count; at++) {
      const candidate = scan.eligible[at]!;
      const credit = (this.credit.get(candidate) ?? 0) + candidate.weight;
      this.credit.set(candidate, credit);
      weights += candidate.weight;
      if (credit > bestCredit) {
        best = at;
        bestCredit = credit;
      }
    }
    this.credit.set(scan.eligible[best]!, bestCredit - weights);
    return best;
  }
}
