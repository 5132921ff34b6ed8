/** How fast the past fades: departures of the last half minute or so count. */
const FADE_MS = 20_000;

/** Bounds of a `Retry-After`, whole seconds: clients ignore or sleep off anything longer. */
export const RETRY_AFTER_MIN_SECONDS = 1;
export const RETRY_AFTER_MAX_SECONDS = 60;
/** Said while nothing has been measured yet. */
const RETRY_AFTER_UNKNOWN_SECONDS = 5;

/** Departures per second of a queue, recent ones counting most. */
export class DrainRate {
  private faded = 0;
  private atMs: number | undefined;
  private sinceMs = 0;

  /** One request ended and made room. */
  departed(nowMs: number): void {
    if (this.atMs === undefined) {
      this.sinceMs = nowMs;
      this.atMs = nowMs;
      // The first departure only starts the watch: a rate needs an interval.
      return;
    }
    this.faded = this.fadedAt(nowMs) + 1;
    this.atMs = nowMs;
  }

  /** Undefined until two departures were seen. */
  perSecond(nowMs: number): number | undefined {
    if (this.faded === 0) return undefined;
    // Early on only `seen` of the window has passed; dividing by the whole window would call every start slow.
    const seen = FADE_MS * (1 - Math.exp(-Math.max(1, nowMs - this.sinceMs) / FADE_MS));
    return (this.fadedAt(nowMs) * 1000) / seen;
  }

  /** Whole seconds after which `ahead` requests are likely gone, within the bounds above. */
  retryAfterSeconds(ahead: number, nowMs: number): number {
    const rate = this.perSecond(nowMs);
    if (rate === undefined) return RETRY_AFTER_UNKNOWN_SECONDS;
    return clampRetryAfter((ahead + 1) / rate);
  }

  private fadedAt(nowMs: number): number {
    return this.faded * Math.exp(-Math.max(0, nowMs - (this.atMs ?? nowMs)) / FADE_MS);
  }
}

/** A wait in seconds as a `Retry-After` may carry it: whole, at least 1, at most 60; not a number counts as the most. */
export function clampRetryAfter(seconds: number): number {
  if (Number.isNaN(seconds)) return RETRY_AFTER_MAX_SECONDS;
  return Math.min(RETRY_AFTER_MAX_SECONDS, Math.max(RETRY_AFTER_MIN_SECONDS, Math.ceil(seconds)));
}

/**
 * An engine's own `Retry-After` value in seconds (RFC 9110: delta-seconds or HTTP date), or undefined when it is
 * neither. `wallMs` resolves a date. Values beyond the bounds are cut, not dropped: "much later" still means later.
 */
export function readRetryAfter(
  value: string,
  parseDate: (text: string) => number,
  wallMs: number,
): number | undefined {
  const text = value.trim();
  if (/^\d{1,10}$/.test(text)) return clampRetryAfter(Number(text));
  if (!/^[A-Za-z]{3,9},? /.test(text)) return undefined;
  const atMs = parseDate(text);
  return Number.isNaN(atMs) ? undefined : clampRetryAfter((atMs - wallMs) / 1000);
}
