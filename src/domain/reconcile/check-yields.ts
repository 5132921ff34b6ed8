/** Room that some replicas make for others: nobody is asked who may not be, and what was made for one goes to no other. */
import type { ReplicaRecord } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import type { Violation } from './check-plan.js';

/** What the checks look at: records before and after the plan, and the catalog. */
interface Outcome {
  readonly before: ReadonlyMap<string, ReplicaRecord>;
  readonly records: ReadonlyMap<string, ReplicaRecord>;
  readonly models: ReadonlyMap<string, ModelSpec>;
}

export function checkYields(after: Outcome): readonly Violation[] {
  return [...checkVictims(after), ...checkReserved(after)];
}

/** Judged where it begins: what was allowed then is taken back by the next pass, not by refusing this one. */
function checkVictims({ before, records, models }: Outcome): readonly Violation[] {
  const found: Violation[] = [];
  for (const record of records.values()) {
    const known = before.get(record.id)?.reserved?.victims ?? [];
    for (const id of record.reserved?.victims ?? []) {
      if (known.includes(id)) continue;
      const victim = records.get(id) ?? before.get(id);
      const lower = models.get(victim?.model ?? '');
      const higher = models.get(record.model);
      const allowed =
        lower?.placement.mayYield === true && higher !== undefined && lower.priority < higher.priority;
      if (allowed) continue;
      const message = `${id} of ${victim?.model ?? 'no model'} is asked to make room`;
      found.push({ code: 'yield_not_allowed', subject: record.id, message });
    }
  }
  return found;
}

/** A device that is reserved whole, or wanted whole, is for one replica only. */
function checkReserved({ before, records }: Outcome): readonly Violation[] {
  const rooms = new Map<string, { readonly id: string; readonly whole: boolean }>();
  for (const { id, intent, shards, reserved } of records.values()) {
    if (intent !== 'run' || shards.length > 0) continue;
    for (const shard of reserved?.shards ?? [])
      for (const uuid of shard.gpuUuids)
        rooms.set(`${shard.nodeId}/${uuid}`, { id, whole: shard.gpuMemoryBytes === undefined });
  }
  if (rooms.size === 0) return [];
  const found: Violation[] = [];
  for (const record of records.values()) {
    if (before.get(record.id)?.generation === record.generation || record.startedWallMs !== undefined)
      continue;
    for (const { nodeId, gpuUuids, gpuMemoryBytes } of record.shards)
      for (const uuid of gpuUuids) {
        const room = rooms.get(`${nodeId}/${uuid}`);
        if (room === undefined || room.id === record.id || !(room.whole || gpuMemoryBytes === undefined))
          continue;
        const message = `${nodeId}/${uuid} is kept for ${room.id}`;
        found.push({ code: 'reserved_room_taken', subject: record.id, message });
      }
  }
  return found;
}
