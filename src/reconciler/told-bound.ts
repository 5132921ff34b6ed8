/** Entries about one thing within the window; what flaps must not push everything else out of a bounded timeline. */
const TOLD_MAX = 8;
const WINDOW_MS = 10 * 60_000;
/** Things whose entries are counted; beyond it the longest known are forgotten, and may be told of a little more often. */
const THINGS_MAX = 4_096;

interface Told {
  readonly atMs: readonly number[];
  readonly untold: number;
}

/** Leaves out what would only repeat itself, and counts it. */
export class ToldBound {
  private readonly told = new Map<string, Told>();

  /** How many entries about the thing were left out before this one; undefined when this one is left out too. */
  next(thing: string, nowMs: number): number | undefined {
    const known = this.told.get(thing) ?? { atMs: [], untold: 0 };
    const atMs = known.atMs.filter((one) => nowMs - one < WINDOW_MS);
    this.told.delete(thing);
    if (atMs.length >= TOLD_MAX) {
      this.told.set(thing, { atMs, untold: known.untold + 1 });
      return undefined;
    }
    this.told.set(thing, { atMs: [...atMs, nowMs], untold: 0 });
    const [oldest] = this.told.keys();
    if (this.told.size > THINGS_MAX && oldest !== undefined) this.told.delete(oldest);
    return known.untold;
  }
}

/** Added to the words of an entry before which others were left out. */
export const leftOut = (untold: number): string =>
  untold === 0 ? '' : `; ${untold} changes before it were not told`;
