import { systemClock, type Clock } from '../../src/shared/clock.js';

/** The system's clock, with the timers counted that are set and neither fired nor cancelled. */
export class CountingClock implements Clock {
  readonly live = new Set<object>();
  monotonicMs = () => systemClock.monotonicMs();
  wallMs = () => systemClock.wallMs();

  setTimer(delayMs: number, fn: () => void) {
    const token = {};
    this.live.add(token);
    const timer = systemClock.setTimer(delayMs, () => {
      this.live.delete(token);
      fn();
    });
    return {
      cancel: () => {
        this.live.delete(token);
        timer.cancel();
      },
    };
  }
}
