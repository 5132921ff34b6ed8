/** Checks of a pass as a whole: the brakes, repetition, and that explaining and placing say the same. */
import type { NodeView } from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { canonical } from '../../src/domain/catalog/spec-digest.js';
import { explainPlacement } from '../../src/domain/reconcile/explain.js';
import { reconcile } from '../../src/domain/reconcile/reconcile.js';
import { seededRandom } from '../../src/shared/random.js';
import type { Server } from './server.js';
import { afterwards, madeRoomFor, recordsAfter } from './view.js';
import type { World } from './world.js';

/** Share of passes that are also run twice, or asked for an explanation: as expensive as the pass itself. */
const REPEATED = 1 / 24;

export class PassChecks {
  constructor(private readonly world: World) {}

  check(server: Server, snapshot: Snapshot, plan: Plan): void {
    this.#massLoss(snapshot, plan);
    this.#sleep(server, plan);
    this.#settling(server, snapshot, plan);
    this.#lostState(server, plan);
    if (this.world.random() < REPEATED) this.#twice(snapshot, plan);
    if (this.world.random() < REPEATED) this.#explained(snapshot);
  }

  /** I12: with half of the fleet silent at once nothing is moved. */
  #massLoss(snapshot: Snapshot, plan: Plan): void {
    const { policy, nowMs } = this.world;
    const fleet = snapshot.nodes.filter(({ liveness }) => liveness !== 'lost');
    const silentMs = (node: NodeView) => nowMs - Math.max(node.lastReportMs ?? 0, snapshot.startedMs);
    const silent = fleet.filter((node) => silentMs(node) > policy.lostAfterMs);
    if (silent.length < policy.massLossMinNodes || silent.length * 2 < fleet.length) return;
    // Until the hold is over; it began no earlier than the first of them passed the first limit.
    if (Math.max(...silent.map((node) => silentMs(node))) > policy.massLossHoldMs) return;
    for (const action of plan.actions) {
      const moves =
        (action.kind === 'setNodeLiveness' && action.liveness === 'lost') ||
        (action.kind === 'createReplica' && action.record.shards.length > 0);
      if (moves)
        this.world.fail('mass_loss_moved', `${action.kind} with ${silent.length} of ${fleet.length} silent`);
    }
  }

  /** I11: time in which the server itself stood still is held against nobody. */
  #sleep(server: Server, plan: Plan): void {
    const awakeMs = this.world.nowMs - server.awakeSinceMs;
    for (const action of plan.actions) {
      if (action.kind !== 'setNodeLiveness') continue;
      const limitMs =
        action.liveness === 'lost'
          ? this.world.policy.lostAfterMs
          : action.liveness === 'unreachable'
            ? this.world.policy.unreachableAfterMs
            : 0;
      const was = server.entries.get(action.nodeId)?.view().liveness;
      if (awakeMs < limitMs && was !== 'unreachable')
        this.world.fail(
          'judged_after_sleep',
          `${action.nodeId} ${action.liveness} after ${awakeMs} ms awake`,
        );
    }
  }

  /** I8: a server that has just started and has not heard of every node starts nothing. */
  #settling(server: Server, snapshot: Snapshot, plan: Plan): void {
    if (this.world.nowMs - server.startedMs >= this.world.policy.settleAfterStartMs) return;
    if (snapshot.nodes.every(({ reported }) => reported)) return;
    const acts = plan.actions.find(
      // Engines found running are written down at once; that is not acting.
      ({ kind, reason }) => kind === 'startShard' || (kind === 'createReplica' && reason.code !== 'adopted'),
    );
    if (acts !== undefined) this.world.fail('acted_while_settling', acts.kind);
  }

  /** A server whose store is behind the cluster starts nothing before the other agents had time to come. */
  #lostState(server: Server, plan: Plan): void {
    if (!server.lostState) return;
    const { nowMs, policy, store } = this.world;
    if (nowMs - (server.firstReportMs ?? nowMs) >= policy.settleAfterStartMs) {
      store.isBehind = false;
      return;
    }
    const started = plan.actions.find(({ kind }) => kind === 'startShard');
    if (started !== undefined)
      this.world.fail(
        'started_behind',
        `${started.reason.message}, ${nowMs - (server.firstReportMs ?? nowMs)} ms after the first agent`,
      );
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
    // Whom a higher one displaces that was placed in this very plan is seen only when it stands.
    const placedNow = recordsAfter(snapshot, plan).filter(
      ({ id, shards, generation }) =>
        shards.length > 0 && snapshot.replicas.find((one) => one.id === id)?.generation !== generation,
    );
    if (placedNow.some(({ id }) => madeRoomFor(recordsAfter(snapshot, next), id))) return;
    if (left.length > 0) {
      const what = left.map((action) => `${action.kind} ${canonical(action.reason)}`).join('; ');
      this.world.fail('not_idempotent', what);
    }
  }

  /** Explain says "fits" exactly where the reconciler places. */
  #explained(snapshot: Snapshot): void {
    const { policy, nowMs, wallMs, random } = this.world;
    const model = snapshot.models[Math.floor(random() * snapshot.models.length)];
    if (model === undefined) return;
    const context = () => ({ nowMs, nowWallMs: wallMs, random: seededRandom(11) });
    // Asked about the state after a pass, so that nothing else is left to be decided before the question.
    const quiet = afterwards(snapshot, reconcile(snapshot, policy, context()));
    if (quiet.replicas.some((one) => one.intent === 'run' && one.shards.length === 0)) return;
    const explained = explainPlacement(quiet, policy, context(), model.name);
    const live = quiet.replicas.filter((one) => one.model === model.name && one.intent === 'run');
    const more = { ...model, replicas: live.length + 1 };
    const models = quiet.models.map((one) => (one.name === model.name ? more : one));
    const plan = reconcile({ ...quiet, models }, policy, context());
    if (plan.actions.some(({ reason }) => reason.code === 'revived')) return;
    const created = plan.actions.filter(
      (action) =>
        action.kind === 'createReplica' &&
        action.record.model === model.name &&
        action.record.replaces === undefined,
    );
    const [action] = created;
    if (created.length !== 1 || action?.kind !== 'createReplica') return;
    const placed = action.record.shards.length > 0;
    if (placed !== (explained?.chosen !== undefined))
      this.world.fail('explain_disagrees', `${model.name}: placed ${placed}, explained ${!placed}`);
  }
}

function shape(plan: Plan): string {
  return canonical([plan.actions, plan.published, plan.notDone]);
}
