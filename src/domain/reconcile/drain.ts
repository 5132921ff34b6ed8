/** A drain as a whole: its clock and what is left of it. What becomes of each replica is decided in `moves.ts`. */
import { type NodeView, type ReplicaRecord, shardKey } from '../cluster.js';
import type { Pass } from './pass.js';

// ---------------------------------------------------------------- its clock

/** Drains that the replica is part of. */
export function drainIntents(pass: Pass, record: ReplicaRecord): readonly NodeView['intent'][] {
  return drainingNodes(pass, record).map(({ intent }) => intent);
}

function drainingNodes(pass: Pass, record: ReplicaRecord): readonly NodeView[] {
  return record.shards.flatMap(({ nodeId, gpuUuids }) => {
    const node = pass.nodes.get(nodeId);
    if (node?.intent.target !== 'drained') return [];
    const { gpuUuid } = node.intent;
    return gpuUuid === undefined || gpuUuids.includes(gpuUuid) ? [node] : [];
  });
}

/** Whether the overall deadline of a drain the replica is part of has passed. */
export function drainOver(pass: Pass, record: ReplicaRecord): boolean {
  return drainingNodes(pass, record).some((node) => drainLeftMs(pass, node) <= 0);
}

/** Whether a deadline an operator gave by hand has passed: that one is a word, the machine goes at that time. */
export function promisedDrainOver(pass: Pass, record: ReplicaRecord): boolean {
  return drainingNodes(pass, record).some(
    (node) => node.intent.deadlineMs !== undefined && drainLeftMs(pass, node) <= 0,
  );
}

/** Time left to the present drain of a node, on our monotonic clock; it survives a restart through the intent's wall time. */
export function drainLeftMs(pass: Pass, node: NodeView): number {
  const sinceMs = pass.drainSinceMs(node) ?? pass.nowMs;
  return sinceMs + (node.intent.deadlineMs ?? pass.policy.drainDeadlineMs) - pass.nowMs;
}

// ---------------------------------------------------------------- what is left of it

/** What still keeps a node, or the one device that is drained, from being empty. */
export interface DrainRemains<R extends ReplicaRecord = ReplicaRecord> {
  readonly replicas: readonly R[];
  /** Engines of ours that run there although no decision puts them there. */
  readonly strays: NodeView['shards'];
  /** The node was given up: that nothing runs there is presumed, not confirmed. */
  readonly lost: boolean;
}

/** Looks at a node whose target is `drained`. `records` are all, or all that stand on it. */
export function drainRemains<R extends ReplicaRecord>(
  node: NodeView,
  records: readonly R[],
): DrainRemains<R> {
  const { gpuUuid } = node.intent;
  const concerns = (gpuUuids: readonly string[]) => gpuUuid === undefined || gpuUuids.includes(gpuUuid);
  const here = records.filter(({ shards }) =>
    shards.some((shard) => shard.nodeId === node.id && concerns(shard.gpuUuids)),
  );
  const lost = node.liveness === 'lost';
  // Nobody can be asked about what was there, and it was replaced when the node was given up.
  if (lost) return { replicas: here.filter(({ intent }) => intent === 'run'), strays: [], lost };
  // A store set back to an older copy can give a number out twice: the one on another node is not this one.
  const decided = new Set(
    records.flatMap(({ shards, generation }) =>
      shards.flatMap(({ nodeId, shardId }) => (nodeId === node.id ? [shardKey(shardId, generation)] : [])),
    ),
  );
  const strays = node.shards.filter(
    ({ phase, gpuUuids, shardId, generation }) =>
      phase !== 'exited' && concerns(gpuUuids) && !decided.has(shardKey(shardId, generation)),
  );
  return { replicas: here, strays, lost };
}

/** Nothing is left: each end was confirmed by the agent, or the node was given up. */
export function isDrained({ replicas, strays }: DrainRemains): boolean {
  return replicas.length === 0 && strays.length === 0;
}
