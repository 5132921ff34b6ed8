import { describe, expect, it } from 'vitest';
import type { Clock } from '../shared/clock.js';
import { ReconcileLoop } from './reconcile-loop.js';

/** Time that stands still until it is told to move. */
class HandClock implements Clock {
  private nowMs = 0;
  private timers: { atMs: number; fn: () => void }[] = [];
  monotonicMs = () => this.nowMs;
  wallMs = () => this.nowMs;
  setTimer(delayMs: number, fn: () => void) {
    const timer = { atMs: this.nowMs + delayMs, fn };
    this.timers.push(timer);
    return { cancel: () => void (this.timers = this.timers.filter((one) => one !== timer)) };
  }
  /** A pass that takes time. */
  spend(ms: number) {
    this.nowMs += ms;
  }
  advance(ms: number) {
    const endMs = this.nowMs + ms;
    for (;;) {
      const next = this.timers.filter((timer) => timer.atMs <= endMs).sort((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined) break;
      this.timers = this.timers.filter((timer) => timer !== next);
      this.nowMs = Math.max(this.nowMs, next.atMs);
      next.fn();
    }
    this.nowMs = Math.max(this.nowMs, endMs);
  }
}

function setUp(passMs = 0) {
  const clock = new HandClock();
  const ticks: number[] = [];
  const loop = new ReconcileLoop(
    clock,
    () => 2_000,
    () => {
      ticks.push(clock.monotonicMs());
      clock.spend(passMs);
    },
  );
  return { clock, ticks, loop };
}

describe('the loop', () => {
  it('looks at once when started and then on its interval', () => {
    const { clock, ticks, loop } = setUp();
    loop.start();
    clock.advance(6_000);
    expect(ticks).toEqual([0, 2_000, 4_000, 6_000]);
  });

  it('looks early after an event, once for many that come together', () => {
    const { clock, ticks, loop } = setUp();
    loop.start();
    clock.advance(1_000);
    for (let n = 0; n < 500; n++) loop.wake();
    clock.advance(100);
    expect(ticks).toEqual([0, 1_020]);
  });

  it('keeps a distance between passes, the larger the longer they take, however many events come', () => {
    const { clock, ticks, loop } = setUp(50);
    loop.start();
    for (let n = 0; n < 1_000; n++) {
      loop.wake();
      clock.advance(10);
    }
    const gaps = ticks.slice(1).map((at, index) => at - (ticks[index] ?? 0));
    // 50 ms of work, then at least four times that for everybody else.
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(250);
    expect(Math.max(...gaps)).toBeLessThan(400);
  });

  it('does nothing more once it is stopped', () => {
    const { clock, ticks, loop } = setUp();
    loop.start();
    clock.advance(10);
    loop.stop();
    loop.wake();
    clock.advance(10_000);
    expect(ticks).toEqual([0]);
  });

  it('goes on after a pass that threw', () => {
    const clock = new HandClock();
    let passes = 0;
    const loop = new ReconcileLoop(
      clock,
      () => 2_000,
      () => {
        passes += 1;
        throw new Error('planted');
      },
    );
    loop.start();
    expect(() => clock.advance(0)).toThrow('planted');
    expect(() => clock.advance(2_000)).toThrow('planted');
    expect(passes).toBe(2);
  });
});
