/**
 * What must hold after every step. These checks look at the ground truth and at what was sent, not at the code that decided; the
 * names of the invariants are those of the design (I5: no GPU twice, I7: only Ready is published, ...).
 */
import {
  type Action,
  type NodeView,
  type Plan,
  replicaKey,
  type ReplicaRecord,
  type Snapshot,
} from '../../src/domain/cluster.js';
import { canonical, specDigest } from '../../src/domain/catalog/spec-digest.js';
import type { Violation } from '../../src/domain/reconcile/check-plan.js';
import { explainPlacement } from '../../src/domain/reconcile/explain.js';
import { reconcile } from '../../src/domain/reconcile/reconcile.js';
import { seededRandom } from '../../src/shared/random.js';
import type { Server } from './server.js';
import type { World } from './world.js';

/** Share of passes that are also run twice, or asked for an explanation: as expensive as the pass itself. */
const REPEATED = 1 / 16;

export class Checks {
  readonly #failedAt = new Map<string, { readonly atMs: number; readonly delayMs: number }>();
  readonly #starts = new Map<string, number[]>();
  #clockStepped = false;

  constructor(private readonly world: World) {}

  clockStepped(): void {
    this.#clockStepped = true;
  }

  // -------------------------------------------------------------- ground truth

  /** I5: no device and no port is in two live hands. */
  truth(): void {
    for (const machine of this.world.machines.values()) {
      for (const device of machine.devices) {
        const holders = machine.holders(device.uuid);
        if (holders.length < 2) continue;
        const whole = holders.find(({ memoryBytes }) => memoryBytes === undefined);
        const sum = holders.reduce((bytes, one) => bytes + (one.memoryBytes ?? 0), 0);
        if (whole !== undefined || sum > device.memoryTotalBytes)
          this.world.fail(
            'gpu_twice',
            `${machine.id}/${device.uuid}: ${holders.map(({ key }) => key).join(', ')}`,
          );
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

  // -------------------------------------------------------------- plans

  planned(server: Server, snapshot: Snapshot, plan: Plan, violations: readonly Violation[]): void {
    for (const { code, subject, message } of violations)
      this.world.fail(`plan:${code}`, `${subject}: ${message}`);
    this.#massLoss(snapshot, plan);
    this.#settling(server, snapshot, plan);
    this.#leaving(snapshot, plan);
    this.#publishing(snapshot, plan);
    this.#backoff(plan);
    if (this.world.random() < REPEATED) this.#twice(snapshot, plan);
    if (this.world.random() < REPEATED) this.#explained(snapshot);
  }

  /** I12: with half of the fleet silent at once nothing is moved. */
  #massLoss(snapshot: Snapshot, plan: Plan): void {
    const { policy } = this.world;
    const fleet = snapshot.nodes.filter(({ liveness }) => liveness !== 'lost');
    const silentMs = (node: NodeView) =>
      this.world.nowMs - Math.max(node.lastReportMs ?? 0, snapshot.startedMs);
    const silent = fleet.filter((node) => silentMs(node) > policy.lostAfterMs);
    if (silent.length < policy.massLossMinNodes || silent.length * 2 < fleet.length) return;
    // Until the hold is over; it can have begun no earlier than the first of them passed the first limit.
    const longest = Math.max(...silent.map((node) => silentMs(node)));
    if (longest > policy.massLossHoldMs) return;
    for (const action of plan.actions) {
      const moves =
        (action.kind === 'setNodeLiveness' && action.liveness === 'lost') ||
        (action.kind === 'createReplica' && action.record.shards.length > 0);
      if (moves)
        this.world.fail('mass_loss_moved', `${action.kind} with ${silent.length} of ${fleet.length} silent`);
    }
  }

  /** I8: a server that has just started and has not heard of every node starts nothing. */
  #settling(server: Server, snapshot: Snapshot, plan: Plan): void {
    if (this.world.nowMs - server.startedMs >= this.world.policy.settleAfterStartMs) return;
    if (snapshot.nodes.every(({ reported }) => reported)) return;
    const acts = plan.actions.find(
      // Engines found running are written down at once, that is not acting.
      ({ kind, reason }) => kind === 'startShard' || (kind === 'createReplica' && reason.code !== 'adopted'),
    );
    if (acts !== undefined) this.world.fail('acted_while_settling', acts.kind);
  }

  /** I8: a Ready, wanted replica on a good node is never sent away without one of the few reasons there are. */
  #leaving(snapshot: Snapshot, plan: Plan): void {
    const before = new Map(snapshot.replicas.map((record) => [record.id, record]));
    const after = recordsAfter(snapshot, plan);
    for (const action of plan.actions) {
      if (action.kind !== 'updateReplica' || action.record.intent === 'run') continue;
      const was = before.get(action.record.id);
      if (was?.intent !== 'run' || !this.#isFine(snapshot, was)) continue;
      const model = snapshot.models.find(({ name }) => name === was.model);
      const wanted = after.filter(
        (one) => one.model === was.model && one.intent === 'run' && one.readyWallMs !== undefined,
      );
      const total = after.filter((one) => one.model === was.model && one.intent === 'run');
      if (model === undefined) continue;
      const enough = wanted.length >= model.replicas || total.length >= model.replicas;
      const mustLeave = this.#mustLeave(snapshot, was);
      if (!mustLeave && total.length < model.replicas)
        this.world.fail(
          'sent_away_for_nothing',
          `${was.id}: ${action.reason.code}, ${total.length} of ${model.replicas} left`,
        );
      if (
        mustLeave &&
        wanted.length < model.replicas &&
        !this.#gapAllowed(snapshot, was, action.record, after)
      )
        this.world.fail(
          'gap_made',
          `${was.id}: ${action.reason.code}, ${wanted.length} of ${model.replicas} Ready, enough=${enough}`,
        );
    }
  }

  #isFine(snapshot: Snapshot, record: ReplicaRecord): boolean {
    return (
      record.shards.length > 0 &&
      record.readyWallMs !== undefined &&
      record.shards.every((shard) => {
        const node = snapshot.nodes.find(({ id }) => id === shard.nodeId);
        const report = node?.shards.find(
          (one) => one.shardId === shard.shardId && one.generation === record.generation,
        );
        return (node?.liveness === 'connected' || node?.liveness === 'flapping') && report?.phase === 'ready';
      })
    );
  }

  #mustLeave(snapshot: Snapshot, record: ReplicaRecord): boolean {
    const model = snapshot.models.find(({ name }) => name === record.model);
    const profile = model?.profiles.find(({ name }) => name === record.profile);
    if (model === undefined || profile === undefined || specDigest(model, profile) !== record.specDigest)
      return true;
    return record.shards.some((shard) => {
      const node = snapshot.nodes.find(({ id }) => id === shard.nodeId);
      const { target, gpuUuid } = node?.intent ?? { target: 'schedulable', gpuUuid: undefined };
      const drained = target === 'drained' && (gpuUuid === undefined || shard.gpuUuids.includes(gpuUuid));
      const broken = node?.gpus.some(
        (gpu) => gpu.health.state === 'excluded' && shard.gpuUuids.includes(gpu.uuid),
      );
      return drained || broken === true;
    });
  }

  /** A gap needs an operator's leave, a rule that gives it, or a copy that already took over. */
  #gapAllowed(
    snapshot: Snapshot,
    was: ReplicaRecord,
    now: ReplicaRecord,
    after: readonly ReplicaRecord[],
  ): boolean {
    if (after.some((one) => one.replaces === was.id && one.readyWallMs !== undefined && one.intent === 'run'))
      return true;
    if (now.intentReason.code === 'yields') return true;
    const model = snapshot.models.find(({ name }) => name === was.model);
    if (model?.onNoSurge === 'swap') return true;
    return was.shards.some((shard) => {
      const intent = snapshot.nodes.find(({ id }) => id === shard.nodeId)?.intent;
      return intent?.target === 'drained' && (intent.allowGap === true || intent.deadlineMs !== undefined);
    });
  }

  /** I6, I7: what is published was said to be whole and Ready by every agent that talks. */
  #publishing(snapshot: Snapshot, plan: Plan): void {
    const records = new Map(recordsAfter(snapshot, plan).map((record) => [record.id, record]));
    for (const one of plan.published) {
      const record = records.get(one.replicaId);
      const failed = plan.actions.some(
        (action) =>
          action.kind === 'putBackoff' &&
          action.record.replicaId === one.replicaId &&
          action.record.generation === one.generation,
      );
      if (record === undefined || failed || record.generation !== one.generation)
        this.world.fail('published_wrong', `${one.replicaId}@${one.generation}`);
      for (const shard of record?.shards ?? []) {
        const node = snapshot.nodes.find(({ id }) => id === shard.nodeId);
        const report = node?.shards.find(
          (seen) => seen.shardId === shard.shardId && seen.generation === one.generation,
        );
        const talks = node?.liveness === 'connected' || node?.liveness === 'flapping';
        if (
          talks &&
          (report === undefined ||
            ['exited', 'stopping', 'unhealthy', 'waitingForGpu'].includes(report.phase))
        )
          this.world.fail(
            'published_not_whole',
            `${one.replicaId}@${one.generation}: ${shard.shardId} ${report?.phase ?? 'missing'}`,
          );
      }
    }
  }

  /** Back-offs are capped, and never shorter than the one before until the replica has been healthy. */
  #backoff(plan: Plan): void {
    const { policy, nowMs } = this.world;
    for (const action of plan.actions) {
      if (action.kind === 'clearBackoff') this.#failedAt.delete(action.replicaId);
      if (action.kind !== 'putBackoff') continue;
      const { replicaId, delayMs, cause, permanent } = action.record;
      if (delayMs > policy.maxBackoffMs) this.world.fail('backoff_uncapped', `${replicaId}: ${delayMs}`);
      if (cause === 'portTaken' || cause === 'gpuNotEmpty' || permanent) {
        this.#failedAt.delete(replicaId);
        continue;
      }
      const before = this.#failedAt.get(replicaId);
      if (before !== undefined && delayMs < before.delayMs * 0.8 - 1)
        this.world.fail('backoff_shrank', `${replicaId}: ${before.delayMs} then ${delayMs}`);
      if (delayMs < policy.baseBackoffMs * 0.8 - 1)
        this.world.fail('backoff_too_short', `${replicaId}: ${delayMs}`);
      this.#failedAt.set(replicaId, { atMs: nowMs, delayMs });
    }
  }

  /** The same input gives the same plan; and a plan carried out leaves nothing to do until something is seen. */
  #twice(snapshot: Snapshot, plan: Plan): void {
    const { policy, nowMs, wallMs } = this.world;
    const context = () => ({ nowMs, nowWallMs: wallMs, random: seededRandom(7) });
    const once = reconcile(snapshot, policy, context());
    const again = reconcile(snapshot, policy, context());
    if (shape(once) !== shape(again))
      this.world.fail('not_deterministic', 'two passes over one snapshot differ');
    const next = reconcile(afterwards(snapshot, plan), policy, context());
    const left = next.actions.filter(({ kind }) => kind !== 'setNodeLiveness' && kind !== 'putLearned');
    if (left.length > 0)
      this.world.fail(
        'not_idempotent',
        left.map((action) => `${action.kind} ${canonical(action.reason)}`).join('; '),
      );
  }

  /** Explain says "fits" exactly where the reconciler places. */
  #explained(snapshot: Snapshot): void {
    const { policy, nowMs, wallMs } = this.world;
    const model = snapshot.models[Math.floor(this.world.random() * snapshot.models.length)];
    if (model === undefined) return;
    const waiting = snapshot.replicas.filter(
      (one) => one.model === model.name && one.intent === 'run' && one.shards.length === 0,
    );
    if (waiting.length > 0) return;
    const context = () => ({ nowMs, nowWallMs: wallMs, random: seededRandom(11) });
    // Asked about the state after a pass, so that nothing else is left to be decided before the question.
    const quiet = afterwards(snapshot, reconcile(snapshot, policy, context()));
    const live = quiet.replicas.filter((one) => one.model === model.name && one.intent === 'run');
    if (quiet.replicas.some((one) => one.intent === 'run' && one.shards.length === 0)) return;
    const explained = explainPlacement(quiet, policy, context(), model.name);
    const more = {
      ...quiet,
      models: quiet.models.map((one) =>
        one.name === model.name ? { ...one, replicas: live.length + 1 } : one,
      ),
    };
    const plan = reconcile(more, policy, context());
    const created = plan.actions.filter(
      (action) =>
        action.kind === 'createReplica' &&
        action.record.model === model.name &&
        action.record.replaces === undefined,
    );
    const revived = plan.actions.some(({ reason }) => reason.code === 'revived');
    if (revived || created.length !== 1) return;
    const [action] = created;
    const placed = action?.kind === 'createReplica' && action.record.shards.length > 0;
    if (placed !== (explained?.chosen !== undefined))
      this.world.fail(
        'explain_disagrees',
        `${model.name}: placed ${placed}, explain ${explained?.chosen !== undefined}`,
      );
  }

  // -------------------------------------------------------------- commands

  /** Told right before a command goes out. */
  commanded(server: Server, action: Extract<Action, { kind: 'startShard' | 'stopShard' }>): void {
    const { nodeId, replicaId, generation } = action.command;
    const key = replicaKey(replicaId, generation);
    if (action.kind === 'stopShard') {
      // I7: unpublish first, stop second; and nobody is cut without having been told.
      if (server.router.publishes(key)) this.world.fail('stopped_while_published', key);
      if ((server.router.inflight().get(key) ?? 0) > 0) this.world.fail('stopped_with_streams', key);
      return;
    }
    this.#started(replicaId, generation, nodeId);
  }

  readonly #generations = new Map<string, number>();

  #started(replicaId: string, generation: number, nodeId: string): void {
    const last = this.#generations.get(replicaId) ?? 0;
    if (generation < last && !this.world.wasRestored)
      this.world.fail('generation_back', `${replicaId}: ${last} then ${generation}`);
    if (generation <= last) return;
    this.#generations.set(replicaId, generation);
    const failed = this.#failedAt.get(replicaId);
    const waitedMs = this.world.nowMs - (failed?.atMs ?? 0);
    // A wall clock that was set may shorten the wait of a server that restarted meanwhile; nothing else may.
    if (failed !== undefined && waitedMs < failed.delayMs && !this.#clockStepped && !this.world.wasRestored)
      this.world.fail(
        'restarted_too_soon',
        `${replicaId} on ${nodeId}: after ${waitedMs} of ${failed.delayMs}`,
      );
    const starts = (this.#starts.get(replicaId) ?? []).filter((atMs) => this.world.nowMs - atMs < 3_600_000);
    starts.push(this.world.nowMs);
    this.#starts.set(replicaId, starts);
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

/** Records as the plan leaves them. */
export function recordsAfter(snapshot: Snapshot, plan: Plan): readonly ReplicaRecord[] {
  const records = new Map(snapshot.replicas.map((record) => [record.id, record]));
  for (const action of plan.actions) {
    if (action.kind === 'createReplica' || action.kind === 'updateReplica')
      records.set(action.record.id, action.record);
    if (action.kind === 'deleteReplica') records.delete(action.replicaId);
  }
  return [...records.values()];
}

/** The snapshot of a moment later in which the plan was carried out and nobody has reported anything yet. */
export function afterwards(snapshot: Snapshot, plan: Plan): Snapshot {
  const backoffs = new Map(
    snapshot.backoffs.map((one) => [`${one.replicaId}/${one.nodeId}/${one.cause}`, one]),
  );
  const liveness = new Map<string, { liveness: NodeView['liveness']; reason: string }>();
  const inflight = new Map(snapshot.inflight);
  for (const action of plan.actions) {
    if (action.kind === 'putBackoff')
      backoffs.set(
        `${action.record.replicaId}/${action.record.nodeId}/${action.record.cause}`,
        action.record,
      );
    if (action.kind === 'clearBackoff')
      for (const [key, one] of backoffs)
        if (one.replicaId === action.replicaId && one.nodeId === action.nodeId) backoffs.delete(key);
    if (action.kind === 'setNodeLiveness')
      liveness.set(action.nodeId, { liveness: action.liveness, reason: action.reason.message });
    if (action.kind === 'abortInflight') inflight.delete(replicaKey(action.replicaId, action.generation));
  }
  const nowMs = plan.memory.lastPassMs ?? 0;
  const nodes = snapshot.nodes.map((node) => {
    const judged = liveness.get(node.id);
    const sent = plan.actions.flatMap((action) =>
      (action.kind === 'startShard' || action.kind === 'stopShard') && action.command.nodeId === node.id
        ? [`${action.command.shardId}@${action.command.generation}`]
        : [],
    );
    const changed =
      judged === undefined
        ? {}
        : { liveness: judged.liveness, livenessReason: judged.reason, livenessSinceMs: nowMs };
    return { ...node, ...changed, unsettled: [...new Set([...node.unsettled, ...sent])] };
  });
  return {
    ...snapshot,
    planNumber: plan.number,
    nodes,
    replicas: recordsAfter(snapshot, plan),
    backoffs: [...backoffs.values()],
    inflight,
    memory: plan.memory,
  };
}

function shape(plan: Plan): string {
  return canonical([plan.actions, plan.published, plan.notDone]);
}
