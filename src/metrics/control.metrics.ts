import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { Counter, Gauge, Histogram, register } from 'prom-client';
import { AgentGatewayService } from '../agent-gateway/agent-gateway.service.js';
import { REPLICA_STATES, type NodeLiveness } from '../domain/cluster.js';
import type { Action } from '../domain/plan.js';
import type { Snapshot } from '../domain/snapshot.js';
import { drainRemains, isDrained } from '../domain/reconcile/drain.js';
import { viewReplicas } from '../domain/reconcile/replica-state.js';
import { ReconcilerService, type PassObserver, type PassRecord } from '../reconciler/reconciler.service.js';
import { CLOCK, type Clock } from '../shared/clock.js';

const PASS_BUCKETS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];
const NODE_STATES: readonly NodeLiveness[] = ['unseen', 'connected', 'unreachable', 'lost', 'flapping'];
const GPU_STATES = ['healthy', 'suspect', 'excluded', 'unknown'] as const;

/**
 * The control plane in numbers. Everything that is a state is read at scrape time from the same snapshot decisions are
 * made on, so a series of something deleted is gone with the next scrape.
 */
@Injectable()
export class ControlMetrics implements PassObserver, OnModuleInit {
  private readonly passSeconds = new Histogram({
    name: 'llmgw_reconcile_duration_seconds',
    help: 'Time of one reconcile pass.',
    buckets: PASS_BUCKETS_SECONDS,
    registers: [register],
  });
  private readonly lastSuccess = new Gauge({
    name: 'llmgw_reconcile_last_success_timestamp_seconds',
    help: 'When a plan was last carried out.',
    registers: [register],
  });
  private readonly plansRefused = new Counter({
    name: 'llmgw_plans_refused_total',
    help: 'Plans that broke an invariant and were not carried out.',
    labelNames: ['violation'],
    registers: [register],
  });
  private readonly plansNotStored = new Counter({
    name: 'llmgw_plans_not_stored_total',
    help: 'Plans that were not carried out because the store did not take them.',
    registers: [register],
  });
  private readonly actions = new Counter({
    name: 'llmgw_plan_actions_total',
    help: 'Steps carried out, by kind.',
    labelNames: ['kind'],
    registers: [register],
  });
  private readonly restarts = new Counter({
    name: 'llmgw_shard_restarts_total',
    help: 'Failures that led to another start, by cause.',
    labelNames: ['model', 'cause'],
    registers: [register],
  });
  private readonly placementFailures = new Counter({
    name: 'llmgw_placement_failures_total',
    help: 'Times a replica that wants a place began to have none, by the first reason.',
    labelNames: ['reason'],
    registers: [register],
  });
  /** Models without a place in the last pass: a state that lasts counts once. */
  private unplaced: ReadonlySet<string> = new Set();

  constructor(
    @Inject(ReconcilerService) private readonly reconciler: ReconcilerService,
    @Inject(AgentGatewayService) private readonly gateway: AgentGatewayService,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {
    this.registerStates();
    this.registerAgents();
  }

  /** Not in the constructor: the reconciler is built around a forward reference, and what is set on it before that is lost. */
  onModuleInit(): void {
    this.reconciler.observe(this);
  }

  passEnded(record: PassRecord): void {
    this.passSeconds.observe(record.durationMs / 1_000);
    if (record.refused !== undefined) this.plansRefused.inc({ violation: record.refused.code });
    else if (record.notStored !== undefined) this.plansNotStored.inc();
    else this.lastSuccess.set(record.atWallMs / 1_000);
    const unplaced = new Map(
      record.plan.explanations
        .filter((one) => one.chosen === undefined)
        .map((one) => [one.model, (one.blocked ?? one.counterfactual)?.code ?? 'no_place']),
    );
    for (const [model, reason] of unplaced)
      if (!this.unplaced.has(model)) this.placementFailures.inc({ reason });
    this.unplaced = new Set(unplaced.keys());
  }

  actionDone(action: Action): void {
    this.actions.inc({ kind: action.kind });
    if (action.kind === 'putBackoff') {
      this.restarts.inc({ model: action.record.model, cause: action.record.cause });
    }
  }

  private registerStates(): void {
    const { reconciler, clock } = this;
    gauge('llmgw_replicas', 'Replicas by state.', ['model', 'state'], (set) => {
      const snapshot = reconciler.snapshot();
      const counts = new Map<string, number>();
      for (const { record, state } of viewReplicas(snapshot, clock.monotonicMs(), clock.wallMs())) {
        const key = JSON.stringify([record.model, state]);
        counts.set(key, (counts.get(key) ?? 0) + 1);
      }
      for (const model of modelNames(snapshot)) {
        // Zeros too: an alert on "no ready replica" must see the series.
        for (const state of REPLICA_STATES)
          set({ model, state }, counts.get(JSON.stringify([model, state])) ?? 0);
      }
    });
    gauge('llmgw_replicas_desired', 'Replicas wanted.', ['model'], (set) => {
      for (const model of reconciler.snapshot().models) set({ model: model.name }, model.replicas);
    });
    gauge('llmgw_nodes', 'Nodes by state.', ['state'], (set) => {
      const { nodes } = reconciler.snapshot();
      for (const state of NODE_STATES) set({ state }, nodes.filter((node) => node.liveness === state).length);
    });
    gauge('llmgw_gpus', 'Devices by health.', ['state'], (set) => {
      const gpus = reconciler.snapshot().nodes.flatMap((node) => node.gpus);
      for (const state of GPU_STATES) set({ state }, gpus.filter((gpu) => gpu.health.state === state).length);
    });
    gauge('llmgw_drain_active', 'Nodes being drained that still hold replicas.', [], (set) => {
      const { nodes, replicas } = reconciler.snapshot();
      const active = nodes.filter(
        (node) => node.intent.target === 'drained' && !isDrained(drainRemains(node, replicas)),
      );
      set({}, active.length);
    });
  }

  private registerAgents(): void {
    const { gateway } = this;
    gauge('llmgw_agents_connected', 'Agents with an open stream.', [], (set) => {
      set({}, gateway.connectedNodes().length);
    });
    counter(
      'llmgw_agent_stream_restarts_total',
      'Agent streams that ended.',
      () => gateway.counts.streamsLost,
    );
    counter('llmgw_agents_refused_total', 'Agents that were not taken.', () => gateway.counts.agentsRefused);
    counter('llmgw_agent_messages_refused_total', 'Messages of agents that made no sense.', () => {
      return gateway.counts.messagesRefused;
    });
  }
}

function modelNames(snapshot: Snapshot): readonly string[] {
  return [
    ...new Set([...snapshot.models.map((model) => model.name), ...snapshot.replicas.map((one) => one.model)]),
  ];
}

type SetSeries = (labels: Readonly<Record<string, string>>, value: number) => void;

/** A gauge read at scrape time; what is not set then is gone. */
function gauge(
  name: string,
  help: string,
  labelNames: readonly string[],
  read: (set: SetSeries) => void,
): void {
  register.registerMetric(
    new Gauge({
      name,
      help,
      labelNames: [...labelNames],
      registers: [],
      collect() {
        this.reset();
        read((labels, value) => this.set(labels, value));
      },
    }),
  );
}

/** A counter kept elsewhere as a plain number. */
function counter(name: string, help: string, read: () => number): void {
  register.registerMetric(
    new Counter({
      name,
      help,
      registers: [],
      collect() {
        this.reset();
        this.inc(read());
      },
    }),
  );
}
