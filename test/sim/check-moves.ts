/** Checks of what is done to replicas that serve: who may be sent away, when, and in which order. */
import { replicaKey, type ReplicaRecord } from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { isSpread } from '../../src/domain/placement/scores.js';
import type { Server } from './server.js';
import {
  BAD_PHASES,
  heirsOf,
  isFine,
  madeRoomFor,
  mayHaveStood,
  mustLeave,
  nodeOf,
  recordsAfter,
  reportOf,
  serves,
  talks,
} from './view.js';
import type { World } from './world.js';

export class MoveChecks {
  /** Since when a replica's generation is published, and since when it is no more. */
  readonly #publishedMs = new Map<string, number>();
  readonly #droppedMs = new Map<string, number>();
  /** Since when a replica's generation is on its way out; it may have left the router long before, with its node. */
  readonly #drainingMs = new Map<string, number>();
  /** Replicas that were stopped because a drain's deadline was over. */
  readonly #deadlines = new Set<string>();
  /** Replicas that were to take the place of one that stayed, both being wanted. */
  readonly #ownCopies = new Set<string>();

  constructor(private readonly world: World) {}

  check(server: Server, snapshot: Snapshot, plan: Plan): void {
    const after = recordsAfter(snapshot, plan);
    const before = new Map(snapshot.replicas.map((record) => [record.id, record]));
    for (const action of plan.actions) {
      if (action.kind !== 'updateReplica' || action.record.intent === 'run') continue;
      const was = before.get(action.record.id);
      if (was?.intent === 'run' && !hasFailed(snapshot, plan, was))
        this.#left(snapshot, was, action.record, after);
      if (action.reason.code === 'drain_deadline') this.#deadlines.add(action.record.id);
    }
    this.#replacements(snapshot, plan, before, after);
    this.#published(snapshot, plan, after);
    this.#aborted(snapshot, plan, before);
    this.#overdue(server, snapshot, plan, after);
    if (!mayHaveStood(plan, this.world.policy)) this.#noteOwnCopies(snapshot, after);
  }

  /** Whose original is not to leave, with no more copies than are wanted, stands for itself from then on. */
  #noteOwnCopies(snapshot: Snapshot, after: readonly ReplicaRecord[]): void {
    for (const model of snapshot.models) {
      const running = after.filter((one) => one.model === model.name && one.intent === 'run');
      if (running.length > model.replicas) continue;
      for (const { id, replaces } of running) {
        const original = running.find((one) => one.id === replaces);
        if (original === undefined || madeRoomFor(after, original.id)) continue;
        if (original.shards.length === 0 || !mustLeave(snapshot, original)) this.#ownCopies.add(id);
      }
    }
  }

  /** I8: a Ready, wanted replica on a good node is never sent away without one of the few reasons there are. */
  #left(snapshot: Snapshot, was: ReplicaRecord, now: ReplicaRecord, after: readonly ReplicaRecord[]): void {
    const model = snapshot.models.find(({ name }) => name === was.model);
    if (model === undefined || !isFine(snapshot, was)) return;
    const staying = after.filter((one) => one.model === was.model && one.intent === 'run');
    const ready = staying.filter((one) => one.readyWallMs !== undefined);
    const { code } = now.intentReason;
    if (madeRoomFor([...snapshot.replicas, ...after], was.id)) {
      if (code === 'replaced') this.#steadyEnough(was, after);
      return;
    }
    if (!mustLeave(snapshot, was)) {
      if (staying.length < model.replicas)
        this.world.fail(
          'sent_away_for_nothing',
          `${was.id}: ${code}, ${staying.length} of ${model.replicas} left`,
        );
      const useless = staying.find((one) => !serves(snapshot, one) && this.#isSurelyDown(snapshot, one));
      if (code !== 'scale_down' || staying.length !== model.replicas) return;
      if (useless !== undefined)
        this.world.fail('wrong_victim', `${was.id} was Ready, ${useless.id} is not and stays`);
      const better = isSpread(model) ? undefined : this.#betterVictim(snapshot, was, staying);
      if (better !== undefined) this.world.fail('wrong_victim', `${was.id} goes, ${better}`);
      return;
    }
    if (ready.length < model.replicas && !this.#gapAllowed(snapshot, was, now, after))
      this.world.fail('gap_made', `${was.id}: ${code}, ${ready.length} of ${model.replicas} Ready`);
    if (code === 'replaced') this.#steadyEnough(was, after);
  }

  /** Of those that serve one that must leave goes first, then the one with the fewest requests, then the newest. */
  #betterVictim(
    snapshot: Snapshot,
    was: ReplicaRecord,
    staying: readonly ReplicaRecord[],
  ): string | undefined {
    const requests = ({ id, generation }: ReplicaRecord) =>
      snapshot.inflight.get(replicaKey(id, generation)) ?? 0;
    // A copy on its way from one place to another counts once, by where it is: its new one goes or stays with it.
    const ids = new Set(snapshot.replicas.map(({ id }) => id));
    const replaced = new Set(staying.flatMap(({ replaces }) => replaces ?? []));
    for (const one of staying) {
      if (!isFine(snapshot, one) || ids.has(one.replaces ?? '') || ids.has(was.replaces ?? '')) continue;
      if (mustLeave(snapshot, one)) {
        if (!replaced.has(one.id)) return `${one.id} must leave and stays`;
        continue;
      }
      if (requests(one) < requests(was)) return `${one.id} has fewer requests and stays`;
      if (requests(one) === requests(was) && one.createdWallMs > was.createdWallMs)
        return `${one.id} is newer and stays`;
    }
    return undefined;
  }

  /** Neither Ready nor perhaps Ready behind a silent link. */
  #isSurelyDown(snapshot: Snapshot, record: ReplicaRecord): boolean {
    return record.shards.every(({ nodeId }) => talks(nodeOf(snapshot, nodeId)));
  }

  #steadyEnough(was: ReplicaRecord, after: readonly ReplicaRecord[]): void {
    const replacement = after.find(
      (one) =>
        one.replaces === was.id &&
        (one.intent === 'run' || ['yielded', 'replaced'].includes(one.intentReason.code)),
    );
    const key = replacement === undefined ? '' : replicaKey(replacement.id, replacement.generation);
    const sinceMs = this.#publishedMs.get(key);
    if (sinceMs === undefined || this.world.nowMs - sinceMs < this.world.policy.steadyMs - 1)
      this.world.fail('not_steady', `${was.id} goes, ${key} is published since ${sinceMs ?? 'never'}`);
  }

  /** A gap needs an operator's leave, a rule that gives it, or a copy that already took over. */
  #gapAllowed(
    snapshot: Snapshot,
    was: ReplicaRecord,
    now: ReplicaRecord,
    after: readonly ReplicaRecord[],
  ): boolean {
    const heirs = heirsOf(after, was.id).filter(({ id }) => !this.#ownCopies.has(id));
    // What took over may itself make room for another in the same moment.
    if (heirs.some(({ intentReason }) => intentReason.code === 'yielded')) return true;
    if (heirs.some((one) => one.readyWallMs !== undefined && one.intent === 'run')) return true;
    const model = snapshot.models.find(({ name }) => name === was.model);
    if (model?.onNoSurge === 'swap' || was.restart?.allowGap === true) return true;
    if (model?.restartAllowsGap === true && (was.startedWallMs ?? Infinity) < (model.restartedWallMs ?? 0))
      return true;
    return was.shards.some(({ nodeId }) => {
      const intent = nodeOf(snapshot, nodeId)?.intent;
      return intent?.target === 'drained' && (intent.allowGap === true || intent.deadlineMs !== undefined);
    });
  }

  /** One move at a time per model, and not more loads in the cluster than allowed. */
  #replacements(
    snapshot: Snapshot,
    plan: Plan,
    before: ReadonlyMap<string, ReplicaRecord>,
    after: readonly ReplicaRecord[],
  ): void {
    const ids = new Map(after.map((record) => [record.id, record]));
    const placed = after.filter(
      (record) =>
        record.replaces !== undefined &&
        record.shards.length > 0 &&
        before.get(record.id)?.generation !== record.generation,
    );
    if (placed.length === 0) return;
    const fresh = placed.filter(({ id }) => !before.has(id));
    const moving = after.filter(
      (one) =>
        one.intent === 'run' &&
        one.shards.length > 0 &&
        ids.get(one.replaces ?? '')?.intent === 'run' &&
        one.readyWallMs === undefined &&
        !hasFailed(snapshot, plan, one),
    );
    if (moving.length > this.world.policy.maxConcurrentLoads)
      this.world.fail('too_many_loads', moving.map(({ id }) => id).join(', '));
    for (const record of fresh) {
      const others = moving.filter(({ id, model, replaces }) => {
        const original = ids.get(replaces ?? '');
        const stands = original?.intent === 'run' && original.shards.length > 0;
        const live = stands && mustLeave(snapshot, original);
        return model === record.model && id !== record.id && live;
      });
      if (others.length > 0) this.world.fail('two_moves_at_once', `${record.id} and ${others[0]?.id ?? ''}`);
    }
  }

  // -------------------------------------------------------------- the router's table

  #published(snapshot: Snapshot, plan: Plan, after: readonly ReplicaRecord[]): void {
    const records = new Map(after.map((record) => [record.id, record]));
    const keys = new Set<string>();
    for (const { replicaId, generation } of plan.published) {
      const key = replicaKey(replicaId, generation);
      keys.add(key);
      if (!this.#publishedMs.has(key)) this.#publishedMs.set(key, this.world.nowMs);
      this.#droppedMs.delete(key);
      this.#isWhole(snapshot, plan, key, generation, records.get(replicaId));
    }
    for (const [key] of this.#publishedMs) {
      if (keys.has(key)) continue;
      this.#publishedMs.delete(key);
      this.#droppedMs.set(key, this.world.nowMs);
      this.#dropped(snapshot, plan, key, records.get(key.slice(0, key.lastIndexOf('@'))));
    }
  }

  /** I6, I7: what is published was said to be whole and Ready by every agent that talks. */
  #isWhole(
    snapshot: Snapshot,
    plan: Plan,
    key: string,
    generation: number,
    record: ReplicaRecord | undefined,
  ): void {
    if (record === undefined || record.generation !== generation || record.intent !== 'run')
      return this.world.fail('published_wrong', key);
    if (hasFailed(snapshot, plan, record)) this.world.fail('published_failed', key);
    for (const { nodeId, shardId, rank } of record.shards) {
      const node = nodeOf(snapshot, nodeId);
      const phase = reportOf(snapshot, nodeId, shardId, generation)?.phase ?? 'missing';
      const good = rank === 0 ? phase === 'ready' : !BAD_PHASES.has(phase);
      if (talks(node) && !good) this.world.fail('published_not_whole', `${key}: ${shardId} ${phase}`);
      if (node?.liveness === 'lost') this.world.fail('published_lost', `${key} on ${nodeId}`);
      if (node?.liveness === 'unreachable') this.#isProven(snapshot, plan, key, nodeId);
    }
  }

  /** Behind a silent link only proof of life keeps a replica published, or the brake. */
  #isProven(snapshot: Snapshot, plan: Plan, key: string, nodeId: string): void {
    if (plan.memory.brakeSinceMs !== undefined) return;
    if (this.world.nowMs - snapshot.startedMs < this.world.policy.settleAfterStartMs) return;
    const evidence = snapshot.evidence.get(key);
    const quietMs = this.world.nowMs - (evidence?.lastByteMs ?? -Infinity);
    if (quietMs > this.world.policy.unreachableAfterMs || (evidence?.consecutiveFailures ?? 0) > 0)
      this.world.fail('published_silent', `${key} on ${nodeId}, last byte ${quietMs} ms ago`);
  }

  /** A link to an agent is not the engine: who answers stays. */
  #dropped(snapshot: Snapshot, plan: Plan, key: string, record: ReplicaRecord | undefined): void {
    if (record?.intent !== 'run' || replicaKey(record.id, record.generation) !== key) return;
    if (hasFailed(snapshot, plan, record)) return;
    const evidence = snapshot.evidence.get(key);
    const quietMs = this.world.nowMs - (evidence?.lastByteMs ?? -Infinity);
    const silent = record.shards.filter(({ nodeId }) => !talks(nodeOf(snapshot, nodeId)));
    const lost = record.shards.some(({ nodeId }) => nodeOf(snapshot, nodeId)?.liveness === 'lost');
    const proven =
      quietMs < 2_000 && evidence?.consecutiveFailures === 0 && evidence.firstTokenTimeouts === 0;
    if (silent.length === record.shards.length && !lost && proven)
      this.world.fail('dropped_living', `${key} answered ${quietMs} ms ago`);
  }

  /** No stream holds up a drain for longer than the grace, while there is somebody to be told. */
  #overdue(server: Server, snapshot: Snapshot, plan: Plan, after: readonly ReplicaRecord[]): void {
    for (const record of after) {
      const key = replicaKey(record.id, record.generation);
      if (record.intent !== 'drain') {
        this.#drainingMs.delete(key);
        continue;
      }
      // One that was taken over, or wanted again for a moment, leaves anew.
      const anew = plan.actions.some(
        (action) =>
          (action.kind === 'createReplica' ||
            (action.kind === 'updateReplica' && action.reason.code === 'revived')) &&
          action.record.id === record.id,
      );
      if (anew || !this.#drainingMs.has(key)) this.#drainingMs.set(key, this.world.nowMs);
      const droppedMs = this.#droppedMs.get(key);
      if (droppedMs === undefined) continue;
      // It may be wanted again, which such a pass cannot decide.
      if (mayHaveStood(plan, this.world.policy) && !mustLeave(snapshot, record)) continue;
      const drainingMs = this.#drainingMs.get(key) ?? this.world.nowMs;
      const sinceMs = Math.max(droppedMs, drainingMs, server.startedMs, server.awakeSinceMs);
      const waitedMs = this.world.nowMs - sinceMs;
      const told = record.shards.every(({ nodeId }) => talks(nodeOf(snapshot, nodeId)));
      if (told && waitedMs > this.#graceMs(snapshot, record) + OVERDUE_SLACK_MS)
        this.world.fail('grace_exceeded', `${record.id}: ${waitedMs} ms without a stop`);
    }
  }

  /** The shortest that operators gave on the nodes it leaves, else the general one. */
  #graceMs(snapshot: Snapshot, record: ReplicaRecord): number {
    const given = record.shards.flatMap(({ nodeId, gpuUuids }) => {
      const intent = nodeOf(snapshot, nodeId)?.intent;
      if (intent?.target !== 'drained') return [];
      const concerned = intent.gpuUuid === undefined || gpuUuids.includes(intent.gpuUuid);
      return concerned ? (intent.streamGraceMs ?? []) : [];
    });
    return given.length === 0 ? this.world.policy.streamGraceMs : Math.min(...given);
  }

  #gangSize(snapshot: Snapshot, record: ReplicaRecord): number {
    const model = snapshot.models.find(({ name }) => name === record.model);
    return model?.profiles.find(({ name }) => name === record.profile)?.shards ?? record.shards.length;
  }

  /** Streams of a sound replica are cut only when their grace, or the whole drain, is over. */
  #aborted(snapshot: Snapshot, plan: Plan, before: ReadonlyMap<string, ReplicaRecord>): void {
    for (const action of plan.actions) {
      if (action.kind !== 'abortInflight') continue;
      const record = before.get(action.replicaId);
      const key = replicaKey(action.replicaId, action.generation);
      const wasFine =
        record !== undefined &&
        !wasGivenUp(record) &&
        // A gang that has lost a rank serves nobody, whatever its others say.
        record.shards.length === this.#gangSize(snapshot, record) &&
        record.shards.every(({ nodeId, shardId }) => {
          const report = reportOf(snapshot, nodeId, shardId, record.generation);
          return talks(nodeOf(snapshot, nodeId)) && report?.phase === 'ready';
        });
      const evidence = snapshot.evidence.get(key);
      if (!wasFine || hasFailed(snapshot, plan, record) || (evidence?.firstTokenTimeouts ?? 0) > 0) continue;
      const intents = record.shards.map(({ nodeId }) => nodeOf(snapshot, nodeId)?.intent);
      const drains = intents.filter((intent) => intent?.target === 'drained');
      const over = drains.some((intent) => intent?.deadlineMs !== undefined || intent?.allowGap === true);
      const graceMs = this.#graceMs(snapshot, record);
      const waitedMs = this.world.nowMs - (this.#droppedMs.get(key) ?? this.world.nowMs);
      const deadline = record.intentReason.code === 'drain_deadline' || this.#deadlines.has(record.id);
      if (waitedMs < graceMs && !(over && deadline))
        this.world.fail('cut_before_grace', `${key}: ${action.reason.code} after ${waitedMs} of ${graceMs}`);
    }
  }
}

/** Passes may be late, and a short stall is no sleep. */
const OVERDUE_SLACK_MS = 15_000;

/** A gang goes for good with any of its nodes, also when all of it turns out to have run on. */
function wasGivenUp({ intent, intentReason }: ReplicaRecord): boolean {
  return intent === 'stop' && intentReason.code === 'node_lost';
}

/** Whether the present generation of a record is known to have failed. */
function hasFailed(snapshot: Snapshot, plan: Plan, record: ReplicaRecord): boolean {
  const counted = plan.actions.flatMap((action) => (action.kind === 'putBackoff' ? [action.record] : []));
  return [...snapshot.backoffs, ...counted].some(
    (one) => one.replicaId === record.id && one.generation === record.generation,
  );
}
