import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyLimiter, RateGrant, formatReset, rateLimitHeaders } from './rate-limit.js';
import type { RateLimits } from './rate-limit.js';

const NONE: RateLimits = {
  requestsPerMinute: undefined,
  tokensPerMinute: undefined,
  concurrentRequests: undefined,
};

function grant(limiter: KeyLimiter, nowMs = 0): RateGrant {
  const decision = limiter.request(nowMs);
  if (!(decision instanceof RateGrant)) throw new Error(`refused: ${decision.limit}`);
  return decision;
}

describe('concurrent requests', () => {
  const limits = { ...NONE, concurrentRequests: 3 };

  it('refuses exactly the fourth, and accepts as soon as one ends, however it ends', () => {
    const limiter = new KeyLimiter(limits, 0);
    const open = [grant(limiter), grant(limiter), grant(limiter)];
    expect(limiter.request(0)).toEqual({ granted: false, limit: 'concurrent', retryAfterSeconds: 1 });
    open[0]!.release();
    open[0]!.release();
    expect(grant(limiter)).toBeDefined();
    expect(limiter.request(0).granted).toBe(false);
  });
});

describe('requests per minute', () => {
  const limits = { ...NONE, requestsPerMinute: 60 };

  it('a hundred refused requests use up nothing', () => {
    const limiter = new KeyLimiter(limits, 0);
    for (let i = 0; i < 60; i++) grant(limiter).release();
    for (let i = 0; i < 100; i++) {
      expect(limiter.request(0)).toEqual({ granted: false, limit: 'requests', retryAfterSeconds: 1 });
    }
    expect(limiter.request(1_000).granted).toBe(true);
    expect(limiter.request(1_000).granted).toBe(false);
    for (let i = 0; i < 60; i++) grant(limiter, 61_000);
  });

  it('a refusal by another limit takes no request from the window either', () => {
    const limiter = new KeyLimiter({ ...limits, concurrentRequests: 1 }, 0);
    const first = grant(limiter);
    for (let i = 0; i < 100; i++) limiter.request(0);
    first.release();
    expect(limiter.snapshot(0).requests?.remaining).toBe(59);
  });
});

describe('tokens per minute', () => {
  it('charges what was really used, also beyond the window, and then waits it off', () => {
    const limiter = new KeyLimiter({ ...NONE, tokensPerMinute: 6_000 }, 0);
    const first = grant(limiter);
    first.charge(4_000, 0);
    first.charge(5_000, 0);
    first.release();
    first.charge(5_000, 0);
    expect(limiter.request(0)).toEqual({ granted: false, limit: 'tokens', retryAfterSeconds: 31 });
    expect(limiter.snapshot(0).tokens).toEqual({ limit: 6_000, remaining: 0, resetMs: 90_000 });
    expect(limiter.request(30_000).granted).toBe(false);
    expect(limiter.request(31_000).granted).toBe(true);
  });
});

describe('limits that change', () => {
  it('apply from then on and keep what is open', () => {
    const limiter = new KeyLimiter({ ...NONE, concurrentRequests: 1 }, 0);
    const first = grant(limiter);
    limiter.setLimits({ ...NONE, concurrentRequests: 2, requestsPerMinute: 1 }, 0);
    grant(limiter);
    first.release();
    expect(limiter.request(0)).toMatchObject({ limit: 'requests' });
  });
});

describe('properties', () => {
  it('counters end at zero and no window ever grants more than its limit, over any mix', () => {
    const step = fc.record({
      what: fc.constantFrom('request', 'request', 'release', 'charge'),
      afterMs: fc.nat(5_000),
      pick: fc.nat(1_000),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const limiter = new KeyLimiter(
          { requestsPerMinute: 30, tokensPerMinute: 10_000, concurrentRequests: 4 },
          0,
        );
        const grants: RateGrant[] = [];
        const grantedAtMs: number[] = [];
        let nowMs = 0;
        for (const { what, afterMs, pick } of steps) {
          nowMs += afterMs;
          const chosen = grants[pick % Math.max(1, grants.length)];
          if (what === 'request') {
            const before = limiter.snapshot(nowMs);
            const decision = limiter.request(nowMs);
            if (decision instanceof RateGrant) {
              grants.push(decision);
              grantedAtMs.push(nowMs);
            } else expect(limiter.snapshot(nowMs)).toEqual(before);
          } else if (what === 'release') chosen?.release();
          else chosen?.charge(pick, nowMs);
          expect(limiter.concurrent).toBeGreaterThanOrEqual(0);
          expect(limiter.concurrent).toBeLessThanOrEqual(4);
        }
        // A full bucket plus a minute's refill is the most any minute can see.
        for (const from of grantedAtMs) {
          const within = grantedAtMs.filter((t) => t >= from && t < from + 60_000).length;
          expect(within).toBeLessThanOrEqual(60);
        }
        for (const one of grants) one.release();
        expect(limiter.concurrent).toBe(0);
        expect(limiter.isIdle(nowMs + 24 * 3_600_000)).toBe(true);
      }),
    );
  });
});

describe('headers', () => {
  it('say limit, remaining and reset as OpenAI does, and nothing for what is unlimited', () => {
    const limiter = new KeyLimiter({ ...NONE, requestsPerMinute: 60 }, 0);
    grant(limiter);
    expect(rateLimitHeaders(limiter.snapshot(0))).toEqual([
      ['x-ratelimit-limit-requests', '60'],
      ['x-ratelimit-remaining-requests', '59'],
      ['x-ratelimit-reset-requests', '1s'],
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
