import { describe, expect, it } from 'vitest';
import { STANDARD_ENGINE, SimEngine } from './engine.js';
import { SIM_POLICIES } from './policies.js';
import { percentile, simulate } from './simulate.js';
import { WORKLOADS } from './workloads.js';
import type { SimRequest, Workload } from './workloads.js';

/** A quarter of the full run's time: enough for the order of the policies, not for the last percent. */
const SCALE = 0.25;
/** Short runs scatter more than the 3 % that the full run is held to. */
const MARGIN = 1.1;

const named = (name: string): Workload => WORKLOADS[name]!(1, SCALE);
const policy = (name: string) => SIM_POLICIES.find(([known]) => known === name)![1];

describe('prefixAware in the simulated fleet', () => {
  it.each(['hot-system-prompt', 'no-reuse', 'bursty', 'uneven-replicas'])(
    '%s: near the best p90 of all policies, nobody above twice the mean',
    (name) => {
      const workload = named(name);
      const results = SIM_POLICIES.map(([, make]) => simulate(workload, make, 1));
      const p90 = results.map((result) => percentile(result.ttftMs, 0.9));
      expect(p90[0]).toBeLessThanOrEqual(MARGIN * Math.min(...p90));
      expect(results[0]!.peakImbalance).toBeLessThanOrEqual(2);
      expect(results[0]!.peakDueImbalance).toBeLessThanOrEqual(2);
    },
  );

  it('the same seed gives the same result', () => {
    const workload = named('no-reuse');
    const run = () => simulate(workload, policy('prefixAware'), 7);
    expect(run()).toEqual(run());
  });

  it('sees what it should: round robin finds little of what prefixAware finds', () => {
    const workload = named('multi-turn');
    const ours = simulate(workload, policy('prefixAware'), 1);
    const blind = simulate(workload, policy('round robin'), 1);
    expect(ours.hitShare).toBeGreaterThan(1.5 * blind.hitShare);
  });
});

describe('the simulated engine', () => {
  const request = (id: number, blocks: number[], promptTokens: number, outputTokens: number): SimRequest => ({
    id,
    promptTokens,
    outputTokens,
    prompt: [],
    blocks: Int32Array.from(blocks),
    blocksWithAnswer: Int32Array.from(blocks),
    chain: { blocks: 0, bytes: 0, words: new Uint32Array() },
    firstUserHash: 0,
    next: undefined,
  });

  /** Runs `engine` until it is idle; what each request found cached, in order of ending. */
  function drain(engine: SimEngine): { id: number; cachedTokens: number; atMs: number }[] {
    const ended: { id: number; cachedTokens: number; atMs: number }[] = [];
    let atMs = 0;
    for (let lengthMs = engine.startStep(); lengthMs !== undefined; lengthMs = engine.startStep()) {
      atMs += lengthMs;
      for (const { request: done, cachedTokens } of engine.endStep().finished) {
        ended.push({ id: done.id, cachedTokens, atMs });
      }
    }
    return ended;
  }

  it('finds what it computed before, and no more than memory holds', () => {
    const engine = new SimEngine({ ...STANDARD_ENGINE, cacheBlocks: 8 }, 20);
    for (const [id, blocks] of [
      [0, 1, 2, 3],
      [0, 1, 2, 3],
      [10, 11, 12, 13, 14],
      [0, 1, 2, 3],
    ].entries()) {
      engine.submit(request(id, blocks, blocks.length * 64 + 10, 5));
      drain(engine);
    }
    engine.submit(request(9, [0, 1, 2, 3], 4 * 64 + 10, 5));
    expect(drain(engine)).toMatchObject([{ id: 9, cachedTokens: 256 }]);
    engine.submit(request(10, [10, 11, 12, 13, 14], 5 * 64 + 10, 5));
    // Heads outlive tails, and the other prompt pushed out most of it.
    expect(drain(engine)[0]!.cachedTokens).toBeLessThan(5 * 64);
  });

  it('takes the time of its prompt and of one step per token', () => {
    const engine = new SimEngine(STANDARD_ENGINE, 1);
    engine.submit(request(1, [], 1_000, 11));
    const [done] = drain(engine);
    // One step of prefill with the first token, ten more of one sequence each.
    expect(done!.atMs).toBeCloseTo(8 + 100 + 10 * 8.1, 6);
  });
});
