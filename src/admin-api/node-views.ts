import type { NodeView, Reason, ReplicaRecord, ShardReport } from '../domain/cluster.js';
import { awaitingFirstReport } from '../domain/placement/reasons.js';
import { drainRemains, isDrained, type DrainRemains } from '../domain/reconcile/drain.js';
import type { RefusedAgent } from '../inventory/inventory.service.js';
import type { StoredNode } from '../inventory/node-entry.js';
import type { ClusterReading } from './cluster-reader.js';
import { shardView } from './replica-views.js';
import { known } from './view-times.js';
import type { GpuView, NodeDetailView, NodeSummaryView, SchedulingView } from './views/nodes.js';
import type { ShardView } from './views/replicas.js';

/** What of a node only the inventory knows. */
export interface NodeExtras {
  readonly record: StoredNode | undefined;
  readonly refused: readonly RefusedAgent[];
}

export function nodeSummary(reading: ClusterReading, node: NodeView, extras: NodeExtras): NodeSummaryView {
  const { times } = reading;
  const gpus = node.gpus.map((gpu) => gpuView(reading, node, gpu));
  return {
    id: node.id,
    state: node.liveness,
    stateSince: times.monotonic(node.livenessSinceMs),
    scheduling: schedulingView(reading, node),
    address: node.address,
    labels: node.labels,
    engines: node.engines,
    gpus: {
      total: gpus.length,
      healthy: gpus.filter((gpu) => gpu.health.state === 'healthy').length,
      free: gpus.filter((gpu) => gpu.health.state === 'healthy' && gpu.heldBy.length === 0).length,
    },
    replicas: reading.replicasOn(node.id).map((replica) => replica.record.id),
    conditions: node.conditions,
    ...known('stateReason', stateReason(node, times.nowWallMs)),
    ...known('hostname', node.hostname),
    ...known('agentVersion', node.agentVersion),
    ...known(
      'lastReportAt',
      node.lastReportMs === undefined ? undefined : times.monotonic(node.lastReportMs),
    ),
    ...(extras.refused.length === 0
      ? {}
      : {
          refused: extras.refused.map((one) => ({
            at: times.wall(one.atWallMs),
            from: one.from,
            reason: one.reason,
            count: one.count,
          })),
        }),
  };
}

/** Why the node is not connected; nothing to say of one that is. */
function stateReason(node: NodeView, nowWallMs: number): string | undefined {
  if (node.liveness === 'unseen') return awaitingFirstReport(node, nowWallMs);
  return node.liveness === 'connected' ? undefined : node.livenessReason;
}

export function nodeDetail(reading: ClusterReading, node: NodeView, extras: NodeExtras): NodeDetailView {
  return {
    ...nodeSummary(reading, node, extras),
    gpuDevices: node.gpus.map((gpu) => gpuView(reading, node, gpu)),
    shards: shardsOn(reading, node),
    portsTaken: node.portsTaken,
    weightsPresent: node.weightsPresent,
    ...known('bootId', node.bootId),
    ...known('machineId', extras.record?.machineId),
  };
}

export function gpuView(reading: ClusterReading, node: NodeView, gpu: NodeView['gpus'][number]): GpuView {
  return {
    uuid: gpu.uuid,
    nodeId: node.id,
    type: gpu.type,
    vendor: gpu.vendor,
    health: gpu.health,
    heldBy: holders(reading, node, gpu.uuid),
    foreign: gpu.foreign,
    linkedTo: gpu.linkedTo,
    ...known('busId', gpu.busId),
    ...known('memoryTotalBytes', gpu.memoryTotalBytes),
    ...known('memoryUsedBytes', gpu.memoryUsedBytes),
  };
}

/** Shards that hold a device: by decision, or because the agent says that they still run there. */
function holders(reading: ClusterReading, node: NodeView, uuid: string): GpuView['heldBy'] {
  const decided = reading.replicasOn(node.id).flatMap(({ record }) =>
    record.shards
      .filter((shard) => shard.nodeId === node.id && shard.gpuUuids.includes(uuid))
      .map((shard) => ({
        shardId: shard.shardId,
        replicaId: record.id,
        model: record.model,
        ...known('memoryBytes', shard.gpuMemoryBytes),
      })),
  );
  const listed = new Set(decided.map((holder) => holder.shardId));
  const running = node.shards
    .filter(
      (shard) => shard.phase !== 'exited' && shard.gpuUuids.includes(uuid) && !listed.has(shard.shardId),
    )
    .map(({ shardId, replicaId, model }) => ({ shardId, replicaId, model }));
  return [...decided, ...running];
}

function shardsOn(reading: ClusterReading, node: NodeView): readonly ShardView[] {
  const wanted = reading
    .replicasOn(node.id)
    .flatMap((replica) =>
      replica.shards.filter((shard) => shard.nodeId === node.id).map((shard) => shardView(replica, shard)),
    );
  const listed = new Set(wanted.map((shard) => `${shard.id}@${shard.generation}`));
  const strays = node.shards
    .filter((report) => !listed.has(`${report.shardId}@${report.generation}`))
    .map((report) => strayView(node.id, report));
  return [...wanted, ...strays];
}

function strayView(nodeId: string, report: ShardReport): ShardView {
  const { shardId, ports, ...rest } = report;
  return {
    ...rest,
    id: shardId,
    nodeId,
    httpPort: ports.http,
    wanted: false,
    ...known('rendezvousPort', ports.rendezvous),
  };
}

/** How far the node is with what was asked of it. */
export function schedulingView(reading: ClusterReading, node: NodeView): SchedulingView {
  const { intent } = node;
  const remains = intent.target === 'drained' ? drainRemains(node, recordsOn(reading, node)) : undefined;
  const state = remains === undefined || isDrained(remains) ? intent.target : 'draining';
  const stateReason = remains?.lost === true ? `given up as lost: no stop there is confirmed` : undefined;
  return {
    target: intent.target,
    state,
    sequence: intent.sequence,
    waitingFor: remains === undefined ? [] : waitsFor(reading, node, remains),
    ...(intent.sequence === 0 ? {} : { actor: intent.actor, since: reading.times.wall(intent.atWallMs) }),
    ...known('stateReason', stateReason),
    ...known('reason', intent.reason),
    ...known('gpuUuid', intent.gpuUuid),
    ...known('deadlineMs', intent.deadlineMs),
    ...known('streamGraceMs', intent.streamGraceMs),
    ...known('allowGap', intent.allowGap),
    ...known('leftMs', state === 'draining' ? leftMs(reading, node) : undefined),
  };
}

function leftMs(reading: ClusterReading, node: NodeView): number | undefined {
  const memory = reading.pass?.plan.memory.nodes.get(node.id);
  if (memory?.drainDueMs === undefined || memory.drainSequence !== node.intent.sequence) return undefined;
  return Math.max(0, Math.round(memory.drainDueMs - reading.times.nowMs));
}

function recordsOn(reading: ClusterReading, node: NodeView): readonly ReplicaRecord[] {
  return reading.replicasOn(node.id).map(({ record }) => record);
}

function waitsFor(
  reading: ClusterReading,
  node: NodeView,
  { replicas, strays }: DrainRemains,
): SchedulingView['waitingFor'] {
  // A deadline given by hand ends every wait; the general one lets what serves go on.
  const endsMs = node.intent.deadlineMs === undefined ? undefined : leftMs(reading, node);
  return [
    ...replicas.map((record) => ({
      replicaId: record.id,
      reason: boundedBy(endsMs, reading.notDone(`replica/${record.id}`)[0] ?? whyStillThere(reading, record)),
    })),
    ...strays.map(({ replicaId, shardId, phase }) => ({
      replicaId,
      reason: { code: 'orphan', message: `no decision puts ${shardId} there, it is ${phase}` },
    })),
  ];
}

/** The reason with the bound that is hit first. */
function boundedBy(endsMs: number | undefined, reason: Reason): Reason {
  const ownMs = reason.numbers?.['leftMs'];
  if (endsMs === undefined || ownMs === undefined || ownMs <= endsMs) return reason;
  return { ...reason, numbers: { ...reason.numbers, leftMs: endsMs } };
}

/** Before the first pass after the drain was asked for. */
function whyStillThere(reading: ClusterReading, record: ReplicaRecord): Reason {
  const inflight = reading.inflight(record);
  const requests = inflight === 1 ? '1 request' : `${inflight} requests`;
  return { code: 'moving', message: `${requests} in flight`, numbers: { inflight } };
}
