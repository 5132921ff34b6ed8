/**
 * The server's shell in miniature: the real inventory entries, the real reconcile and checkPlan, and around them what the shell is
 * bound to do: store first, publish second, stop third, start last; remember only what was carried out.
 */
import { type NodeView, replicaKey, type SchedulingIntent, shardKey } from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import { type CommandRefusal, NO_MEMORY, type Snapshot } from '../../src/domain/snapshot.js';
import { checkPlan } from '../../src/domain/reconcile/check-plan.js';
import { startRefusal } from '../../src/domain/reconcile/refusal.js';
import { reconcile } from '../../src/domain/reconcile/reconcile.js';
import { NO_INTENT, NodeEntry } from '../../src/inventory/node-entry.js';
import type { Session, Up } from './network.js';
import { Router } from './router.js';
import { StaleTerm } from './store.js';
import type { World } from './world.js';

export const TICK_MS = 2_000;
const EARLY_MS = 100;

function describePlan(term: number, plan: Plan): string {
  const lines = plan.actions.map(
    (action) =>
      `  ${JSON.stringify({ ...action, ...('record' in action ? { record: { ...action.record, placement: undefined } } : {}) })}`,
  );
  const published = plan.published.map((one) => `${one.replicaId}@${one.generation}`).join(' ');
  return [`plan ${plan.number} of term ${term}, published: ${published}`, ...lines].join('\n');
}

export class Server {
  alive = true;
  stalled = false;
  term: number;
  readonly router: Router;
  readonly startedMs: number;
  /** Since when it has not stood still. */
  awakeSinceMs: number;
  /** Its store was emptied or set back, and not all agents have been waited for since. */
  readonly lostState: boolean;
  firstReportMs: number | undefined;
  readonly sessions = new Map<string, Session>();
  readonly entries = new Map<string, NodeEntry>();
  lastPlan: Plan | undefined;

  #memory = NO_MEMORY;
  #planNumber = 0;
  #commandId = 0;
  #early = false;
  #termRaised = false;
  #stalledSinceMs = 0;
  readonly #refusals = new Map<string, CommandRefusal>();
  readonly #backlog: (readonly [Session, Up])[] = [];

  constructor(private readonly world: World) {
    this.term = world.store.nextTerm();
    this.startedMs = world.nowMs;
    this.awakeSinceMs = world.nowMs;
    this.lostState = world.store.isBehind;
    this.router = new Router(world);
    const { nodes, intents } = world.store.contents;
    for (const [id, stored] of nodes)
      this.entries.set(id, new NodeEntry(stored, intents.get(id) ?? NO_INTENT, world.nowMs, false));
    this.#timer();
  }

  #timer(): void {
    this.world.queue.after(TICK_MS, () => {
      if (!this.alive) return;
      if (!this.stalled) this.tick();
      this.#timer();
    });
  }

  #wake(): void {
    if (this.#early) return;
    this.#early = true;
    this.world.queue.after(EARLY_MS, () => {
      this.#early = false;
      if (this.alive && !this.stalled) this.tick();
    });
  }

  die(): void {
    this.alive = false;
    this.router.alive = false;
    for (const session of this.sessions.values()) session.closeByServer();
  }

  /** The process stands still; what arrives meanwhile waits. */
  stall(forMs: number): void {
    if (this.stalled) return;
    this.stalled = true;
    this.#stalledSinceMs = this.world.nowMs;
    const sinceMs = this.world.nowMs;
    this.world.queue.after(forMs, () => this.wake(sinceMs));
  }

  /** Goes on, at the end of a stall or when all faults end; `sinceMs` tells the stall that is meant. */
  wake(sinceMs = this.#stalledSinceMs): void {
    if (!this.stalled || sinceMs !== this.#stalledSinceMs) return;
    const forMs = this.world.nowMs - sinceMs;
    this.stalled = false;
    // A short stall is not told from a slow pass, and is too short to condemn anybody.
    if (forMs > this.world.policy.suspendGapMs) this.awakeSinceMs = this.world.nowMs;
    // The overdue timer fires before the sockets are read: the worst order there is.
    if (this.alive) this.tick();
    for (const [session, message] of this.#backlog.splice(0)) this.receive(session, message);
  }

  // -------------------------------------------------------------- what agents say

  receive(session: Session, message: Up): void {
    if (!this.alive) return;
    if (this.stalled) {
      this.#backlog.push([session, message]);
      return;
    }
    if (message.kind === 'hello') return this.#hello(session, message.hello);
    if (this.sessions.get(session.nodeId) !== session) return;
    const entry = this.entries.get(session.nodeId);
    if (entry === undefined) return;
    if (message.kind === 'report') {
      this.firstReportMs ??= this.world.nowMs;
      const outcome = entry.takeReport(message.report, this.world.nowMs, this.world.wallMs);
      session.down({ kind: 'ack', term: this.term });
      this.#saveIdentity(entry);
      if (outcome === 'changed') this.#wake();
    } else {
      const key = entry.commandAnswered(message.result.commandId);
      const refusal = message.result.outcome === 'refused' ? startRefusal(message.result) : undefined;
      if (key !== undefined && refusal !== undefined) this.#refusals.set(key, refusal);
    }
  }

  #hello(session: Session, hello: Extract<Up, { kind: 'hello' }>['hello']): void {
    if (hello.highestTerm >= this.term) this.#raiseTerm(hello.highestTerm);
    if (!this.alive) return;
    const nodeId = hello.nodeId;
    const old = this.sessions.get(nodeId);
    this.sessions.set(nodeId, session);
    let entry = this.entries.get(nodeId);
    if (entry === undefined) {
      const intent = this.world.store.contents.intents.get(nodeId) ?? NO_INTENT;
      const stored = {
        id: nodeId,
        address: hello.address ?? '',
        labels: hello.labels,
        gpus: [],
        firstSeenWallMs: this.world.wallMs,
      };
      entry = new NodeEntry(stored, intent, this.world.nowMs, true);
      this.entries.set(nodeId, entry);
    }
    entry.connect(hello, hello.address ?? '', this.world.nowMs);
    if (old !== undefined && old !== session) old.closeByServer();
    this.#wake();
  }

  /**
   * Agents have obeyed a higher term than ours. Either the store was restored from an older copy, then the term is raised; or
   * another server has taken over since, then the store says so and this one is done.
   */
  #raiseTerm(seen: number): void {
    if (this.world.store.contents.term > this.term) return this.die();
    this.term = this.world.store.nextTerm(seen);
    this.#termRaised = true;
  }

  #saveIdentity(entry: NodeEntry): void {
    if (!entry.dirty) return;
    try {
      this.world.store.putNode(this.term, entry.record);
      entry.dirty = false;
    } catch (error) {
      if (!(error instanceof StaleTerm)) throw error;
    }
  }

  sessionClosed(session: Session): void {
    // A late close of an old stream says nothing about the present one.
    if (this.sessions.get(session.nodeId) !== session) return;
    this.sessions.delete(session.nodeId);
    this.entries.get(session.nodeId)?.disconnect(this.world.nowMs);
  }

  // -------------------------------------------------------------- what operators say

  setIntent(nodeId: string, intent: SchedulingIntent): void {
    this.world.store.putIntent(this.term, nodeId, intent);
    this.entries.get(nodeId)?.setIntent(intent);
    this.#wake();
  }

  restartReplica(id: string, allowGap: boolean): void {
    const record = this.world.store.contents.replicas.get(id);
    if (record === undefined || record.intent !== 'run' || record.shards.length === 0) return;
    const restart = { actor: 'ann', atWallMs: this.world.wallMs, ...(allowGap ? { allowGap } : {}) };
    this.world.store.putReplica(this.term, { ...record, restart });
    this.#wake();
  }

  removeNode(nodeId: string): void {
    this.world.store.removeNode(this.term, nodeId);
    this.entries.delete(nodeId);
    this.sessions.get(nodeId)?.closeByServer();
    this.sessions.delete(nodeId);
    this.#wake();
  }

  nodes(): readonly NodeView[] {
    return [...this.entries.values()].map((entry) => entry.view()).toSorted((a, b) => (a.id < b.id ? -1 : 1));
  }

  // -------------------------------------------------------------- the loop

  snapshot(): Snapshot {
    const { store } = this.world;
    const stateLost = store.contents.stateLost ?? (this.#termRaised ? 'obeyedTerm' : undefined);
    return {
      term: this.term,
      planNumber: this.#planNumber,
      models: this.world.models,
      nodes: this.nodes(),
      replicas: [...store.contents.replicas.values()],
      backoffs: [...store.contents.backoffs.values()],
      learned: [...store.contents.learned.values()],
      inflight: this.router.inflight(),
      evidence: this.router.evidence(),
      startedMs: this.startedMs,
      refusals: this.#refusals,
      memory: this.#memory,
      ...(stateLost === undefined ? {} : { stateLost }),
    };
  }

  tick(): void {
    const { world } = this;
    const snapshot = this.snapshot();
    const context = { nowMs: world.nowMs, nowWallMs: world.wallMs, random: world.random };
    const plan = reconcile(snapshot, world.policy, context);
    const violations = checkPlan(snapshot, plan);
    world.count('passes');
    for (const { kind, reason } of plan.actions) world.count(`${kind} ${reason.code}`);
    for (const { reason } of plan.events) world.count(`event ${reason.code}`);
    world.say(() => describePlan(this.term, plan));
    const [violation] = violations;
    if (violation !== undefined)
      world.fail(`plan:${violation.code}`, `${violation.subject}: ${violation.message}`);
    this.#carryOut(snapshot, plan);
  }

  #carryOut(snapshot: Snapshot, plan: Plan): void {
    try {
      this.world.store.persist(this.term, plan);
    } catch (error) {
      if (!(error instanceof StaleTerm)) throw error;
      // Another server has taken over: nothing of this plan may happen.
      this.die();
      return;
    }
    this.world.checks.stored(this, snapshot, plan);
    if (this.#crashesHere()) return;
    this.router.apply(plan.published);
    this.world.checks.published(this, plan);
    this.#planNumber = plan.number;
    this.lastPlan = plan;
    for (const action of plan.actions) {
      if (action.kind === 'setNodeLiveness')
        this.entries
          .get(action.nodeId)
          ?.setLiveness(action.liveness, action.reason.message, this.world.nowMs);
      if (action.kind === 'abortInflight') this.router.abort(replicaKey(action.replicaId, action.generation));
      if (action.kind === 'stopShard' || action.kind === 'startShard') {
        if (this.#crashesHere()) return;
        this.#dispatch(action);
      }
    }
    this.#memory = plan.memory;
    this.#forgetRefusals();
  }

  #crashesHere(): boolean {
    if (!this.world.crashesMidway()) return false;
    this.world.restartServer(this, 'serverCrashMidway');
    return true;
  }

  #dispatch(action: Extract<Plan['actions'][number], { kind: 'startShard' | 'stopShard' }>): void {
    const { command } = action;
    const session = this.sessions.get(command.nodeId);
    this.world.checks.commanded(this, action);
    if (session === undefined) return;
    this.#commandId += 1;
    const order = { term: this.term, commandId: `${this.term}-${this.#commandId}` };
    this.entries
      .get(command.nodeId)
      ?.commandSent(order.commandId, shardKey(command.shardId, command.generation));
    if (action.kind === 'startShard')
      session.down({ kind: 'start', order: { ...order, command: action.command } });
    else {
      const { shardId, generation, graceMs } = action.command;
      session.down({ kind: 'stop', order: { ...order, shardId, generation, graceMs } });
    }
  }

  #forgetRefusals(): void {
    for (const key of this.#refusals.keys()) {
      const wanted = [...this.world.store.contents.replicas.values()].some((record) =>
        record.shards.some((shard) => shardKey(shard.shardId, record.generation) === key),
      );
      if (!wanted) this.#refusals.delete(key);
    }
  }
}
