import { describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { formatDuration, formatShare, formatSize, parseDuration, parseShare, parseSize } from './units.js';

describe('durations', () => {
  it.each([
    ['500ms', 500],
    ['30s', 30_000],
    ['1m30s', 90_000],
    ['1.5m', 90_000],
    ['2h', 7_200_000],
    ['1h30m', 5_400_000],
    ['25d', 25 * 86_400_000],
    ['0s', 0],
    ['1.1s', 1_100],
    ['1s500ms', 1_500],
  ])('%s is %d ms', (text, ms) => {
    expect(parseDuration(text)).toEqual({ ok: true, value: ms });
  });

  // A bare number was once read as NaN and the timer fired at once; each of these must be an error instead.
  it.each([
    ['30', 'add a unit: 30s or 30ms'],
    ['0', 'to switch it off write 0s'],
    ['-1s', 'cannot be negative'],
    ['30sec', 'expected a duration'],
    ['30 s', 'expected a duration'],
    ['', 'expected a duration'],
    ['s', 'expected a duration'],
    ['1s1m', 'expected a duration'],
    ['1m1m', 'expected a duration'],
    ['1e3s', 'expected a duration'],
    ['Infinity', 'expected a duration'],
    ['0.5ms', 'whole number of milliseconds'],
    ['99999999d', 'longer than a century'],
  ])('%j is refused: %s', (text, why) => {
    const parsed = parseDuration(text);
    expect(parsed).toMatchObject({ ok: false });
    expect(parsed.ok ? '' : parsed.problem).toContain(why);
  });

  it('reads back what it writes', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 3_000_000_000_000 }), (ms) => {
        expect(parseDuration(formatDuration(ms))).toEqual({ ok: true, value: ms });
      }),
    );
  });
});

describe('sizes', () => {
  it.each([
    ['64MiB', 64 * 1024 ** 2],
    ['70GiB', 70 * 1024 ** 3],
    ['80GB', 80e9],
    ['1.5KiB', 1_536],
    ['512B', 512],
    ['2 TB', 2e12],
  ])('%s is %d bytes', (text, bytes) => {
    expect(parseSize(text)).toEqual({ ok: true, value: bytes });
  });

  it.each([
    ['70G', 'did you mean GiB or GB?'],
    ['70Gi', 'did you mean GiB or GB?'],
    ['70gb', 'did you mean GiB or GB?'],
    ['70', 'add a unit'],
    ['-1MiB', 'expected a size'],
    ['', 'expected a size'],
    ['99999999TiB', 'too large'],
  ])('%j is refused: %s', (text, why) => {
    const parsed = parseSize(text);
    expect(parsed.ok ? '' : parsed.problem).toContain(why);
  });

  it('reads back what it writes', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }), (bytes) => {
        expect(parseSize(formatSize(bytes))).toEqual({ ok: true, value: bytes });
      }),
    );
  });
});

describe('percentages', () => {
  it.each([
    ['20%', 0.2],
    ['0%', 0],
    ['100%', 1],
    ['2.5 %', 0.025],
  ])('%s is %d', (text, share) => {
    expect(parseShare(text)).toEqual({ ok: true, value: share });
    expect(parseShare(formatShare(share))).toEqual({ ok: true, value: share });
  });

  it.each(['0.2', '20', '101%', '-1%', '', '%'])('%j is refused', (text) => {
    expect(parseShare(text)).toMatchObject({ ok: false });
  });
});
