import { describe, expect, it } from 'vitest';
import { aModel, aNode, aProfile, GIB } from '../../../test/support/cluster-builder.js';
import { IdealCluster } from '../../../test/support/ideal-cluster.js';
import type { ReplicaRecord } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';

const model = aModel({ replicas: 2 });

/** Two copies of the model, then a restart of it; the records are those of before the restart. */
function restartedSinceBackup(): { readonly c: IdealCluster; readonly backup: readonly ReplicaRecord[] } {
  const c = Object.assign(new IdealCluster(), {
    models: [model],
    nodes: [aNode('n1', 4), aNode('n2', 4)],
  });
  c.run(60_000);
  const backup = [...c.records.values()];
  c.models = [{ ...model, restartedWallMs: c.wallMs }];
  c.run(300_000);
  expect(c.recordsOf('m').map(({ id }) => id)).not.toEqual(backup.map(({ id }) => id));
  return { c, backup };
}

/** The store as it was, and whether what runs stays. */
function restore(c: IdealCluster, records: readonly ReplicaRecord[], models: readonly ModelSpec[]): boolean {
  const running = [...c.engines.keys()].toSorted();
  c.records.clear();
  for (const record of records) c.records.set(record.id, record);
  c.models = models;
  c.run(300_000);
  return JSON.stringify([...c.engines.keys()].toSorted()) === JSON.stringify(running);
}

describe('a server that has lost its state', () => {
  /** Started anew with an empty store; only the first node is there yet. */
  function lost(): { readonly c: IdealCluster; readonly late: IdealCluster['nodes'] } {
    const spread = aModel({ replicas: 2, placement: { strategy: 'spread' } });
    const c = Object.assign(new IdealCluster(), {
      models: [spread],
      nodes: [aNode('n1', 4), aNode('n2', 4)],
    });
    c.run(60_000);
    const [first, ...late] = c.nodes;
    c.records.clear();
    c.nodes = first === undefined ? [] : [first];
    c.restart();
    return { c, late };
  }

  it('waits for the other agents once the first brings engines it does not know; all are taken over', () => {
    const { c, late } = lost();
    const before = [...c.engines.keys()].toSorted();
    c.run(10_000);
    expect([...c.engines.keys()].toSorted()).toEqual(before);
    expect(c.plans.at(-1)?.published).toHaveLength(1);
    c.nodes = [...c.nodes, ...late];
    c.run(60_000);
    expect([...c.engines.keys()].toSorted()).toEqual(before);
    expect(c.published()).toHaveLength(2);
  });

  it('starts what is missing when nobody else has come by then', () => {
    const { c } = lost();
    c.run(c.policy.settleAfterStartMs + c.loadMs + 20_000);
    expect(c.recordsOf('m').filter(({ readyWallMs }) => readyWallMs !== undefined)).toHaveLength(2);
  });

  it.each(['obeyedTerm', 'restored'] as const)(
    'and knows it (%s) waits also when the first agent runs nothing of ours, and says for what and how long',
    (sign) => {
      const { c, late } = lost();
      const before = [...c.engines.keys()].toSorted();
      c.nodes = [aNode('n3', 4)];
      c.stateLost = sign;
      // The time runs from the first agent's coming: nobody is there before.
      c.nodes = [];
      c.run(c.policy.settleAfterStartMs + 10_000);
      c.nodes = [aNode('n3', 4)];
      c.run(10_000);
      expect([...c.engines.keys()].toSorted()).toEqual(before);
      const told = c.plans.flatMap(({ events }) =>
        events.filter(({ reason }) => reason.code === 'state_lost'),
      );
      expect(told).toHaveLength(1);
      expect(told[0]?.reason.message).toMatch(
        /20 s after the first agent came \(control\.settleAfterStart; off /,
      );
      expect(c.plans.at(-1)?.notDone).toContainEqual(
        expect.objectContaining({
          subject: 'model/m',
          reason: expect.objectContaining({ code: 'settling' }),
        }),
      );
      c.nodes = [...c.nodes, aNode('n1', 4), ...late];
      c.run(60_000);
      expect([...c.engines.keys()].toSorted()).toEqual(before);
      expect(c.plans.at(-1)?.memory.stateLost).toBeUndefined();
    },
  );

  it('waits no longer once it is told not to', () => {
    const { c } = lost();
    c.tick();
    c.policy = { ...c.policy, settleAfterStartMs: 0 };
    c.tick();
    expect(c.engines.size).toBe(3);
  });

  it('and hears of an older server only later, from an agent that joins, goes on as it is', () => {
    const c = Object.assign(new IdealCluster(), { models: [model], nodes: [aNode('n1', 1)] });
    c.restart();
    c.run(60_000);
    c.stateLost = 'obeyedTerm';
    c.nodes = [...c.nodes, aNode('n2', 1)];
    c.tick();
    expect(c.engines.size).toBe(2);
  });

  it('that is only new waits for nobody', () => {
    const c = Object.assign(new IdealCluster(), { models: [model], nodes: [aNode('n1', 4)] });
    c.restart();
    c.tick();
    expect(c.engines.size).toBe(2);
  });
});

describe('a store put back to an older copy', () => {
  const whole = aProfile();
  const partly = aProfile({ gpuMemoryBytes: 50 * GIB });

  it.each([
    ['device', whole, { http: 20_900 }],
    ['memory', partly, { http: 20_900 }],
    ['port', aProfile({ gpuMemoryBytes: 30 * GIB }), undefined],
  ])('leaves what runs in its place where it names the same %s', (_what, profile, ports) => {
    const one = aModel({ replicas: 3, profiles: [profile] });
    const c = Object.assign(new IdealCluster(), { models: [one], nodes: [aNode('n1', 1)] });
    c.run(60_000);
    const before = c.published();
    const present = c.recordsOf('m').find(({ readyWallMs }) => readyWallMs !== undefined);
    if (present === undefined) throw new Error('nothing was placed');
    const shards = present.shards.map((shard) => ({
      ...shard,
      shardId: 'm-old.0',
      ports: ports ?? shard.ports,
    }));
    const { readyWallMs: _ready, startedWallMs: _started, ...placed } = present;
    expect(restore(c, [{ ...placed, id: 'm-old', shards }], [one])).toBe(true);
    expect(c.published()).toEqual(before);
  });
});

describe('an engine that its agent stopped because it was asked to', () => {
  const stopped = { exitCode: 0, verdict: 'stopped' } as const;

  it('is no crash: nothing waits, nothing is counted, and what is wanted is placed at once', () => {
    const c = Object.assign(new IdealCluster(), { models: [aModel()], nodes: [aNode('n1')] });
    c.run(60_000);
    const [before] = c.recordsOf('m');
    c.crash(before?.shards[0]?.shardId ?? '', stopped);
    c.tick();
    expect(c.backoffs.size).toBe(0);
    expect(c.records.get(before?.id ?? '')).toBeUndefined();
    expect(c.recordsOf('m').map(({ shards }) => shards.length)).toEqual([1]);
    c.run(60_000);
    expect(c.published()).toHaveLength(1);
    expect(c.backoffs.size).toBe(0);
  });

  it('takes the other ranks of its gang with it', () => {
    const gang = aModel({ profiles: [aProfile({ shards: 2 })] });
    const c = Object.assign(new IdealCluster(), { models: [gang], nodes: [aNode('n1'), aNode('n2')] });
    c.run(60_000);
    const [before] = c.recordsOf('m');
    c.crash(before?.shards[1]?.shardId ?? '', stopped);
    c.log.length = 0;
    c.tick();
    expect(c.log).toContain(`stop ${before?.shards[0]?.shardId}@1 stopped_by_others`);
    c.run(60_000);
    expect(c.published()).toHaveLength(1);
    expect(c.records.has(before?.id ?? '')).toBe(false);
    expect(c.backoffs.size).toBe(0);
  });
});

describe('engines started after the state was put aside', () => {
  it('stay when all that happened since is a restart of their model', () => {
    const { c, backup } = restartedSinceBackup();
    expect(restore(c, backup, [model])).toBe(true);
    expect(c.published()).toHaveLength(2);
  });

  it('stay when nothing is left of the state', () => {
    const { c } = restartedSinceBackup();
    expect(restore(c, [], [model])).toBe(true);
    expect(c.published()).toHaveLength(2);
  });

  it('are replaced by the next restart, and by what has really changed', () => {
    const { c, backup } = restartedSinceBackup();
    expect(restore(c, backup, [{ ...model, restartedWallMs: c.wallMs + 1 }])).toBe(false);
    expect(restore(c, backup, [{ ...model, profiles: [aProfile({ args: ['--y'] })] }])).toBe(false);
  });
});
