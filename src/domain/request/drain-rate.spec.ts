import { describe, expect, it } from 'vitest';
import { DrainRate, clampRetryAfter, readRetryAfter } from './drain-rate.js';

describe('DrainRate', () => {
  it('measures a steady rate from its first seconds on', () => {
    const drain = new DrainRate();
    for (let i = 0; i <= 20; i++) drain.departed(1_000_000 + i * 100);
    expect(drain.perSecond(1_002_000)).toBeCloseTo(10, 0);
    expect(drain.retryAfterSeconds(99, 1_002_000)).toBe(10);
  });

  it('follows when the queue slows down', () => {
    const drain = new DrainRate();
    for (let i = 0; i <= 100; i++) drain.departed(i * 100);
    const before = drain.retryAfterSeconds(50, 10_000);
    expect(drain.retryAfterSeconds(50, 60_000)).toBeGreaterThan(before);
    expect(drain.retryAfterSeconds(50, 10_000_000)).toBe(60);
  });

  it('guesses while nothing was measured', () => {
    const drain = new DrainRate();
    expect(drain.retryAfterSeconds(0, 0)).toBe(5);
    drain.departed(0);
    expect(drain.perSecond(1)).toBeUndefined();
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
