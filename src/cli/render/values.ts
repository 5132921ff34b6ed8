/** How single values look to a person. */

/** Characters that could move the cursor, hide text or reverse it: whatever an engine or a client wrote stays one line. */
// oxlint-disable-next-line no-control-regex -- control characters are what it looks for
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Text of foreign origin, safe to print in a table. */
export function plain(text: string): string {
  return text.replace(/[\t\r\n]+/g, ' ').replace(UNPRINTABLE, '');
}

/** Many lines of foreign origin, e.g. a log tail: line breaks and tabs stay. */
export function plainLines(text: string): string {
  return text
    .replace(/\r\n?/g, '\n')
    .replace(UNPRINTABLE, (char) => (char === '\n' || char === '\t' ? char : ''));
}

export const MISSING = '-';

/** A length of time in at most two units: `350ms`, `12s`, `3m20s`, `5h12m`, `2d3h`. */
export function span(ms: number | undefined): string {
  if (ms === undefined) return MISSING;
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))}ms`;
  if (ms < 9_950) return `${Number((ms / 1_000).toFixed(1))}s`;
  const seconds = Math.floor(ms / 1_000);
  const [days, hours, minutes, rest] = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3_600) % 24,
    Math.floor(seconds / 60) % 60,
    seconds % 60,
  ];
  if (days > 0) return join(days, 'd', hours, 'h');
  if (hours > 0) return join(hours, 'h', minutes, 'm');
  return minutes > 0 ? join(minutes, 'm', rest, 's') : `${rest}s`;
}

const join = (first: number, firstUnit: string, second: number, secondUnit: string): string =>
  second === 0 ? `${first}${firstUnit}` : `${first}${firstUnit}${second}${secondUnit}`;

/** Time since an ISO 8601 moment. Clocks of two machines differ: what lies ahead is now. */
export function age(iso: string | undefined, nowMs: number): string {
  return iso === undefined ? MISSING : span(Math.max(0, nowMs - Date.parse(iso)));
}

/** `2m ago`; what is less than a second old has just happened. */
export function ago(ms: number): string {
  return ms < 1_000 ? 'just now' : `${span(ms)} ago`;
}

/** The same, since an ISO 8601 moment. */
export function agoSince(iso: string, nowMs: number): string {
  return ago(nowMs - Date.parse(iso));
}

/** Time until an ISO 8601 moment; `now` once it is past. */
export function until(iso: string, nowMs: number): string {
  const ms = Date.parse(iso) - nowMs;
  return ms <= 0 ? 'now' : `in ${span(ms)}`;
}

/** `70 GiB`, `6.2 GiB`, `512 MiB`. */
export function bytes(count: number | undefined): string {
  if (count === undefined) return MISSING;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = count;
  let unit = 0;
  while (value >= 1_024 && unit < units.length - 1) {
    value /= 1_024;
    unit += 1;
  }
  return `${Number(value.toFixed(value < 100 ? 1 : 0))} ${units[unit]}`;
}

/** `4 ready, 1 loading`, largest first; empty for none. */
export function tally(counts: Readonly<Record<string, number | undefined>>): string {
  return Object.entries(counts)
    .filter((entry): entry is [string, number] => (entry[1] ?? 0) > 0)
    .sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]))
    .map(([state, count]) => `${count} ${state}`)
    .join(', ');
}

/** `1 replica`, `3 replicas`. */
export const count = (amount: number, noun: string): string => `${amount} ${noun}${amount === 1 ? '' : 's'}`;

/** `key=value` pairs in a fixed order. */
export function labels(pairs: Readonly<Record<string, string>>): string {
  const text = Object.entries(pairs)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([key, value]) => `${key}=${value}`)
    .join(',');
  return text === '' ? MISSING : text;
}

/** Columns a text takes in a terminal. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const char of text) width += isWide(char.codePointAt(0)!) ? 2 : /\p{Mn}/u.test(char) ? 0 : 1;
  return width;
}

/** East Asian wide forms and emoji: two columns each. */
function isWide(code: number): boolean {
  return (
    (code >= 0x1100 && code <= 0x115f) ||
    (code >= 0x2e80 && code <= 0xa4cf) ||
    (code >= 0xac00 && code <= 0xd7a3) ||
    (code >= 0xf900 && code <= 0xfaff) ||
    (code >= 0xfe30 && code <= 0xfe6f) ||
    (code >= 0xff00 && code <= 0xff60) ||
    (code >= 0xffe0 && code <= 0xffe6) ||
    (code >= 0x1f300 && code <= 0x1faff) ||
    (code >= 0x20000 && code <= 0x3fffd)
  );
}

/** Cuts to a number of columns, with `…` in place of what is lost. */
export function fit(text: string, columns: number): string {
  if (displayWidth(text) <= columns) return text;
  let kept = '';
  let width = 0;
  for (const char of text) {
    const next = displayWidth(char);
    if (width + next > columns - 1) break;
    kept += char;
    width += next;
  }
  return `${kept}…`;
}
