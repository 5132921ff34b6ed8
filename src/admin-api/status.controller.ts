import { Controller, Get, Inject, Optional } from '@nestjs/common';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';
import type { Reason } from '../domain/cluster.js';
import { counted } from '../domain/placement/reasons.js';
import type { InventoryService, RefusedAgent } from '../inventory/inventory.service.js';
import { ROUTER_PORT, type RouterPort } from '../router/ports.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { formatProblem } from '../shared/errors.js';
import { STATE_STORE, type StateStore } from '../store/ports.js';
import { Doc } from './api-doc.js';
import { certificateView, certificateWarnings } from './certificate-state.js';
import { ClusterReader, type ClusterReading } from './cluster-reader.js';
import { clusterWarnings } from './cluster-warnings.js';
import { READINESS, type Readiness } from './readiness.js';
import { RequireRole } from './roles.js';
import { SERVER_FACTS, type ServerFacts } from './server-facts.js';
import { countBy, known, ViewTimes } from './view-times.js';
import type { ConfigStatusView } from './views/configuration.js';
import type { PlanSummaryView, StatusView } from './views/status.js';

/** The state of the whole at a glance. */
@Controller('admin/v1/status')
@RequireRole('viewer')
export class StatusController {
  constructor(
    @Inject(SERVER_FACTS) private readonly facts: ServerFacts,
    @Inject(SERVER_CONFIG) private readonly config: ServerConfig,
    @Inject(ROUTER_PORT) private readonly router: RouterPort,
    @Inject(STATE_STORE) private readonly store: StateStore,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(READINESS) private readonly readiness: Readiness,
    @Optional() @Inject(ClusterReader) private readonly cluster: ClusterReader | null,
  ) {}

  @Get()
  @Doc({ summary: 'The state of the whole at a glance.', returns: 'StatusView' })
  status(): StatusView {
    const times = new ViewTimes(this.clock);
    const reading = this.cluster?.read();
    const endpoints = this.router.endpoints();
    const inflight = [...this.router.inflight().values()].reduce((sum, one) => sum + one, 0);
    const store = this.store.health();
    const config = configStatus(this.facts);
    const { certificates } = this.facts;
    return {
      version: this.facts.version,
      mode: this.facts.mode,
      now: times.now(),
      startedAt: times.wall(this.facts.startedWallMs),
      uptimeMs: Math.round(times.nowMs - this.facts.startedMs),
      pid: process.pid,
      addresses: this.facts.addresses,
      models: this.modelCounts(
        endpoints.filter((one) => one.state === 'up').flatMap((one) => one.endpoint.models),
      ),
      endpoints: { total: endpoints.length, up: endpoints.filter((one) => one.state === 'up').length },
      requestsInFlight: inflight,
      store,
      config,
      ...known('certificates', certificates.length === 0 ? undefined : certificates.map(certificateView)),
      warnings: [
        ...stopping(this.readiness.stoppingSince, inflight),
        ...warningsOf(store, config),
        ...certificateWarnings(certificates, this.clock.wallMs()),
        ...(reading === undefined ? [] : clusterWarnings(reading)),
        ...strangers(this.cluster?.inventory, this.clock.wallMs()),
      ],
      ...clusterCounts(reading),
      ...known('term', reading?.snapshot.term),
      ...known('plan', planSummary(reading)),
    };
  }

  private modelCounts(served: readonly string[]): StatusView['models'] {
    const names = new Set([
      ...this.config.models.map((model) => model.name),
      ...this.config.endpoints.flatMap((endpoint) => endpoint.models),
    ]);
    const ready = new Set(served);
    return { total: names.size, ready: [...names].filter((name) => ready.has(name)).length };
  }
}

/** Refused agents told of in one status. */
const STRANGERS_TOLD = 8;

/** An agent that is turned away asks again within a minute; one that was silent for longer has ended. */
const RIVAL_TOLD_MS = 150_000;

/**
 * Agents that were refused under an id no node is known by, where the list of nodes has no line to say it in, and those that
 * lately wanted the id of a connected one.
 */
function strangers(
  inventory: Pick<InventoryService, 'refusedAgents' | 'record'> | undefined,
  nowWallMs: number,
): readonly Reason[] {
  if (inventory === undefined) return [];
  const isRival = ({ reason, atWallMs }: RefusedAgent): boolean =>
    reason.code === 'nodeIdTaken' && nowWallMs - atWallMs < RIVAL_TOLD_MS;
  const told = [...inventory.refusedAgents()].filter(
    ([id, refused]) => inventory.record(id) === undefined || refused.slice(-1).some(isRival),
  );
  return told.slice(-STRANGERS_TOLD).flatMap(([nodeId, refused]) =>
    refused.slice(-1).map(({ from, reason, count }) => ({
      code: 'agent_refused',
      message: `an agent at ${from} that calls itself ${nodeId} was refused${count > 1 ? ` ${count} times` : ''}: ${reason.message}`,
      numbers: { count },
    })),
  );
}

export function configStatus(facts: ServerFacts): ConfigStatusView {
  return {
    loadedAt: new Date(facts.configLoadedWallMs).toISOString(),
    ...known(
      'lastReloadAt',
      facts.configTriedWallMs === undefined ? undefined : new Date(facts.configTriedWallMs).toISOString(),
    ),
    ...known('lastError', facts.configProblems?.map(formatProblem).join('\n')),
    ...known('problems', facts.configProblems),
    ...(facts.configNeedsRestart.length === 0 ? {} : { needsRestart: facts.configNeedsRestart }),
  };
}

function clusterCounts(reading: ClusterReading | undefined): Pick<StatusView, 'replicas' | 'nodes' | 'gpus'> {
  const nodes = reading?.snapshot.nodes ?? [];
  const gpus = nodes.flatMap((node) => node.gpus);
  const models = reading?.snapshot.models ?? [];
  return {
    replicas: {
      desired: models.reduce((sum, model) => sum + model.replicas, 0),
      byState: countBy((reading?.replicas ?? []).map((replica) => replica.state)),
    },
    nodes: { total: nodes.length, byState: countBy(nodes.map((node) => node.liveness)) },
    gpus: { total: gpus.length, byHealth: countBy(gpus.map((gpu) => gpu.health.state)) },
  };
}

function planSummary(reading: ClusterReading | undefined): PlanSummaryView | undefined {
  const pass = reading?.pass;
  if (reading === undefined || pass === undefined) return undefined;
  return {
    number: pass.plan.number,
    at: reading.times.wall(pass.atWallMs),
    actions: pass.plan.actions.length,
    durationMs: Math.round(pass.durationMs * 10) / 10,
    notDone: pass.plan.notDone,
    ...known('refused', pass.refused),
  };
}

function stopping(since: string | undefined, inflight: number): readonly Reason[] {
  if (since === undefined) return [];
  const left = counted(inflight, 'request');
  return [
    {
      code: 'server_stopping',
      message: `the server is stopping since ${since}: ${left} in flight may end, engines run on`,
    },
  ];
}

function warningsOf(store: { ok: boolean; reason?: string }, config: ConfigStatusView): readonly Reason[] {
  return [
    ...(store.ok
      ? []
      : [{ code: 'store_unavailable', message: `nothing can be decided or changed: ${store.reason ?? ''}` }]),
    ...(config.lastError === undefined
      ? []
      : [
          {
            code: 'config_refused',
            message: `the configuration in force is the one before: ${config.lastError}`,
          },
        ]),
    ...(config.needsRestart === undefined
      ? []
      : [
          {
            code: 'config_needs_restart',
            message: `changed, but taken over only when the server is restarted: ${config.needsRestart.join(', ')}`,
          },
        ]),
  ];
}
