/**
 * Whether an OpenAI chunk says of a choice why it ends: a `finish_reason` that is a string, and not an empty one. By
 * bytes, where the key is spelled plainly; inside a string its quotes would have backslashes before them.
 * @param escaped letters are written as escapes, so the search may miss the key
 */
export function finishes(buffer: Buffer, from: number, to: number, escaped: boolean): boolean {
  for (let last = from + KEY.length - 1; last < to;) {
    const byte = buffer[last] as number;
    if (byte === QUOTE && isKey(buffer, last - KEY.length + 1) && stringFollows(buffer, last + 1, to)) {
      return true;
    }
    last += SHIFT[byte] as number;
  }
  return escaped && finishesParsed(buffer.toString('utf8', from, to));
}

function isKey(buffer: Buffer, from: number): boolean {
  for (let i = 0; i < KEY.length; i++) if (buffer[from + i] !== KEY.charCodeAt(i)) return false;
  return true;
}

/** A colon and a string with something in it, with blanks around: engines that leave it empty until the end exist. */
function stringFollows(buffer: Buffer, from: number, to: number): boolean {
  const colon = afterBlanks(buffer, from, to);
  if (colon >= to || buffer[colon] !== COLON) return false;
  const quote = afterBlanks(buffer, colon + 1, to);
  return buffer[quote] === QUOTE && buffer[quote + 1] !== QUOTE;
}

function afterBlanks(buffer: Buffer, from: number, to: number): number {
  let at = from;
  while (at < to && (buffer[at] as number) <= SPACE) at++;
  return at;
}

function finishesParsed(data: string): boolean {
  try {
    const { choices } = JSON.parse(data) as { choices?: unknown };
    return (
      Array.isArray(choices) &&
      choices.some((choice: { finish_reason?: unknown } | null) => isFilled(choice?.finish_reason))
    );
  } catch {
    return false;
  }
}

const isFilled = (reason: unknown): boolean => typeof reason === 'string' && reason !== '';

const KEY = '"finish_reason"';
const SPACE = 32;
const QUOTE = 34;
const COLON = 58;

/** How far the window of the search may move, by its last byte (Horspool's table). */
const SHIFT = new Uint8Array(256).fill(KEY.length);
for (let i = 0; i < KEY.length - 1; i++) SHIFT[KEY.charCodeAt(i)] = KEY.length - 1 - i;
