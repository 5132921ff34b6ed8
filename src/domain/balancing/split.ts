import { hashText, rendezvousScore } from './text-hash.js';

/** One side of a traffic split: a pool, a profile or another model, with its share. */
export interface SplitTarget {
  readonly name: string;
  /** Relative share, >= 0; 0 gets nothing. */
  readonly weight: number;
}

/**
 * Which side of a split (canary against stable, one model against its successor) a request belongs to; undefined when
 * all weights are 0. With a session key the same session stays on its side, and changing a weight moves only the
 * sessions that the change is about: raising a canary from 5 to 10 % takes nobody out of it.
 * @param random uniform in [0, 1); only drawn when there is no key
 */
export function chooseSide<T extends SplitTarget>(
  targets: readonly T[],
  sessionKey: string | undefined,
  random: () => number,
): T | undefined {
  return sessionKey === undefined ? byLot(targets, random()) : byKey(targets, hashText(sessionKey));
}

function byLot<T extends SplitTarget>(targets: readonly T[], point: number): T | undefined {
  let weights = 0;
  for (const { weight } of targets) weights += Math.max(0, weight);
  let left = point * weights;
  let last: T | undefined;
  for (const target of targets) {
    if (!(target.weight > 0)) continue;
    last = target;
    left -= target.weight;
    if (left < 0) break;
  }
  return last;
}

function byKey<T extends SplitTarget>(targets: readonly T[], key: number): T | undefined {
  let best: T | undefined;
  let bestScore = -1;
  for (const target of targets) {
    if (!(target.weight > 0)) continue;
    const score = rendezvousScore(key, target.name, target.weight);
    if (score > bestScore) {
      best = target;
      bestScore = score;
    }
  }
  return best;
}
