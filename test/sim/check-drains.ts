/** Checks of drains as a whole: when a node counts as empty, that none waits without a word, and what taking one back must save. */
import { type NodeView, type ReplicaRecord, shardKey } from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import type { Server } from './server.js';
import { madeRoomFor, mustLeave, nodeOf, recordsAfter, reportOf, talks } from './view.js';
import type { World } from './world.js';

/** Why a copy may be on its way out that is worth keeping once nothing makes it leave any more. */
const TAKEN_BACK = new Set([
  'node_lost',
  'node_draining',
  'gpu_draining',
  'replaced',
  'stop_first',
  'drain_deadline',
]);

/** Passes may be late. */
const DEADLINE_SLACK_MS = 15_000;
/** A restarted server gives a drain at least this long. */
const LEFT_AFTER_RESTART_MS = 60_000;

export class DrainChecks {
  /** When each intent was first seen, by node and sequence. */
  readonly #sinceMs = new Map<string, number>();

  constructor(private readonly world: World) {}

  check(server: Server, snapshot: Snapshot, plan: Plan): void {
    const after = recordsAfter(snapshot, plan);
    for (const { subject, reason } of plan.events)
      if (reason.code === 'node_drained') this.#drained(snapshot, subject.slice('node/'.length));
    for (const node of snapshot.nodes) {
      if (node.intent.target !== 'drained') continue;
      this.#told(node, plan, after);
      this.#deadline(server, snapshot, node, after);
    }
    const before = new Map(snapshot.replicas.map((record) => [record.id, record]));
    for (const action of plan.actions) {
      if (action.kind !== 'updateReplica' || action.reason.code !== 'drained') continue;
      const was = before.get(action.record.id);
      if (was?.intent === 'drain') this.#stopped(snapshot, plan, was, after);
    }
  }

  /** Held against the machine itself: whoever is told "drained" pulls the plug. */
  #drained(snapshot: Snapshot, id: string): void {
    const node = nodeOf(snapshot, id);
    const machine = this.world.machines.get(id);
    if (node === undefined || machine === undefined || node.liveness === 'lost') return;
    const { gpuUuid } = node.intent;
    const left = machine.up
      ? machine.live().filter((one) => gpuUuid === undefined || one.gpuUuids.includes(gpuUuid))
      : [];
    // What a store that was set back has forgotten is known again only once it is reported.
    const reported = new Set(node.shards.map(({ shardId, generation }) => shardKey(shardId, generation)));
    const known = left.filter(({ key }) => !this.world.wasRestored || reported.has(key));
    if (known.length > 0)
      this.world.fail('drained_too_soon', `${id}: ${known.map(({ key }) => key).join(', ')} still there`);
  }

  /** Whatever is still there, it is said what it waits for. */
  #told(node: NodeView, plan: Plan, after: readonly ReplicaRecord[]): void {
    if (node.liveness === 'lost') return;
    const { gpuUuid } = node.intent;
    for (const { id, shards } of after) {
      const here = shards.some(
        (shard) => shard.nodeId === node.id && (gpuUuid === undefined || shard.gpuUuids.includes(gpuUuid)),
      );
      if (here && !plan.notDone.some(({ subject }) => subject === `replica/${id}`))
        this.world.fail('drain_waits_silently', `${id} on ${node.id}`);
    }
  }

  /** A deadline given by hand ends also the streams of what has left the router. */
  #deadline(server: Server, snapshot: Snapshot, node: NodeView, after: readonly ReplicaRecord[]): void {
    const { deadlineMs, sequence, gpuUuid } = node.intent;
    if (deadlineMs === undefined) return;
    const key = `${node.id} ${sequence}`;
    const sinceMs = this.#sinceMs.get(key) ?? this.world.nowMs;
    this.#sinceMs.set(key, sinceMs);
    const grantedMs = server.startedMs > sinceMs ? server.startedMs + LEFT_AFTER_RESTART_MS : 0;
    const dueMs = Math.max(sinceMs + deadlineMs, grantedMs, server.awakeSinceMs) + DEADLINE_SLACK_MS;
    if (this.world.nowMs < dueMs) return;
    const late = after.find(
      ({ id, intent, shards }) =>
        intent === 'drain' &&
        // It may have left the router only now, as the deadline let it.
        this.world.nowMs - (snapshot.memory.replicas.get(id)?.drainSinceMs ?? this.world.nowMs) >
          DEADLINE_SLACK_MS &&
        shards.every(({ nodeId }) => talks(nodeOf(snapshot, nodeId))) &&
        shards.some(
          (shard) => shard.nodeId === node.id && (gpuUuid === undefined || shard.gpuUuids.includes(gpuUuid)),
        ),
    );
    if (late !== undefined) this.world.fail('deadline_exceeded', `${late.id} on ${node.id}`);
  }

  /**
   * A node taken back (uncordoned, or returned after it was given up): a copy that still serves there is not let go while those
   * that were to replace it do not serve.
   */
  #stopped(snapshot: Snapshot, plan: Plan, was: ReplicaRecord, after: readonly ReplicaRecord[]): void {
    if (!TAKEN_BACK.has(was.intentReason.code) || plan.memory.brakeSinceMs !== undefined) return;
    const model = snapshot.models.find(({ name }) => name === was.model);
    const healthy = was.shards.every(({ nodeId, shardId }) => {
      const phase = reportOf(snapshot, nodeId, shardId, was.generation)?.phase;
      return nodeOf(snapshot, nodeId)?.liveness === 'connected' && phase === 'ready';
    });
    if (
      model === undefined ||
      !healthy ||
      mustLeave(snapshot, was) ||
      madeRoomFor([...snapshot.replicas, ...after], was.id)
    )
      return;
    const staying = after.filter((one) => one.model === was.model && one.intent === 'run');
    const down = staying.filter((one) => one.readyWallMs === undefined && this.#isSurelyDown(snapshot, one));
    if (staying.length - down.length < model.replicas && down.length > 0)
      this.world.fail('returned_copy_stopped', `${was.id} serves, ${down[0]?.id} does not yet`);
  }

  /** Neither Ready nor perhaps Ready behind a silent link. */
  #isSurelyDown(snapshot: Snapshot, record: ReplicaRecord): boolean {
    return record.shards.every(({ nodeId }) => talks(nodeOf(snapshot, nodeId)));
  }
}
