/**
 * What must hold after every step. These checks look at the ground truth and at what was sent, not at the code that decided; I5, I7
 * and the like are the invariants of docs/ARCHITECTURE.md.
 */
import { replicaKey, shardKey } from '../../src/domain/cluster.js';
import type { Action, Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { DrainChecks } from './check-drains.js';
import { GangChecks } from './check-gangs.js';
import { MoveChecks } from './check-moves.js';
import { PassChecks } from './check-passes.js';
import { PlaceChecks } from './check-places.js';
import { YieldChecks } from './check-yields.js';
import type { Server } from './server.js';
import { asJudged, recordsAfter } from './view.js';
import type { World } from './world.js';

type Command = Extract<Action, { kind: 'startShard' | 'stopShard' }>;

/** Failures of one replica since it was last forgiven. */
interface FailureRun {
  readonly atMs: number;
  readonly delayMs: number;
  readonly count: number;
}

export class Checks {
  readonly #passes: PassChecks;
  readonly #moves: MoveChecks;
  readonly #places: PlaceChecks;
  readonly #drains: DrainChecks;
  readonly #yields: YieldChecks;
  readonly #gangs: GangChecks;
  readonly #failures = new Map<string, FailureRun>();
  readonly #generations = new Map<string, number>();
  readonly #readyMs = new Map<string, number>();
  /** Commands by server term and stream, with the time they went out. */
  readonly #sent = new Map<string, number>();
  readonly #strangers = new Map<string, number>();
  #clockStepped = false;

  constructor(private readonly world: World) {
    this.#passes = new PassChecks(world);
    this.#moves = new MoveChecks(world);
    this.#places = new PlaceChecks(world);
    this.#drains = new DrainChecks(world);
    this.#yields = new YieldChecks(world);
    this.#gangs = new GangChecks(world);
  }

  clockStepped(): void {
    this.#clockStepped = true;
  }

  /** What the restored store has forgotten cannot be held against it. */
  restored(): void {
    this.#failures.clear();
    this.#readyMs.clear();
  }

  /** I5: no device and no port is in two live hands. */
  truth(): void {
    for (const machine of this.world.machines.values()) {
      for (const device of machine.devices) {
        const holders = machine.holders(device.uuid);
        if (holders.length < 2) continue;
        const whole = holders.some(({ memoryBytes }) => memoryBytes === undefined);
        const sum = holders.reduce((bytes, one) => bytes + (one.memoryBytes ?? 0), 0);
        if (whole || sum > device.memoryTotalBytes) {
          const who = holders.map(({ key }) => key).join(', ');
          this.world.fail('gpu_twice', `${machine.id}/${device.uuid}: ${who}`);
        }
      }
      const ports = new Map<number, string>();
      for (const process of machine.live()) {
        const other = ports.get(process.port);
        if (other !== undefined)
          this.world.fail('port_twice', `${machine.id}:${process.port}: ${other}, ${process.key}`);
        ports.set(process.port, process.key);
      }
    }
  }

  /** Told of every plan that was stored, before the rest of it is carried out. */
  stored(server: Server, snapshot: Snapshot, plan: Plan): void {
    this.#passes.check(server, snapshot, plan);
    const judged = asJudged(snapshot, plan);
    this.#moves.check(server, judged, plan);
    this.#places.check(judged, plan);
    this.#drains.check(server, judged, plan);
    this.#yields.check(snapshot, plan);
    this.#gangs.check(judged, plan);
    this.#noteStrangers(snapshot);
    this.#backoffs(plan);
    this.#noteReady(snapshot, plan);
  }

  /** Told when the cluster is quiet after the last fault. */
  quiet(): void {
    this.#gangs.quiet();
  }

  // -------------------------------------------------------------- back-off

  /** Each delay at least doubles with every failure up to the cap, and is forgiven only by health. */
  #backoffs(plan: Plan): void {
    const { policy, nowMs } = this.world;
    for (const action of plan.actions) {
      if (action.kind === 'clearBackoff') {
        this.#forgiven(action);
        this.#failures.delete(action.record.replicaId);
      }
      if (action.kind !== 'putBackoff') continue;
      const { replicaId, delayMs, cause, permanent } = action.record;
      // Who was asked to stop has not failed.
      if (cause === 'stopped')
        this.world.fail('stop_counted', `${replicaId}: ${action.record.lastMessage ?? ''}`);
      if (delayMs > policy.maxBackoffMs) this.world.fail('backoff_uncapped', `${replicaId}: ${delayMs}`);
      if (cause === 'portTaken' || cause === 'gpuNotEmpty' || permanent) {
        this.#failures.delete(replicaId);
        continue;
      }
      const count = (this.#failures.get(replicaId)?.count ?? 0) + 1;
      const leastMs = 0.8 * Math.min(policy.maxBackoffMs, policy.baseBackoffMs * 2 ** (count - 1)) - 1;
      if (delayMs < leastMs)
        this.world.fail('backoff_too_short', `${replicaId}: ${delayMs} after ${count} failures`);
      this.#failures.set(replicaId, { atMs: nowMs, delayMs, count });
    }
  }

  #forgiven(action: Extract<Action, { kind: 'clearBackoff' }>): void {
    if (action.reason.code !== 'healthy_again') return;
    const { replicaId } = action.record;
    const sinceMs = this.#readyMs.get(replicaId) ?? this.world.nowMs;
    if (this.world.nowMs - sinceMs < this.world.policy.healthyResetMs - 1)
      this.world.fail('forgiven_too_soon', `${replicaId}: Ready for ${this.world.nowMs - sinceMs} ms`);
  }

  #noteReady(snapshot: Snapshot, plan: Plan): void {
    for (const record of recordsAfter(snapshot, plan)) {
      if (record.readyWallMs === undefined) this.#readyMs.delete(record.id);
      else if (!this.#readyMs.has(record.id)) this.#readyMs.set(record.id, this.world.nowMs);
    }
  }

  // -------------------------------------------------------------- commands

  /** Told right before a command goes out. */
  commanded(server: Server, action: Command): void {
    this.#notAgain(server, action);
    if (action.kind === 'stopShard') this.#stopped(server, action);
    else this.#started(action.command.replicaId, action.command.generation, action.command.nodeId);
  }

  /** The same word on the same stream is repeated only after a while. */
  #notAgain(server: Server, { kind, command }: Command): void {
    const stream = server.entries.get(command.nodeId)?.view().streamSinceMs ?? 0;
    const key = `${kind} ${shardKey(command.shardId, command.generation)} ${server.term} ${stream}`;
    const beforeMs = this.#sent.get(key);
    if (beforeMs !== undefined && this.world.nowMs - beforeMs < this.world.policy.commandResendMs - 1)
      this.world.fail('command_storm', `${key} again after ${this.world.nowMs - beforeMs} ms`);
    this.#sent.set(key, this.world.nowMs);
  }

  /** I7: unpublish first, stop second; and nobody is cut without having been told. */
  #stopped(server: Server, { command, reason }: Extract<Action, { kind: 'stopShard' }>): void {
    const key = replicaKey(command.replicaId, command.generation);
    const record = this.world.store.contents.replicas.get(command.replicaId);
    // After a restore a number may have been given out twice; the stray on another node is nobody's endpoint.
    const own = record === undefined || record.shards.some(({ nodeId }) => nodeId === command.nodeId);
    if (own && server.router.publishes(key)) this.world.fail('stopped_while_published', key);
    if (own && (server.router.inflight().get(key) ?? 0) > 0) this.world.fail('stopped_with_streams', key);
    if (reason.code !== 'orphan') return;
    const sinceMs = this.#strangers.get(shardKey(command.shardId, command.generation)) ?? this.world.nowMs;
    if (this.world.nowMs - sinceMs < this.world.policy.orphanGraceMs - 1)
      this.world.fail('stranger_stopped_at_once', `${key} after ${this.world.nowMs - sinceMs} ms`);
    if (this.#couldBeTakenOver(command.replicaId, command.generation))
      this.world.fail('stranger_killed', `${key} was whole and could have been taken over`);
  }

  /** Since when shards without a record are reported. */
  #noteStrangers(snapshot: Snapshot): void {
    const records = new Map(snapshot.replicas.map((record) => [record.id, record]));
    for (const node of snapshot.nodes) {
      for (const { shardId, replicaId, generation } of node.shards) {
        const key = shardKey(shardId, generation);
        const record = records.get(replicaId);
        const named =
          record?.generation === generation &&
          record.shards.some((one) => one.shardId === shardId && one.nodeId === node.id);
        if (!named && !this.#strangers.has(key)) this.#strangers.set(key, this.world.nowMs);
      }
    }
  }

  #couldBeTakenOver(replicaId: string, generation: number): boolean {
    if (this.world.store.contents.replicas.has(replicaId)) return false;
    const processes = [...this.world.machines.values()].flatMap((machine) =>
      machine.up
        ? machine.live().filter((one) => one.replicaId === replicaId && one.generation === generation)
        : [],
    );
    const model = this.world.models.find(({ name }) => name === processes[0]?.model);
    const profile = model?.profiles.find(({ name }) => name === processes[0]?.profile);
    if (profile?.shards !== 1 || processes.length !== 1) return false;
    return processes[0]?.state === 'ready' && processes[0].rank === 0;
  }

  #started(replicaId: string, generation: number, nodeId: string): void {
    const last = this.#generations.get(replicaId) ?? 0;
    if (generation < last && !this.world.wasRestored)
      this.world.fail('generation_back', `${replicaId}: ${last} then ${generation}`);
    if (generation <= last) return;
    this.#generations.set(replicaId, generation);
    const failed = this.#failures.get(replicaId);
    const waitedMs = this.world.nowMs - (failed?.atMs ?? 0);
    // A wall clock that was set may shorten the wait of a server that restarted meanwhile; nothing else may.
    if (
      failed !== undefined &&
      waitedMs < failed.delayMs - 1 &&
      !this.#clockStepped &&
      !this.world.wasRestored
    )
      this.world.fail(
        'restarted_too_soon',
        `${replicaId} on ${nodeId}: after ${waitedMs} of ${failed.delayMs}`,
      );
  }

  published(server: Server, plan: Plan): void {
    const seen = new Set<string>();
    for (const one of plan.published) {
      if (seen.has(one.replicaId)) this.world.fail('two_generations_published', one.replicaId);
      seen.add(one.replicaId);
    }
    if (!server.alive) this.world.fail('dead_server_published', String(server.term));
  }
}
