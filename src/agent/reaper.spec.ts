import { beforeEach, describe, expect, it } from 'vitest';
import { nextTurn } from '../../test/support/wait-for.js';
import { createLogger } from '../shared/logger.js';
import type { ChildWaits } from './child-waits.js';
import { systemProcessTable, type ProcessFacts, type ProcessTable } from './process-table.js';
import { ORPHANS_PER_LOOK_MAX, Reaper } from './reaper.js';

const logger = createLogger({ level: 'error', format: 'json' }, () => {});

/** Processes as a spec makes them: who has ended waits to be reaped. */
class Family {
  readonly children = new Map<number, { startTicks: number; ended: boolean }>();
  readonly reaped: number[] = [];
  readonly waits: ChildWaits = {
    anyEnded: () => [...this.children.values()].some(({ ended }) => ended),
    hasEnded: (pid) => this.children.get(pid)?.ended === true,
    reap: (pid) => {
      this.children.delete(pid);
      this.reaped.push(pid);
    },
    takeOrphans: () => true,
  };

  table(): ProcessTable {
    return {
      ...systemProcessTable('none'),
      canIdentify: true,
      name: () => 'sleep',
      childrenOf: () => [...this.children.keys()],
      read: (pid) => {
        const child = this.children.get(pid);
        return child === undefined
          ? undefined
          : ({ pid, startTicks: child.startTicks, zombie: child.ended } as ProcessFacts);
      },
    };
  }

  add(pid: number, startTicks: number, ended: boolean): void {
    this.children.set(pid, { startTicks, ended });
  }
}

describe('a reaper', () => {
  let family: Family;
  let due: () => void;
  let loads: number;
  beforeEach(() => {
    family = new Family();
    due = () => {};
    loads = 0;
  });

  const clock = {
    monotonicMs: () => 0,
    wallMs: () => 0,
    setTimer: (_delayMs: number, fn: () => void) => {
      due = fn;
      return { cancel: () => {} };
    },
  };
  async function look(): Promise<void> {
    due();
    for (let turns = 0; turns < 3; turns++) await nextTurn();
  }
  async function started(pid: number, waits?: () => Promise<ChildWaits>): Promise<Reaper> {
    const reaper = new Reaper({
      processes: family.table(),
      clock,
      logger,
      timings: { reapIntervalMs: 1_000, initCheckMs: 10_000 },
      pid,
      waits: () => {
        loads += 1;
        return waits === undefined ? Promise.resolve(family.waits) : waits();
      },
    });
    await reaper.start();
    return reaper;
  }

  it('reaps at the second look, and only who has ended', async () => {
    const reaper = await started(1);
    family.add(10, 100, true);
    family.add(11, 101, false);
    await look();
    expect(family.reaped).toEqual([]);
    await look();
    expect(family.reaped).toEqual([10]);
    expect(reaper.conditions()).toEqual([]);
  });

  // Node takes its own children before the second look. Taking one away would lose its exit code, and with it the verdict.
  it('never takes a child of Node, not even one that got the pid of another', async () => {
    await started(1);
    family.add(10, 100, true);
    await look();
    family.children.delete(10);
    await look();
    family.add(10, 200, true);
    await look();
    family.add(10, 300, true);
    await look();
    expect(family.reaped).toEqual([]);
  });

  it('takes note of a bounded number at a look, and gets to all of them', async () => {
    await started(1);
    for (let pid = 2; pid < 2 + 2 * ORPHANS_PER_LOOK_MAX; pid++) family.add(pid, pid, true);
    await look();
    await look();
    expect(family.reaped).toHaveLength(ORPHANS_PER_LOOK_MAX);
    await look();
    expect(family.reaped).toHaveLength(2 * ORPHANS_PER_LOOK_MAX);
  });

  it('leaves everything to an init that reaps, and loads nothing', async () => {
    const reaper = await started(42);
    family.add(10, 100, true);
    await look();
    family.children.clear();
    family.add(11, 101, true);
    await look();
    expect(loads).toBe(0);
    expect(reaper.conditions()).toEqual([]);
  });

  it('takes the place of a process 1 that leaves zombies', async () => {
    await started(42);
    family.add(10, 100, true);
    await look();
    await look();
    expect(loads).toBe(1);
    // From here on they are children of the agent.
    await look();
    await look();
    expect(family.reaped).toEqual([10]);
  });

  it.each([
    [1, 'the agent is process 1'],
    [42, 'process 1 (sleep) waits for nobody'],
  ])('says that nobody reaps when it cannot, as process %i', async (pid, why) => {
    const reaper = await started(pid, () => Promise.reject(new Error('no koffi')));
    family.add(10, 100, true);
    await look();
    await look();
    expect(reaper.conditions()).toMatchObject([
      { type: 'NoInit', reason: expect.stringContaining(why), blocksPlacement: false },
    ]);
    await look();
    expect(loads).toBe(1);
  });
});
