/** Natural logarithm of what is as good as impossible; finite, because a weight has to hold it. */
export const LOG_NEVER = -30;

export interface BigramOptions {
  readonly vocabularySize: number;
  /** Token sequences, each a text of its own. */
  readonly sequences: readonly (readonly number[])[];
  /** The token that may be followed by the end of the text. */
  readonly sentenceEnd: number;
  /** The token that ends the text. */
  readonly endOfText: number;
  /** How likely a text ends after a sentence, 0 to 1. */
  readonly endProbability: number;
}

/**
 * What follows what, as log probabilities. A token that never had a successor (bytes, special tokens, the end of a prompt in
 * any language) is followed by the start of a text: whatever is asked, the answer begins with a sentence.
 */
export class Bigram {
  private readonly rows = new Map<number, Map<number, number>>();
  private readonly starts: Map<number, number>;

  constructor(private readonly options: BigramOptions) {
    for (const sequence of options.sequences) {
      for (let i = 0; i + 1 < sequence.length; i++) this.count(sequence[i] ?? 0, sequence[i + 1] ?? 0);
    }
    this.starts = new Map();
    for (const [first] of options.sequences) {
      if (first !== undefined) this.starts.set(first, (this.starts.get(first) ?? 0) + 1);
    }
  }

  /** Log probabilities of every token after `current`, as one row. */
  logProbabilities(current: number): Float64Array {
    const { vocabularySize, sentenceEnd, endOfText, endProbability } = this.options;
    const row = new Float64Array(vocabularySize).fill(LOG_NEVER);
    const counts = this.rows.get(current) ?? this.starts;
    const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
    const ends = current === sentenceEnd;
    for (const [next, count] of counts) {
      row[next] = Math.log((count / total) * (ends ? 1 - endProbability : 1));
    }
    if (ends) row[endOfText] = Math.log(endProbability);
    return row;
  }

  private count(current: number, next: number): void {
    const row = this.rows.get(current) ?? new Map<number, number>();
    row.set(next, (row.get(next) ?? 0) + 1);
    this.rows.set(current, row);
  }
}
