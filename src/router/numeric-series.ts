/**
 * Counting on the hot path: plain numbers, no label look-up, no allocation. A metrics library reads them out when it
 * is scraped; its own counters cost several microseconds per labelled increment, and a stream has one per event.
 */

/** Upper bounds in seconds for what a generation may take: from a cached answer to half an hour. */
export const LONG_SECONDS = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800,
] as const;

/** Upper bounds in seconds between two events of one stream. */
export const SHORT_SECONDS = [
  0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
] as const;

/** Upper bounds in seconds for a decision of ours. */
export const TINY_SECONDS = [
  0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1,
] as const;

/** A cumulative histogram's raw counts. */
export class Histogram {
  /** Per bucket, not cumulative; the last one is beyond all bounds. */
  readonly counts: Float64Array;
  sum = 0;
  count = 0;

  constructor(readonly bounds: readonly number[]) {
    this.counts = new Float64Array(bounds.length + 1);
  }

  /** Takes in one value; NaN and negative values (a clock fault) are dropped. */
  observe(value: number): void {
    if (!(value >= 0)) return;
    const { bounds } = this;
    let low = 0;
    let high = bounds.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (value <= (bounds[middle] as number)) high = middle;
      else low = middle + 1;
    }
    this.counts[low]! += 1;
    this.sum += value;
    this.count += 1;
  }
}

/** Counts by a small, closed set of names. */
export class NamedCounts {
  private readonly counts = new Map<string, number>();

  add(name: string, amount = 1): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + amount);
  }

  get(name: string): number {
    return this.counts.get(name) ?? 0;
  }

  entries(): Iterable<[string, number]> {
    return this.counts;
  }
}
