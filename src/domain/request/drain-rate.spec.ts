import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DrainRate, clampRetryAfter, readRetryAfter } from './drain-rate.js';

describe('DrainRate', () => {
  it('measures a steady rate from its first seconds on', () => {
    const drain = new DrainRate();
    drain.began(1_000_000);
    for (let i = 1; i <= 20; i++) drain.departed(1_000_000 + i * 100);
    expect(drain.perSecond(1_002_000)).toBeCloseTo(10, 0);
    expect(drain.retryAfterSeconds(99, 1_002_000)).toBe(10);
  });

  it('follows when the queue slows down', () => {
    const drain = new DrainRate();
    drain.began(0);
    for (let i = 1; i <= 100; i++) drain.departed(i * 100);
    const before = drain.retryAfterSeconds(50, 10_000);
    expect(drain.retryAfterSeconds(50, 60_000)).toBeGreaterThan(before);
    expect(drain.retryAfterSeconds(50, 10_000_000)).toBe(60);
  });

  it('guesses while nothing was measured', () => {
    const drain = new DrainRate();
    expect(drain.retryAfterSeconds(0, 0)).toBe(5);
    drain.began(0);
    drain.departed(10);
    expect(drain.perSecond(11)).toBeUndefined();
  });

  it('knows only of times in which somebody waited: a quiet hour is no slow queue', () => {
    const drain = new DrainRate();
    for (let burst = 0; burst < 10; burst++) {
      const fromMs = burst * 3_600_000;
      drain.began(fromMs);
      for (let i = 1; i <= 20; i++) drain.departed(fromMs + i * 100);
      drain.ended(fromMs + 2_000);
      for (let i = 1; i <= 50; i++) drain.departed(fromMs + i * 60_000);
    }
    drain.began(40_000_000);
    expect(drain.perSecond(40_000_000)).toBeCloseTo(10, 0);
    expect(drain.retryAfterSeconds(49, 40_000_000)).toBe(5);
  });

  // Half a minute after an engine had stood still, everybody was told to come back in a minute, while forty a second were served.
  it('a stalled queue of a while ago does not outweigh one that moves', () => {
    const stalled = () => {
      const drain = new DrainRate();
      drain.began(0);
      for (let i = 1; i <= 25; i++) drain.departed(i * 2_000);
      drain.ended(50_000);
      return drain;
    };
    const after = (idleMs: number, seconds: number) => {
      const drain = stalled();
      drain.began(50_000 + idleMs);
      for (let i = 1; i <= 40 * seconds; i++) drain.departed(50_000 + idleMs + i * 25);
      return drain.perSecond(50_000 + idleMs + seconds * 1_000) ?? Number.NaN;
    };
    expect(after(0, 1)).toBeLessThan(4);
    expect(after(40_000, 1)).toBeGreaterThan(10);
    expect(after(3_600_000, 1)).toBeGreaterThan(20);
    const drain = stalled();
    drain.began(90_000);
    // The guess stands until something is measured, but is not certain enough to turn anybody away.
    expect(drain.perSecond(90_000)).toBeCloseTo(0.5, 1);
    expect(drain.perSecond(90_000, 20)).toBeUndefined();
  });

  it('whatever happens and when, a rate is a number or unknown, and the wait is within its bounds', () => {
    const step = fc.record({
      what: fc.constantFrom('began', 'ended', 'departed'),
      ms: fc.oneof(fc.nat(50), fc.nat(1e10)),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const drain = new DrainRate();
        let nowMs = 0;
        for (const { what, ms } of steps) {
          nowMs += ms;
          drain[what as 'began' | 'ended' | 'departed'](nowMs);
          const rate = drain.perSecond(nowMs);
          expect(rate === undefined || rate >= 0).toBe(true);
          const wait = drain.retryAfterSeconds(10, nowMs);
          expect(wait >= 1 && wait <= 60).toBe(true);
        }
      }),
    );
  });
});

describe('Retry-After', () => {
  it.each([
    [0, 1],
    [0.2, 1],
    [1.2, 2],
    [59.1, 60],
    [1e9, 60],
    [Number.NaN, 60],
    [-5, 1],
  ])('%d s is sent as %d', (seconds, sent) => expect(clampRetryAfter(seconds)).toBe(sent));

  const wallMs = Date.parse('2026-01-01T00:00:00Z');
  it.each([
    ['7', 7],
    [' 7 ', 7],
    ['0', 1],
    ['999999', 60],
    ['Thu, 01 Jan 2026 00:00:30 GMT', 30],
    ['Thu, 01 Jan 2025 00:00:30 GMT', 1],
    ['abc', undefined],
    ['', undefined],
    ['-1', undefined],
    ['1.5', undefined],
    ['1e3', undefined],
    ['soon, please', undefined],
  ])("an engine's %j means %s", (value, seconds) => {
    expect(readRetryAfter(value, Date.parse, wallMs)).toBe(seconds);
  });
});
