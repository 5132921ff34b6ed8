/**
 * A cluster in which everything works at once: agents obey within the pass, engines are Ready after `loadMs`, stops are confirmed
 * at the next pass. For tests that ask what the control plane decides; what it does under faults is the simulator's business.
 */
import type { BackoffRecord, NodeView, ReplicaRecord, ShardReport } from '../../src/domain/cluster.js';
import type { ModelSpec } from '../../src/domain/model-spec.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { backoffKey } from '../../src/domain/cluster.js';
import { checkPlan } from '../../src/domain/reconcile/check-plan.js';
import { type ControlPolicy, DEFAULT_POLICY } from '../../src/domain/reconcile/policy.js';
import { reconcile } from '../../src/domain/reconcile/reconcile.js';
import { seededRandom } from '../../src/shared/random.js';
import { aSnapshot } from './cluster-builder.js';

interface Engine {
  readonly report: ShardReport;
  readonly nodeId: string;
  readonly startedMs: number;
}

export class IdealCluster {
  nowMs = 1_000_000;
  wallMs = 1_700_000_000_000;
  loadMs = 20_000;
  models: readonly ModelSpec[] = [];
  nodes: readonly NodeView[] = [];
  policy: ControlPolicy = DEFAULT_POLICY;
  /** Requests in flight, by `replicaKey`. */
  readonly inflight = new Map<string, number>();
  readonly evidence = new Map<
    string,
    { firstTokenTimeouts: number; consecutiveFailures: number; lastByteMs?: number }
  >();
  /** That state was lost, where it is known before any agent tells. */
  stateLost: Snapshot['stateLost'];
  readonly refusals = new Map<string, { verdict: BackoffRecord['cause']; message?: string }>();
  readonly records = new Map<string, ReplicaRecord>();
  readonly backoffs = new Map<string, BackoffRecord>();
  readonly plans: Plan[] = [];
  /** Commands and record changes in the order they happened, as short text. */
  readonly log: string[] = [];
  readonly engines = new Map<string, Engine>();
  #learned: Snapshot['learned'] = [];
  #memory: Snapshot['memory'] = aSnapshot().memory;
  #startedMs = -1_000_000;
  #random = seededRandom(1);

  snapshot(): Snapshot {
    return aSnapshot({
      planNumber: this.plans.length,
      models: this.models,
      nodes: this.nodes.map((node) => ({
        ...node,
        lastReportMs: this.silent.has(node.id) ? (node.lastReportMs ?? 0) : this.nowMs,
        shards: [...this.engines.values()]
          .filter(({ nodeId }) => nodeId === node.id)
          .map((one) => this.#report(one)),
      })),
      replicas: [...this.records.values()],
      backoffs: [...this.backoffs.values()],
      learned: this.#learned,
      inflight: this.inflight,
      evidence: this.evidence,
      refusals: this.refusals,
      memory: this.#memory,
      startedMs: this.#startedMs,
      ...(this.stateLost === undefined ? {} : { stateLost: this.stateLost }),
    });
  }

  /** Nodes whose agents say nothing. */
  readonly silent = new Set<string>();

  #report({ report, startedMs }: Engine): ShardReport {
    if (report.phase !== 'loading') return report;
    return this.nowMs - startedMs < this.loadMs ? report : { ...report, phase: 'ready', loadMs: this.loadMs };
  }

  /** One pass, checked and carried out. */
  tick(afterMs = 2_000): Plan {
    this.nowMs += afterMs;
    this.wallMs += afterMs;
    // Engines that have become Ready keep that state.
    for (const [key, engine] of this.engines)
      this.engines.set(key, { ...engine, report: this.#report(engine) });
    const snapshot = this.snapshot();
    this.nodes = snapshot.nodes.map((node) => ({ ...node, shards: [] }));
    const context = { nowMs: this.nowMs, nowWallMs: this.wallMs, random: this.#random };
    const plan = reconcile(snapshot, this.policy, context);
    const violations = checkPlan(snapshot, plan);
    if (violations.length > 0) throw new Error(`plan ${plan.number}: ${JSON.stringify(violations)}`);
    this.#carryOut(plan);
    this.plans.push(plan);
    return plan;
  }

  /** Passes until `done` or the limit, every 2 s. */
  run(forMs: number, done: () => boolean = () => false): void {
    for (let left = forMs; left > 0 && !done(); left -= 2_000) this.tick();
  }

  /** Ends an engine the way a crash does. */
  crash(shardId: string, change: Partial<ShardReport> = { exitCode: 1, verdict: 'crashed' }): void {
    for (const [key, engine] of this.engines) {
      if (engine.report.shardId !== shardId) continue;
      this.engines.set(key, { ...engine, report: { ...engine.report, phase: 'exited', ...change } });
    }
  }

  /** Changes what is known of a node. */
  change(nodeId: string, change: Partial<NodeView>): void {
    this.nodes = this.nodes.map((node) => (node.id === nodeId ? { ...node, ...change } : node));
  }

  /** A restart of the server: what is in memory goes, what is stored stays. */
  restart(): void {
    this.#memory = aSnapshot().memory;
    this.#startedMs = this.nowMs;
  }

  recordsOf(model?: string): readonly ReplicaRecord[] {
    return [...this.records.values()].filter((record) => model === undefined || record.model === model);
  }

  published(): readonly string[] {
    return (this.plans.at(-1)?.published ?? []).map((one) => `${one.replicaId}@${one.generation}`);
  }

  #carryOut(plan: Plan): void {
    this.#memory = plan.memory;
    for (const action of plan.actions) {
      switch (action.kind) {
        case 'createReplica':
        case 'updateReplica':
          this.records.set(action.record.id, action.record);
          this.log.push(`${action.kind} ${action.record.id} ${action.reason.code}`);
          break;
        case 'deleteReplica':
          this.records.delete(action.replicaId);
          this.log.push(`deleteReplica ${action.replicaId}`);
          break;
        case 'startShard': {
          const { command } = action;
          this.log.push(`start ${command.shardId}@${command.generation} on ${command.nodeId}`);
          const { shardId, replicaId, generation, model, rank, gpuUuids, ports, specDigest, nodeId } =
            command;
          this.engines.set(`${shardId}@${generation}`, {
            nodeId,
            startedMs: this.nowMs,
            report: {
              shardId,
              replicaId,
              generation,
              model,
              profile: command.profile.name,
              rank,
              gpuUuids,
              ports,
              specDigest,
              phase: 'loading',
            },
          });
          break;
        }
        case 'stopShard':
          this.log.push(`stop ${action.command.shardId}@${action.command.generation} ${action.reason.code}`);
          this.engines.delete(`${action.command.shardId}@${action.command.generation}`);
          break;
        case 'abortInflight':
          this.log.push(`abort ${action.replicaId}@${action.generation}`);
          this.inflight.delete(`${action.replicaId}@${action.generation}`);
          break;
        case 'putBackoff':
          this.backoffs.set(backoffKey(action.record), action.record);
          break;
        case 'clearBackoff':
          this.backoffs.delete(backoffKey(action.record));
          break;
        case 'putLearned': {
          const { fact } = action;
          const others = this.#learned.filter(
            (one) => one.model !== fact.model || one.profile !== fact.profile || one.gpuType !== fact.gpuType,
          );
          this.#learned = [...others, fact];
          break;
        }
        case 'setNodeLiveness':
          this.log.push(`${action.nodeId} ${action.liveness}`);
          this.change(action.nodeId, {
            liveness: action.liveness,
            livenessSinceMs: this.nowMs,
            livenessReason: action.reason.message,
          });
          break;
      }
    }
  }
}
