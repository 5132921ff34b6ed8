import { PRIOR_BYTES_PER_TOKEN } from './deadlines.js';

/** Output tokens of an answer before a model's own mean is known. */
const PRIOR_OUTPUT_TOKENS = 256;
/** Answers after which the prior has lost two thirds of its weight. */
const MEMORY = 50;
/** Ratios beyond these come from images and other content that is not text, and would spoil every estimate after. */
const MIN_BYTES_PER_TOKEN = 1;
const MAX_BYTES_PER_TOKEN = 16;

/** Sizes of one model's requests, learned from `usage`. */
export class LearnedSizes {
  /** Bytes of prompt text (JSON included) per prompt token. */
  bytesPerToken = PRIOR_BYTES_PER_TOKEN;
  /** Mean tokens of an answer. */
  outputTokens = PRIOR_OUTPUT_TOKENS;

  /** An answer ended whole; `completionTokens`: of one choice. */
  answered(promptBytes: number, promptTokens: number, completionTokens: number): void {
    if (promptTokens > 0 && promptBytes > 0) {
      const ratio = Math.min(MAX_BYTES_PER_TOKEN, Math.max(MIN_BYTES_PER_TOKEN, promptBytes / promptTokens));
      // Short prompts are mostly template, which no estimate of a long one should rest on.
      const weight = Math.min(1, promptTokens / 200) / MEMORY;
      this.bytesPerToken += (ratio - this.bytesPerToken) * weight;
    }
    if (completionTokens >= 0) this.outputTokens += (completionTokens - this.outputTokens) / MEMORY;
  }

  /** Prompt tokens that `promptBytes` of text are likely to be. */
  promptTokens(promptBytes: number): number {
    return Math.ceil(promptBytes / this.bytesPerToken);
  }

  /** Output tokens to expect of `choices` answers: each the mean, or less where the request sets it a limit. */
  expectedOutputTokens(maxTokens: number | undefined, choices = 1): number {
    return choices * (maxTokens === undefined ? this.outputTokens : Math.min(maxTokens, this.outputTokens));
  }
}
