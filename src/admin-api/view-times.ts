import type { Clock } from '../shared/clock.js';

/** Turns the two kinds of internal times into the ISO text of the API, all against one moment. */
export class ViewTimes {
  readonly nowMs: number;
  readonly nowWallMs: number;

  constructor(clock: Clock) {
    this.nowMs = clock.monotonicMs();
    this.nowWallMs = clock.wallMs();
  }

  wall(wallMs: number): string {
    return new Date(wallMs).toISOString();
  }

  /** A monotonic time as time of day; meaningful for people only. */
  monotonic(ms: number): string {
    return this.wall(Math.round(this.nowWallMs - (this.nowMs - ms)));
  }

  now(): string {
    return this.wall(this.nowWallMs);
  }
}

/** A property that is left out while its value is unknown. */
export function known<K extends string, V>(key: K, value: V | undefined): { readonly [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { readonly [P in K]?: V });
}

/** How many of each. */
export function countBy<K extends string>(keys: readonly K[]): Partial<Record<K, number>> {
  const counts: Partial<Record<K, number>> = {};
  for (const key of keys) counts[key] = (counts[key] ?? 0) + 1;
  return counts;
}
