import { beforeEach, describe, expect, it } from 'vitest';
import { emptyReport } from '../../test/support/agent/empty-report.js';
import { testGpu } from '../../test/support/fake-agent.js';
import type { Hello, NodeReport } from '../agent-protocol/messages.js';
import type { ShardReport } from '../domain/cluster.js';
import { systemClock } from '../shared/clock.js';
import { MemoryStore } from '../store/memory-store.js';
import { InventoryService } from './inventory.service.js';

const hello = (change: Partial<Hello> = {}): Hello => ({
  protocolVersion: 1,
  minProtocolVersion: 1,
  build: '1',
  nodeId: 'n1',
  instanceId: 'i1',
  labels: { zone: 'a' },
  highestTerm: 0,
  ...change,
});

const report = (sequence: number, change: Partial<NodeReport> = {}): NodeReport =>
  emptyReport({ sequence, ...change });

const shard = (shardId: string, change: Partial<ShardReport> = {}): ShardReport => ({
  shardId,
  replicaId: 'r1',
  model: 'm1',
  profile: 'p',
  generation: 1,
  rank: 0,
  phase: 'ready',
  gpuUuids: [],
  ports: { http: 20_000 },
  ...change,
});

let store: MemoryStore;
let inventory: InventoryService;
beforeEach(() => {
  store = new MemoryStore();
  inventory = new InventoryService(store, systemClock);
});

const node = () => {
  const found = inventory.node('n1');
  if (found === undefined) throw new Error('n1 is not known');
  return found;
};

/** Stores what the inventory wants stored, and starts it anew. */
function restart(): void {
  store.txn({ term: 1 }, inventory.pendingOps());
  inventory.pendingStored();
  inventory = new InventoryService(store, systemClock);
}

describe('reports', () => {
  it('the newest wins; an older one that arrives late changes nothing', () => {
    inventory.connected(hello(), '10.0.0.1');
    expect(inventory.reported('n1', report(5, { shards: [shard('s1')] }))).toBe('changed');
    expect(inventory.reported('n1', report(4))).toBe('stale');
    expect(inventory.reported('n1', report(5))).toBe('stale');
    expect(node().shards).toHaveLength(1);
  });

  const full = (change: Partial<NodeReport> = {}, ofShard: Partial<ShardReport> = {}) => ({
    shards: [shard('s1', { ports: { http: 20_000, rendezvous: 20_001 }, ...ofShard })],
    gpus: [testGpu('g1')],
    engines: [{ kind: 'sim', version: '1' } as const],
    portsTaken: [22],
    ...change,
  });

  it.each<[string, Partial<NodeReport>]>([
    ['a phase', full({}, { phase: 'exited' })],
    ['a generation', full({}, { generation: 2 })],
    ['an exit code', full({}, { exitCode: 1 })],
    ['a verdict', full({}, { verdict: 'outOfMemory' })],
    ['a port', full({}, { ports: { http: 20_002, rendezvous: 20_001 } })],
    ['a rendezvous port', full({}, { ports: { http: 20_000 } })],
    ['another shard', full({ shards: [shard('s2')] })],
    ['one shard more', full({ shards: [...full().shards, shard('s2')] })],
    ['no shard', full({ shards: [] })],
    ['another device', full({ gpus: [testGpu('g2')] })],
    [
      "a device's health",
      full({ gpus: [testGpu('g1', { health: { state: 'excluded', reason: 'xid_79' } })] }),
    ],
    [
      "the reason of a device's health",
      full({ gpus: [testGpu('g1', { health: { state: 'healthy', reason: 'x' } })] }),
    ],
    ['a stranger on a device', full({ gpus: [testGpu('g1', { foreign: [{ pid: 7 }] })] })],
    ['an engine', full({ engines: [{ kind: 'sim', version: '2' }] })],
    ['a taken port', full({ portsTaken: [22, 80] })],
    ['a condition', full({ conditions: [{ type: 'DiskPressure', reason: '', blocksPlacement: true }] })],
    ['what could not be read', full({ complete: false })],
  ])('%s wakes whoever decides, once', (_, change) => {
    inventory.connected(hello(), '10.0.0.1');
    expect(inventory.reported('n1', report(1, full()))).toBe('changed');
    expect(inventory.reported('n1', report(2, full()))).toBe('unchanged');
    expect(inventory.reported('n1', report(3, change))).toBe('changed');
    expect(inventory.reported('n1', report(4, structuredClone(change)))).toBe('unchanged');
  });

  it.each<[string, Partial<NodeReport>]>([
    ['uptime', full({ uptimeMs: 9_000 })],
    ['used memory', full({ gpus: [testGpu('g1', { memoryUsedBytes: 5 })] })],
    ['the age of a phase', full({}, { phaseAgeMs: 9_000 })],
  ])('%s wakes nobody, and is known', (_, change) => {
    inventory.connected(hello(), '10.0.0.1');
    inventory.reported('n1', report(1, full()));
    expect(inventory.reported('n1', report(2, change))).toBe('unchanged');
    expect(node()).toMatchObject({ gpus: change.gpus, shards: change.shards });
  });

  it('an incomplete one takes nothing away', () => {
    inventory.connected(hello(), '10.0.0.1');
    inventory.reported('n1', report(1, { shards: [shard('s1'), shard('s2')], gpus: [testGpu('g1')] }));
    inventory.reported('n1', report(2, { complete: false, shards: [shard('s1', { phase: 'unhealthy' })] }));
    expect(node().shards.map((one) => `${one.shardId} ${one.phase}`)).toEqual(['s1 unhealthy', 's2 ready']);
    expect(node().gpus[0]?.health.state).toBe('healthy');
    inventory.reported('n1', report(3, { shards: [shard('s1')] }));
    expect(node().shards.map((one) => one.shardId)).toEqual(['s1']);
  });

  it('only a complete one makes a node reported', () => {
    inventory.connected(hello(), '10.0.0.1');
    inventory.reported('n1', report(1, { complete: false }));
    expect(node().reported).toBe(false);
    inventory.reported('n1', report(2));
    expect(node().reported).toBe(true);
  });

  it('a heartbeat that says nothing new is told apart from one that does', () => {
    inventory.connected(hello(), '10.0.0.1');
    inventory.reported('n1', report(1, { shards: [shard('s1', { phaseAgeMs: 1 })] }));
    expect(inventory.reported('n1', report(2, { shards: [shard('s1', { phaseAgeMs: 5_000 })] }))).toBe(
      'unchanged',
    );
    expect(inventory.reported('n1', report(3, { shards: [shard('s1', { phase: 'exited' })] }))).toBe(
      'changed',
    );
  });

  it('of a node nobody knows are dropped', () => {
    expect(inventory.reported('n9', report(1))).toBe('stale');
    expect(inventory.nodes()).toEqual([]);
  });
});

describe('devices', () => {
  it('one that is no longer reported stays, excluded, also over a restart, until it is reported again', () => {
    inventory.connected(hello(), '10.0.0.1');
    inventory.reported('n1', report(1, { gpus: [testGpu('g1'), testGpu('g2')] }));
    inventory.reported('n1', report(2, { gpus: [testGpu('g1')] }));
    const missing = () => node().gpus.find((gpu) => gpu.uuid === 'g2')?.health;
    expect(missing()).toMatchObject({ state: 'excluded', reason: 'not_reported' });
    restart();
    // Nothing was reported yet, so nothing is missing yet.
    expect(node().gpus.map((gpu) => gpu.health)).toEqual([
      expect.objectContaining({ state: 'unknown', reason: 'not_yet_reported' }),
      expect.objectContaining({ state: 'unknown', reason: 'not_yet_reported' }),
    ]);
    inventory.connected(hello(), '10.0.0.1');
    inventory.reported('n1', report(1, { gpus: [testGpu('g1')] }));
    expect(missing()).toMatchObject({ state: 'excluded', reason: 'not_reported' });
    inventory.reported('n1', report(2, { gpus: [testGpu('g1'), testGpu('g2')] }));
    expect(missing()).toEqual({ state: 'healthy' });
  });
});

describe('a new stream', () => {
  it('is compared with the one before it', () => {
    expect(inventory.connected(hello({ bootId: 'b1' }), '10.0.0.1')).toBeUndefined();
    expect(inventory.connected(hello({ bootId: 'b1' }), '10.0.0.1')).toEqual({
      sameProcess: true,
      sameBoot: true,
    });
    inventory.disconnected('n1');
    expect(inventory.connected(hello({ bootId: 'b2', instanceId: 'i2' }), '10.0.0.1')).toEqual({
      sameProcess: false,
      sameBoot: false,
      awayMs: expect.any(Number) as unknown,
    });
  });

  it('of a node known from earlier is the first of this server, and when it was last seen is known', () => {
    inventory.connected(hello(), '10.0.0.1');
    inventory.reported('n1', report(1));
    restart();
    expect(node().lastSeenWallMs).toBeGreaterThan(0);
    expect(inventory.connected(hello(), '10.0.0.1')).toBeUndefined();
  });
});

describe('commands', () => {
  const unsettled = () => node().unsettled;

  it('stay unsettled until a full report came after their answer', () => {
    inventory.connected(hello(), '10.0.0.1');
    inventory.commandSent('n1', 'c1', 's1@1');
    // This report may have crossed with the command: it proves nothing.
    inventory.reported('n1', report(1));
    expect(unsettled()).toEqual(['s1@1']);
    expect(inventory.commandAnswered('n1', 'c1')).toBe('s1@1');
    expect(unsettled()).toEqual(['s1@1']);
    inventory.reported('n1', report(2, { complete: false }));
    expect(unsettled()).toEqual(['s1@1']);
    inventory.reported('n1', report(3));
    expect(unsettled()).toEqual([]);
  });

  it('of an old stream are settled by the first full report of the next', () => {
    inventory.connected(hello(), '10.0.0.1');
    inventory.commandSent('n1', 'c1', 's1@1');
    inventory.disconnected('n1');
    inventory.connected(hello(), '10.0.0.1');
    inventory.commandSent('n1', 'c2', 's2@1');
    inventory.reported('n1', report(1));
    expect(unsettled()).toEqual(['s2@1']);
  });
});

describe('what is stored', () => {
  it('is who a node is, and it is written only when it changed', () => {
    inventory.connected(hello(), '10.0.0.1');
    inventory.reported('n1', report(1, { gpus: [testGpu('g1')] }));
    restart();
    expect(node()).toMatchObject({
      liveness: 'unseen',
      reported: false,
      address: '10.0.0.1',
      labels: { zone: 'a' },
    });
    inventory.connected(hello({ instanceId: 'i2' }), '10.0.0.1');
    inventory.reported('n1', report(1, { gpus: [testGpu('g1', { memoryUsedBytes: 5 })] }));
    expect(inventory.pendingOps()).toEqual([]);
    inventory.connected(hello({ labels: { zone: 'b' } }), '10.0.0.1');
    expect(inventory.pendingOps()).toHaveLength(1);
  });

  it('refused agents are remembered per node id, bounded', () => {
    const reason = { code: 'nodeIdTaken', message: 'x' };
    for (let n = 0; n < 10; n++) inventory.agentRefused('n1', `10.0.0.${n}`, reason);
    inventory.agentRefused('n1', '10.0.0.9', reason);
    const refused = inventory.refusedAgents().get('n1') ?? [];
    expect(refused).toHaveLength(4);
    expect(refused.at(-1)).toMatchObject({ from: '10.0.0.9', count: 2 });
    for (let n = 0; n < 1_000; n++) inventory.agentRefused(`x${n}`, '10.0.0.1', reason);
    expect(inventory.refusedAgents().size).toBeLessThanOrEqual(256);
  });
});
