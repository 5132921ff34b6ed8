/**
 * True if JSON text has an ASCII letter written as `\u00XX`. A key may be spelled that way, and then no search for its bytes
 * finds it. No serializer does so, hence a walk that costs next to nothing: of the four bytes of `\u00` every fourth
 * one looked at must be one.
 */
export function hasEscapedLetter(buffer: Buffer, from: number, to: number): boolean {
  for (let at = from; at < to; at += 4) {
    const byte = buffer[at] as number;
    if (byte !== BACKSLASH && byte !== LOWER_U && byte !== ZERO) continue;
    const start = startOfEscape(buffer, at, byte);
    if (start >= from && start + 6 <= to && isEscapedLetter(buffer, start)) return true;
  }
  return false;
}

/** Where the escape begins that has `byte` at `at`, if there is one. */
function startOfEscape(buffer: Buffer, at: number, byte: number): number {
  if (byte === BACKSLASH) return at;
  if (byte === LOWER_U) return at - 1;
  return buffer[at - 1] === LOWER_U ? at - 2 : at - 3;
}

function isEscapedLetter(buffer: Buffer, start: number): boolean {
  if (buffer[start] !== BACKSLASH || buffer[start + 1] !== LOWER_U) return false;
  if (buffer[start + 2] !== ZERO || buffer[start + 3] !== ZERO) return false;
  const high = buffer[start + 4] as number;
  return high >= FOUR && high <= SEVEN;
}

const BACKSLASH = 92;
const LOWER_U = 117;
const ZERO = 48;
const FOUR = 52;
const SEVEN = 55;
