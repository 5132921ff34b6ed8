import { systemClock, type Clock, type Timer } from '../../src/shared/clock.js';

/**
 * Time as a test sets it. Timers run by the real clock, so that loops turn as always; what they read is the time that was set.
 * Whatever is made of times is then the same in every run.
 */
export class SetClock implements Clock {
  private passedMs = 0;

  constructor(private readonly startWallMs: number) {}

  monotonicMs(): number {
    return 1_000 + this.passedMs;
  }

  wallMs(): number {
    return this.startWallMs + this.passedMs;
  }

  setTimer(delayMs: number, fn: () => void): Timer {
    return systemClock.setTimer(delayMs, fn);
  }

  advance(ms: number): void {
    this.passedMs += ms;
  }
}
