import {
  forwardRef,
  Inject,
  Injectable,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
  type OnModuleInit,
} from '@nestjs/common';
import { shardKey, type Reason } from '../domain/cluster.js';
import type { Action, Plan } from '../domain/plan.js';
import type { Snapshot } from '../domain/snapshot.js';
import { checkPlan } from '../domain/reconcile/check-plan.js';
import { startRefusal } from '../domain/reconcile/refusal.js';
import { viewReplicas } from '../domain/reconcile/replica-state.js';
import { EVENT_LOG, type EventLog } from '../events/event-log.js';
import { errorChain } from '../shared/errors.js';
import { StoreError } from '../store/ports.js';
import { ClusterState, planOps } from './cluster-state.js';
import { DeviceStory, type LastTold } from './device-story.js';
import { DrainNotices } from './drain-notices.js';
import { planEvents, type SeenState, stateEvents } from './plan-events.js';
import { LinkStory } from './link-story.js';
import {
  DISPATCHER,
  type CommandAnswer,
  type Dispatcher,
  type LinkChange,
  type StatusSink,
} from './ports.js';
import { modelProspects } from './prospects.js';
import { ReconcileLoop } from './reconcile-loop.js';
import { RECONCILER_SETTINGS, type ReconcilerSettings } from './reconciler-settings.js';
import { RoutePublisher } from './route-publisher.js';

/** How the last passes went; for status and metrics. */
export interface PassRecord {
  readonly plan: Plan;
  readonly atWallMs: number;
  readonly durationMs: number;
  /** The plan broke an invariant and nothing of it was done. */
  readonly refused?: Reason;
  /** The store took nothing and nothing of the plan was done. */
  readonly notStored?: string;
}

/** Told of passes and actions, for the metrics. */
export interface PassObserver {
  passEnded(record: PassRecord): void;
  actionDone(action: Action): void;
}

/**
 * The loop that makes what is true into what is wanted. It decides nothing itself: it brings the facts together, lets the
 * domain decide, has the plan checked, stores it, and only then carries it out, in an order that is safe to break off
 * anywhere: stored, then unpublished, then stopped, then started.
 *
 * The one class with a forward reference: Nest builds such a class as a copy of its prototype with the fields assigned,
 * so it has no `#private` members, and nothing made in its constructor may capture `this`.
 */
@Injectable()
export class ReconcilerService
  implements StatusSink, OnModuleInit, OnApplicationBootstrap, BeforeApplicationShutdown
{
  private loop: ReconcileLoop | undefined;
  private startedMs = 0;
  private readonly drains = new DrainNotices();
  private last: PassRecord | undefined;
  private lastSuccess: PassRecord | undefined;
  private states: ReadonlyMap<string, SeenState> = new Map();
  private observer: PassObserver | undefined;
  private readonly links = new LinkStory();
  private readonly devices = new DeviceStory();
  /** Violations and store failures already in the log, so that two-second repetitions are not. */
  private alarmed = '';

  constructor(
    @Inject(forwardRef(() => DISPATCHER)) private readonly dispatcher: Dispatcher,
    @Inject(ClusterState) private readonly state: ClusterState,
    @Inject(RoutePublisher) private readonly publisher: RoutePublisher,
    @Inject(EVENT_LOG) private readonly events: EventLog,
    @Inject(RECONCILER_SETTINGS) private readonly settings: ReconcilerSettings,
  ) {}

  /** The first pass comes before any listener is open: the router serves from the stored decisions at once. */
  onModuleInit(): void {
    this.startedMs = this.settings.clock.monotonicMs();
    this.states = this.statesOf(this.snapshot());
    this.tick();
  }

  onApplicationBootstrap(): void {
    this.loop = new ReconcileLoop(
      this.settings.clock,
      () => this.settings.intervalMs,
      () => this.tick(),
    );
    this.publisher.onEvidence(() => this.wake());
    this.loop.start();
  }

  /** From here on nothing is decided: agents go on with what they have, and engines do not notice. */
  beforeApplicationShutdown(): void {
    this.loop?.stop();
    this.loop = undefined;
  }

  // ------------------------------------------------------------ what wakes it

  nodeChanged(): void {
    this.wake();
  }

  linkChanged(nodeId: string, change: LinkChange): void {
    const event = this.links.tell(nodeId, change, this.settings.clock.monotonicMs());
    if (event !== undefined) this.events.append(event);
  }

  commandAnswered(nodeId: string, answer: CommandAnswer): void {
    if (answer.outcome === 'refused' && answer.shardKey !== undefined) {
      this.settings.logger.warn(
        { node: nodeId, shard: answer.shardKey, verdict: answer.verdict },
        `an agent refused a command: ${answer.message ?? 'no message'}`,
      );
      const refusal = startRefusal(answer);
      if (refusal !== undefined) this.state.commandRefused(answer.shardKey, refusal);
      if (answer.cause === 'staleTerm')
        this.linkChanged(nodeId, { kind: 'staleTerm', message: answer.message ?? 'no message' });
    }
    this.wake();
  }

  /** Something changed that the loop should look at soon. */
  wake(): void {
    this.loop?.wake();
  }

  // ------------------------------------------------------------ what others may see

  observe(observer: PassObserver): void {
    this.observer = observer;
  }

  /** The world as of now, as the next pass would see it. */
  snapshot(): Snapshot {
    return this.state.snapshot(this.startedMs);
  }

  /** The last pass; undefined before the first. */
  lastPass(): PassRecord | undefined {
    return this.last;
  }

  /** The last pass that was carried out. */
  lastGoodPass(): PassRecord | undefined {
    return this.lastSuccess;
  }

  get settling(): boolean {
    const { clock, policy } = this.settings;
    if (this.lastSuccess?.plan.memory.stateLost !== undefined) return true;
    return clock.monotonicMs() - this.startedMs < policy.settleAfterStartMs;
  }

  // ------------------------------------------------------------ the pass

  /**
   * One pass. Safe at any time, any number of times. Never throws: a fault in a decision must not take the data plane of
   * the same process down with it. It is alarmed like a plan that breaks an invariant, and nothing is done.
   */
  tick(): void {
    const { clock } = this.settings;
    const startMs = clock.monotonicMs();
    let record: PassRecord;
    try {
      record = this.pass(startMs);
    } catch (error) {
      record = this.failedPass(error, startMs);
    }
    this.last = record;
    if (record.refused === undefined && record.notStored === undefined) {
      this.lastSuccess = record;
      this.alarmed = '';
    }
    this.observer?.passEnded(record);
  }

  private pass(startMs: number): PassRecord {
    const { clock, policy, random, decide } = this.settings;
    const snapshot = this.snapshot();
    const plan = decide(snapshot, policy, { nowMs: startMs, nowWallMs: clock.wallMs(), random });
    const problem = this.refusalOf(snapshot, plan) ?? this.store(snapshot, plan);
    if (problem === undefined) this.carryOut(plan);
    else this.state.planDropped(plan);
    return { plan, atWallMs: clock.wallMs(), durationMs: clock.monotonicMs() - startMs, ...problem };
  }

  private failedPass(error: unknown, startMs: number): PassRecord {
    const { clock, logger } = this.settings;
    const refused = { code: 'pass_failed', message: errorChain(error).join(': ') };
    if (this.isNews(`failed ${refused.message}`)) {
      logger.error({ err: error }, 'a reconcile pass failed; nothing is decided until one succeeds');
      this.tellAlarm('PassFailed', refused);
    }
    const plan = this.last?.plan ?? emptyPlan(this.snapshot());
    return { plan, atWallMs: clock.wallMs(), durationMs: clock.monotonicMs() - startMs, refused };
  }

  private tellAlarm(type: string, reason: Reason): void {
    this.events.append({
      type,
      severity: 'error',
      subject: { kind: 'server', id: 'reconciler' },
      reason,
      actor: 'reconciler',
    });
  }

  /** A plan that breaks an invariant is a fault of ours: nothing of it is done, and everybody hears of it. */
  private refusalOf(snapshot: Snapshot, plan: Plan): Pick<PassRecord, 'refused'> | undefined {
    const violations = checkPlan(snapshot, plan);
    const [first] = violations;
    if (first === undefined) return undefined;
    const refused = {
      code: first.code,
      message: violations.map((one) => `${one.code} (${one.subject}): ${one.message}`).join('; '),
    };
    if (this.isNews(`refused ${refused.message}`)) {
      this.settings.logger.error(
        { plan: plan.number, violations },
        'a plan breaks an invariant and is not carried out',
      );
      this.tellAlarm('PlanRefused', refused);
    }
    return { refused };
  }

  /** Stores decisions and events in one transaction. On failure nothing may be done that the store does not know. */
  private store(snapshot: Snapshot, plan: Plan): Pick<PassRecord, 'notStored'> | undefined {
    const ops = [...this.state.pendingOps(), ...this.state.stateLostOps(plan), ...planOps(plan)];
    const events = [...this.state.pendingEvents(), ...planEvents(plan, snapshot)];
    try {
      this.events.commit(ops, events);
      this.state.pendingStored();
      return undefined;
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      const notStored = errorChain(error).join(': ');
      if (this.isNews(`store ${notStored}`)) {
        this.settings.logger.error(
          { code: error.code, causes: errorChain(error) },
          'decisions cannot be stored',
        );
      }
      if (ops.length > 0) return { notStored };
      // No decision was lost, only its story for now; what the plan says beyond decisions may go ahead.
      for (const event of events) this.events.append(event);
      return undefined;
    }
  }

  private carryOut(plan: Plan): void {
    this.state.noteLiveness(plan);
    this.publish(plan);
    for (const action of plan.actions) if (action.kind === 'abortInflight') this.publisher.abort(action);
    this.drains.tell(plan.actions, (command) => this.dispatcher.drainShard(plan.term, command).sent);
    const unsent = plan.actions.flatMap((action) => this.dispatch(plan.term, action) ?? []);
    this.state.planDone(plan, unsent);
    for (const action of plan.actions) this.observer?.actionDone(action);
  }

  private publish(plan: Plan): void {
    const snapshot = this.snapshot();
    const { clock } = this.settings;
    const nowMs = clock.monotonicMs();
    const replicas = viewReplicas(snapshot, nowMs, clock.wallMs());
    const prospects = modelProspects({
      replicas,
      learned: snapshot.learned,
      memory: plan.memory,
      plan,
      settling: this.settling,
      nowMs,
    });
    this.publisher.publish(plan.published, prospects);
    for (const event of stateEvents(this.states, replicas)) this.events.append(event);
    const lastTold: LastTold = (kind, id, types) =>
      this.events
        .list({ kind, id })
        .findLast(({ subject, type }) => subject.id === id && types.includes(type))?.type;
    for (const event of this.devices.tell(snapshot.nodes, nowMs, lastTold)) this.events.append(event);
    this.states = new Map(replicas.map((replica) => [replica.record.id, replica]));
  }

  /** Sends a command; the key under which the plan's memory counts it as sent, when it could not be. */
  private dispatch(term: number, action: Action): string | undefined {
    if (action.kind === 'startShard') {
      const { command } = action;
      const result = this.dispatcher.startShard(term, command);
      return result.sent ? undefined : `start:${shardKey(command.shardId, command.generation)}`;
    }
    if (action.kind === 'stopShard') {
      const { command } = action;
      const result = this.dispatcher.stopShard(term, command, action.reason.message);
      return result.sent ? undefined : `stop:${shardKey(command.shardId, command.generation)}`;
    }
    return undefined;
  }

  private statesOf(snapshot: Snapshot): ReadonlyMap<string, SeenState> {
    const { clock } = this.settings;
    const replicas = viewReplicas(snapshot, clock.monotonicMs(), clock.wallMs());
    return new Map(replicas.map((replica) => [replica.record.id, replica]));
  }

  private isNews(alarm: string): boolean {
    if (alarm === this.alarmed) return false;
    this.alarmed = alarm;
    return true;
  }
}

/** Stands in where no pass ever got as far as a plan. */
function emptyPlan(snapshot: Snapshot): Plan {
  return {
    number: snapshot.planNumber,
    term: snapshot.term,
    actions: [],
    notDone: [],
    published: [],
    explanations: [],
    conditions: [],
    events: [],
    memory: snapshot.memory,
  };
}
