/**
 * Containers inside one another, the outermost included. Real requests stay under 40 (tool schemas); several
 * engines' parsers recurse, and a body of a million brackets stops Node's own for half a second.
 */
export const JSON_DEPTH_MAX = 128;

/**
 * Bytes of quiet text (long runs without quote or backslash, pictures mostly) that are searched for every control
 * character, per walk. Beyond it only TAB, LF and CR are found, those that hand-made JSON really contains: the full
 * search is nine tenths of the time a large body takes.
 */
export const CONTROL_SEARCH_MAX_BYTES = 16 * 1024;

/**
 * Strings from this length on are looked at for what they are: a picture of a megabyte in base64 is a thousand tokens to an
 * engine, and would be taken for a quarter of a million by its length.
 */
export const BLOB_MIN_BYTES = 8 * 1024;
/** Bytes at the middle and at the end of such a string that tell text from base64: no text goes on so long without a blank. */
const BLOB_SAMPLE_BYTES = 512;

const QUOTE = 34;
const BACKSLASH = 92;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;
const OPEN_ARRAY = 91;
const COMMA = 44;
const COLON = 58;
const MINUS = 45;
const PLUS = 43;
const POINT = 46;
const ZERO = 48;
const LOWER_E = 101;
const UPPER_E = 69;
const LOWER_F = 102;
const LOWER_N = 110;
const LOWER_T = 116;
const LOWER_U = 117;
const SPACE = 32;
const TAB = 9;
const LF = 10;
const CR = 13;

/** The bytes that mean something inside a string: quote, backslash, and controls, which are not allowed there. */
const SPECIAL = new Uint8Array(256);
SPECIAL.fill(1, 0, SPACE);
SPECIAL[QUOTE] = SPECIAL[BACKSLASH] = 1;

/** What may follow a backslash, `u` apart. */
const ESCAPES = new Uint8Array(256);
for (const char of '"\\/bfnrt') ESCAPES[char.charCodeAt(0)] = 1;

/** Letters of base64, of its form for URLs too, by kind: capitals, small letters and digits all stand in a sample of it. */
const BASE64 = new Uint8Array(256);
['ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz', '0123456789', '+/-_='].forEach((chars, kind) => {
  for (const char of chars) BASE64[char.charCodeAt(0)] = 1 << kind;
});
const BASE64_KINDS = 0b111;

/** The top bit of each byte of a word, as the 32-bit integer it must be to stay off the slow number path. */
const TOP_BITS = 0x80808080 | 0;

/**
 * Words without anything special after which memchr is asked. It is many times faster per byte, but its calls cost more
 * than they save in ordinary text, where a line break or a quote is never far; in pictures and long runs they pay.
 */
const QUIET_WORDS = 128;

/** Kinds of the open containers, innermost last; shared, since a walk is synchronous and never nested. */
const openKinds = new Uint8Array(JSON_DEPTH_MAX + 1);

/**
 * Walks over JSON text in a buffer and checks its grammar (RFC 8259, what JSON.parse accepts) without building
 * anything. Methods take the index of a first byte and return the index after the last, or -1 with `failedAt` set;
 * `tooDeep` tells a depth fault from a grammar fault. Not checked: UTF-8, and see CONTROL_SEARCH_MAX_BYTES.
 *
 * A walker goes forward only: it remembers where the next quote is, so going back over text already passed would
 * miss quotes. Looking at something twice takes a second walker.
 */
export class JsonWalker {
  failedAt = -1;
  tooDeep = false;
  /** Escapes met so far; a caller compares it to learn whether a string had any. */
  escapes = 0;
  /** Bytes of the strings inside containers that are base64, and how many there were. */
  blobBytes = 0;
  blobs = 0;

  readonly #bytes: Buffer;
  readonly #end: number;
  readonly #words: Int32Array<ArrayBufferLike>;
  #controlSearchLeft = CONTROL_SEARCH_MAX_BYTES;
  // Where the next such byte is, at or after the last place asked for; found by memchr, once per occurrence.
  #nextQuote = -1;
  #nextBackslash = -1;
  #nextTab = -1;
  #nextLf = -1;
  #nextCr = -1;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.#end = bytes.length;
    this.#words = wordsOf(bytes);
  }

  fail(at: number): number {
    this.failedAt = at;
    return -1;
  }

  /** Index of the next byte that is not white space. */
  skipSpace(from: number): number {
    const bytes = this.#bytes;
    let at = from;
    while (at < this.#end) {
      const byte = bytes[at] as number;
      if (byte > SPACE || (byte !== SPACE && byte !== LF && byte !== CR && byte !== TAB)) break;
      at++;
    }
    return at;
  }

  /** Over a colon and the white space around it. */
  skipColon(from: number): number {
    const at = this.skipSpace(from);
    return this.#bytes[at] === COLON ? this.skipSpace(at + 1) : this.fail(at);
  }

  /** Over any value that begins at `from`, inside `depth` open containers. */
  skipValue(from: number, depth: number): number {
    const byte = this.#bytes[from];
    if (byte === QUOTE) return this.skipString(from);
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) return this.#skipContainer(from, depth);
    return this.#skipScalar(from);
  }

  /**
   * Over the string whose opening quote is at `from`. Looks at words of four bytes for the next quote, backslash or
   * control byte; the time of most bodies goes here, and calls in this loop would double it.
   */
  skipString(from: number): number {
    const bytes = this.#bytes;
    const words = this.#words;
    const base = bytes.byteOffset;
    const end = this.#end;
    const lastWord = (base + end) >> 2;
    for (let at = from + 1; ;) {
      let word = (base + at) >> 2;
      const quietWord = Math.min(word + QUIET_WORDS, lastWord);
      // Bytes of the first word before `at` do not count.
      let mask = TOP_BITS << (((base + at) & 3) << 3);
      let found = 0;
      for (; word < quietWord; word++) {
        const four = words[word] as number;
        // The exchange of 0x20 and 0x22 puts the quote right above the controls: one comparison finds both.
        const low = four ^ 0x02020202;
        const back = four ^ 0x5c5c5c5c;
        found = (((low - 0x21212121) & ~low) | ((back - 0x01010101) & ~back)) & mask;
        if (found !== 0) break;
        mask = TOP_BITS;
      }
      at =
        found === 0
          ? this.#afterQuiet(Math.max(at, (word << 2) - base))
          : (word << 2) - base + firstByteIn(found);
      if (at < 0) return -1;
      const byte = bytes[at];
      if (byte === QUOTE) return at + 1;
      if (byte === BACKSLASH) {
        this.escapes++;
        at = at + 1 < end && ESCAPES[bytes[at + 1] as number] === 1 ? at + 2 : this.#skipUnicodeEscape(at);
        if (at < 0) return -1;
      } else if (at < end && (byte as number) >= SPACE) {
        // A false hit: the subtraction borrows from the byte above a true one that came before `at` and did not count.
        at++;
      } else return this.fail(Math.min(at, end));
    }
  }

  /**
   * Index of the next quote or backslash at or after `from`, or the end; -1 if a control byte stands before it.
   * For places where nothing has been for a while (or where the whole words end): by memchr.
   */
  #afterQuiet(from: number): number {
    const bytes = this.#bytes;
    if (this.#nextQuote < from) this.#nextQuote = positionOf(bytes, QUOTE, from);
    if (this.#nextBackslash < from) this.#nextBackslash = positionOf(bytes, BACKSLASH, from);
    const to = Math.min(this.#nextQuote, this.#nextBackslash, this.#end);
    const control = this.#controlIn(from, to);
    return control < 0 ? to : this.fail(control);
  }

  /** Index of a control byte in the run, or -1. */
  #controlIn(from: number, to: number): number {
    const bytes = this.#bytes;
    const searched = Math.min(to, from + this.#controlSearchLeft);
    this.#controlSearchLeft -= searched - from;
    for (let at = this.#skipPrintable(from, searched); at < searched; at++) {
      if ((bytes[at] as number) < SPACE) return at;
    }
    if (searched === to) return -1;
    if (this.#nextTab < from) this.#nextTab = positionOf(bytes, TAB, from);
    if (this.#nextLf < from) this.#nextLf = positionOf(bytes, LF, from);
    if (this.#nextCr < from) this.#nextCr = positionOf(bytes, CR, from);
    const first = Math.min(this.#nextTab, this.#nextLf, this.#nextCr);
    return first < to ? first : -1;
  }

  /** Over whole words without a control byte; stops a few bytes early rather than looking closely. */
  #skipPrintable(from: number, to: number): number {
    const words = this.#words;
    const base = this.#bytes.byteOffset;
    const last = Math.min((base + to) >> 2, words.length);
    let word = (base + from + 3) >> 2;
    if (word >= last) return from;
    // The bytes before the first whole word are left to the caller if one of them is a control byte.
    for (let at = from; at < (word << 2) - base; at++) if ((this.#bytes[at] as number) < SPACE) return at;
    for (; word < last; word++) {
      const four = words[word] as number;
      if (((four - 0x20202020) & ~four & TOP_BITS) !== 0) break;
    }
    return (word << 2) - base;
  }

  #skipUnicodeEscape(at: number): number {
    const bytes = this.#bytes;
    if (bytes[at + 1] !== LOWER_U || at + 6 > this.#end) return this.fail(Math.min(at + 1, this.#end));
    for (let i = at + 2; i < at + 6; i++) if (!isHex(bytes[i] as number)) return this.fail(i);
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
        const begin = at;
        at = byte === QUOTE ? this.skipString(at) : this.#skipScalar(at);
        if (at < 0) return -1;
        if (at - begin >= BLOB_MIN_BYTES) this.#noteLong(begin, at);
      }
      // A value ended before `at`: close what closes, then step to the next value.
      for (;;) {
        if (open === depth) return at;
        const kind = openKinds[open] as number;
        let after = bytes[at] as number;
        if (after <= SPACE) after = bytes[(at = this.skipSpace(at))] as number;
        if (after === kind + 2) {
          at++;
          open--;
          continue;
        }
        if (after !== COMMA) return this.fail(at);
        if ((bytes[++at] as number) <= SPACE) at = this.skipSpace(at);
        if (kind === OPEN_OBJECT) at = this.#skipKey(at);
        if (at < 0) return -1;
        break;
      }
    }
  }

  /** A long value lies in `from`..`to`. */
  #noteLong(from: number, to: number): void {
    const middle = (from + to) >> 1;
    if (
      !this.#isBase64(middle, middle + BLOB_SAMPLE_BYTES) ||
      !this.#isBase64(to - 1 - BLOB_SAMPLE_BYTES, to - 1)
    )
      return;
    this.blobBytes += to - from;
    this.blobs += 1;
  }

  #isBase64(from: number, to: number): boolean {
    let kinds = 0;
    for (let at = from; at < to; at++) {
      const kind = BASE64[this.#bytes[at] as number] as number;
      if (kind === 0) return false;
      kinds |= kind;
    }
    return (kinds & BASE64_KINDS) === BASE64_KINDS;
  }

  /** Over a key, its colon and the white space around it, to the first byte of the value. */
  #skipKey(from: number): number {
    if (this.#bytes[from] !== QUOTE) return this.fail(from);
    const keyEnd = this.skipString(from);
    return keyEnd < 0 ? -1 : this.skipColon(keyEnd);
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
    at = bytes[at] === ZERO ? at + 1 : this.#skipDigits(at);
    if (at < 0) return -1;
    let next = bytes[at] as number;
    if (next === POINT) {
      at = this.#skipDigits(at + 1);
      if (at < 0) return -1;
      next = bytes[at] as number;
    }
    if (next !== LOWER_E && next !== UPPER_E) return at;
    const sign = bytes[at + 1];
    return this.#skipDigits(sign === PLUS || sign === MINUS ? at + 2 : at + 1);
  }

  /** Over one digit or more. */
  #skipDigits(from: number): number {
    const bytes = this.#bytes;
    const end = this.#end;
    let at = from;
    while (at < end && isDigit(bytes[at] as number)) at++;
    return at > from ? at : this.fail(at);
  }
}

/** Which byte of a word is the first (lowest) whose top bit is set. */
function firstByteIn(topBits: number): number {
  if ((topBits & 0x8080) !== 0) return (topBits & 0x80) === 0 ? 1 : 0;
  return (topBits & 0x800000) === 0 ? 3 : 2;
}

function positionOf(bytes: Buffer, byte: number, from: number): number {
  const at = bytes.indexOf(byte, from);
  return at < 0 ? Infinity : at;
}

function isDigit(byte: number): boolean {
  return byte >= 48 && byte <= 57;
}

function isHex(byte: number): boolean {
  const lower = byte | 32;
  return isDigit(byte) || (lower >= 97 && lower <= 102);
}

const RECENT_MAX_BYTES = 64 * 1024;

/** The last small memory block and its words: small bodies come from a few shared blocks, and a view costs 0.1 µs. */
let recentMemory: ArrayBufferLike | undefined;
let recentWords: Int32Array<ArrayBufferLike> = new Int32Array(0);

/** The memory behind a buffer in words of four bytes; its last one to three bytes may be missing. */
function wordsOf(bytes: Buffer): Int32Array<ArrayBufferLike> {
  const memory = bytes.buffer;
  if (memory === recentMemory) return recentWords;
  const words = new Int32Array(memory, 0, memory.byteLength >> 2);
  if (words.byteLength <= RECENT_MAX_BYTES) {
    recentMemory = memory;
    recentWords = words;
  }
  return words;
}

export const JSON_BYTE = { QUOTE, OPEN_OBJECT, CLOSE_OBJECT, COMMA } as const;
