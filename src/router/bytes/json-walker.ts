/**
 * Containers inside one another, the outermost included. Real requests stay under 40 (tool schemas); several
 * engines' parsers recurse, and a body of a million brackets stops Node's own for half a second.
 */
export const JSON_DEPTH_MAX = 128;

const QUOTE = 34;
const BACKSLASH = 92;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;
const OPEN_ARRAY = 91;
const CLOSE_ARRAY = 93;
const COMMA = 44;
const COLON = 58;
const MINUS = 45;
const PLUS = 43;
const POINT = 46;
const ZERO = 48;
const LOWER_E = 101;
const LOWER_F = 102;
const LOWER_N = 110;
const LOWER_T = 116;
const LOWER_U = 117;
const SPACE = 32;

/** What may follow a backslash, `u` apart. */
const ESCAPES = new Uint8Array(256);
for (const char of '"\\/bfnrt') ESCAPES[char.charCodeAt(0)] = 1;

/** Bytes of a string looked at one by one before the word-wise loop takes over; most strings end earlier. */
const SHORT_STRING_BYTES = 24;

/** Kinds of the open containers, innermost last; shared, since a walk is synchronous and never nested. */
const openKinds = new Uint8Array(JSON_DEPTH_MAX + 1);

/**
 * Walks over JSON text in a buffer and checks all of its grammar (RFC 8259, what JSON.parse accepts) without
 * building anything. Methods take the index of a first byte and return the index after the last, or -1 with
 * `failedAt` set; `tooDeep` tells a depth fault from a grammar fault. UTF-8 is not checked here.
 */
export class JsonWalker {
  failedAt = -1;
  tooDeep = false;

  readonly #bytes: Buffer;
  readonly #end: number;
  /** The same memory in words of four bytes, made when a long string first asks for it. */
  #words: Int32Array | undefined;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.#end = bytes.length;
  }

  /** Index of the next byte that is not white space. */
  skipSpace(from: number): number {
    const bytes = this.#bytes;
    let at = from;
    while (at < this.#end) {
      const byte = bytes[at];
      if (byte !== SPACE && byte !== 10 && byte !== 13 && byte !== 9) break;
      at++;
    }
    return at;
  }

  /** Over any value that begins at `from`, which lies in `depth` open containers. */
  skipValue(from: number, depth: number): number {
    const byte = this.#bytes[from];
    if (byte === QUOTE) return this.skipString(from);
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) return this.#skipContainer(from, depth);
    return this.#skipScalar(from);
  }

  /** Over the string whose opening quote is at `from`. */
  skipString(from: number): number {
    const bytes = this.#bytes;
    const end = this.#end;
    let at = from + 1;
    let stop = Math.min(at + SHORT_STRING_BYTES, end);
    for (;;) {
      while (at < stop) {
        const byte = bytes[at] as number;
        if (byte === QUOTE) return at + 1;
        if (byte === BACKSLASH) {
          at = this.#skipEscape(at);
          if (at < 0) return -1;
        } else if (byte < SPACE) return this.fail(at);
        else at++;
      }
      if (at >= end) return this.fail(end);
      at = this.#skipPlainWords(at);
      stop = Math.min(at + 8, end);
    }
  }

  fail(at: number): number {
    this.failedAt = at;
    return -1;
  }

  /** Index near (at most 7 bytes before) the next quote, backslash or control byte, or near the end. */
  #skipPlainWords(from: number): number {
    const bytes = this.#bytes;
    const base = bytes.byteOffset;
    const words = (this.#words ??= new Int32Array(bytes.buffer, 0, bytes.buffer.byteLength >> 2));
    let word = (base + from + 3) >> 2;
    const last = (base + this.#end) >> 2;
    for (; word < last; word++) {
      const four = words[word] as number;
      // Sets the top bit of a byte below 0x21 after the exchange of 0x20 and 0x22: of a control or a quote.
      const low = four ^ 0x02020202;
      const back = four ^ 0x5c5c5c5c;
      if ((((low - 0x21212121) & ~low) | ((back - 0x01010101) & ~back)) & 0x80808080) break;
    }
    return Math.max(from, (word << 2) - base);
  }

  #skipEscape(at: number): number {
    const bytes = this.#bytes;
    const byte = bytes[at + 1];
    if (byte === undefined) return this.fail(this.#end);
    if (ESCAPES[byte] === 1) return at + 2;
    if (byte !== LOWER_U || at + 6 > this.#end) return this.fail(at);
    for (let i = at + 2; i < at + 6; i++) if (!isHex(bytes[i] as number)) return this.fail(at);
    return at + 6;
  }

  #skipContainer(from: number, depth: number): number {
    const bytes = this.#bytes;
    let open = depth;
    let at = from;
    for (;;) {
      // A value begins at `at`.
      const byte = bytes[at];
      if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (open === JSON_DEPTH_MAX) {
          this.tooDeep = true;
          return this.fail(at);
        }
        openKinds[++open] = byte;
        at = this.skipSpace(at + 1);
        // '}' and ']' are their opening brackets plus two.
        if (bytes[at] !== byte + 2) {
          if (byte === OPEN_OBJECT) at = this.#skipKey(at);
          if (at < 0) return -1;
          continue;
        }
        at++;
        open--;
      } else {
        at = byte === QUOTE ? this.skipString(at) : this.#skipScalar(at);
        if (at < 0) return -1;
      }
      // A value ended before `at`: close what closes, then step to the next value.
      for (;;) {
        if (open === depth) return at;
        at = this.skipSpace(at);
        const kind = openKinds[open] as number;
        const after = bytes[at];
        if (after === kind + 2) {
          at++;
          open--;
          continue;
        }
        if (after !== COMMA) return this.fail(at);
        at = this.skipSpace(at + 1);
        if (kind === OPEN_OBJECT) at = this.#skipKey(at);
        if (at < 0) return -1;
        break;
      }
    }
  }

  /** Over a key, its colon and the white space around it, to the first byte of the value. */
  #skipKey(from: number): number {
    if (this.#bytes[from] !== QUOTE) return this.fail(from);
    const keyEnd = this.skipString(from);
    return keyEnd < 0 ? -1 : this.skipColon(keyEnd);
  }

  /** Over a colon and the white space around it. */
  skipColon(from: number): number {
    const at = this.skipSpace(from);
    return this.#bytes[at] === COLON ? this.skipSpace(at + 1) : this.fail(at);
  }

  #skipScalar(from: number): number {
    const byte = this.#bytes[from];
    if (byte === LOWER_T) return this.#skipWord(from, 'true');
    if (byte === LOWER_F) return this.#skipWord(from, 'false');
    return byte === LOWER_N ? this.#skipWord(from, 'null') : this.#skipNumber(from);
  }

  #skipWord(from: number, word: string): number {
    for (let i = 1; i < word.length; i++) {
      if (this.#bytes[from + i] !== word.charCodeAt(i)) return this.fail(from + i);
    }
    return from + word.length;
  }

  #skipNumber(from: number): number {
    const bytes = this.#bytes;
    let at = bytes[from] === MINUS ? from + 1 : from;
    if (bytes[at] === ZERO) at++;
    else at = this.#skipDigits(at);
    if (at >= 0 && bytes[at] === POINT) at = this.#skipDigits(at + 1);
    if (at >= 0 && at < this.#end && ((bytes[at] as number) | 32) === LOWER_E) {
      const sign = bytes[at + 1];
      at = this.#skipDigits(sign === PLUS || sign === MINUS ? at + 2 : at + 1);
    }
    return at;
  }

  /** Over one digit or more. */
  #skipDigits(from: number): number {
    let at = from;
    while (at < this.#end && isDigit(this.#bytes[at] as number)) at++;
    return at > from ? at : this.fail(at);
  }
}

function isDigit(byte: number): boolean {
  return byte >= 48 && byte <= 57;
}

function isHex(byte: number): boolean {
  const lower = byte | 32;
  return isDigit(byte) || (lower >= 97 && lower <= 102);
}

export const JSON_BYTE = {
  QUOTE,
  BACKSLASH,
  OPEN_OBJECT,
  CLOSE_OBJECT,
  OPEN_ARRAY,
  CLOSE_ARRAY,
  COMMA,
} as const;
