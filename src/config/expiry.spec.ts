import { describe, expect, it } from 'vitest';
import { parseExpiry } from './expiry.js';

const NOW = Date.parse('2026-12-01T12:00:00Z');

describe('when something ends', () => {
  it.each([
    ['90d', '2027-03-01T12:00:00.000Z'],
    ['1h30m', '2026-12-01T13:30:00.000Z'],
    ['2027-01-31', '2027-02-01T00:00:00.000Z'],
    ['2026-12-01', '2026-12-02T00:00:00.000Z'],
    ['2027-01-31T12:00:00Z', '2027-01-31T12:00:00.000Z'],
    ['2027-01-31T12:00+02:00', '2027-01-31T10:00:00.000Z'],
  ])('%s is %s', (text, at) => {
    expect(parseExpiry(text, NOW)).toEqual({ ok: true, value: Date.parse(at) });
  });

  it.each([
    ['', 'expected'],
    ['30', 'expected'],
    ['0s', 'in the past'],
    ['2026-11-30', 'in the past'],
    ['2027-02-30', 'expected'],
    ['2027-13-01', 'expected'],
    ['2027-01-31T12:00:00', 'expected'],
    ['2027-01-31T25:00:00Z', 'expected'],
    ['tomorrow', 'expected'],
    ['99999999999d', 'expected'],
  ])('%j is refused: %s', (text, problem) => {
    expect(parseExpiry(text, NOW)).toMatchObject({
      ok: false,
      problem: expect.stringContaining(problem) as string,
    });
  });
});
