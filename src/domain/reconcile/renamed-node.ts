/**
 * A machine whose agent came back under another node id. Its engines run on, but the records name a node that will never talk
 * again: left alone they would be given up as lost, and started a second time on devices they still hold.
 */
import type { NodeView, ReplicaRecord } from '../cluster.js';

/** A record that was carried over, and between which nodes. */
export interface Relinked {
  readonly record: ReplicaRecord;
  readonly from: string;
  readonly to: string;
}

/**
 * Records whose shards are reported by another node of the same machine. Only what is proven is carried over: the machine id is
 * the same, the old node has no stream, and the new one reports the very shard, generation and devices. Two agents on one machine
 * share its id, so the id alone proves nothing.
 */
export function relinkRenamed(
  records: readonly ReplicaRecord[],
  nodes: readonly NodeView[],
  machineIdOf: (nodeId: string) => string | undefined,
): readonly Relinked[] {
  const silent = new Set(nodes.filter((node) => node.streamSinceMs === undefined).map((node) => node.id));
  if (silent.size === 0) return [];
  let heirs: ReadonlyMap<string, readonly NodeView[]> | undefined;
  return records.flatMap((record) => {
    const moved = record.shards.find((shard) => silent.has(shard.nodeId));
    if (moved === undefined) return [];
    const machineId = machineIdOf(moved.nodeId);
    if (machineId === undefined) return [];
    heirs ??= reportingByMachine(nodes, machineIdOf);
    const heir = heirs.get(machineId)?.find((node) => reportsAll(node, record, moved.nodeId));
    return heir === undefined
      ? []
      : [{ record: carriedOver(record, moved.nodeId, heir.id), from: moved.nodeId, to: heir.id }];
  });
}

/** While a fleet comes back, a search through all nodes for each of its records would be most of a pass. */
function reportingByMachine(
  nodes: readonly NodeView[],
  machineIdOf: (nodeId: string) => string | undefined,
): ReadonlyMap<string, readonly NodeView[]> {
  const found = new Map<string, NodeView[]>();
  for (const node of nodes) {
    if (node.streamSinceMs === undefined || !node.reported) continue;
    const machineId = machineIdOf(node.id);
    if (machineId === undefined) continue;
    const others = found.get(machineId);
    if (others === undefined) found.set(machineId, [node]);
    else others.push(node);
  }
  return found;
}

function reportsAll(node: NodeView, record: ReplicaRecord, oldNodeId: string): boolean {
  return record.shards
    .filter((shard) => shard.nodeId === oldNodeId)
    .every((shard) =>
      node.shards.some(
        (report) =>
          report.shardId === shard.shardId &&
          report.generation === record.generation &&
          report.phase !== 'exited' &&
          report.gpuUuids.toSorted().join() === shard.gpuUuids.toSorted().join(),
      ),
    );
}

function carriedOver(record: ReplicaRecord, from: string, to: string): ReplicaRecord {
  return {
    ...record,
    shards: record.shards.map((shard) => (shard.nodeId === from ? { ...shard, nodeId: to } : shard)),
  };
}
