/** How fast the past fades: departures of the last half minute or so count. */
const FADE_MS = 20_000;

/**
 * How fast what was measured loses its weight while nobody waits. It is still the best guess, but a stalled engine of a minute
 * ago must not speak against the departures of this second.
 */
const IDLE_FADE_MS = 20_000;
/** Weight that stays however long ago it was. */
const LEAST_WEIGHT = 0.05;

/** Bounds of a `Retry-After`, whole seconds: clients ignore or sleep off anything longer. */
export const RETRY_AFTER_MIN_SECONDS = 1;
export const RETRY_AFTER_MAX_SECONDS = 60;
/** Said while nothing has been measured yet. */
const RETRY_AFTER_UNKNOWN_SECONDS = 5;

/**
 * Departures per second of a queue, recent ones counting most. Only time in which somebody waits passes: while nobody
 * does, requests end as seldom as they come, which says nothing of how fast a queue would drain.
 */
export class DrainRate {
  private faded = 0;
  private departures = 0;
  private atMs = 0;
  /** Time watched, and since when it is watched now; undefined while nobody waits. */
  private watchedMs = 0;
  private sinceMs: number | undefined;
  private endedMs: number | undefined;

  /** Somebody waits from now on. */
  began(nowMs: number): void {
    if (this.sinceMs !== undefined) return;
    if (this.endedMs !== undefined) this.age(nowMs - this.endedMs);
    this.sinceMs = nowMs;
  }

  /** Nobody waits any more. */
  ended(nowMs: number): void {
    if (this.sinceMs === undefined) return;
    this.watchedMs = this.watched(nowMs);
    this.sinceMs = undefined;
    this.endedMs = nowMs;
  }

  /** One request ended and made room for one that waits; says nothing while nobody does. */
  departed(nowMs: number): void {
    if (this.sinceMs === undefined) return;
    const atMs = this.watched(nowMs);
    this.faded = this.fadedAt(atMs) + 1;
    this.departures += 1;
    this.atMs = atMs;
  }

  /** Undefined until so many departures were seen; at least two. */
  perSecond(nowMs: number, leastDepartures = 2): number | undefined {
    if (this.departures < leastDepartures) return undefined;
    const atMs = this.watched(nowMs);
    // Early on only `seen` of the window has passed; dividing by the whole window would call every start slow.
    const seen = FADE_MS * (1 - Math.exp(-Math.max(1, atMs) / FADE_MS));
    return (this.fadedAt(atMs) * 1000) / seen;
  }

  /** Whole seconds after which `ahead` requests are likely gone, within the bounds above. */
  retryAfterSeconds(ahead: number, nowMs: number): number {
    const rate = this.perSecond(nowMs);
    if (rate === undefined) return RETRY_AFTER_UNKNOWN_SECONDS;
    return clampRetryAfter((ahead + 1) / rate);
  }

  /** The rate stays what it was; what is measured from now on counts for more beside it. */
  private age(idleMs: number): void {
    const weight = Math.max(LEAST_WEIGHT, Math.exp(-Math.max(0, idleMs) / IDLE_FADE_MS));
    this.faded = this.fadedAt(this.watchedMs) * weight;
    const seenShare = weight * (1 - Math.exp(-this.watchedMs / FADE_MS));
    this.watchedMs = Math.min(this.watchedMs, -FADE_MS * Math.log(1 - seenShare));
    this.atMs = this.watchedMs;
    this.departures = Math.max(Math.min(2, this.departures), this.departures * weight);
  }

  private watched(nowMs: number): number {
    return this.watchedMs + (this.sinceMs === undefined ? 0 : Math.max(0, nowMs - this.sinceMs));
  }

  private fadedAt(watchedMs: number): number {
    return this.faded * Math.exp((this.atMs - watchedMs) / FADE_MS);
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
