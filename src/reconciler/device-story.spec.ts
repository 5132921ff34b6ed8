import { describe, expect, it } from 'vitest';
import { aGpu, aNode } from '../../test/support/cluster-builder.js';
import type { GpuHealth, NodeCondition, ShardReport } from '../domain/cluster.js';
import { DeviceStory, type LastTold } from './device-story.js';

const nothingTold: LastTold = () => undefined;
const toldOfA: LastTold = (_kind, id) => (id === 'GPU-a' ? 'GpuExcluded' : undefined);
const excluded: GpuHealth = {
  ...{ state: 'excluded', reason: 'xid_79', evidence: 'Xid 79: fallen off the bus', clearedBy: 'a reboot' },
};
const healthy: GpuHealth = { state: 'healthy' };
const full: NodeCondition = { type: 'DiskNearlyFull', reason: '1 GiB left', blocksPlacement: true };

const node = (health: GpuHealth, conditions: readonly NodeCondition[] = []) =>
  aNode('n1', [aGpu('GPU-a', { health }), aGpu('GPU-b')], { conditions });

describe('the story of devices', () => {
  it('says what became of a GPU and why, of which node, and which replica is on it; what is well is no news', () => {
    const story = new DeviceStory();
    expect(story.tell([node(healthy)], 0, nothingTold)).toEqual([]);
    const shard = { replicaId: 'm-1', phase: 'ready', gpuUuids: ['GPU-a'] } as unknown as ShardReport;
    expect(story.tell([{ ...node(excluded), shards: [shard] }], 1, nothingTold)).toEqual([
      {
        type: 'GpuExcluded',
        severity: 'error',
        subject: { kind: 'gpu', id: 'GPU-a' },
        reason: { code: 'xid_79', message: 'H100 of n1: Xid 79: fallen off the bus; cleared by a reboot' },
        actor: 'agent',
        related: [
          { kind: 'node', id: 'n1' },
          { kind: 'replica', id: 'm-1' },
        ],
      },
    ]);
    expect(story.tell([node(excluded)], 2, nothingTold)).toEqual([]);
    expect(story.tell([node(healthy)], 3, nothingTold)).toMatchObject([
      { type: 'GpuHealthy', severity: 'info', subject: { id: 'GPU-a' } },
    ]);
  });

  it('is told of a GPU that is first seen unwell, but not again after a restart of the server', () => {
    expect(new DeviceStory().tell([node(excluded)], 0, nothingTold)).toHaveLength(1);
    expect(new DeviceStory().tell([node(excluded)], 0, toldOfA)).toEqual([]);
    // It recovered while the server was away.
    expect(new DeviceStory().tell([node(healthy)], 0, toldOfA)).toMatchObject([
      { type: 'GpuHealthy', subject: { id: 'GPU-a' } },
    ]);
  });

  it('has nothing of a node that has not reported yet', () => {
    const unknown = { ...node({ state: 'unknown' }), reported: false };
    expect(new DeviceStory().tell([unknown], 0, nothingTold)).toEqual([]);
  });

  it('says which condition of a node began, what that means, and that it is over', () => {
    const story = new DeviceStory();
    expect(story.tell([node(healthy, [full])], 0, nothingTold)).toMatchObject([
      {
        type: 'NodeConditionRaised',
        subject: { kind: 'node', id: 'n1' },
        reason: {
          code: 'DiskNearlyFull',
          message: 'DiskNearlyFull: 1 GiB left; nothing new is started there',
        },
      },
    ]);
    expect(story.tell([node(healthy, [{ ...full, reason: '0.9 GiB left' }])], 1, nothingTold)).toEqual([]);
    expect(story.tell([node(healthy)], 2, nothingTold)).toMatchObject([
      { type: 'NodeConditionCleared', reason: { code: 'DiskNearlyFull' } },
    ]);
  });

  it('of a flapping device is bounded, and says later how much was left out', () => {
    const story = new DeviceStory();
    const told = Array.from({ length: 100 }, (_, n) =>
      story.tell([node(n % 2 === 0 ? excluded : healthy)], n * 2_000, nothingTold),
    ).flat();
    expect(told).toHaveLength(8);
    expect(story.tell([node(excluded)], 1_000_000, nothingTold)[0]?.reason.message).toMatch(
      /92 changes before it/,
    );
  });
});
