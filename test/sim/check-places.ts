/** Checks of places: that they are really free, and chosen as the rules say. */
import type { ReplicaRecord, ShardAssignment } from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { nodeOf, recordsAfter, talks } from './view.js';
import type { World } from './world.js';

export class PlaceChecks {
  constructor(private readonly world: World) {}

  check(snapshot: Snapshot, plan: Plan): void {
    const before = new Map(snapshot.replicas.map((record) => [record.id, record]));
    for (const action of plan.actions) {
      if (action.kind !== 'createReplica' && action.kind !== 'updateReplica') continue;
      const { record } = action;
      const placed = record.shards.length > 0 && record.generation !== before.get(record.id)?.generation;
      if (!placed || record.startedWallMs !== undefined) continue;
      for (const shard of record.shards) this.#place(snapshot, plan, record, shard);
      this.#otherNodeFirst(snapshot, record);
      this.#notStacked(record);
    }
  }

  #place(snapshot: Snapshot, plan: Plan, record: ReplicaRecord, shard: ShardAssignment): void {
    const node = nodeOf(snapshot, shard.nodeId);
    const subject = `${shard.shardId} on ${shard.nodeId}`;
    const model = snapshot.models.find(({ name }) => name === record.model);
    const profile = model?.profiles.find(({ name }) => name === record.profile);
    if (node === undefined || model === undefined || profile === undefined)
      return this.world.fail('placed_nowhere', subject);
    if (!talks(node)) this.world.fail('placed_on_silent', subject);
    if (node.intent.target !== 'schedulable' && node.intent.gpuUuid === undefined)
      this.world.fail('placed_on_cordoned', subject);
    if (!node.engines.some(({ kind }) => kind === profile.engine))
      this.world.fail('placed_without_engine', subject);
    for (const [key, value] of Object.entries(model.placement.nodeSelector))
      if (node.labels[key] !== value) this.world.fail('placed_without_label', subject);
    if (node.portsTaken.includes(shard.ports.http)) this.world.fail('placed_on_taken_port', subject);
    const parked = snapshot.backoffs.some(
      (one) =>
        one.permanent &&
        one.model === record.model &&
        one.profile === record.profile &&
        one.nodeId === node.id &&
        one.specDigest === record.specDigest,
    );
    if (parked) this.world.fail('placed_on_parked', subject);
    if (model.placement.antiAffinity) this.#alone(snapshot, plan, record, shard);
    for (const uuid of shard.gpuUuids) this.#device(snapshot, plan, shard, uuid);
  }

  #alone(snapshot: Snapshot, plan: Plan, record: ReplicaRecord, shard: ShardAssignment): void {
    const other = recordsAfter(snapshot, plan).find(
      (one) =>
        one.id !== record.id &&
        one.model === record.model &&
        one.intent === 'run' &&
        one.shards.some(({ nodeId }) => nodeId === shard.nodeId),
    );
    if (other !== undefined) this.world.fail('not_alone', `${record.id} and ${other.id} on ${shard.nodeId}`);
  }

  /** Memory as reported and as booked must leave room for it, strangers counted. */
  #device(snapshot: Snapshot, plan: Plan, shard: ShardAssignment, uuid: string): void {
    const subject = `${shard.shardId} on ${shard.nodeId}/${uuid}`;
    const gpu = nodeOf(snapshot, shard.nodeId)?.gpus.find((one) => one.uuid === uuid);
    if (gpu === undefined || gpu.health.state !== 'healthy')
      return this.world.fail('placed_on_bad_gpu', subject);
    const foreign = gpu.foreign.reduce((sum, one) => sum + (one.memoryBytes ?? 0), 0);
    if (shard.gpuMemoryBytes === undefined) {
      if (foreign > 0) this.world.fail('placed_with_stranger', subject);
      return;
    }
    let booked = foreign;
    for (const one of recordsAfter(snapshot, plan)) {
      // Whether what is ending has gone is for its agent to say; the ground truth is watched elsewhere.
      if (one.intent === 'stop') continue;
      for (const held of one.shards)
        if (held.nodeId === shard.nodeId && held.gpuUuids.includes(uuid)) booked += held.gpuMemoryBytes ?? 0;
    }
    if (booked > (gpu.memoryTotalBytes ?? 0)) this.world.fail('placed_too_tight', subject);
  }

  /** A copy goes on a device that carries a copy already only when no other place is as good otherwise. */
  #notStacked(record: ReplicaRecord): void {
    const [shard] = record.shards;
    if (shard === undefined || record.shards.length > 1) return;
    const nodes = record.placement?.profiles.find((one) => one.profile === record.profile)?.nodes ?? [];
    const chosen = nodes.find(({ nodeId }) => nodeId === shard.nodeId)?.scores;
    if (chosen === undefined || (chosen['apart'] ?? 1) === 1) return;
    const better = nodes.find(
      ({ scores }) =>
        scores?.['apart'] === 1 &&
        scores['fresh'] === chosen['fresh'] &&
        scores['spread'] === chosen['spread'],
    );
    if (better !== undefined)
      this.world.fail('stacked', `${record.id} beside a copy on ${shard.nodeId}, ${better.nodeId} fits`);
  }

  /** After a failure another node that fits comes before the same one again. */
  #otherNodeFirst(snapshot: Snapshot, record: ReplicaRecord): void {
    const failed = (nodeId: string) =>
      snapshot.backoffs.some(
        (one) => one.replicaId === record.id && one.nodeId === nodeId && one.delayMs > 0,
      );
    const [shard] = record.shards;
    if (shard === undefined || record.shards.length > 1 || !failed(shard.nodeId)) return;
    const profile = record.placement?.profiles.find((one) => one.profile === record.profile);
    const better = profile?.nodes.find((node) => node.fits && !failed(node.nodeId));
    if (better !== undefined)
      this.world.fail(
        'same_node_again',
        `${record.id} on ${shard.nodeId}, ${better.nodeId} fits and never failed`,
      );
  }
}
