import type { BackoffRecord, ReplicaView } from '../domain/cluster.js';
import { nodeIdsOf, type ClusterReading } from './cluster-reader.js';
import { known, type ViewTimes } from './view-times.js';
import type { BackoffView, ReplicaDetailView, ReplicaSummaryView, ShardView } from './views/replicas.js';

export function replicaSummary(reading: ClusterReading, replica: ReplicaView): ReplicaSummaryView {
  const { record, backoff } = replica;
  const { times } = reading;
  const published = reading.published.get(record.id);
  const head = replica.shards.find((shard) => shard.rank === 0);
  const node = head === undefined ? undefined : reading.nodes.get(head.nodeId);
  const profile = reading.snapshot.models
    .find((model) => model.name === record.model)
    ?.profiles.find((one) => one.name === record.profile);
  const progress = replica.shards.map((shard) => shard.report?.progress).find((text) => text !== undefined);
  return {
    id: record.id,
    model: record.model,
    profile: record.profile,
    state: replica.state,
    generation: record.generation,
    intent: record.intent,
    intentReason: record.intentReason,
    nodes: nodeIdsOf(record),
    published: published?.generation === record.generation,
    inflight: reading.inflight(record),
    restarts: replica.restarts,
    createdAt: times.wall(record.createdWallMs),
    ...known('engine', profile?.engine),
    ...known('reason', replica.reason ?? reading.notDone(`replica/${record.id}`)[0]),
    ...known('address', node === undefined ? undefined : hostPort(node.address, head?.ports.http ?? 0)),
    ...known('readySince', record.readyWallMs === undefined ? undefined : times.wall(record.readyWallMs)),
    ...known('progress', replica.state === 'ready' ? undefined : progress),
    ...known('replaces', record.replaces),
    ...known('nextTryAt', replica.state === 'backoff' ? nextTry(reading, replica, backoff) : undefined),
  };
}

export function replicaDetail(reading: ClusterReading, replica: ReplicaView): ReplicaDetailView {
  return {
    ...replicaSummary(reading, replica),
    shards: replica.shards.map((shard) => shardView(replica, shard)),
    specDigest: replica.record.specDigest,
    ...known(
      'backoff',
      replica.backoff === undefined ? undefined : backoffView(reading.times, replica.backoff),
    ),
    ...known('placement', replica.record.placement),
  };
}

export function shardView(replica: ReplicaView, shard: ReplicaView['shards'][number]): ShardView {
  const { record } = replica;
  const { report } = shard;
  return {
    id: shard.shardId,
    replicaId: record.id,
    model: record.model,
    profile: record.profile,
    generation: record.generation,
    rank: shard.rank,
    nodeId: shard.nodeId,
    gpuUuids: shard.gpuUuids,
    httpPort: shard.ports.http,
    wanted: true,
    ...known('rendezvousPort', shard.ports.rendezvous),
    ...known('phase', report?.phase),
    ...known('phaseAgeMs', report?.phaseAgeMs),
    ...known('pid', report?.pid),
    ...known('progress', report?.progress),
    ...known('exitCode', report?.exitCode),
    ...known('exitSignal', report?.exitSignal),
    ...known('verdict', report?.verdict),
    ...known('message', report?.message),
    ...known('logTail', report?.logTail),
    ...known('memoryPeakBytes', report?.memoryPeakBytes),
    ...known('loadMs', report?.loadMs),
  };
}

export function backoffView(times: ViewTimes, record: BackoffRecord): BackoffView {
  return { ...record, nextTryAt: times.wall(record.untilWallMs) };
}

function nextTry(reading: ClusterReading, replica: ReplicaView, backoff: BackoffRecord | undefined) {
  const retryAtMs = reading.snapshot.memory.replicas.get(replica.record.id)?.retryAtMs;
  if (retryAtMs !== undefined) return reading.times.monotonic(retryAtMs);
  return backoff === undefined ? undefined : reading.times.wall(backoff.untilWallMs);
}

export function hostPort(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}
