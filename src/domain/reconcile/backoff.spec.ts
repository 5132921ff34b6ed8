import { describe, expect, it } from 'vitest';
import { backoffKey, type BackoffRecord, type ReplicaRecord, type Verdict } from '../cluster.js';
import { countFailure, healthyResetMs, leftAfterRestartMs } from './backoff.js';
import { DEFAULT_POLICY } from './policy.js';

const replica = (profile: string, generation: number): ReplicaRecord => ({
  id: 'm-1',
  model: 'm',
  profile,
  specDigest: `digest-of-${profile}`,
  generation,
  intent: 'run',
  intentReason: { code: 'wanted', message: 'm wants 1 replica' },
  shards: [],
  createdWallMs: 0,
});

/** The records kept in a store after these failures, one after another, and the last of them. */
function afterFailures(failures: readonly { profile: string; nodeId: string; cause: Verdict }[]): {
  readonly last: BackoffRecord;
  readonly kept: readonly BackoffRecord[];
} {
  const store = new Map<string, BackoffRecord>();
  let last: BackoffRecord | undefined;
  for (const [index, { profile, nodeId, cause }] of failures.entries()) {
    last = countFailure(
      replica(profile, index + 1),
      { nodeId, cause, message: cause },
      [...store.values()],
      DEFAULT_POLICY,
      1_000 * index,
      () => 0,
    );
    store.set(backoffKey(last), last);
  }
  if (last === undefined) throw new Error('no failures given');
  return { last, kept: [...store.values()] };
}

describe('back-off', () => {
  it('doubles from the base to the cap', () => {
    const delays = Array.from({ length: 9 }, (_, n) => {
      const same = { profile: 'p', nodeId: 'n1', cause: 'crashed' as const };
      return afterFailures(Array.from({ length: n + 1 }, () => same)).last.delayMs;
    });
    expect(delays).toEqual([5, 10, 20, 40, 80, 160, 300, 300, 300].map((seconds) => seconds * 1_000));
  });

  /**
   * A replica fell from one profile to the other and back, on one node. Each record overwrote the other's in the store,
   * so every failure looked like the first and the loop never slowed down.
   */
  it('keeps growing when two profiles fail by turns on one node', () => {
    const turns = ['a', 'b', 'a', 'b'].map((profile) => ({
      profile,
      nodeId: 'n1',
      cause: 'crashed' as const,
    }));
    const { last, kept } = afterFailures(turns);
    expect(last.delayMs).toBe(8 * DEFAULT_POLICY.baseBackoffMs);
    expect(kept.map((record) => [record.profile, record.failures])).toEqual([
      ['a', 2],
      ['b', 2],
    ]);
  });

  it('keeps growing when the replica tours nodes and causes', () => {
    const { last } = afterFailures([
      { profile: 'a', nodeId: 'n1', cause: 'crashed' },
      { profile: 'a', nodeId: 'n2', cause: 'outOfMemory' },
      { profile: 'a', nodeId: 'n1', cause: 'outOfMemory' },
    ]);
    expect(last.delayMs).toBe(4 * DEFAULT_POLICY.baseBackoffMs);
  });

  it('takes another port at once, but not for ever', () => {
    const port = { profile: 'a', nodeId: 'n1', cause: 'portTaken' as const };
    expect(afterFailures([port]).last.delayMs).toBe(0);
    expect(afterFailures(Array.from({ length: 6 }, () => port)).last.delayMs).toBeGreaterThan(0);
  });

  it('parks a place for a cause that waiting cannot cure', () => {
    expect(afterFailures([{ profile: 'a', nodeId: 'n1', cause: 'badFlag' }]).last.permanent).toBe(true);
    expect(afterFailures([{ profile: 'a', nodeId: 'n1', cause: 'crashed' }]).last.permanent).toBe(false);
  });

  it('tries another node at once when only this one is unable, and slows down when all are', () => {
    const unable = (nodeId: string) => ({ profile: 'a', nodeId, cause: 'notAllowed' as const });
    const nodes = Array.from({ length: 9 }, (_, n) => unable(`n${n}`));
    expect(afterFailures(nodes.slice(0, 1)).last).toMatchObject({ permanent: true, delayMs: 0 });
    expect(afterFailures(nodes.slice(0, 8)).last.delayMs).toBe(0);
    expect(afterFailures(nodes).last.delayMs).toBe(DEFAULT_POLICY.baseBackoffMs);
  });

  it('does not hurry from node to node with what no node can run', () => {
    const flag = { profile: 'a', nodeId: 'n1', cause: 'badFlag' as const };
    expect(afterFailures([flag]).last.delayMs).toBe(DEFAULT_POLICY.baseBackoffMs);
  });

  it('never waits longer after a restart than the delay was, whatever the wall clock says', () => {
    const { last } = afterFailures([{ profile: 'a', nodeId: 'n1', cause: 'crashed' }]);
    expect(leftAfterRestartMs(last, -1_000_000)).toBe(last.delayMs);
    expect(leftAfterRestartMs(last, last.untilWallMs + 1)).toBe(0);
  });

  it('is forgotten only after health as long as the longest wait', () => {
    const same = { profile: 'p', nodeId: 'n1', cause: 'crashed' as const };
    const { kept } = afterFailures(Array.from({ length: 8 }, () => same));
    const policy = { ...DEFAULT_POLICY, healthyResetMs: 1 };
    expect(healthyResetMs(kept, policy)).toBe(300_000);
    expect(healthyResetMs([], DEFAULT_POLICY)).toBe(DEFAULT_POLICY.healthyResetMs);
  });
});
