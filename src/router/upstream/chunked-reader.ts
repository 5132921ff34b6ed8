import type { ResponseProblem } from './response-head.js';

/** Bytes of all chunk extensions of one response; no engine sends any, Node's own parser allows as much. */
export const CHUNK_EXTENSIONS_MAX_BYTES = 16 * 1024;

/** Bytes of the trailer lines after the last chunk; they are checked and dropped. */
export const TRAILERS_MAX_BYTES = 8 * 1024;

/** Hex digits of a chunk size: 2^40 bytes is beyond any answer and still exact as a number. */
const SIZE_DIGITS_MAX = 10;

// Where the reader stands between two bytes; plain numbers, since this switch runs per byte of framing.
const SIZE_START = 0;
const SIZE = 1;
const EXTENSION = 2;
const SIZE_LF = 3;
const DATA = 4;
const DATA_CR = 5;
const DATA_LF = 6;
const TRAILER_START = 7;
const TRAILER_NAME = 8;
const TRAILER_VALUE = 9;
const TRAILER_LF = 10;
const END_LF = 11;
const DONE = 12;

const CR = 13;
const LF = 10;
const COLON = 58;
const SEMICOLON = 59;

/**
 * Takes the chunk framing off a response body, over any split of its bytes.
 *
 * The payload of each push ends up as ONE range of the pushed buffer: what follows the first piece is moved
 * over the framing in between. Moving a few hundred bytes is cheaper than a write per chunk, and a reader of
 * events sees whole runs of them.
 */
export class ChunkedReader {
  payloadFrom = 0;
  payloadTo = 0;
  done = false;
  problem: ResponseProblem | undefined;

  #at = SIZE_START;
  #left = 0;
  #digits = 0;
  #extensionBytes = 0;
  #trailerBytes = 0;

  reset(): void {
    this.done = false;
    this.problem = undefined;
    this.#at = SIZE_START;
    this.#left = 0;
    this.#digits = 0;
    this.#extensionBytes = 0;
    this.#trailerBytes = 0;
  }

  /** Reads `from`..`to`; returns the index after the last byte that belongs to this body. */
  push(buffer: Buffer, from: number, to: number): number {
    this.payloadFrom = this.payloadTo = from;
    let i = from;
    while (i < to) {
      if (this.#at === DATA) {
        i = this.#takeData(buffer, i, to);
        continue;
      }
      if (this.#at === SIZE_START) {
        const start = this.#plainSize(buffer, i, to);
        if (start > i) {
          i = start;
          continue;
        }
      }
      // The index is below `to`, so the byte exists.
      const problem = this.#step(buffer[i] as number);
      i++;
      if (problem !== undefined) {
        this.problem = problem;
        return i;
      }
      if (this.#at === DONE) {
        this.done = true;
        return i;
      }
    }
    return i;
  }

  /**
   * A usual size line in one go: digits and a line end, all there, no last chunk. Returns the index of the data, or
   * `from` for everything else, which goes byte by byte.
   */
  #plainSize(buffer: Buffer, from: number, to: number): number {
    let size = 0;
    let i = from;
    // The line end must be there too.
    const last = Math.min(to - 2, from + SIZE_DIGITS_MAX);
    for (; i < last; i++) {
      const digit = hexDigit(buffer[i] as number);
      if (digit < 0) break;
      size = size * 16 + digit;
    }
    if (size === 0 || i + 1 >= to || buffer[i] !== CR || buffer[i + 1] !== LF) return from;
    this.#left = size;
    this.#at = DATA;
    return i + 2;
  }

  #takeData(buffer: Buffer, from: number, to: number): number {
    const taken = Math.min(this.#left, to - from);
    if (this.payloadFrom === this.payloadTo) {
      this.payloadFrom = from;
      this.payloadTo = from + taken;
    } else {
      buffer.copyWithin(this.payloadTo, from, from + taken);
      this.payloadTo += taken;
    }
    this.#left -= taken;
    const end = from + taken;
    if (this.#left > 0) return end;
    if (end + 1 < to && buffer[end] === CR && buffer[end + 1] === LF) {
      this.#at = SIZE_START;
      return end + 2;
    }
    this.#at = DATA_CR;
    return end;
  }

  #step(byte: number): ResponseProblem | undefined {
    switch (this.#at) {
      case SIZE_START:
        if (hexDigit(byte) < 0) return 'bad_chunk_size';
        this.#digits = 0;
        this.#left = 0;
        return this.#sizeByte(byte);
      case SIZE:
        return this.#sizeByte(byte);
      case EXTENSION:
        return this.#extensionByte(byte);
      case SIZE_LF:
        if (byte !== LF) return 'bad_chunk_framing';
        this.#at = this.#left === 0 ? TRAILER_START : DATA;
        return undefined;
      case DATA_CR:
        this.#at = DATA_LF;
        return byte === CR ? undefined : 'bad_chunk_framing';
      case DATA_LF:
        this.#at = SIZE_START;
        return byte === LF ? undefined : 'bad_chunk_framing';
      default:
        return this.#trailerByte(byte);
    }
  }

  #sizeByte(byte: number): ResponseProblem | undefined {
    const digit = hexDigit(byte);
    if (digit >= 0) {
      // Leading zeros count too: an endless size line is refused like an endless number.
      if (++this.#digits > SIZE_DIGITS_MAX) return 'bad_chunk_size';
      this.#left = this.#left * 16 + digit;
      this.#at = SIZE;
      return undefined;
    }
    if (byte === CR) this.#at = SIZE_LF;
    else if (byte === SEMICOLON) this.#at = EXTENSION;
    else return 'bad_chunk_size';
    return undefined;
  }

  #extensionByte(byte: number): ResponseProblem | undefined {
    if (byte === CR) {
      this.#at = SIZE_LF;
      return undefined;
    }
    // A bare LF here is where parsers are known to disagree about the end of the line.
    if (isControl(byte)) return 'bad_chunk_framing';
    return ++this.#extensionBytes > CHUNK_EXTENSIONS_MAX_BYTES ? 'chunk_extension_too_long' : undefined;
  }

  #trailerByte(byte: number): ResponseProblem | undefined {
    if (++this.#trailerBytes > TRAILERS_MAX_BYTES) return 'trailers_too_large';
    switch (this.#at) {
      case TRAILER_START:
        if (byte === CR) {
          this.#at = END_LF;
          return undefined;
        }
        this.#at = TRAILER_NAME;
        return isNameByte(byte) ? undefined : 'bad_trailer';
      case TRAILER_NAME:
        if (byte === COLON) this.#at = TRAILER_VALUE;
        else if (!isNameByte(byte)) return 'bad_trailer';
        return undefined;
      case TRAILER_VALUE:
        if (byte === CR) this.#at = TRAILER_LF;
        else if (isControl(byte)) return 'bad_trailer';
        return undefined;
      case TRAILER_LF:
        this.#at = TRAILER_START;
        return byte === LF ? undefined : 'bad_trailer';
      default:
        this.#at = DONE;
        return byte === LF ? undefined : 'bad_chunk_framing';
    }
  }
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

/** Controls other than TAB, and DEL. */
function isControl(byte: number): boolean {
  return (byte < 32 && byte !== 9) || byte === 127;
}

/** Letters, digits and the marks RFC 9110 allows in a field name. */
function isNameByte(byte: number): boolean {
  return byte > 32 && byte < 127 && !'"(),/:;<=>?@[\\]{}'.includes(String.fromCharCode(byte));
}
