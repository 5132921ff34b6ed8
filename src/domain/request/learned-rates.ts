/** Where learning starts: a mid-size model on one current data-centre GPU. Wrong by a factor, right in kind. */
const PRIOR_PREFILL_TOKENS_PER_SECOND = 8_000;
const PRIOR_OVERHEAD_SECONDS = 0.02;
const PRIOR_SECONDS_PER_OUTPUT_TOKEN = 0.02;
/**
 * The prior as observations that never fade. Many of "no tokens, little overhead": with prompts all of one size, time
 * is rather the prompt's doing than the network's. A grain of one long prompt: short prompts alone say nothing of the
 * rate, and an engine that answers twenty tokens in a tenth of a second does not compute two hundred a second.
 */
const PRIOR_EMPTY_WEIGHT = 4;
const PRIOR_LONG_WEIGHT = 0.1;
const PRIOR_LONG_TOKENS = 4_000;
const PRIOR_LONG_SECONDS = PRIOR_OVERHEAD_SECONDS + PRIOR_LONG_TOKENS / PRIOR_PREFILL_TOKENS_PER_SECOND;
/** No engine is believed to be further from the prior than this, whatever a handful of samples say. */
const MAX_DEVIATION = 50;
/** Share of the past kept per observation; about the last hundred count. */
const KEEP = 0.99;
/** Samples beyond these are no measurements: a prompt of millions of tokens, an answer after a day. */
const MAX_SAMPLE_TOKENS = 10_000_000;
const MAX_SAMPLE_SECONDS = 86_400;
/** A first token this many times later than expected is counted as this late: one stalled request is no new speed. */
const MAX_SURPRISE = 4;

/**
 * Speeds of one endpoint generation, learned from what its answers took. Time to first token is a line over the
 * tokens computed before it: the slope is the prefill rate, the rest is overhead (network, scheduling, one decode
 * step), which would make an engine with short prompts look slow if it were divided by them.
 */
export class LearnedRates {
  prefillTokensPerSecond = PRIOR_PREFILL_TOKENS_PER_SECOND;
  overheadSeconds = PRIOR_OVERHEAD_SECONDS;
  secondsPerOutputToken = PRIOR_SECONDS_PER_OUTPUT_TOKEN;
  private observed = 0;
  private weight = 0;
  private sumX = 0;
  private sumY = 0;
  private sumXX = 0;
  private sumXY = 0;

  /** First tokens observed. */
  get observations(): number {
    return this.observed;
  }

  /**
   * A first token came.
   * @param tokensAhead uncached prompt tokens the engine had to compute before it: backlog at pick time plus its own
   */
  firstToken(tokensAhead: number, ttftSeconds: number): void {
    if (!(tokensAhead >= 0 && tokensAhead <= MAX_SAMPLE_TOKENS)) return;
    if (!(ttftSeconds > 0 && ttftSeconds <= MAX_SAMPLE_SECONDS)) return;
    const expected = this.overheadSeconds + tokensAhead / this.prefillTokensPerSecond;
    this.observed += 1;
    const seconds = Math.min(ttftSeconds, expected * MAX_SURPRISE);
    this.weight = this.weight * KEEP + 1;
    this.sumX = this.sumX * KEEP + tokensAhead;
    this.sumY = this.sumY * KEEP + seconds;
    this.sumXX = this.sumXX * KEEP + tokensAhead * tokensAhead;
    this.sumXY = this.sumXY * KEEP + tokensAhead * seconds;
    this.solve();
  }

  /** An answer ended: `tokens` after the first one took `seconds`. */
  decoded(tokens: number, seconds: number): void {
    if (!(tokens > 0 && tokens <= MAX_SAMPLE_TOKENS)) return;
    if (!(seconds > 0 && seconds <= MAX_SAMPLE_SECONDS)) return;
    // Answers of a few tokens say little about the pace.
    const weight = (1 - KEEP) * Math.min(1, tokens / 50) * 2;
    const seen = nearPrior(seconds / tokens, PRIOR_SECONDS_PER_OUTPUT_TOKEN);
    this.secondsPerOutputToken += (seen - this.secondsPerOutputToken) * weight;
  }

  /** The line of least squares through the observations and the prior. */
  private solve(): void {
    const weight = this.weight + PRIOR_EMPTY_WEIGHT + PRIOR_LONG_WEIGHT;
    const meanX = (this.sumX + PRIOR_LONG_WEIGHT * PRIOR_LONG_TOKENS) / weight;
    const meanY =
      (this.sumY + PRIOR_EMPTY_WEIGHT * PRIOR_OVERHEAD_SECONDS + PRIOR_LONG_WEIGHT * PRIOR_LONG_SECONDS) /
      weight;
    const xx = (this.sumXX + PRIOR_LONG_WEIGHT * PRIOR_LONG_TOKENS * PRIOR_LONG_TOKENS) / weight;
    const xy = (this.sumXY + PRIOR_LONG_WEIGHT * PRIOR_LONG_TOKENS * PRIOR_LONG_SECONDS) / weight;
    const slope = (xy - meanX * meanY) / (xx - meanX * meanX);
    const slowest = MAX_DEVIATION / PRIOR_PREFILL_TOKENS_PER_SECOND;
    const fastest = 1 / (MAX_DEVIATION * PRIOR_PREFILL_TOKENS_PER_SECOND);
    const bounded = Math.min(slowest, Math.max(fastest, slope));
    this.prefillTokensPerSecond = 1 / bounded;
    this.overheadSeconds = Math.max(0, meanY - meanX * bounded);
  }
}

function nearPrior(value: number, prior: number): number {
  return Math.min(prior * MAX_DEVIATION, Math.max(prior / MAX_DEVIATION, value));
}
