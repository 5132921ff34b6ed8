import type { ReplicaState } from '../domain/cluster.js';
import type { ModelSpec } from '../domain/model-spec.js';
import type { PublishedReplica } from '../domain/plan.js';
import type { RouteEndpoint, RouteModel, RoutingTable } from '../router/ports.js';

/** How a model stands apart from its published replicas. */
export interface ModelProspect {
  /** States of its replicas that are meant to run. */
  readonly states: readonly ReplicaState[];
  /** Expected time until the first of them is Ready, ms; undefined while unknown. */
  readonly expectedReadyMs?: number;
  /** A replica without a place will get one: the pass chose one, or decisions are only held back after a start. */
  readonly placementExpected: boolean;
}

export interface RoutingInput {
  readonly version: number;
  readonly models: readonly ModelSpec[];
  readonly published: readonly PublishedReplica[];
  readonly prospects: ReadonlyMap<string, ModelProspect>;
  readonly defaultProfile: string;
  /** Models that static endpoints of the configuration serve whatever the control plane does. */
  readonly staticModels: ReadonlySet<string>;
}

/** The router's table: exactly the published replicas, and every model of the catalog with its outlook. */
export function buildRoutingTable(input: RoutingInput): RoutingTable {
  const served = new Set(input.published.map((replica) => replica.model));
  return {
    version: input.version,
    models: input.models.map((model) => routeModel(model, input, served)),
    endpoints: input.published.map(routeEndpoint),
  };
}

function routeEndpoint(replica: PublishedReplica): RouteEndpoint {
  return {
    id: replica.replicaId,
    generation: replica.generation,
    protocol: 'http',
    host: replica.address,
    port: replica.port,
    basePath: '',
    models: [replica.model],
    pool: replica.profile,
    weight: replica.weight,
    engine: replica.engine,
    nodeId: replica.nodeId,
    ...(replica.maxConcurrency === undefined ? {} : { maxConcurrency: replica.maxConcurrency }),
  };
}

function routeModel(model: ModelSpec, input: RoutingInput, served: ReadonlySet<string>): RouteModel {
  const prospect = input.prospects.get(model.name);
  const outlook =
    served.has(model.name) || input.staticModels.has(model.name) ? 'ready' : outlookOf(prospect);
  return {
    name: model.name,
    aliases: model.aliases,
    routingProfile: model.routing ?? input.defaultProfile,
    fallback: model.fallback,
    ...(model.canary === undefined ? {} : { canary: model.canary }),
    desired: model.replicas,
    outlook,
    ...(outlook === 'coming' && prospect?.expectedReadyMs !== undefined
      ? { expectedReadyMs: prospect.expectedReadyMs }
      : {}),
  };
}

/** Whether a model without a Ready replica will have one without anybody's help. */
export function outlookOf(prospect: ModelProspect | undefined): 'coming' | 'none' {
  if (prospect === undefined) return 'none';
  return prospect.states.some((state) => isComing(state, prospect.placementExpected)) ? 'coming' : 'none';
}

/** Whether waiting makes sense: something is on its way to Ready, or will be tried again by itself. */
function isComing(state: ReplicaState, placementExpected: boolean): boolean {
  switch (state) {
    case 'starting':
    case 'loading':
    case 'ready':
    case 'unhealthy':
    case 'unreachable':
    case 'unknown':
    case 'backoff':
      return true;
    case 'pending':
      return placementExpected;
    case 'draining':
    case 'stopping':
    case 'failed':
      return false;
  }
}
