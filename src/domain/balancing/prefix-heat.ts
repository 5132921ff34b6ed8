/** Counters; two prefixes on one counter only look a little hotter than they are. */
const SLOTS = 512;

/**
 * How often prefixes were asked for of late, as counts that fade with every request. One replica cannot carry a
 * prefix that makes up more than its fair share of all requests, however well its cache fits.
 */
export class PrefixHeat {
  private readonly counts = new Float64Array(SLOTS);
  private readonly countedAt = new Float64Array(SLOTS);
  private requests = 0;

  /** Any request passed: the past fades by one. */
  tick(): void {
    this.requests += 1;
  }

  /**
   * One more request for the prefix; returns its count, this one included.
   * @param memory requests after which a count has faded to a third
   */
  add(prefixHash: number, memory: number): number {
    const at = prefixHash & (SLOTS - 1);
    const faded = this.counts[at]! * Math.exp((this.countedAt[at]! - this.requests) / memory);
    this.counts[at] = faded + 1;
    this.countedAt[at] = this.requests;
    return faded + 1;
  }
}
