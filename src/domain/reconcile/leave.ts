/** Why a replica must leave where it is, although nothing is wrong with itself. */
import type { NodeView, Reason, ReplicaRecord, ShardAssignment } from '../cluster.js';
import { sameContent } from '../catalog/spec-digest.js';
import { fitsType } from '../placement/filters.js';
import type { Pass } from './pass.js';
import { because } from './reasons.js';

/** The first reason that holds; undefined for a replica that may stay. Decides drains and rolling changes alike. */
export function leaveReason(pass: Pass, record: ReplicaRecord): Reason | undefined {
  // Begins and ends within a pass, so it is not remembered for it.
  const beneficiary = pass.yieldsTo(record.id);
  if (beneficiary !== undefined) return yieldReason(pass, record, beneficiary);
  const { leaveReasons } = pass;
  const known = leaveReasons.get(record);
  if (known !== undefined || leaveReasons.has(record)) return known;
  const reason = findReason(pass, record);
  leaveReasons.set(record, reason);
  return reason;
}

/** Depends on the record and on what stands for the whole pass. */
function findReason(pass: Pass, record: ReplicaRecord): Reason | undefined {
  for (const shard of record.shards) {
    const node = pass.nodes.get(shard.nodeId);
    const reason = node === undefined ? undefined : placeLeaveReason(node, shard);
    if (reason !== undefined) return reason;
  }
  if (record.shards.length > 0 && !pass.isCurrent(record)) return outdatedReason(pass, record);
  const wrongType = gpuTypeLeft(pass, record);
  if (wrongType !== undefined) return wrongType;
  if (record.shards.length > 0 && record.restart !== undefined)
    return because('restart_wanted', `${record.restart.actor} wants a new copy in its place`);
  return undefined;
}

/** A restart of the whole model changes nothing about it: who wanted it is the reason then. */
function outdatedReason(pass: Pass, record: ReplicaRecord): Reason {
  const wanted = pass.digestOf(record.model, record.profile) ?? '';
  if (!sameContent(record.specDigest, wanted))
    return because('profile_changed', `${record.model}/${record.profile} has changed since it was started`);
  const actor = pass.models.get(record.model)?.restartedBy ?? 'an operator';
  return because('restart_wanted', `${actor} wants a new copy in its place`);
}

function yieldReason(pass: Pass, record: ReplicaRecord, { id, model }: ReplicaRecord): Reason {
  const mine = pass.models.get(record.model)?.priority;
  const theirs = pass.models.get(model)?.priority;
  return because('yields', `makes room for ${id}: ${model} has priority ${theirs}, ${record.model} ${mine}`);
}

/** Whether the reason is a new copy in place of an old one, rather than a place that must be left. */
export function isRollReason(reason: Reason): boolean {
  return reason.code === 'profile_changed' || reason.code === 'restart_wanted';
}

/** The type wanted of a GPU is no part of what an engine is started with: it matters where it is not met, and nowhere else. */
function gpuTypeLeft(pass: Pass, record: ReplicaRecord): Reason | undefined {
  const profile = pass.models.get(record.model)?.profiles.find(({ name }) => name === record.profile);
  if (profile?.gpuType === undefined) return undefined;
  for (const { nodeId, gpuUuids } of record.shards) {
    const gpus = pass.nodes.get(nodeId)?.gpus ?? [];
    const wrong = gpus.find((gpu) => gpuUuids.includes(gpu.uuid) && !fitsType(profile, gpu));
    if (wrong === undefined) continue;
    const message = `${record.model}/${profile.name} now wants ${profile.gpuType}, ${nodeId}/${wrong.uuid} is ${wrong.type}`;
    return because('profile_changed', message);
  }
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
