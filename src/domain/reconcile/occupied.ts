/**
 * Records that were placed but whose shards run nowhere, while something else runs in their place. A store put back to an older
 * copy knows such places: what ran there since was taken over, and holds devices or ports that the older record still names.
 * What runs keeps its place; a start beside it could only fail, or share memory that is not there.
 */
import type { NodeView, ReplicaRecord, ShardAssignment, ShardReport } from '../cluster.js';
import type { Pass } from './pass.js';
import { because } from './reasons.js';
import { isTalking } from './shard-state.js';

/** Takes the place from a record of which nothing runs where others do; it is placed anew like any other. True if it did. */
export function leaveOccupied(pass: Pass, record: ReplicaRecord): boolean {
  if (!pass.observed(record).stopped) return false;
  for (const shard of record.shards) {
    const holder = occupantOf(pass, record, shard);
    if (holder === undefined) continue;
    const { readyWallMs: _ready, startedWallMs: _started, ...rest } = record;
    const message = `nothing of it runs, and ${holder.shardId} runs in its place on ${shard.nodeId}`;
    pass.forget(record, 'readySinceMs', 'unhealthySinceMs', 'startSinceMs');
    pass.put({ ...rest, shards: [] }, because('place_taken', message));
    return true;
  }
  return false;
}

function occupantOf(pass: Pass, record: ReplicaRecord, shard: ShardAssignment): ShardReport | undefined {
  const node = pass.nodes.get(shard.nodeId);
  if (node === undefined || !isTalking(node)) return undefined;
  const others = node.shards.filter(({ replicaId, phase }) => replicaId !== record.id && phase !== 'exited');
  return others.find((report) => sharesPort(shard, report)) ?? holderOfDevices(pass, node, shard, others);
}

function sharesPort({ ports }: ShardAssignment, report: ShardReport): boolean {
  const taken = Object.values(report.ports);
  return Object.values(ports).some((port) => port > 0 && taken.includes(port));
}

/** Who of these runs on a device of the shard that has no room for both: whoever says no amount wants all of it. */
function holderOfDevices(
  pass: Pass,
  node: NodeView,
  shard: ShardAssignment,
  others: readonly ShardReport[],
): ShardReport | undefined {
  for (const uuid of shard.gpuUuids) {
    const holders = others.filter(({ gpuUuids }) => gpuUuids.includes(uuid));
    const total = node.gpus.find((gpu) => gpu.uuid === uuid)?.memoryTotalBytes ?? 0;
    const held = holders.map(({ replicaId, shardId }) => {
      const assigned = pass.record(replicaId)?.shards.find((one) => one.shardId === shardId);
      return assigned?.gpuMemoryBytes ?? total;
    });
    const sum = held.reduce((bytes, one) => bytes + one, shard.gpuMemoryBytes ?? total);
    if (sum > total && holders.length > 0) return holders[0];
  }
  return undefined;
}
