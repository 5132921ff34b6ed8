import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyLimiter, RateGrant, formatReset, rateLimitHeaders } from './rate-limit.js';
import type { RateLimits, RequestUse } from './rate-limit.js';

const NONE: RateLimits = {
  requestsPerMinute: undefined,
  tokensPerMinute: undefined,
  concurrentRequests: undefined,
};

const SERVED: RequestUse = { tokens: 0, counts: true };
const used = (tokens: number): RequestUse => ({ tokens, counts: true });

function grant(limiter: KeyLimiter, nowMs = 0, estimatedTokens = 0): RateGrant {
  const decision = limiter.request(nowMs, estimatedTokens);
  if (!(decision instanceof RateGrant)) throw new Error(`refused: ${decision.limit}`);
  return decision;
}

describe('concurrent requests', () => {
  const limits = { ...NONE, concurrentRequests: 3 };

  it('refuses exactly the fourth, and accepts as soon as one ends, however it ends', () => {
    const limiter = new KeyLimiter(limits, 0);
    const open = [grant(limiter), grant(limiter), grant(limiter)];
    expect(limiter.request(0, 0)).toEqual({ granted: false, limit: 'concurrent', retryAfterSeconds: 1 });
    open[0]!.end(SERVED, 0);
    open[0]!.end(SERVED, 0);
    expect(grant(limiter)).toBeDefined();
    expect(limiter.request(0, 0).granted).toBe(false);
  });
});

describe('requests per minute', () => {
  const limits = { ...NONE, requestsPerMinute: 60 };

  it('a hundred refused requests use up nothing', () => {
    const limiter = new KeyLimiter(limits, 0);
    for (let i = 0; i < 60; i++) grant(limiter).end(SERVED, 0);
    for (let i = 0; i < 100; i++) {
      expect(limiter.request(0, 0)).toEqual({ granted: false, limit: 'requests', retryAfterSeconds: 1 });
    }
    expect(limiter.request(1_000, 0).granted).toBe(true);
    expect(limiter.request(1_000, 0).granted).toBe(false);
    for (let i = 0; i < 60; i++) grant(limiter, 61_000);
  });

  it('a refusal by another limit takes no request from the window either', () => {
    const limiter = new KeyLimiter({ ...limits, concurrentRequests: 1 }, 0);
    const first = grant(limiter);
    for (let i = 0; i < 100; i++) limiter.request(0, 0);
    first.end(SERVED, 0);
    expect(limiter.snapshot(0).requests?.remaining).toBe(59);
  });

  it('one that nobody served is given back, once', () => {
    const limiter = new KeyLimiter(limits, 0);
    const first = grant(limiter);
    grant(limiter).end(SERVED, 0);
    first.end({ tokens: 0, counts: false }, 0);
    first.end({ tokens: 0, counts: false }, 0);
    expect(limiter.snapshot(0).requests?.remaining).toBe(59);
  });
});

describe('tokens per minute', () => {
  const limits = { ...NONE, tokensPerMinute: 6_000 };

  it('charges what was really used, also beyond the window, and then waits it off', () => {
    const limiter = new KeyLimiter(limits, 0);
    const first = grant(limiter);
    first.end(used(9_000), 0);
    first.end(used(5_000), 0);
    expect(limiter.request(0, 0)).toEqual({ granted: false, limit: 'tokens', retryAfterSeconds: 31 });
    expect(limiter.snapshot(0).tokens).toEqual({ limit: 6_000, remaining: 0, resetMs: 90_000 });
    expect(limiter.request(30_000, 0).granted).toBe(false);
    expect(limiter.request(31_000, 0).granted).toBe(true);
  });

  it('holds the estimate back while the request runs, and puts the real use in its place', () => {
    const limiter = new KeyLimiter(limits, 0);
    const [first, second] = [grant(limiter, 0, 4_000), grant(limiter, 0, 4_000)];
    expect(limiter.reservedTokens).toBe(8_000);
    expect(limiter.request(0, 1)).toMatchObject({ limit: 'tokens' });
    first.end(used(100), 0);
    expect(limiter.snapshot(0).tokens?.remaining).toBe(1_900);
    second.end(used(0), 0);
    expect(limiter.snapshot(0).tokens?.remaining).toBe(5_900);
    expect(limiter.reservedTokens).toBe(0);
  });

  it('lets a request in whose estimate alone is more than the limit', () => {
    const limiter = new KeyLimiter({ ...NONE, tokensPerMinute: 100 }, 0);
    grant(limiter, 0, 300).end(used(30), 0);
    grant(limiter, 0, 300).end(used(80), 0);
    expect(limiter.request(0, 1)).toMatchObject({ limit: 'tokens' });
  });

  it('gives back no more than a full window', () => {
    const limiter = new KeyLimiter(limits, 0);
    grant(limiter, 0, 6_000).end(used(10), 60_000);
    expect(limiter.snapshot(60_000).tokens?.remaining).toBe(6_000);
  });
});

describe('properties', () => {
  it('counters end at zero and no window ever grants more than its limit, over any mix', () => {
    const step = fc.record({
      what: fc.constantFrom('request', 'request', 'end'),
      afterMs: fc.nat(5_000),
      pick: fc.nat(1_000),
      counts: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const limits = { requestsPerMinute: 30, tokensPerMinute: 10_000, concurrentRequests: 4 };
        const limiter = new KeyLimiter(limits, 0);
        const open: RateGrant[] = [];
        let countedAtMs: number[] = [];
        let nowMs = 0;
        for (const { what, afterMs, pick, counts } of steps) {
          nowMs += afterMs;
          if (what === 'request') {
            const before = limiter.snapshot(nowMs);
            const decision = limiter.request(nowMs, pick);
            if (decision instanceof RateGrant) {
              open.push(decision);
              countedAtMs.push(nowMs);
            } else expect(limiter.snapshot(nowMs)).toEqual(before);
          } else {
            const [ended] = open.splice(pick % Math.max(1, open.length), 1);
            ended?.end({ tokens: pick * 3, counts }, nowMs);
            ended?.end({ tokens: pick * 3, counts }, nowMs);
            // One that was given back makes room for another within the same minute.
            if (ended !== undefined && !counts) countedAtMs = countedAtMs.slice(1);
          }
          expect(limiter.concurrent).toBe(open.length);
          expect(limiter.concurrent).toBeLessThanOrEqual(4);
        }
        // A full bucket plus a minute's refill is the most any minute can see.
        for (const from of countedAtMs) {
          const within = countedAtMs.filter((t) => t >= from && t < from + 60_000).length;
          expect(within).toBeLessThanOrEqual(60);
        }
        for (const one of open) one.end(SERVED, nowMs);
        expect(limiter.concurrent).toBe(0);
        expect(limiter.reservedTokens).toBe(0);
        const rested = limiter.snapshot(nowMs + 24 * 3_600_000);
        expect([rested.requests?.remaining, rested.tokens?.remaining]).toEqual([30, 10_000]);
      }),
    );
  });
});

describe('headers', () => {
  it('say limit, remaining and reset as OpenAI does, and nothing for what is unlimited', () => {
    const limiter = new KeyLimiter({ ...NONE, requestsPerMinute: 60 }, 0);
    grant(limiter);
    expect(rateLimitHeaders(limiter.snapshot(0))).toEqual([
      ...['x-ratelimit-limit-requests', '60'],
      ...['x-ratelimit-remaining-requests', '59'],
      ...['x-ratelimit-reset-requests', '1s'],
    ]);
    expect(rateLimitHeaders(new KeyLimiter(NONE, 0).snapshot(0))).toEqual([]);
  });

  it.each([
    [0, '0ms'],
    [12.3, '13ms'],
    [1_000, '1s'],
    [1_234, '1.24s'],
    [59_999, '60s'],
    [360_000, '6m0s'],
    [61_001, '1m2s'],
  ])('%d ms is %s', (ms, text) => expect(formatReset(ms)).toBe(text));
});
