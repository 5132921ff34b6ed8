/** Checks of room that some make for others: nobody without permission, nobody needless, nobody for nothing. */
import type { ReplicaRecord } from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { madeRoomFor, mayHaveStood, nodeOf, recordsAfter } from './view.js';
import type { World } from './world.js';

/** Failures in a row at one place after which no more room is made. */
const FAILURES_MAX = 3;
/** Its own and, in a gang, that of the rendezvous. */
const PORTS_OF_A_RANK = 2;

export class YieldChecks {
  constructor(private readonly world: World) {}

  check(snapshot: Snapshot, plan: Plan): void {
    const before = new Map(snapshot.replicas.map((record) => [record.id, record]));
    const after = recordsAfter(snapshot, plan);
    this.#kept(plan, before);
    for (const record of after) {
      const asked = before.get(record.id)?.reserved?.victims ?? [];
      const victims = (record.reserved?.victims ?? []).filter((id) => !asked.includes(id));
      for (const id of victims) this.#asked(snapshot, record, before.get(id));
      if (victims.length > 0) this.world.count('rooms asked');
      if (victims.length > 1) this.world.count('rooms asked of several');
      this.#notFailing(snapshot, plan, record, victims.length > 0);
      this.#left(before.get(record.id), record, [...snapshot.replicas, ...after]);
    }
  }

  /** Only a new copy whose move has ended is nobody: a replica that is wanted keeps its name, and with it its failures. */
  #kept(plan: Plan, before: ReadonlyMap<string, ReplicaRecord>): void {
    for (const action of plan.actions) {
      if (action.kind !== 'deleteReplica' || action.reason.code !== 'room_given_up') continue;
      const original = before.get(before.get(action.replicaId)?.replaces ?? '');
      if (original?.intent !== 'run') this.world.fail('failures_forgotten', action.replicaId);
    }
  }

  /** Nobody is thrown out again and again for an engine that does not start. */
  #notFailing(snapshot: Snapshot, plan: Plan, record: ReplicaRecord, asked: boolean): void {
    const waits = record.intent === 'run' && record.shards.length === 0 && record.reserved !== undefined;
    const failed = snapshot.backoffs.find(
      (one) => one.replicaId === record.id && one.failures >= FAILURES_MAX,
    );
    if (failed === undefined || !(asked || waits)) return;
    // What is reserved is not reviewed then; nobody is asked then either.
    if (!asked && mayHaveStood(plan, this.world.policy)) return;
    this.world.fail('room_for_failing', `${record.id} failed ${failed.failures} times on ${failed.nodeId}`);
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
    // Whoever holds none of the devices that are reserved could as well have stayed, unless its ports are the last there are.
    const devices = new Set(
      record.reserved?.shards.flatMap(({ nodeId, gpuUuids }) => gpuUuids.map((uuid) => `${nodeId}/${uuid}`)),
    );
    const holds = victim.shards.some(({ nodeId, gpuUuids }) =>
      gpuUuids.some((uuid) => devices.has(`${nodeId}/${uuid}`)),
    );
    const lastPorts = victim.shards.some(
      ({ nodeId }) =>
        record.reserved?.shards.some((one) => one.nodeId === nodeId) === true &&
        this.#freePorts(snapshot, nodeId) < PORTS_OF_A_RANK,
    );
    if (!holds && !lastPorts) this.world.fail('yields_needlessly', subject);
  }

  #freePorts(snapshot: Snapshot, nodeId: string): number {
    const node = nodeOf(snapshot, nodeId);
    const records = snapshot.replicas.flatMap(({ shards }) => shards.filter((one) => one.nodeId === nodeId));
    const held = [...records, ...(node?.shards ?? [])].flatMap(({ ports }) => [ports.http, ports.rendezvous]);
    const taken = new Set([...held, ...(node?.portsTaken ?? [])]);
    const [first, last] = this.world.policy.portRange;
    return last - first + 1 - [...taken].filter((port = 0) => port >= first && port <= last).length;
  }

  /** Only for a replica that waits for the room is any sent away in the name of making some. */
  #left(was: ReplicaRecord | undefined, now: ReplicaRecord, records: readonly ReplicaRecord[]): void {
    const { code } = now.intentReason;
    if (was?.intent !== 'run' || now.intent === 'run' || (code !== 'yielded' && code !== 'yields')) return;
    this.world.count('replicas yielded');
    if (!madeRoomFor(records, now.id)) this.world.fail('yielded_for_nothing', now.id);
  }
}
