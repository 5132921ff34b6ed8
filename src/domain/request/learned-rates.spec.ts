import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LearnedRates } from './learned-rates.js';
import { LearnedSizes } from './learned-sizes.js';

/** Feeds `n` first tokens of an engine with the given overhead and rate. */
function feed(rates: LearnedRates, n: number, overheadSeconds: number, tokensPerSecond: number): void {
  for (let i = 0; i < n; i++) {
    const tokens = 50 + ((i * 613) % 5_000);
    rates.firstToken(tokens, overheadSeconds + tokens / tokensPerSecond);
  }
}

describe('LearnedRates', () => {
  it.each([
    [0.05, 2_000],
    [0.005, 20_000],
    [0.3, 8_000],
  ])('tells overhead (%d s) from prefill rate (%d tokens/s)', (overhead, rate) => {
    const rates = new LearnedRates();
    feed(rates, 300, overhead, rate);
    expect(rates.prefillTokensPerSecond / rate).toBeCloseTo(1, 0);
    expect(rates.prefillTokensPerSecond).toBeGreaterThan(0.8 * rate);
    expect(rates.prefillTokensPerSecond).toBeLessThan(1.25 * rate);
    expect(rates.overheadSeconds).toBeGreaterThan(0.7 * overhead);
    expect(rates.overheadSeconds).toBeLessThan(1.5 * overhead + 0.005);
  });

  it('short prompts do not make an engine look slow', () => {
    const rates = new LearnedRates();
    for (let i = 0; i < 300; i++) rates.firstToken(20, 0.1);
    expect(rates.prefillTokensPerSecond).toBeGreaterThan(4_000);
  });

  it('one stalled request changes little, a lasting change is followed', () => {
    const rates = new LearnedRates();
    feed(rates, 300, 0.02, 10_000);
    const before = rates.prefillTokensPerSecond;
    rates.firstToken(1_000, 300);
    expect(rates.prefillTokensPerSecond).toBeGreaterThan(0.5 * before);
    feed(rates, 400, 0.02, 2_500);
    expect(rates.prefillTokensPerSecond).toBeLessThan(3_500);
  });

  it('learns the pace of decoding from answers long enough to tell', () => {
    const rates = new LearnedRates();
    for (let i = 0; i < 500; i++) rates.decoded(200, 200 * 0.05);
    expect(rates.secondsPerOutputToken).toBeCloseTo(0.05, 3);
    for (let i = 0; i < 5; i++) rates.decoded(1, 1);
    expect(rates.secondsPerOutputToken).toBeLessThan(0.06);
  });

  it('stays finite and positive whatever it is fed', () => {
    const number = fc.oneof(
      fc.double(),
      fc.constantFrom(0, -1, Number.NaN, Number.POSITIVE_INFINITY, 1e-9, 1e9),
    );
    fc.assert(
      fc.property(fc.array(fc.tuple(number, number), { maxLength: 50 }), (samples) => {
        const rates = new LearnedRates();
        for (const [tokens, seconds] of samples) {
          rates.firstToken(tokens, seconds);
          rates.decoded(tokens, seconds);
        }
        for (const value of [rates.prefillTokensPerSecond, rates.secondsPerOutputToken]) {
          expect(value).toBeGreaterThan(0);
          expect(Number.isFinite(value)).toBe(true);
        }
        expect(rates.overheadSeconds).toBeGreaterThanOrEqual(0);
        expect(Number.isFinite(rates.overheadSeconds)).toBe(true);
      }),
    );
  });
});

describe('LearnedSizes', () => {
  it('follows what usage says', () => {
    const sizes = new LearnedSizes();
    for (let i = 0; i < 500; i++) sizes.answered(3_000, 1_000, 80);
    expect(sizes.promptTokens(30_000)).toBe(10_000);
    expect(Math.round(sizes.expectedOutputTokens(undefined))).toBe(80);
    expect(sizes.expectedOutputTokens(16)).toBe(16);
  });

  it('is not spoiled by an image, which is bytes without tokens', () => {
    const sizes = new LearnedSizes();
    sizes.answered(8_000_000, 1_200, 10);
    expect(sizes.bytesPerToken).toBeLessThan(5);
  });
});
