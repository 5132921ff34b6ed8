/**
 * Times of a run of any length in fixed memory: buckets that grow by two per cent, so a quantile is off by one per cent
 * at most. Keeping every value would make a load test of a day grow with it.
 */
export class LogHistogram {
  private readonly counts = new Float64Array(BUCKETS);
  private total = 0;
  private sum = 0;
  private smallest = Infinity;
  private largest = 0;

  /** Takes in a time, ms. */
  add(ms: number): void {
    const value = Math.max(0, ms);
    const index = value <= SMALLEST_MS ? 0 : Math.ceil(Math.log(value / SMALLEST_MS) / LOG_GROWTH);
    this.counts[Math.min(index, BUCKETS - 1)]! += 1;
    this.total += 1;
    this.sum += value;
    this.smallest = Math.min(this.smallest, value);
    this.largest = Math.max(this.largest, value);
  }

  get count(): number {
    return this.total;
  }

  /** Undefined while nothing was measured. */
  get meanMs(): number | undefined {
    return this.total === 0 ? undefined : this.sum / this.total;
  }

  get maxMs(): number | undefined {
    return this.total === 0 ? undefined : this.largest;
  }

  /** The time that a share `p` of the values does not exceed, ms; undefined while nothing was measured. */
  quantile(p: number): number | undefined {
    if (this.total === 0) return undefined;
    const rank = Math.max(1, Math.ceil(p * this.total));
    let seen = 0;
    let index = 0;
    while (index < BUCKETS - 1 && (seen += this.counts[index]!) < rank) index += 1;
    // The middle of the bucket, but never beyond what was really seen.
    const middle = index === 0 ? SMALLEST_MS : SMALLEST_MS * GROWTH ** (index - 0.5);
    return Math.min(this.largest, Math.max(this.smallest, middle));
  }
}

const SMALLEST_MS = 0.01;
const GROWTH = 1.02;
const LOG_GROWTH = Math.log(GROWTH);
/** Up to a day. */
const BUCKETS = Math.ceil(Math.log(86_400_000 / SMALLEST_MS) / LOG_GROWTH) + 1;
