/** A byte-level pair vocabulary as GPT-2's: what llama.cpp needs of it, and an encoder for training texts. */
export interface Bpe {
  /** Token texts in GPT-2's printable alphabet; the index is the token id. The 256 bytes come first, then the merges. */
  readonly tokens: readonly string[];
  /** `left right` per merge, in the order they were learnt. */
  readonly merges: readonly string[];
  /** Token ids of a text of the training corpus. */
  encode(text: string): number[];
}

/** How GPT-2 cuts text into words before it looks at pairs; the engine does the same with `tokenizer.ggml.pre = gpt-2`. */
const WORD = /'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

interface Word {
  symbols: string[];
  readonly count: number;
}

/** Learns up to `mergeCount` merges from `texts`, most frequent pair first, ties by text: the same bytes on every machine. */
export function trainBpe(texts: readonly string[], mergeCount: number): Bpe {
  const alphabet = byteAlphabet();
  const words = countWords(texts, alphabet);
  const tokens = [...alphabet];
  const merges: string[] = [];
  while (merges.length < mergeCount) {
    const pair = mostFrequentPair(words.values());
    if (pair === undefined) break;
    const [left, right] = pair;
    merges.push(`${left} ${right}`);
    tokens.push(left + right);
    for (const word of words.values()) word.symbols = mergePair(word.symbols, left, right);
  }
  const idOf = new Map(tokens.map((token, id) => [token, id]));
  return {
    tokens,
    merges,
    encode: (text) =>
      splitWords(text).flatMap((word) => {
        const learnt = words.get(word);
        if (learnt === undefined) throw new Error(`not in the training texts: ${JSON.stringify(word)}`);
        return learnt.symbols.map((symbol) => idOf.get(symbol) ?? 0);
      }),
  };
}

function splitWords(text: string): string[] {
  return [...text.matchAll(WORD)].map((match) => match[0]);
}

function countWords(texts: readonly string[], alphabet: readonly string[]): Map<string, Word> {
  const counts = new Map<string, number>();
  for (const word of texts.flatMap(splitWords)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return new Map(
    [...counts].map(([word, count]) => [
      word,
      { symbols: Array.from(Buffer.from(word), (byte) => alphabet[byte] ?? ''), count },
    ]),
  );
}

function mostFrequentPair(words: Iterable<Word>): readonly [left: string, right: string] | undefined {
  const counts = new Map<string, number>();
  for (const { symbols, count } of words) {
    for (let i = 0; i + 1 < symbols.length; i++) {
      const pair = `${symbols[i]} ${symbols[i + 1]}`;
      counts.set(pair, (counts.get(pair) ?? 0) + count);
    }
  }
  let best = '';
  let bestCount = 0;
  for (const [pair, count] of counts) {
    if (count > bestCount || (count === bestCount && pair < best)) {
      best = pair;
      bestCount = count;
    }
  }
  // No symbol of the alphabet is a blank, so the pair has exactly one.
  const [left, right] = best.split(' ');
  return left === undefined || right === undefined ? undefined : [left, right];
}

function mergePair(symbols: readonly string[], left: string, right: string): string[] {
  const merged: string[] = [];
  for (let i = 0; i < symbols.length; i++) {
    const symbol = symbols[i] ?? '';
    if (symbol === left && symbols[i + 1] === right) {
      merged.push(left + right);
      i++;
    } else merged.push(symbol);
  }
  return merged;
}

/** GPT-2's alphabet: a printable character for each byte, itself where it has one, else one from U+0100 on. */
function byteAlphabet(): string[] {
  const printable = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : next++));
}
