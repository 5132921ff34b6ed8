/**
 * Quantities as people write them: durations, sizes, shares. The only parsers of the program for these,
 * because two of them would sooner or later disagree about what `1m` means.
 */

/** A parsed value, or what was wrong with the text. */
export type Parsed<T> =
  { readonly ok: true; readonly value: T } | { readonly ok: false; readonly problem: string };

const DURATION_UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
  ['ms', 1],
] as const;

/** A century: longer is a typing mistake, and everything below stays an exact integer of milliseconds. */
const MAX_DURATION_MS = 36_500 * 86_400_000;

export const DURATION_EXPECTED = 'a duration with a unit, such as 500ms, 30s, 1m30s or 2h';

/**
 * Reads `500ms`, `30s`, `1m30s`, `1.5h`, `25d`: parts with a unit each, largest unit first.
 * A bare number is refused: nobody can tell whether `30` means seconds or milliseconds.
 */
export function parseDuration(text: string): Parsed<number> {
  const wrong = (): Parsed<number> => ({
    ok: false,
    problem: `expected ${DURATION_EXPECTED}, got "${text}"${durationHint(text)}`,
  });
  if (!/^(?:\d+(?:\.\d+)?(?:ms|[smhd]))+$/.test(text)) return wrong();
  let total = 0;
  let lastUnit = -1;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|[smhd])/g)) {
    const at = DURATION_UNITS.findIndex(([name]) => name === unit);
    const factor = DURATION_UNITS[at]?.[1];
    if (factor === undefined || at <= lastUnit) return wrong();
    lastUnit = at;
    total += Number(amount) * factor;
  }
  if (total > MAX_DURATION_MS) return { ok: false, problem: `"${text}" is longer than a century` };
  // 1.1s is 1100.0000000000002 in floating point; a real fraction of a millisecond is a mistake.
  const whole = Math.round(total);
  if (Math.abs(whole - total) > 1e-6) {
    return { ok: false, problem: `"${text}" is not a whole number of milliseconds` };
  }
  return { ok: true, value: whole };
}

function durationHint(text: string): string {
  if (/^0+(\.0+)?$/.test(text)) return '; to switch it off write 0s';
  if (/^\d+(\.\d+)?$/.test(text)) return `; add a unit: ${text}s or ${text}ms`;
  if (text.startsWith('-')) return '; it cannot be negative';
  return '';
}

/** Writes milliseconds so that {@link parseDuration} reads them back: `90000` → `1m30s`. */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s';
  let left = ms;
  let text = '';
  for (const [unit, factor] of DURATION_UNITS) {
    const amount = Math.floor(left / factor);
    if (amount === 0) continue;
    text += `${amount}${unit}`;
    left -= amount * factor;
  }
  return text;
}

const SIZE_UNITS: Readonly<Record<string, number>> = {
  B: 1,
  KiB: 1024,
  MiB: 1024 ** 2,
  GiB: 1024 ** 3,
  TiB: 1024 ** 4,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
};

export const SIZE_EXPECTED = 'a size with a unit, such as 64MiB, 70GiB or 80GB';

/** Reads `64MiB`, `1.5GiB`, `80GB`. `70G` and `70Gi` are refused: they mean different things to different people. */
export function parseSize(text: string): Parsed<number> {
  const match = /^(\d+(?:\.\d+)?) ?([A-Za-z]+)$/.exec(text);
  const factor = match?.[2] === undefined ? undefined : SIZE_UNITS[match[2]];
  if (match === null || factor === undefined) {
    return { ok: false, problem: `expected ${SIZE_EXPECTED}, got "${text}"${sizeHint(text, match?.[2])}` };
  }
  const bytes = Math.round(Number(match[1]) * factor);
  if (!Number.isSafeInteger(bytes)) return { ok: false, problem: `"${text}" is too large` };
  return { ok: true, value: bytes };
}

/** Up to here a bare number was meant in a large unit. */
const BARE_GIB_MAX = 100_000;

function sizeHint(text: string, unit: string | undefined): string {
  // Nobody means 6 bytes, and nobody writes a number of bytes by hand that is that small.
  if (/^\d+(\.\d+)?$/.test(text))
    return Number(text) < BARE_GIB_MAX ? `; add a unit: ${text}GiB or ${text}MiB` : `; add a unit: ${text}B`;
  if (unit === undefined) return '';
  const letter = unit.charAt(0).toUpperCase();
  if (!'KMGT'.includes(letter) || unit.length > 3) return '';
  return `; did you mean ${letter}iB or ${letter}B?`;
}

/** Writes bytes so that {@link parseSize} reads them back exactly: the largest unit that divides evenly. */
export function formatSize(bytes: number): string {
  const units = Object.entries(SIZE_UNITS).sort((a, b) => b[1] - a[1]);
  const unit = bytes === 0 ? undefined : units.find(([, factor]) => bytes % factor === 0);
  return unit === undefined ? `${bytes}B` : `${bytes / unit[1]}${unit[0]}`;
}

/** Reads `20%` as 0.2. A bare `0.2` or `20` is refused: one of the two readings would be wrong by a hundred. */
export function parseShare(text: string): Parsed<number> {
  const match = /^(\d+(?:\.\d+)?) ?%$/.exec(text);
  const percent = match === null ? Number.NaN : Number(match[1]);
  if (!(percent <= 100)) {
    return { ok: false, problem: `expected a percentage from 0% to 100%, such as 20%, got "${text}"` };
  }
  return { ok: true, value: percent / 100 };
}

/** Writes a share in percent: 0.2 → `20%`. */
export function formatShare(share: number): string {
  return `${Number((share * 100).toFixed(6))}%`;
}
