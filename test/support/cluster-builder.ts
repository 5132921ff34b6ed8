/** Short ways to write down clusters in tests: every builder gives a sound default and takes what the test is about. */
import type {
  GpuReport,
  NodeView,
  ReplicaRecord,
  ShardAssignment,
  ShardReport,
} from '../../src/domain/cluster.js';
import type { ModelSpec, Profile } from '../../src/domain/model-spec.js';
import { NO_MEMORY, type Snapshot } from '../../src/domain/snapshot.js';
import { specDigest } from '../../src/domain/catalog/spec-digest.js';

export const GIB = 1024 ** 3;

export function aProfile(change: Partial<Profile> = {}): Profile {
  return {
    name: 'p',
    engine: 'sim',
    shards: 1,
    gpus: 1,
    args: [],
    env: {},
    startTimeoutMs: 600_000,
    stopGraceMs: 30_000,
    weight: 1,
    ...change,
  };
}

export function aModel(
  change: Partial<Omit<ModelSpec, 'placement'>> & { placement?: Partial<ModelSpec['placement']> } = {},
): ModelSpec {
  return {
    name: 'm',
    aliases: [],
    replicas: 1,
    fallback: [],
    priority: 100,
    profiles: [aProfile()],
    ...change,
    placement: { strategy: 'pack', nodeSelector: {}, antiAffinity: false, ...change.placement },
  };
}

export function aGpu(uuid: string, change: Partial<GpuReport> = {}): GpuReport {
  return {
    uuid,
    type: 'H100',
    vendor: 'nvidia',
    memoryTotalBytes: 80 * GIB,
    memoryUsedBytes: 0,
    foreign: [],
    health: { state: 'healthy' },
    linkedTo: [],
    ...change,
  };
}

/** A connected, reported node with `gpus` healthy devices named `<id>-g0`, `<id>-g1`, ... */
export function aNode(
  id: string,
  gpus: number | readonly GpuReport[] = 1,
  change: Partial<NodeView> = {},
): NodeView {
  const devices =
    typeof gpus === 'number' ? Array.from({ length: gpus }, (_, index) => aGpu(`${id}-g${index}`)) : gpus;
  return {
    id,
    liveness: 'connected',
    livenessSinceMs: 0,
    reported: true,
    streamSinceMs: 0,
    unsettled: [],
    labels: {},
    address: `10.0.0.${id.replace(/\D/g, '') || '1'}`,
    engines: [{ kind: 'sim' }],
    gpus: devices,
    shards: [],
    portsTaken: [],
    weightsPresent: [],
    intent: { target: 'schedulable', actor: 'nobody', atWallMs: 0, sequence: 0 },
    conditions: [],
    lastReportMs: 0,
    ...change,
  };
}

export function aShard(
  replicaId: string,
  nodeId: string,
  change: Partial<ShardAssignment> = {},
): ShardAssignment {
  const rank = change.rank ?? 0;
  return {
    shardId: `${replicaId}.${rank}`,
    rank,
    nodeId,
    gpuUuids: [`${nodeId}-g0`],
    ports: { http: 20_000 },
    ...change,
  };
}

/** A Ready replica of the model on one node, with the current digest. */
export function aReplica(
  id: string,
  model: ModelSpec,
  nodeId: string,
  change: Partial<ReplicaRecord> = {},
): ReplicaRecord {
  const profile = model.profiles[0] ?? aProfile();
  return {
    id,
    model: model.name,
    profile: profile.name,
    specDigest: specDigest(model, profile),
    generation: 1,
    intent: 'run',
    intentReason: { code: 'wanted', message: 'wanted' },
    shards: [aShard(id, nodeId)],
    createdWallMs: 0,
    startedWallMs: 1,
    readyWallMs: 2,
    ...change,
  };
}

/** What the agents would report of a record: every shard in `phase`. */
export function reportsOf(
  record: ReplicaRecord,
  phase: ShardReport['phase'] = 'ready',
  change: Partial<ShardReport> = {},
): readonly (ShardReport & { nodeId: string })[] {
  return record.shards.map((shard) => ({
    nodeId: shard.nodeId,
    shardId: shard.shardId,
    replicaId: record.id,
    model: record.model,
    profile: record.profile,
    generation: record.generation,
    rank: shard.rank,
    phase,
    gpuUuids: shard.gpuUuids,
    ports: shard.ports,
    specDigest: record.specDigest,
    ...change,
  }));
}

/** Nodes with the given reports put where they belong. */
export function withReports(
  nodes: readonly NodeView[],
  reports: readonly (ShardReport & { nodeId: string })[],
): readonly NodeView[] {
  return nodes.map((node) => ({
    ...node,
    shards: [...node.shards, ...reports.filter(({ nodeId }) => nodeId === node.id)],
  }));
}

/** A server that started long ago and has been making passes ever since. */
export function aSnapshot(change: Partial<Snapshot> = {}): Snapshot {
  return {
    term: 1,
    planNumber: 1,
    models: [],
    nodes: [],
    replicas: [],
    backoffs: [],
    learned: [],
    inflight: new Map(),
    evidence: new Map(),
    startedMs: 0,
    refusals: new Map(),
    memory: NO_MEMORY,
    ...change,
  };
}
