/**
 * What would happen if this were wanted: the reconciler itself, run ahead over a copy of the world in which agents obey, engines are
 * Ready after their usual load time and requests have ended. So the order, the places and the "no" of a plan are the ones that will
 * be decided, not a second opinion. Run in steps, since a large cluster takes many passes and a router shares the process.
 */
import type { BackoffRecord, NodeView, Reason, ReplicaRecord, ShardReport } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import type { Action, Plan, StartShardCommand } from '../plan.js';
import type { Snapshot } from '../snapshot.js';
import { backoffKey, shardKey } from '../cluster.js';
import { loadP95Ms } from './learn.js';
import type { ControlPolicy } from './policy.js';
import { reconcile } from './reconcile.js';
import { isComingUp } from './shard-state.js';

/** Taken for engines that were never started here, ms. */
export const UNKNOWN_LOAD_MS = 60_000;
/** Passes after which a forecast gives up: hundreds of copies one after another take fewer. */
const PASSES_MAX = 2_000;
/** Looked ahead at most, ms. */
const HORIZON_MS = 24 * 3_600_000;

export interface ForecastStep {
  /** From now, ms. */
  readonly atMs: number;
  readonly kind: 'starts' | 'serves' | 'leaves' | 'stopped';
  readonly replicaId: string;
  readonly model: string;
  readonly profile: string;
  readonly nodeIds: readonly string[];
  readonly reason: Reason;
  /** The copy in whose place it starts. */
  readonly replaces?: string;
}

/** How a model is served on the way. */
export interface ForecastService {
  readonly model: string;
  /** Copies serving now, and the fewest at any time. */
  readonly now: number;
  readonly fewest: number;
  /** Time without any copy serving, ms; 0 = never without one that had one. */
  readonly gapMs: number;
}

export interface Forecast {
  readonly steps: readonly ForecastStep[];
  readonly service: readonly ForecastService[];
  /** What is left undone when nothing moves any more, and why. */
  readonly stuck: readonly { readonly subject: string; readonly reason: Reason }[];
  /** When nothing moves any more, ms from now. */
  readonly endMs: number;
  /** `model/profile` whose load time was never measured here. */
  readonly unmeasured: readonly string[];
  /** Broken off: there was more to come than is looked at. */
  readonly cut: boolean;
}

interface Loading {
  readonly key: string;
  readonly readyAtMs: number;
}

export class ForecastRun {
  readonly #policy: ControlPolicy;
  readonly #fromMs: number;
  readonly #random = sequence();
  #snapshot: Snapshot;
  #nowMs: number;
  #wallMs: number;
  #passes = 0;
  #stuck: Plan['notDone'] = [];
  #done = false;
  #cut = false;
  #loading: Loading[] = [];
  #published: ReadonlySet<string> | undefined;
  readonly #steps: ForecastStep[] = [];
  readonly #service = new Map<string, ForecastService>();
  readonly #unmeasured = new Set<string>();
  readonly #servedBefore = new Map<string, number>();
  #countedMs: number | undefined;

  /** @param published ids of the replicas that serve now */
  constructor(
    snapshot: Snapshot,
    models: readonly ModelSpec[],
    policy: ControlPolicy,
    now: { readonly nowMs: number; readonly nowWallMs: number },
    published: ReadonlySet<string>,
  ) {
    // Time is skipped, which is neither sleep nor a reason to wait for reports.
    this.#policy = { ...policy, settleAfterStartMs: 0, suspendGapMs: Infinity };
    // Whole milliseconds: of fractions, a time that was waited for can come out a hair too short, and nothing would ever follow.
    this.#fromMs = this.#nowMs = Math.ceil(now.nowMs);
    this.#wallMs = now.nowWallMs;
    this.#published = published;
    this.#snapshot = { ...snapshot, models, inflight: new Map(), refusals: new Map() };
    for (const node of snapshot.nodes)
      for (const report of node.shards)
        if (isComingUp(report.phase)) this.#expect(report, report.phaseAgeMs ?? 0);
    this.#count(published, 0);
  }

  /** One pass further; false when there is nothing more to see. */
  step(): boolean {
    if (this.#done) return false;
    this.#passes += 1;
    const context = { nowMs: this.#nowMs, nowWallMs: this.#wallMs, random: this.#random };
    const plan = reconcile(this.#snapshot, this.#policy, context);
    this.#note(plan);
    this.#carryOut(plan);
    this.#stuck = plan.notDone;
    const nextMs = plan.actions.length > 0 ? this.#nowMs + 1 : this.#nextMs(plan);
    if (nextMs === undefined) this.#done = true;
    else if (this.#passes >= PASSES_MAX || nextMs - this.#fromMs > HORIZON_MS) this.#done = this.#cut = true;
    else this.#advance(nextMs, plan);
    return !this.#done;
  }

  result(): Forecast {
    return {
      steps: this.#steps,
      service: [...this.#service.values()],
      stuck: this.#stuck,
      endMs: this.#steps.at(-1)?.atMs ?? 0,
      unmeasured: [...this.#unmeasured],
      cut: this.#cut,
    };
  }

  // ---------------------------------------------------------------- time

  /** The next moment at which something can be different; undefined when nothing will be. */
  #nextMs(plan: Plan): number | undefined {
    const times = this.#loading.map(({ readyAtMs }) => readyAtMs);
    for (const memory of plan.memory.replicas.values()) {
      if (memory.readySinceMs !== undefined) times.push(memory.readySinceMs + this.#policy.steadyMs);
      if (memory.retryAtMs !== undefined) times.push(memory.retryAtMs);
    }
    const ahead = times.filter((time) => time > this.#nowMs);
    return ahead.length === 0 ? undefined : Math.ceil(Math.min(...ahead));
  }

  #advance(toMs: number, plan: Plan): void {
    const byMs = toMs - this.#nowMs;
    this.#nowMs = toMs;
    this.#wallMs += byMs;
    const up = new Set(this.#loading.filter(({ readyAtMs }) => readyAtMs <= toMs).map(({ key }) => key));
    this.#loading = this.#loading.filter(({ key }) => !up.has(key));
    const wanted = new Set(this.#snapshot.replicas.map(({ id }) => id));
    this.#snapshot = {
      ...this.#snapshot,
      memory: plan.memory,
      planNumber: plan.number,
      // Whoever is silent stays as silent as it is: a forecast of a change is none of further losses.
      nodes: this.#snapshot.nodes.map((node) => ({
        ...node,
        unsettled: [],
        ...(node.lastReportMs === undefined ? {} : { lastReportMs: node.lastReportMs + byMs }),
        livenessSinceMs: node.livenessSinceMs + byMs,
        shards: node.shards
          .filter((report) => report.phase !== 'exited' || wanted.has(report.replicaId))
          .map((report) =>
            up.has(shardKey(report.shardId, report.generation))
              ? { ...report, phase: 'ready' as const }
              : report,
          ),
      })),
    };
  }

  // ---------------------------------------------------------------- agents that obey

  #carryOut(plan: Plan): void {
    const records = new Map(this.#snapshot.replicas.map((record) => [record.id, record]));
    const backoffs = new Map(this.#snapshot.backoffs.map((record) => [backoffKey(record), record]));
    for (const action of plan.actions) this.#obey(action, records, backoffs);
    this.#snapshot = { ...this.#snapshot, replicas: [...records.values()], backoffs: [...backoffs.values()] };
  }

  #obey(action: Action, records: Map<string, ReplicaRecord>, backoffs: Map<string, BackoffRecord>): void {
    switch (action.kind) {
      case 'createReplica':
      case 'updateReplica':
        records.set(action.record.id, action.record);
        return;
      case 'deleteReplica':
        records.delete(action.replicaId);
        return;
      case 'putBackoff':
        backoffs.set(backoffKey(action.record), action.record);
        return;
      case 'clearBackoff':
        backoffs.delete(backoffKey(action.record));
        return;
      case 'startShard':
        return this.#start(action.command);
      case 'stopShard': {
        const { nodeId, shardId, generation } = action.command;
        return this.#changeNode(nodeId, (node) => withShardStopped(node, shardKey(shardId, generation)));
      }
      case 'setNodeLiveness':
        return this.#changeNode(action.nodeId, (node) => ({ ...node, liveness: action.liveness }));
      case 'putLearned':
      case 'abortInflight':
        return;
    }
  }

  #start(command: StartShardCommand): void {
    const { shardId, replicaId, generation, model, rank, gpuUuids, ports, specDigest } = command;
    const profile = command.profile.name;
    const report: ShardReport = {
      ...{ shardId, replicaId, generation, model, profile, rank, gpuUuids, ports, specDigest },
      phase: 'loading',
    };
    this.#changeNode(command.nodeId, (node) => ({ ...node, shards: [...node.shards, report] }));
    this.#expect(report, 0);
  }

  #expect(report: ShardReport, spentMs: number): void {
    const facts = this.#snapshot.learned.filter(
      ({ model, profile }) => model === report.model && profile === report.profile,
    );
    const usual = facts.flatMap((fact) => loadP95Ms(fact) ?? []);
    if (usual.length === 0) this.#unmeasured.add(`${report.model}/${report.profile}`);
    const loadMs = usual.length === 0 ? UNKNOWN_LOAD_MS : Math.max(...usual);
    const readyAtMs = this.#nowMs + Math.max(1, loadMs - spentMs);
    this.#loading.push({ key: shardKey(report.shardId, report.generation), readyAtMs });
  }

  #changeNode(nodeId: string, change: (node: NodeView) => NodeView): void {
    const nodes = this.#snapshot.nodes.map((node) => (node.id === nodeId ? change(node) : node));
    this.#snapshot = { ...this.#snapshot, nodes };
  }

  // ---------------------------------------------------------------- what is told

  #note(plan: Plan): void {
    const before = new Map(this.#snapshot.replicas.map((record) => [record.id, record]));
    const after = new Map(before);
    for (const action of plan.actions)
      if (action.kind === 'createReplica' || action.kind === 'updateReplica')
        after.set(action.record.id, action.record);
    const published = new Set(plan.published.map(({ replicaId }) => replicaId));
    // What a pass finds ended comes before what it begins.
    for (const action of plan.actions) {
      if (action.kind !== 'deleteReplica') continue;
      const record = before.get(action.replicaId);
      if (record !== undefined && record.shards.length + record.generation > 0)
        this.#tell('stopped', record, action.reason);
    }
    for (const id of published) {
      const record = after.get(id);
      if (record !== undefined && this.#published?.has(id) === false)
        this.#tell('serves', record, { code: 'ready', message: 'Ready' });
    }
    for (const [id, record] of after)
      if (record.intent !== 'run' && before.get(id)?.intent === 'run')
        this.#tell('leaves', record, record.intentReason);
    for (const action of plan.actions) {
      const started = action.kind === 'startShard' && action.command.rank === 0;
      const record = started ? after.get(action.command.replicaId) : undefined;
      if (record !== undefined) this.#tell('starts', record, record.intentReason);
    }
    this.#count(published, this.#nowMs - (this.#countedMs ?? this.#nowMs));
    this.#countedMs = this.#nowMs;
    this.#published = published;
  }

  #tell(kind: ForecastStep['kind'], record: ReplicaRecord, reason: Reason): void {
    this.#steps.push({
      atMs: this.#nowMs - this.#fromMs,
      kind,
      replicaId: record.id,
      model: record.model,
      profile: record.profile,
      nodeIds: [...new Set(record.shards.map(({ nodeId }) => nodeId))],
      reason,
      ...(record.replaces === undefined ? {} : { replaces: record.replaces }),
    });
  }

  /** Counts who serves; what was so since the last count lasted `forMs`. */
  #count(published: ReadonlySet<string>, forMs: number): void {
    const serving = new Map<string, number>();
    for (const record of this.#snapshot.replicas)
      if (published.has(record.id)) serving.set(record.model, (serving.get(record.model) ?? 0) + 1);
    for (const { name, replicas } of this.#snapshot.models) {
      const count = serving.get(name) ?? 0;
      const known = this.#service.get(name) ?? { model: name, now: count, fewest: count, gapMs: 0 };
      const lacked = known.now > 0 && this.#servedBefore.get(name) === 0;
      // Fewer are no loss where fewer are wanted.
      const fewest = count < Math.min(known.now, replicas) ? Math.min(known.fewest, count) : known.fewest;
      this.#service.set(name, { ...known, fewest, gapMs: known.gapMs + (lacked ? forMs : 0) });
      this.#servedBefore.set(name, count);
    }
  }
}

/** The node with the shard gone and its devices empty, as far as nobody else holds them. */
export function withShardStopped(node: NodeView, key: string): NodeView {
  const shards = node.shards.map((report) =>
    shardKey(report.shardId, report.generation) === key ? { ...report, phase: 'exited' as const } : report,
  );
  const held = new Set(shards.filter(({ phase }) => phase !== 'exited').flatMap(({ gpuUuids }) => gpuUuids));
  const freed = new Set(
    shards
      .filter(({ phase }) => phase === 'exited')
      .flatMap(({ gpuUuids }) => gpuUuids.filter((uuid) => !held.has(uuid))),
  );
  const gpus = node.gpus.map((gpu) =>
    freed.has(gpu.uuid) && gpu.foreign.length === 0 && gpu.memoryUsedBytes !== undefined
      ? { ...gpu, memoryUsedBytes: 0 }
      : gpu,
  );
  return { ...node, shards, gpus };
}

/** Names of new copies need no chance, and the same question should have the same answer. */
function sequence(): () => number {
  let state = 1;
  return () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return state / 0x80000000;
  };
}
