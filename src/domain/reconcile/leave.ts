/** Why a replica must leave where it is, although nothing is wrong with itself. */
import type { NodeView, Reason, ReplicaRecord, ShardAssignment } from '../cluster.js';
import type { Pass } from './pass.js';
import { because } from './reasons.js';

/** The first reason that holds; undefined for a replica that may stay. Decides drains and rolling changes alike. */
export function leaveReason(pass: Pass, record: ReplicaRecord): Reason | undefined {
  for (const shard of record.shards) {
    const node = pass.nodes.get(shard.nodeId);
    const reason = node === undefined ? undefined : placeLeaveReason(node, shard);
    if (reason !== undefined) return reason;
  }
  if (record.shards.length > 0 && !pass.isCurrent(record))
    return because('profile_changed', `${record.model}/${record.profile} has changed since it was started`);
  return undefined;
}

function placeLeaveReason(node: NodeView, shard: ShardAssignment): Reason | undefined {
  const { intent } = node;
  if (intent.target === 'drained') {
    const why = intent.reason === undefined ? '' : `: ${intent.reason}`;
    if (intent.gpuUuid === undefined)
      return because('node_draining', `${node.id} is drained by ${intent.actor}${why}`);
    if (shard.gpuUuids.includes(intent.gpuUuid))
      return because('gpu_draining', `${node.id}/${intent.gpuUuid} is drained by ${intent.actor}${why}`);
  }
  return gpuLeaveReason(node, shard);
}

/** A device that is excluded but still carries a live engine is left the gentle way, while it lasts. */
function gpuLeaveReason(node: NodeView, shard: ShardAssignment): Reason | undefined {
  if (shard.gpuUuids.length === 0) return undefined;
  for (const gpu of node.gpus) {
    if (gpu.health.state !== 'excluded' || !shard.gpuUuids.includes(gpu.uuid)) continue;
    const { reason = 'no reason given', evidence } = gpu.health;
    const said = evidence === undefined ? '' : ` (${evidence})`;
    return because('gpu_failed', `${node.id}/${gpu.uuid} is excluded: ${reason}${said}`);
  }
  return undefined;
}
