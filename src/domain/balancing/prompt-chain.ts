/** Hashes of a prompt's blocks, each over everything before it: equal hash means equal text up to that edge. */
export interface PromptChain {
  /** Blocks hashed. */
  readonly length: number;
  /** Two words per block: `words[2 * i]` and `words[2 * i + 1]`. */
  readonly words: Uint32Array;
}
