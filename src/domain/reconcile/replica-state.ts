/** A replica as a whole: its record seen through the states of its shards. */
import {
  type BackoffRecord,
  type NodeView,
  type Reason,
  replicaKey,
  type ReplicaRecord,
  type ReplicaState,
  type ReplicaView,
  type ShardAssignment,
} from '../cluster.js';
import type { DataPathEvidence, Snapshot } from '../snapshot.js';
import { awaitingFirstReport, duration } from '../placement/reasons.js';
import { failureOfGeneration } from './backoff.js';
import type { ControlPolicy } from './policy.js';
import { because } from './reasons.js';
import { isAlivePhase, isComingUp, isStopped, type ShardStatus, shardStatus } from './shard-state.js';

/** Everything the decisions need to know of one replica. */
export interface ObservedReplica {
  readonly record: ReplicaRecord;
  readonly shards: readonly { readonly shard: ShardAssignment; readonly status: ShardStatus }[];
  /** The failure that ended the present generation, once counted. */
  readonly failure: BackoffRecord | undefined;
  /** All ranks live on talking nodes and rank 0 has generated a token. */
  readonly ready: boolean;
  /** Nothing of it runs any more; true also without shards. */
  readonly stopped: boolean;
  /** Some node of it is silent, others not contradicting. */
  readonly silent: boolean;
  /** Some shard of it stands on a node that was given up or removed. */
  readonly lostNodeId: string | undefined;
  readonly removedNodeId: string | undefined;
}

/** What observing needs to look at. */
export interface ObserverView {
  readonly nodes: ReadonlyMap<string, NodeView>;
  readonly backoffsOf: (replicaId: string) => readonly BackoffRecord[];
}

export function observe(view: ObserverView, record: ReplicaRecord): ObservedReplica {
  const shards = record.shards.map((shard) => ({
    shard,
    status: shardStatus(view.nodes.get(shard.nodeId), shard, record.generation),
  }));
  let [ready, stopped, silent] = [shards.length > 0, true, false];
  let lostNodeId: string | undefined;
  let removedNodeId: string | undefined;
  // One walk: every replica is looked at in every pass.
  for (const { shard, status } of shards) {
    ready &&= isUp(shard, status);
    stopped &&= isStopped(status);
    silent ||= status.kind === 'silent';
    if (status.kind === 'silent' && status.lost) lostNodeId ??= shard.nodeId;
    if (status.kind === 'removed') removedNodeId ??= shard.nodeId;
  }
  return {
    record,
    shards,
    failure:
      record.generation === 0
        ? undefined
        : failureOfGeneration(view.backoffsOf(record.id), record.generation),
    ready,
    stopped,
    silent,
    lostNodeId,
    removedNodeId,
  };
}

function isUp(shard: ShardAssignment, status: ShardStatus): boolean {
  if (status.kind !== 'seen') return false;
  return shard.rank === 0 ? status.report.phase === 'ready' : isAlivePhase(status.report.phase);
}

/** First-token timeouts in a row without any token between them prove an engine dead, whatever its health page says. */
export function isHung(evidence: DataPathEvidence | undefined, policy: ControlPolicy): boolean {
  return (evidence?.firstTokenTimeouts ?? 0) >= policy.hungAfterTimeouts;
}

/**
 * Bytes of an answer within the time a silent node is tolerated prove that the engine lives although its agent does not talk. A
 * failure after the last byte takes that proof away.
 */
export function provesLife(
  evidence: DataPathEvidence | undefined,
  policy: ControlPolicy,
  nowMs: number,
): boolean {
  if (evidence?.lastByteMs === undefined || evidence.consecutiveFailures > 0) return false;
  return nowMs - evidence.lastByteMs < policy.unreachableAfterMs && !isHung(evidence, policy);
}

// ---------------------------------------------------------------- for people

/** The state shown for a replica. */
export function replicaState(seen: ObservedReplica, retryLeftMs: number): ReplicaState {
  const { record } = seen;
  if (record.intent === 'stop') return 'stopping';
  if (record.intent === 'drain') return 'draining';
  if (record.shards.length === 0) return unplacedState(seen.failure, retryLeftMs);
  if (seen.failure !== undefined) return 'unhealthy';
  if (
    seen.shards.some(
      ({ status }) => status.kind === 'removed' || (status.kind === 'silent' && !status.awaited),
    )
  )
    return 'unreachable';
  // Nobody has been asked yet: after a restart of the server this is no bad news.
  if (seen.silent) return 'unknown';
  if (seen.ready) return 'ready';
  return coarsestState(seen);
}

function unplacedState(failure: BackoffRecord | undefined, retryLeftMs: number): ReplicaState {
  if (retryLeftMs > 0) return 'backoff';
  return failure?.permanent === true ? 'failed' : 'pending';
}

function coarsestState(seen: ObservedReplica): ReplicaState {
  const phases = seen.shards.map(({ status }) =>
    status.kind === 'seen' ? status.report.phase : ('starting' as const),
  );
  if (phases.some((phase) => phase === 'unhealthy' || phase === 'stopping' || phase === 'exited'))
    return 'unhealthy';
  if (phases.some((phase) => phase === 'starting' || phase === 'waitingForGpu')) return 'starting';
  if (phases.some((phase) => isComingUp(phase))) return 'loading';
  return 'unknown';
}

/** Every replica of the snapshot as `ctl` and the admin API show it; `nodes` as in the snapshot. */
export function viewReplicas(snapshot: Snapshot, nowMs: number, nowWallMs: number): readonly ReplicaView[] {
  const nodes = new Map(snapshot.nodes.map((node) => [node.id, node]));
  const backoffs = new Map<string, BackoffRecord[]>();
  for (const one of snapshot.backoffs)
    backoffs.set(one.replicaId, [...(backoffs.get(one.replicaId) ?? []), one]);
  const view: ObserverView = { nodes, backoffsOf: (id) => backoffs.get(id) ?? [] };
  return snapshot.replicas.map((record) => {
    const seen = observe(view, record);
    const retryAtMs = snapshot.memory.replicas.get(record.id)?.retryAtMs;
    const leftMs =
      retryAtMs === undefined ? (seen.failure?.untilWallMs ?? nowWallMs) - nowWallMs : retryAtMs - nowMs;
    const own = view.backoffsOf(record.id);
    const latest = own.toSorted((a, b) => b.lastFailureWallMs - a.lastFailureWallMs)[0];
    const reason = viewReason(seen, latest, leftMs, (id) => awaited(nodes.get(id), nowWallMs));
    return {
      record,
      state: replicaState(seen, leftMs),
      shards: seen.shards.map(({ shard, status }) => {
        const report = status.kind === 'seen' || status.kind === 'silent' ? status.report : undefined;
        return report === undefined ? shard : { ...shard, report };
      }),
      restarts: Math.max(0, record.generation - 1),
      ...(reason === undefined ? {} : { reason }),
      ...(latest === undefined ? {} : { backoff: latest }),
    };
  });
}

function viewReason(
  seen: ObservedReplica,
  latest: BackoffRecord | undefined,
  leftMs: number,
  awaitedBecause: (nodeId: string) => string,
): Reason | undefined {
  if (seen.record.intent !== 'run') return seen.record.intentReason;
  if (seen.failure !== undefined && latest !== undefined) {
    const next = leftMs > 0 ? `; next try in ${duration(leftMs)}` : '';
    return because('failed', `${latest.cause}: ${latest.lastMessage ?? 'no message'}${next}`, {
      failures: latest.failures,
    });
  }
  const silent = seen.shards.find(({ status }) => status.kind === 'silent' && !status.awaited);
  if (silent !== undefined) return because('unreachable', `node ${silent.shard.nodeId} is silent`);
  const unheard = seen.shards.find(({ status }) => status.kind === 'silent');
  if (unheard !== undefined) return because('awaits_agent', awaitedBecause(unheard.shard.nodeId));
  const progress = seen.shards.find(
    ({ status }) => status.kind === 'seen' && status.report.progress !== undefined,
  );
  if (!seen.ready && progress?.status.kind === 'seen')
    return { code: 'progress', message: progress.status.report.progress ?? '' };
  return undefined;
}

function awaited(node: NodeView | undefined, nowWallMs: number): string {
  return node === undefined ? '' : `${node.id}: ${awaitingFirstReport(node, nowWallMs)}`;
}

/** In-flight requests of a replica at its present generation, as our router counts them. */
export function inflightOf(snapshot: Snapshot, record: ReplicaRecord): number {
  return snapshot.inflight.get(replicaKey(record.id, record.generation)) ?? 0;
}
