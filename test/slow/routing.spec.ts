import { describe, expect, it } from 'vitest';
import { runReal } from '../routing-sim/real.js';
import { WORKLOADS } from '../routing-sim/workloads.js';

/** Share of the simulated four minutes: some seconds a run. */
const SCALE = 0.025;

const run = (shape: string, policy: 'prefixAware' | 'roundRobin') =>
  runReal(WORKLOADS[shape]!(1, SCALE), policy, 1);

// Ratios only: how long a request waits is the machine's, and with it how often load outweighs what is cached.
describe('prefixAware on real sockets', () => {
  it('finds long shared prefixes that round robin misses, and keeps the load even', async () => {
    const ours = await run('many-tenants', 'prefixAware');
    const turns = await run('many-tenants', 'roundRobin');
    expect([ours.failures, turns.failures]).toEqual([0, 0]);
    expect(ours.cachedShare).toBeGreaterThan(3 * turns.cachedShare);
    expect(ours.busiest).toBeLessThanOrEqual(2);
  }, 120_000);

  it('keeps conversations where they began, and the load even', async () => {
    const ours = await run('multi-turn', 'prefixAware');
    const turns = await run('multi-turn', 'roundRobin');
    expect([ours.failures, turns.failures]).toEqual([0, 0]);
    expect(ours.cachedShare).toBeGreaterThan(1.2 * turns.cachedShare);
    expect(ours.busiest).toBeLessThanOrEqual(2);
  }, 120_000);

  it.each(['hot-system-prompt', 'no-reuse'])(
    '%s: gathers nobody in one place',
    async (shape) => {
      const ours = await run(shape, 'prefixAware');
      expect(ours.failures).toBe(0);
      expect(ours.busiest).toBeLessThanOrEqual(2);
    },
    120_000,
  );
});
