/**
 * The workbench of one reconcile pass: the snapshot indexed, the records as they will be, and what was decided so far. It lives
 * for one call of `reconcile` and is the only thing the steps write to; a step that takes a `Pass` may change it, all else is
 * pure.
 */
import {
  type BackoffRecord,
  backoffKey,
  type NodeView,
  type PlacementExplanation,
  type Reason,
  type ReplicaRecord,
  type ShardReport,
} from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import type { Action, Plan, PlanEvent, PublishedReplica } from '../plan.js';
import type { CommandMemory, ControlMemory, NowhereMemory, ReplicaMemory, Snapshot } from '../snapshot.js';
import { isUpToDate, specDigest } from '../catalog/spec-digest.js';
import { Failures, Learned, learnedKey, PlacementMemo, type PlacementWorld } from '../placement/world.js';
import { bookAll } from './book-all.js';
import type { LivenessJudgement } from './liveness.js';
import type { ControlPolicy } from './policy.js';
import { awaitsRoom, bookRoom, roomOf } from './rooms.js';
import { type ObservedReplica, observe, type ObserverView } from './replica-state.js';
import { isTalking } from './shard-state.js';

/** Time and chance for one pass. */
export interface PassContext {
  readonly nowMs: number;
  readonly nowWallMs: number;
  readonly random: () => number;
}

/** A shard report with the node it came from. */
export interface LocatedReport {
  readonly node: NodeView;
  readonly report: ShardReport;
}

type StartAction = Extract<Action, { kind: 'startShard' }>;
type StopAction = Extract<Action, { kind: 'stopShard' }>;
type AbortAction = Extract<Action, { kind: 'abortInflight' }>;
type LearnedAction = Extract<Action, { kind: 'putLearned' }>;

/** One wanted copy: a replica, with the one that is to take its place when there is one. */
export interface Unit {
  readonly record: ReplicaRecord;
  readonly replacement?: ReplicaRecord;
}

export class Pass {
  /** What steps of the pass worked out of records that have not changed since; lists are those of {@link recordsOf}. */
  readonly unitsOf = new WeakMap<readonly ReplicaRecord[], readonly Unit[]>();
  readonly leaveReasons = new Map<ReplicaRecord, Reason | undefined>();
  readonly nodes: ReadonlyMap<string, NodeView>;
  readonly models: ReadonlyMap<string, ModelSpec>;
  /** Reports by replica id, from every node, talking or not. */
  readonly reports: ReadonlyMap<string, readonly LocatedReport[]>;
  readonly learned: Learned;
  /** After a start, or after standing still, until all known nodes have reported (with a store that lost state, in any case) or the time is over: nothing is started or moved. */
  readonly settling: boolean;
  /** Nothing is moved: too many nodes are silent. */
  readonly braking: boolean;

  readonly notDone: { readonly subject: string; readonly reason: Reason }[] = [];
  readonly events: PlanEvent[] = [];
  readonly explanations: PlacementExplanation[] = [];
  /** Models found to fit nowhere in this pass, by name. */
  readonly nowhere = new Map<string, NowhereMemory>();
  readonly aborts: AbortAction[] = [];
  readonly stops: StopAction[] = [];
  readonly starts: StartAction[] = [];
  published: readonly PublishedReplica[] = [];
  readonly commands = new Map<string, CommandMemory>();
  readonly orphans = new Map<string, number>();
  readonly #conditions = new Map<string, Plan['conditions'][number]>();
  readonly #drainsTold = new Map<string, readonly string[]>();

  readonly #records = new Map<string, ReplicaRecord>();
  readonly #before: ReadonlyMap<string, ReplicaRecord>;
  readonly #why = new Map<string, Reason>();
  readonly #deleted = new Map<string, Reason>();
  readonly #byModel = new Map<string, Set<string>>();
  /** Lists of `recordsOf`, each dropped when its model's records change: every step of a pass asks for them. */
  readonly #sorted = new Map<string, readonly ReplicaRecord[]>();
  readonly #backoffs = new Map<string, BackoffRecord[]>();
  readonly #backoffActions = new Map<string, Action>();
  /** Records with a reservation: few, and asked for with every replica. */
  readonly #reserving = new Map<string, ReplicaRecord>();
  /** Times in this pass that others were asked to make room. */
  roomsAsked = 0;
  /** Times in this pass that a replica with room of its own was placed, there or elsewhere. */
  roomsUsed = 0;
  readonly #memories = new Map<string, ReplicaMemory>();
  readonly #observed = new Map<string, ObservedReplica>();
  readonly #digests = new Map<string, Map<string, string>>();
  readonly #view: ObserverView;
  readonly #learnings = new Map<string, LearnedAction>();
  #world: PlacementWorld | undefined;

  constructor(
    readonly snapshot: Snapshot,
    readonly policy: ControlPolicy,
    readonly context: PassContext,
    readonly liveness: LivenessJudgement,
  ) {
    this.nodes = new Map(liveness.nodes.map((node) => [node.id, node]));
    this.models = new Map(snapshot.models.map((model) => [model.name, model]));
    this.reports = indexReports(liveness.nodes);
    this.learned = new Learned(snapshot.learned);
    this.braking = liveness.braking;
    this.settling = isSettling(liveness, policy, context.nowMs);
    this.events.push(...liveness.events);
    this.#before = new Map(snapshot.replicas.map((record) => [record.id, record]));
    for (const record of snapshot.replicas) this.#index(record);
    for (const record of snapshot.backoffs) {
      const list = this.#backoffs.get(record.replicaId);
      if (list === undefined) this.#backoffs.set(record.replicaId, [record]);
      else list.push(record);
    }
    this.#view = { nodes: this.nodes, backoffsOf: (id) => this.backoffsOf(id) };
  }

  get nowMs(): number {
    return this.context.nowMs;
  }

  // -------------------------------------------------------------- records

  #index(record: ReplicaRecord): void {
    this.#records.set(record.id, record);
    this.#sorted.delete(record.model);
    this.#noteReserving(record.id, record.reserved === undefined ? undefined : record);
    const ids = this.#byModel.get(record.model);
    if (ids === undefined) this.#byModel.set(record.model, new Set([record.id]));
    else ids.add(record.id);
  }

  record(id: string): ReplicaRecord | undefined {
    return this.#records.get(id);
  }

  /** All records as they stand now in the pass. */
  records(): readonly ReplicaRecord[] {
    return [...this.#records.values()];
  }

  /** Records of one model, oldest first. */
  recordsOf(model: string): readonly ReplicaRecord[] {
    const known = this.#sorted.get(model);
    if (known !== undefined) return known;
    const ids = this.#byModel.get(model);
    if (ids === undefined) return [];
    const records = [...ids].flatMap((id) => this.#records.get(id) ?? []);
    records.sort((a, b) => a.createdWallMs - b.createdWallMs || (a.id < b.id ? -1 : 1));
    this.#sorted.set(model, records);
    return records;
  }

  /** Names of models that have records, in the catalog or not. */
  modelsWithRecords(): readonly string[] {
    return [...this.#byModel.keys()];
  }

  /** Creates or changes a record; the first reason given in a pass is the one that is told. */
  put(record: ReplicaRecord, reason: Reason): void {
    this.#index(record);
    this.#observed.delete(record.id);
    if (!this.#why.has(record.id)) this.#why.set(record.id, reason);
  }

  remove(id: string, reason: Reason): void {
    const record = this.#records.get(id);
    if (record === undefined) return;
    // Its place is free for the decisions that follow, also one that was given to it in this very pass.
    if (record.shards.length > 0) this.forgetWorld();
    this.#records.delete(id);
    this.#noteReserving(id, undefined);
    this.#observed.delete(id);
    this.#byModel.get(record.model)?.delete(id);
    this.#sorted.delete(record.model);
    if (this.#before.has(id)) this.#deleted.set(id, reason);
  }

  /** Whether the replica is to take the place of one that still runs. */
  isMove(record: ReplicaRecord): boolean {
    if (record.intent !== 'run' || record.replaces === undefined) return false;
    return this.#records.get(record.replaces)?.intent === 'run';
  }

  /** Who makes room for whom decides which replicas of other models are to leave: what was made of their lists no longer holds. */
  #noteReserving(id: string, record: ReplicaRecord | undefined): void {
    if (record === undefined && !this.#reserving.has(id)) return;
    if (record === undefined) this.#reserving.delete(id);
    else this.#reserving.set(id, record);
    this.#sorted.clear();
  }

  /** Records for which others make room or made it. */
  reserving(): readonly ReplicaRecord[] {
    return [...this.#reserving.values()];
  }

  /** The waiting replica for which this one makes room. */
  yieldsTo(id: string): ReplicaRecord | undefined {
    for (const record of this.#reserving.values())
      if (awaitsRoom(record) && record.reserved?.victims.includes(id) === true) return record;
    return undefined;
  }

  /** Whether its present place was decided in this very pass. */
  isPlacedNow(record: ReplicaRecord): boolean {
    return this.#before.get(record.id)?.generation !== record.generation;
  }

  /** The record through its shards' states; made once per change. */
  observed(record: ReplicaRecord): ObservedReplica {
    const known = this.#observed.get(record.id);
    if (known !== undefined && known.record === record) return known;
    const seen = observe(this.#view, record);
    this.#observed.set(record.id, seen);
    return seen;
  }

  /** Whether the record's engines are what the catalog wants now. */
  isCurrent(record: ReplicaRecord): boolean {
    const wanted = this.digestOf(record.model, record.profile);
    return wanted !== undefined && isUpToDate(record.specDigest, wanted);
  }

  /** Digest of a profile as the catalog has it now; undefined when it has none of that name. */
  digestOf(modelName: string, profileName: string): string | undefined {
    let ofModel = this.#digests.get(modelName);
    if (ofModel === undefined) this.#digests.set(modelName, (ofModel = new Map()));
    const known = ofModel.get(profileName);
    if (known !== undefined) return known;
    const model = this.models.get(modelName);
    const profile = model?.profiles.find(({ name }) => name === profileName);
    if (model === undefined || profile === undefined) return undefined;
    const digest = specDigest(model, profile);
    ofModel.set(profileName, digest);
    return digest;
  }

  // -------------------------------------------------------------- back-offs

  backoffsOf(replicaId: string): readonly BackoffRecord[] {
    return this.#backoffs.get(replicaId) ?? [];
  }

  allBackoffs(): readonly BackoffRecord[] {
    return [...this.#backoffs.values()].flat();
  }

  putBackoff(record: BackoffRecord, reason: Reason): void {
    const rest = this.backoffsOf(record.replicaId).filter((one) => backoffKey(one) !== backoffKey(record));
    this.#backoffs.set(record.replicaId, [...rest, record]);
    this.#backoffActions.set(backoffKey(record), { kind: 'putBackoff', record, reason });
    this.#observed.delete(record.replicaId);
    this.#world?.failures.add(record);
  }

  /** Forgets this one: other causes, and those of other profiles on the same node, are as true as before. */
  clearBackoff(record: BackoffRecord, reason: Reason): void {
    const left = this.backoffsOf(record.replicaId).filter((one) => backoffKey(one) !== backoffKey(record));
    this.#backoffs.set(record.replicaId, left);
    this.#backoffActions.set(backoffKey(record), { kind: 'clearBackoff', record, reason });
    this.#observed.delete(record.replicaId);
  }

  // -------------------------------------------------------------- memory

  memoryOf(record: ReplicaRecord): ReplicaMemory {
    const now = this.#memories.get(record.id);
    if (now !== undefined && now.generation === record.generation) return now;
    const before = now ?? this.snapshot.memory.replicas.get(record.id);
    const sinceMs = before?.sinceMs ?? this.nowMs;
    const fresh: ReplicaMemory =
      before?.generation === record.generation
        ? before
        : { generation: record.generation, sinceMs, told: before?.told ?? [] };
    this.#memories.set(record.id, fresh);
    return fresh;
  }

  remember(record: ReplicaRecord, change: Partial<ReplicaMemory>): void {
    this.#memories.set(record.id, { ...this.memoryOf(record), ...change });
  }

  /** Drops remembered times that no longer hold. */
  forget(
    record: ReplicaRecord,
    ...names: ('readySinceMs' | 'unhealthySinceMs' | 'drainSinceMs' | 'startSinceMs')[]
  ): void {
    const known = this.memoryOf(record);
    // Asked of every healthy replica in every pass, which has nothing to forget.
    if (names.every((name) => known[name] === undefined)) return;
    const memory = { ...known };
    for (const name of names) delete memory[name];
    this.#memories.set(record.id, memory);
  }

  /** Monotonic ms at which this server began to carry out the node's present drain. */
  drainSinceMs(node: NodeView): number | undefined {
    return this.liveness.memory.nodes.get(node.id)?.drainSinceMs;
  }

  /** Tells an event about the node's present drain once. */
  tellDrainOnce(node: NodeView, reason: Reason): void {
    if (this.rememberDrainTold(node, reason.code)) this.events.push({ subject: `node/${node.id}`, reason });
  }

  /** Counts something about the node's present drain as told; false when it was already. */
  rememberDrainTold(node: NodeView, code: string): boolean {
    const before = this.liveness.memory.nodes.get(node.id)?.drainTold ?? [];
    const told = this.#drainsTold.get(node.id) ?? before;
    if (told.includes(code)) return false;
    this.#drainsTold.set(node.id, [...told, code]);
    return true;
  }

  /** Tells an event about a replica once. */
  tellOnce(record: ReplicaRecord, reason: Reason): void {
    const memory = this.memoryOf(record);
    if (memory.told.includes(reason.code)) return;
    this.remember(record, { told: [...memory.told, reason.code] });
    this.events.push({ subject: `replica/${record.id}`, reason });
  }

  /** Notes a condition; an event tells when it begins. */
  note(subject: string, reason: Reason): void {
    const key = `${subject} ${reason.code}`;
    if (!this.snapshot.memory.conditions.has(key)) this.events.push({ subject, reason });
    this.#conditions.set(key, { subject, reason });
  }

  /** Nothing is judged now: what held goes on holding. */
  keepConditions(): void {
    for (const [key, condition] of this.snapshot.memory.conditions) this.#conditions.set(key, condition);
  }

  /** Tells of conditions that have ended. */
  endConditions(over: (condition: Reason) => Reason): void {
    for (const [key, { subject, reason }] of this.snapshot.memory.conditions)
      if (!this.#conditions.has(key)) this.events.push({ subject, reason: over(reason) });
  }

  /** Where the lists of what is told stand; steps that are repeated tell once, see {@link rewind}. */
  mark(): readonly [notDone: number, explanations: number] {
    return [this.notDone.length, this.explanations.length];
  }

  rewind([notDone, explanations]: readonly [notDone: number, explanations: number]): void {
    this.notDone.length = notDone;
    this.explanations.length = explanations;
  }

  /** Keeps a measured fact; later ones of the same pass build on it. */
  learn(action: LearnedAction): void {
    const { model, profile, gpuType } = action.fact;
    this.#learnings.set(learnedKey(model, profile, gpuType), action);
    this.learned.put(action.fact);
  }

  // -------------------------------------------------------------- placement

  /** What placement sees. Bookings are made when it is first asked for, from records and reports as they then are. */
  world(): PlacementWorld {
    this.#world ??= {
      nodes: this.liveness.nodes,
      bookings: bookAll(this.liveness.nodes, this.records(), this.reserving(), (record) =>
        this.observed(record),
      ),
      failures: new Failures(this.allBackoffs()),
      learned: this.learned,
      portRange: this.policy.portRange,
      nowWallMs: this.context.nowWallMs,
      memo: new PlacementMemo(),
    };
    return this.#world;
  }

  /** What was asked for before all that is seen was noted must not be what is decided on. */
  forgetWorld(): void {
    this.#world = undefined;
  }

  /** Keeps the room of a waiting replica from all others, for the decisions that follow in the pass. */
  holdRoom(record: ReplicaRecord): void {
    bookRoom(this.world().bookings, record);
  }

  /** Opens the room of a waiting replica, to itself or to all. */
  openRoom(record: ReplicaRecord): void {
    const { bookings } = this.world();
    for (const shard of roomOf(record)) bookings.release(record.model, shard);
  }

  // -------------------------------------------------------------- result

  plan(): Plan {
    const memory: ControlMemory = {
      ...this.liveness.memory,
      nodes: this.#rememberedNodes(),
      lastPassMs: this.nowMs,
      replicas: new Map(this.records().map((record) => [record.id, this.memoryOf(record)])),
      commands: this.#rememberedCommands(),
      orphans: this.orphans,
      conditions: this.#conditions,
      nowhere: this.nowhere,
    };
    return {
      number: this.snapshot.planNumber + 1,
      term: this.snapshot.term,
      actions: [
        ...this.liveness.changes.map((change): Action => ({ kind: 'setNodeLiveness', ...change })),
        ...this.#recordActions(),
        ...this.#backoffActions.values(),
        ...this.#learnings.values(),
        ...this.aborts,
        ...this.stops,
        ...this.starts,
      ],
      notDone: this.notDone,
      published: this.published,
      explanations: this.explanations,
      conditions: [...this.#conditions.values()],
      events: this.events,
      memory,
    };
  }

  #rememberedNodes(): ControlMemory['nodes'] {
    const { nodes } = this.liveness.memory;
    if (this.#drainsTold.size === 0) return nodes;
    return new Map(
      [...nodes].map(([id, memory]) => {
        const drainTold = this.#drainsTold.get(id);
        return [id, drainTold === undefined ? memory : { ...memory, drainTold }];
      }),
    );
  }

  /** Also what this pass had no use for, while it is young: a node silent for a moment must not be told everything twice. */
  #rememberedCommands(): ReadonlyMap<string, CommandMemory> {
    for (const [key, command] of this.snapshot.memory.commands) {
      const young = this.nowMs - command.sentMs < this.policy.commandResendMs;
      if (young && !this.commands.has(key)) this.commands.set(key, command);
    }
    return this.commands;
  }

  #recordActions(): readonly Action[] {
    const actions: Action[] = [];
    for (const [id, reason] of this.#why) {
      const record = this.#records.get(id);
      if (record === undefined) continue;
      const kind = this.#before.has(id) ? 'updateReplica' : 'createReplica';
      actions.push({ kind, record, reason });
    }
    for (const [replicaId, reason] of this.#deleted) {
      if (!this.#records.has(replicaId)) actions.push({ kind: 'deleteReplica', replicaId, reason });
    }
    return actions;
  }
}

function indexReports(nodes: readonly NodeView[]): ReadonlyMap<string, readonly LocatedReport[]> {
  const index = new Map<string, LocatedReport[]>();
  for (const node of nodes) {
    for (const report of node.shards) {
      const list = index.get(report.replicaId);
      if (list === undefined) index.set(report.replicaId, [{ node, report }]);
      else list.push({ node, report });
    }
  }
  return index;
}

function isSettling({ nodes, memory }: LivenessJudgement, policy: ControlPolicy, nowMs: number): boolean {
  const fromMs = memory.judgeFromMs;
  if (memory.stateLost !== undefined) return true;
  if (nowMs - fromMs >= policy.settleAfterStartMs) return false;
  return nodes.some((node) => !isTalking(node) || (node.lastReportMs ?? -1) < fromMs);
}
