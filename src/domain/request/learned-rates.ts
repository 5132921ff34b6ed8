/** Where learning starts: a mid-size model on one current data-centre GPU. Wrong by a factor, right in kind. */
const PRIOR_PREFILL_TOKENS_PER_SECOND = 8_000;
const PRIOR_SECONDS_PER_OUTPUT_TOKEN = 0.02;
/** No engine is believed to be further from the prior than this, whatever a handful of samples say. */
const MAX_DEVIATION = 50;
/** Share of the old estimate kept per sample; about the last 50 samples count. */
const KEEP = 0.98;

/** Speeds of one endpoint generation, learned from what its answers took. */
export class LearnedRates {
  prefillTokensPerSecond = PRIOR_PREFILL_TOKENS_PER_SECOND;
  secondsPerOutputToken = PRIOR_SECONDS_PER_OUTPUT_TOKEN;
  private prefillTokens = PRIOR_PREFILL_TOKENS_PER_SECOND / 4;
  private prefillSeconds = 0.25;

  /**
   * A first token came.
   * @param tokensAhead uncached prompt tokens the engine had to compute before it: backlog at pick time plus its own
   */
  firstToken(tokensAhead: number, ttftSeconds: number): void {
    if (!(tokensAhead > 0) || !(ttftSeconds > 0)) return;
    this.prefillTokens = this.prefillTokens * KEEP + tokensAhead;
    this.prefillSeconds = this.prefillSeconds * KEEP + ttftSeconds;
    this.prefillTokensPerSecond = nearPrior(
      this.prefillTokens / this.prefillSeconds,
      PRIOR_PREFILL_TOKENS_PER_SECOND,
    );
  }

  /** An answer ended: `tokens` after the first one took `seconds`. */
  decoded(tokens: number, seconds: number): void {
    if (!(tokens > 0) || !(seconds > 0)) return;
    const learned = this.secondsPerOutputToken * KEEP + (seconds / tokens) * (1 - KEEP);
    this.secondsPerOutputToken = nearPrior(learned, PRIOR_SECONDS_PER_OUTPUT_TOKEN);
  }
}

function nearPrior(value: number, prior: number): number {
  return Math.min(prior * MAX_DEVIATION, Math.max(prior / MAX_DEVIATION, value));
}
