/** Checks of room that some make for others: nobody without permission, nobody needless, nobody for nothing. */
import type { ReplicaRecord } from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { madeRoomFor, recordsAfter } from './view.js';
import type { World } from './world.js';

export class YieldChecks {
  constructor(private readonly world: World) {}

  check(snapshot: Snapshot, plan: Plan): void {
    const before = new Map(snapshot.replicas.map((record) => [record.id, record]));
    const after = recordsAfter(snapshot, plan);
    for (const record of after) {
      const asked = before.get(record.id)?.reserved?.victims ?? [];
      const victims = (record.reserved?.victims ?? []).filter((id) => !asked.includes(id));
      for (const id of victims) this.#asked(snapshot, record, before.get(id));
      if (victims.length > 0) this.world.count('rooms asked');
      if (victims.length > 1) this.world.count('rooms asked of several');
      this.#left(before.get(record.id), record, [...snapshot.replicas, ...after]);
    }
  }

  #asked(snapshot: Snapshot, record: ReplicaRecord, victim: ReplicaRecord | undefined): void {
    const model = (name: string | undefined) => snapshot.models.find((one) => one.name === name);
    const mine = model(record.model);
    const its = model(victim?.model);
    const subject = `${victim?.id ?? 'nobody'} for ${record.id}`;
    if (victim === undefined || mine === undefined || its === undefined)
      return this.world.fail('yields_unknown', subject);
    if (its.placement.mayYield !== true) this.world.fail('yields_without_leave', subject);
    if (its.priority >= mine.priority)
      this.world.fail('yields_to_equal', `${subject}: ${its.priority} and ${mine.priority}`);
    // Whoever holds none of the devices that are reserved could as well have stayed.
    const devices = new Set(
      record.reserved?.shards.flatMap(({ nodeId, gpuUuids }) => gpuUuids.map((uuid) => `${nodeId}/${uuid}`)),
    );
    const holds = victim.shards.some(({ nodeId, gpuUuids }) =>
      gpuUuids.some((uuid) => devices.has(`${nodeId}/${uuid}`)),
    );
    if (!holds) this.world.fail('yields_needlessly', subject);
  }

  /** Only for a replica that waits for the room is any sent away in the name of making some. */
  #left(was: ReplicaRecord | undefined, now: ReplicaRecord, records: readonly ReplicaRecord[]): void {
    const { code } = now.intentReason;
    if (was?.intent !== 'run' || now.intent === 'run' || (code !== 'yielded' && code !== 'yields')) return;
    this.world.count('replicas yielded');
    if (!madeRoomFor(records, now.id)) this.world.fail('yielded_for_nothing', now.id);
  }
}
