/** The part of `checkPlan` that judges what is to be started. */
import { shardKey } from '../cluster.js';
import type { StartShardCommand } from '../plan.js';
import type { Violation } from './check-plan.js';
import { actionsOf, talks, type After } from './plan-outcome.js';

/** What of other replicas is reported to run on a port of the start, or on one of its devices that either wants whole. */
function occupants(
  after: After,
  { nodeId, replicaId, shardId, gpuUuids, ports }: StartShardCommand,
): string[] {
  const node = after.nodes.get(nodeId);
  if (node === undefined || !talks(node)) return [];
  const partly = (replica: string, shard: string): boolean =>
    after.records.get(replica)?.shards.find((one) => one.shardId === shard)?.gpuMemoryBytes !== undefined;
  return node.shards
    .filter((report) => report.replicaId !== replicaId && report.phase !== 'exited')
    .filter(
      (report) =>
        report.ports.http === ports.http ||
        (report.gpuUuids.some((uuid) => gpuUuids.includes(uuid)) &&
          !(partly(replicaId, shardId) && partly(report.replicaId, report.shardId))),
    )
    .map((report) => shardKey(report.shardId, report.generation));
}

/** Starts that no record wants, that come too early, or where something else runs. */
export function checkStarts(after: After): readonly Violation[] {
  const starts = actionsOf(after.plan, 'startShard').map(({ command }) => command);
  return starts.flatMap((command) => {
    const found: Violation[] = [];
    const subject = shardKey(command.shardId, command.generation);
    const record = after.records.get(command.replicaId);
    const named = record?.shards.some(
      (shard) => shard.shardId === command.shardId && shard.nodeId === command.nodeId,
    );
    if (record === undefined || !named || record.generation !== command.generation || record.intent !== 'run')
      found.push({ code: 'start_without_record', subject, message: 'no record wants this start' });
    const older = [...after.nodes.values()].flatMap((node) =>
      node.shards
        .filter((report) => report.replicaId === command.replicaId && report.phase !== 'exited')
        .filter((report) => report.generation < command.generation && node.id === command.nodeId)
        .map((report) => shardKey(report.shardId, report.generation)),
    );
    if (older.length > 0) found.push({ code: 'start_while_older_runs', subject, message: older.join(', ') });
    const others = occupants(after, command);
    if (others.length > 0) found.push({ code: 'start_in_taken_place', subject, message: others.join(', ') });
    const commanded = new Set(
      starts.filter((other) => other.replicaId === command.replicaId).map(({ shardId }) => shardId),
    );
    const missing = (record?.shards ?? []).filter(
      (shard) =>
        !commanded.has(shard.shardId) &&
        after.report(shard.nodeId, shard.shardId, command.generation) === undefined &&
        !after.snapshot.memory.commands.has(`start:${shardKey(shard.shardId, command.generation)}`),
    );
    if (missing.length > 0)
      found.push({
        code: 'gang_incomplete',
        subject,
        message: `started without ${missing.map(({ shardId }) => shardId).join(', ')}`,
      });
    return found;
  });
}
