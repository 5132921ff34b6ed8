import { parseDuration, type Parsed } from './units.js';

export const EXPIRY_EXPECTED =
  'a duration such as 12h or 90d, a date such as 2027-01-31 (to its end, UTC), or a time such as 2027-01-31T12:00:00Z';

const DATE = /^\d{4}-\d{2}-\d{2}$/;
const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2})$/;
const DAY_MS = 86_400_000;

/**
 * When something ends, wall time in ms: after a duration, with a day, or at a moment with its zone. A time without a
 * zone is refused: it would mean another moment on the server than where it was typed.
 */
export function parseExpiry(text: string, nowWallMs: number): Parsed<number> {
  const atMs = endOf(text, nowWallMs);
  // Text that is nobody's date may be long; what was typed is known to who typed it.
  if (atMs === undefined || !Number.isFinite(new Date(atMs).getTime())) {
    return { ok: false, problem: `expected ${EXPIRY_EXPECTED}, got "${text.slice(0, 50)}"` };
  }
  if (atMs <= nowWallMs) return { ok: false, problem: `"${text}" is in the past` };
  return { ok: true, value: atMs };
}

function endOf(text: string, nowWallMs: number): number | undefined {
  if (TIME.test(text)) return Date.parse(text);
  if (DATE.test(text)) {
    const startMs = Date.parse(`${text}T00:00:00Z`);
    // Date.parse takes 30 February for 2 March.
    const exists = Number.isFinite(startMs) && new Date(startMs).toISOString().startsWith(text);
    return exists ? startMs + DAY_MS : undefined;
  }
  const duration = parseDuration(text);
  return duration.ok ? nowWallMs + duration.value : undefined;
}
