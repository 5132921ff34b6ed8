/*
 * Chunk framing written byte by byte: a stream has one chunk per event, and text written into a buffer costs a call out
 * of JavaScript each time.
 */

const CR = 13;
const LF = 10;
const ZERO = 48;
/** From the value of a hex digit above nine to its lower case letter. */
const LETTERS = 87;
const LAST_CHUNK_BYTES = 5;

/** Bytes of a chunk with `payload` bytes in it (none at all for an empty one), and of the last chunk behind it. */
export function chunkedLength(payload: number, last: boolean): number {
  const end = last ? LAST_CHUNK_BYTES : 0;
  return payload === 0 ? end : sizeDigits(payload) + 2 + payload + 2 + end;
}

/** Each of these writes at `at` and returns the index after its last byte. */
export function writeChunkSize(target: Buffer, at: number, size: number): number {
  const end = at + sizeDigits(size);
  for (let left = size, i = end - 1; i >= at; i--, left = Math.floor(left / 16)) {
    const digit = left % 16;
    target[i] = digit < 10 ? ZERO + digit : LETTERS + digit;
  }
  return writeCrLf(target, end);
}

export function writeCrLf(target: Buffer, at: number): number {
  target[at] = CR;
  target[at + 1] = LF;
  return at + 2;
}

export function writeLastChunk(target: Buffer, at: number): number {
  target[at] = ZERO;
  return writeCrLf(target, writeCrLf(target, at + 1));
}

function sizeDigits(size: number): number {
  let digits = 1;
  for (let left = size; left >= 16; left = Math.floor(left / 16)) digits++;
  return digits;
}
