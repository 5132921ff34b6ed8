import type { CanarySide } from '../model-spec.js';
import { chooseSide } from './split.js';

/** What a split means for one request: which side it is on, and what that says about pools. */
export interface SplitVerdict {
  /** `stable`, or the canary it is on. */
  readonly side: CanarySide | 'stable';
  readonly pool: string | undefined;
  readonly otherSides: readonly string[] | undefined;
  readonly closedPools: readonly string[] | undefined;
}

/** A model's canaries, made ready once per table so that a request only draws. */
export class CanarySplit {
  private readonly targets;
  /** Pools that get nothing, whatever happens. */
  readonly closedPools: readonly string[] | undefined;
  private readonly openPools: readonly string[] | undefined;

  constructor(sides: readonly CanarySide[]) {
    const taken = sides.reduce((sum, { weight }) => sum + weight, 0);
    this.targets = [
      { name: 'stable', weight: Math.max(0, 1 - taken), side: undefined },
      ...sides.map((side) => ({ name: `${side.kind}:${side.name}`, weight: side.weight, side })),
    ];
    this.openPools = poolsOf(sides.filter(({ weight }) => weight > 0));
    this.closedPools = poolsOf(sides.filter(({ weight }) => !(weight > 0)));
  }

  /** @param random uniform in [0, 1); only drawn when there is no session key */
  verdict(sessionKey: string | undefined, random: () => number): SplitVerdict {
    const side = chooseSide(this.targets, sessionKey, random)?.side;
    const pool = side?.kind === 'pool' ? side.name : undefined;
    const otherSides = pool === undefined ? this.openPools : undefined;
    return { side: side ?? 'stable', pool, otherSides, closedPools: this.closedPools };
  }
}

function poolsOf(sides: readonly CanarySide[]): readonly string[] | undefined {
  const pools = sides.filter(({ kind }) => kind === 'pool').map(({ name }) => name);
  return pools.length === 0 ? undefined : pools;
}
