import { describe, expect, it } from 'vitest';
import { runReal } from '../routing-sim/real.js';
import { WORKLOADS } from '../routing-sim/workloads.js';

/** Share of the simulated four minutes: some seconds a run. */
const SCALE = 0.025;

describe('prefixAware on real sockets', () => {
  it('finds long shared prefixes that round robin misses, and keeps the load even', async () => {
    const tenants = () => WORKLOADS['many-tenants']!(1, SCALE);
    const ours = await runReal(tenants(), 'prefixAware', 1);
    const turns = await runReal(tenants(), 'roundRobin', 1);
    expect([ours.failures, turns.failures]).toEqual([0, 0]);
    expect(ours.cachedShare).toBeGreaterThan(3 * turns.cachedShare);
    expect(ours.cachedShare).toBeGreaterThan(0.3);
    expect(ours.busiest).toBeLessThanOrEqual(2);
  }, 120_000);
});
