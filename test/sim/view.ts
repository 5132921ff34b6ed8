/** Reading snapshots and plans the way an outsider would, for the checks; shares nothing with the code that decides. */
import {
  backoffKey,
  type NodeView,
  replicaKey,
  type ReplicaRecord,
  type ShardReport,
} from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { fitsType } from '../../src/domain/placement/filters.js';
import type { ControlPolicy } from '../../src/domain/reconcile/policy.js';
import { isUpToDate, specDigest } from '../../src/domain/catalog/spec-digest.js';

export function nodeOf(snapshot: Snapshot, id: string): NodeView | undefined {
  return snapshot.nodes.find((node) => node.id === id);
}

export function talks(node: NodeView | undefined): boolean {
  return node?.liveness === 'connected' || node?.liveness === 'flapping';
}

export function reportOf(
  snapshot: Snapshot,
  nodeId: string,
  shardId: string,
  generation: number,
): ShardReport | undefined {
  return nodeOf(snapshot, nodeId)?.shards.find(
    (one) => one.shardId === shardId && one.generation === generation,
  );
}

/** Phases in which the token that rank 0 generated does not vouch for another rank. */
export const BAD_PHASES: ReadonlySet<string> = new Set([
  'missing',
  'exited',
  'stopping',
  'unhealthy',
  'waitingForGpu',
  'downloading',
  'unknown',
]);

/**
 * Whether clients are answered by it, as far as its agents tell: rank 0 is Ready, which it becomes by a token of the whole gang.
 * The reports of the other ranks may still be on their way.
 */
export function serves(snapshot: Snapshot, record: ReplicaRecord): boolean {
  if (record.shards.length === 0) return false;
  return record.shards.every(({ nodeId, shardId, rank }) => {
    const phase = reportOf(snapshot, nodeId, shardId, record.generation)?.phase ?? 'missing';
    return talks(nodeOf(snapshot, nodeId)) && (rank === 0 ? phase === 'ready' : !BAD_PHASES.has(phase));
  });
}

/** Serves, and is known to: by its record and by the word of every agent it stands on. */
export function isFine(snapshot: Snapshot, record: ReplicaRecord): boolean {
  return record.readyWallMs !== undefined && serves(snapshot, record);
}

/** Whether operators, the catalog or a broken device want it elsewhere. */
export function mustLeave(snapshot: Snapshot, record: ReplicaRecord): boolean {
  const model = snapshot.models.find(({ name }) => name === record.model);
  const profile = model?.profiles.find(({ name }) => name === record.profile);
  if (
    model === undefined ||
    profile === undefined ||
    !isUpToDate(record.specDigest, specDigest(model, profile))
  )
    return true;
  if (record.restart !== undefined) return true;
  return record.shards.some((shard) => {
    const node = nodeOf(snapshot, shard.nodeId);
    const wrongType = node?.gpus.some((gpu) => shard.gpuUuids.includes(gpu.uuid) && !fitsType(profile, gpu));
    if (wrongType === true) return true;
    const { target, gpuUuid } = node?.intent ?? { target: 'schedulable', gpuUuid: undefined };
    const drained = target === 'drained' && (gpuUuid === undefined || shard.gpuUuids.includes(gpuUuid));
    const broken = node?.gpus.some(
      (gpu) => gpu.health.state === 'excluded' && shard.gpuUuids.includes(gpu.uuid),
    );
    return drained || broken === true;
  });
}

/** Whether the pass may have decided nothing: it waits for reports after a start, or too many are silent. */
export function mayHaveStood({ memory }: Plan, { settleAfterStartMs }: ControlPolicy): boolean {
  const { judgeFromMs, brakeSinceMs, lastPassMs = 0 } = memory;
  return brakeSinceMs !== undefined || lastPassMs - judgeFromMs < settleAfterStartMs;
}

/** Whether a waiting replica gets the place of this one. */
export function madeRoomFor(records: readonly ReplicaRecord[], id: string): boolean {
  return records.some(
    ({ intent, shards, reserved }) =>
      intent === 'run' && shards.length === 0 && reserved?.victims.includes(id) === true,
  );
}

/** Copies that took a place over, and those that took it over from them in the same moment. */
export function heirsOf(after: readonly ReplicaRecord[], id: string): readonly ReplicaRecord[] {
  const direct = after.filter(({ replaces }) => replaces === id);
  const later = direct.filter(({ intentReason }) => intentReason.code === 'replaced');
  return [...direct, ...later.flatMap((one) => heirsOf(after, one.id))];
}

/** Records as the plan leaves them. */
export function recordsAfter(snapshot: Snapshot, plan: Plan): readonly ReplicaRecord[] {
  const records = new Map(snapshot.replicas.map((record) => [record.id, record]));
  for (const action of plan.actions) {
    if (action.kind === 'createReplica' || action.kind === 'updateReplica')
      records.set(action.record.id, action.record);
    if (action.kind === 'deleteReplica') records.delete(action.replicaId);
  }
  return [...records.values()];
}

/** The snapshot with the nodes as the plan judges them. */
export function asJudged(snapshot: Snapshot, plan: Plan): Snapshot {
  const judged = new Map(
    plan.actions.flatMap((action) =>
      action.kind === 'setNodeLiveness' ? [[action.nodeId, action.liveness] as const] : [],
    ),
  );
  if (judged.size === 0) return snapshot;
  return {
    ...snapshot,
    nodes: snapshot.nodes.map((node) => ({ ...node, liveness: judged.get(node.id) ?? node.liveness })),
  };
}

/** The snapshot of a moment later in which the plan was carried out and nobody has reported anything yet. */
export function afterwards(snapshot: Snapshot, plan: Plan): Snapshot {
  const backoffs = new Map(snapshot.backoffs.map((one) => [backoffKey(one), one]));
  const judged = new Map<string, Partial<NodeView>>();
  const sent = new Map<string, string[]>();
  const inflight = new Map(snapshot.inflight);
  const livenessSinceMs = plan.memory.lastPassMs ?? 0;
  for (const action of plan.actions) {
    switch (action.kind) {
      case 'putBackoff':
        backoffs.set(backoffKey(action.record), action.record);
        break;
      case 'clearBackoff':
        backoffs.delete(backoffKey(action.record));
        break;
      case 'setNodeLiveness': {
        const { liveness, reason } = action;
        judged.set(action.nodeId, { liveness, livenessSinceMs, livenessReason: reason.message });
        break;
      }
      case 'abortInflight':
        inflight.delete(replicaKey(action.replicaId, action.generation));
        break;
      case 'startShard':
      case 'stopShard': {
        const { nodeId, shardId, generation } = action.command;
        sent.set(nodeId, [...(sent.get(nodeId) ?? []), `${shardId}@${generation}`]);
        break;
      }
      case 'createReplica':
      case 'updateReplica':
      case 'deleteReplica':
      case 'putLearned':
        break;
    }
  }
  return {
    ...snapshot,
    planNumber: plan.number,
    nodes: snapshot.nodes.map((node) => ({
      ...node,
      ...judged.get(node.id),
      unsettled: [...new Set([...node.unsettled, ...(sent.get(node.id) ?? [])])],
    })),
    replicas: recordsAfter(snapshot, plan),
    backoffs: [...backoffs.values()],
    inflight,
    memory: plan.memory,
  };
}
