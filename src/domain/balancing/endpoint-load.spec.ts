import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EndpointLoad } from './endpoint-load.js';
import type { LoadLease } from './endpoint-load.js';

describe('EndpointLoad', () => {
  it('counts from pick to release, prefill apart from output', () => {
    const load = new EndpointLoad();
    const lease = load.acquire(1000, 200, 0, 500);
    expect(load).toMatchObject({
      requests: 1,
      prefillRequests: 1,
      prefillTokens: 1000,
      outputTokens: 200,
      heldTokens: 1700,
    });
    lease.prefilled(10);
    lease.generated(50);
    expect(load).toMatchObject({
      requests: 1,
      prefillRequests: 0,
      prefillTokens: 0,
      outputTokens: 150,
      heldTokens: 1700,
    });
    expect(lease.release()).toBe(true);
    expect(lease.release()).toBe(false);
    expect(load.requests).toBe(0);
    expect(load.outstandingTokens).toBe(0);
  });

  it('credits the head of the queue with the time it has been computing, and no more than its size', () => {
    const load = new EndpointLoad();
    load.acquire(1000, 0, 0);
    load.acquire(1000, 0, 0);
    expect(load.prefillBacklogTokens(10_000, 0)).toBe(2000);
    expect(load.prefillBacklogTokens(10_000, 50)).toBe(1500);
    expect(load.prefillBacklogTokens(10_000, 5_000)).toBe(1000);
  });

  it('adds what others send to the same engine, while the scrape is fresh', () => {
    const load = new EndpointLoad();
    load.acquire(10, 10, 0);
    load.scraped({ runningRequests: 3, waitingRequests: 3 }, 1_000);
    expect([load.foreignRunningAt(2_000), load.foreignWaitingAt(2_000)]).toEqual([3, 2]);
    expect([load.foreignRunningAt(60_000), load.foreignWaitingAt(60_000)]).toEqual([0, 0]);
    load.scraped({ runningRequests: undefined, waitingRequests: undefined }, 3_000);
    expect(load.foreignRunningAt(3_000)).toBe(3);
    load.scraped({ runningRequests: 1, waitingRequests: 0 }, 4_000);
    expect([load.foreignRunningAt(4_000), load.foreignWaitingAt(4_000)]).toEqual([0, 0]);
  });

  it('is never negative and is exactly zero at rest, in whatever order attempts end', () => {
    const step = fc.record({
      lease: fc.nat(9),
      action: fc.constantFrom('prefilled', 'generated', 'release', 'release twice'),
      tokens: fc.double({ min: 0, max: 5_000, noNaN: true }),
    });
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.double({ min: 0, max: 1e5, noNaN: true }), fc.nat(4096)), {
          minLength: 10,
          maxLength: 10,
        }),
        fc.array(step, { maxLength: 60 }),
        (sizes, steps) => {
          const load = new EndpointLoad();
          const leases: LoadLease[] = sizes.map(([prompt, output]) =>
            load.acquire(prompt, output, 0, prompt / 3),
          );
          for (const { lease, action, tokens } of steps) {
            const chosen = leases[lease]!;
            if (action === 'prefilled') chosen.prefilled(0);
            else if (action === 'generated') chosen.generated(tokens);
            else {
              chosen.release();
              if (action === 'release twice') expect(chosen.release()).toBe(false);
            }
            for (const count of [
              load.requests,
              load.prefillRequests,
              load.prefillTokens,
              load.outputTokens,
            ]) {
              expect(count).toBeGreaterThanOrEqual(0);
            }
          }
          for (const lease of leases) lease.release();
          expect([
            load.requests,
            load.prefillRequests,
            load.prefillTokens,
            load.outputTokens,
            load.heldTokens,
          ]).toEqual([0, 0, 0, 0, 0]);
        },
      ),
    );
  });
});
