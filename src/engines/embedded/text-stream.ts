/** Turns tokens into text; `before` are tokens already turned, for spacing. */
export type Detokenize = (tokens: readonly number[], before: readonly number[]) => string;

/** What a broken character decodes to. */
const REPLACEMENT = '\uFFFD';

/** A character has at most four bytes, a token at least one: more tokens than this are broken text, not a character to come. */
const MAX_PENDING_TOKENS = 4;

/** Tokens given to the detokenizer as what came before. */
const LOOK_BACK_TOKENS = 4;

/** Turns tokens into text one by one and never gives a part of a character. */
export class TokenDecoder {
  private pending: number[] = [];
  private before: number[] = [];

  constructor(private readonly detokenize: Detokenize) {}

  /** Text that became whole with this token; empty while a character is incomplete. */
  add(token: number): string {
    this.pending.push(token);
    const text = this.detokenize(this.pending, this.before);
    if (!text.endsWith(REPLACEMENT)) {
      this.settle();
      return text;
    }
    return this.pending.length < MAX_PENDING_TOKENS ? '' : this.giveBeginning(text);
  }

  /** What is left at the end, broken or not. */
  flush(): string {
    const text = this.pending.length === 0 ? '' : this.detokenize(this.pending, this.before);
    this.settle();
    return text;
  }

  /** Too many for one character: those at the beginning are broken, or U+FFFD itself, and what follows may still become one. */
  private giveBeginning(text: string): string {
    for (let count = 1; count < this.pending.length; count++) {
      const first = this.pending.slice(0, count);
      const given = this.detokenize(first, this.before);
      const rest = this.detokenize(this.pending.slice(count), [...this.before, ...first]);
      if (given + rest !== text) continue;
      this.settle(count);
      return given;
    }
    this.settle();
    return text;
  }

  /** The first `count` of what is pending has been given. */
  private settle(count = this.pending.length): void {
    this.before = [...this.before, ...this.pending.slice(0, count)].slice(-LOOK_BACK_TOKENS);
    this.pending = this.pending.slice(count);
  }
}

/** Finds stop strings in growing text and holds back what may yet become one. */
export class StopScanner {
  private held = '';
  /** A stop string was found; nothing more is given. */
  stopped = false;

  constructor(private readonly stops: readonly string[]) {}

  /** Text that can be given now. */
  add(text: string): string {
    if (this.stopped) return '';
    if (this.stops.length === 0) return text;
    const all = this.held + text;
    const found = this.stops.map((stop) => all.indexOf(stop)).filter((place) => place >= 0);
    if (found.length > 0) {
      this.stopped = true;
      this.held = '';
      return all.slice(0, Math.min(...found));
    }
    const keep = this.longestBeginning(all);
    this.held = all.slice(all.length - keep);
    return all.slice(0, all.length - keep);
  }

  /** What was held back and turned out to be no stop string. */
  flush(): string {
    const text = this.held;
    this.held = '';
    return text;
  }

  /** Length of the longest end of `text` that a stop string begins with. */
  private longestBeginning(text: string): number {
    const longest = Math.max(...this.stops.map((stop) => stop.length)) - 1;
    for (let length = Math.min(longest, text.length); length > 0; length--) {
      const end = text.slice(text.length - length);
      if (this.stops.some((stop) => stop.startsWith(end))) return length;
    }
    return 0;
  }
}
