/** I6: all ranks of a replica or none, in what is decided, in what is sent, and in what is left when everything is quiet. */
import { replicaKey, type ReplicaRecord, shardKey } from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { mayHaveStood, nodeOf, recordsAfter, reportOf, talks } from './view.js';
import type { World } from './world.js';

export class GangChecks {
  constructor(private readonly world: World) {}

  check(snapshot: Snapshot, plan: Plan): void {
    const after = recordsAfter(snapshot, plan);
    for (const record of after) this.#whole(snapshot, plan, record);
    this.#stoppedTogether(snapshot, plan);
    this.#startedTogether(snapshot, plan, after);
  }

  /** A replica that is to run holds all its places or, with nothing of it left, none; and so does the room kept for one. */
  #whole(snapshot: Snapshot, plan: Plan, record: ReplicaRecord): void {
    const { id, shards } = record;
    if (record.intent !== 'run') return;
    this.#roomWhole(snapshot, plan, record);
    const wanted = ranksOf(snapshot, record.model, record.profile);
    const fresh = record.startedWallMs === undefined && !this.#hasFailed(snapshot, plan, record);
    if (wanted === undefined || shards.length === 0 || !fresh) return;
    const before = snapshot.replicas.find((one) => one.id === id);
    if (before?.generation === record.generation) return;
    const nodes = new Set(shards.map(({ nodeId }) => nodeId));
    const ranks = new Set(shards.map(({ rank }) => rank));
    if (shards.length !== wanted || nodes.size !== wanted || ranks.size !== wanted)
      this.world.fail(
        'gang_placed_in_part',
        `${id}: ${shards.length} shards on ${nodes.size} nodes of ${wanted}`,
      );
  }

  /** Room is for all ranks when it is asked for, and for as long as it is waited for. */
  #roomWhole(snapshot: Snapshot, plan: Plan, { id, model, shards, reserved }: ReplicaRecord): void {
    if (reserved === undefined) return;
    const before = snapshot.replicas.find((one) => one.id === id)?.reserved;
    const asked = before?.profile !== reserved.profile || before.shards.length !== reserved.shards.length;
    // Whoever stands there keeps what it was started as; rooms are not reviewed while a pass decides nothing.
    if (!asked && (shards.length > 0 || mayHaveStood(plan, this.world.policy))) return;
    const wanted = ranksOf(snapshot, model, reserved.profile);
    if (reserved.shards.length !== wanted)
      this.world.fail('room_for_a_part', `${id}: ${reserved.shards.length} of ${wanted} places`);
  }

  #hasFailed(snapshot: Snapshot, plan: Plan, record: ReplicaRecord): boolean {
    const counted = plan.actions.flatMap((action) => (action.kind === 'putBackoff' ? [action.record] : []));
    return [...snapshot.backoffs, ...counted].some(
      (one) => one.replicaId === record.id && one.generation === record.generation,
    );
  }

  /** One rank is told to stop: so is every other that can be told, or it was before. */
  #stoppedTogether(snapshot: Snapshot, plan: Plan): void {
    const stops = plan.actions.flatMap((action) => (action.kind === 'stopShard' ? [action.command] : []));
    const told = new Set(stops.map(({ shardId, generation }) => shardKey(shardId, generation)));
    const before = new Map(snapshot.replicas.map((record) => [record.id, record]));
    for (const { replicaId, generation, nodeId, shardId } of stops) {
      const record = before.get(replicaId);
      // A stray of a number that a set-back store gave out twice is no rank of this one.
      const own = record?.shards.some((one) => one.nodeId === nodeId && one.shardId === shardId);
      if (record === undefined || record.generation !== generation || own !== true) continue;
      this.world.count('ranks stopped');
      for (const shard of record.shards) {
        const key = shardKey(shard.shardId, generation);
        const node = nodeOf(snapshot, shard.nodeId);
        const phase = reportOf(snapshot, shard.nodeId, shard.shardId, generation)?.phase;
        const runs = phase !== undefined && phase !== 'exited' && phase !== 'stopping';
        const hears = talks(node) && node?.reported === true && node.streamSinceMs !== undefined;
        if (!runs || !hears || told.has(key) || snapshot.memory.commands.has(`stop:${key}`)) continue;
        this.world.fail('gang_stopped_in_part', `${shardId} is stopped, ${key} runs on`);
      }
    }
  }

  /** One rank is told to start: so is every other that no report shows. */
  #startedTogether(snapshot: Snapshot, plan: Plan, after: readonly ReplicaRecord[]): void {
    const starts = plan.actions.flatMap((action) => (action.kind === 'startShard' ? [action.command] : []));
    const told = new Set(starts.map(({ shardId, generation }) => shardKey(shardId, generation)));
    const records = new Map(after.map((record) => [record.id, record]));
    for (const { replicaId, generation, shardId } of starts) {
      for (const shard of records.get(replicaId)?.shards ?? []) {
        const key = shardKey(shard.shardId, generation);
        const seen = reportOf(snapshot, shard.nodeId, shard.shardId, generation) !== undefined;
        if (seen || told.has(key) || snapshot.memory.commands.has(`start:${key}`)) continue;
        this.world.fail('gang_started_in_part', `${shardId} is started, ${key} is not`);
      }
    }
  }

  /** After the last fault nothing may hold devices for a gang that is not whole. */
  quiet(): void {
    const gangs = new Map<string, number>();
    for (const machine of this.world.machines.values())
      for (const { replicaId, generation, shards } of machine.live()) {
        const key = replicaKey(replicaId, generation);
        gangs.set(key, (gangs.get(key) ?? shards) - 1);
      }
    for (const [key, missing] of gangs)
      if (missing !== 0) this.world.fail('gang_in_part', `${missing} ranks of ${key} are missing`);
  }
}

/** How many ranks the catalog wants of it now; undefined when it has none of that name. */
function ranksOf(snapshot: Snapshot, model: string, profile: string): number | undefined {
  const profiles = snapshot.models.find(({ name }) => name === model)?.profiles;
  return profiles?.find(({ name }) => name === profile)?.shards;
}
