import type { ModelConfig, ServerConfig } from '../config/server-config.js';
import type { EndpointStatus } from '../router/ports.js';
import { known } from './view-times.js';
import type { ModelDetailView, ModelSummaryView } from './views/models.js';

/** Models that only static endpoints serve, sorted by name; those of the catalog (`placed`) are left out. */
export function staticModelNames(
  endpoints: readonly EndpointStatus[],
  placed: ReadonlySet<string> = new Set(),
): readonly string[] {
  const names = new Set(endpoints.flatMap(({ endpoint }) => endpoint.models));
  return [...names].filter((name) => !placed.has(name)).sort();
}

/** A model nobody places or starts: it is there as long as an endpoint that is said to serve it is. */
export function staticModelSummary(
  name: string,
  endpoints: readonly EndpointStatus[],
  config: ServerConfig,
): ModelSummaryView {
  const own = endpoints.filter(({ endpoint }) => endpoint.models.includes(name));
  // One without a sign of life yet gets requests like any other: only what is known to be gone counts as gone.
  const gone = own.filter(({ state }) => state === 'down' || state === 'ejected');
  const served = gone.length < own.length;
  const declared = declaredModel(name, config);
  return {
    name,
    aliases: declared?.aliases ?? [],
    desired: 0,
    ready: 0,
    byState: {},
    outlook: served ? 'ready' : 'none',
    routingProfile: declared?.routing ?? config.router.defaultProfile,
    conditions: [],
    staticEndpoints: own.map(({ endpoint }) => endpoint.id),
    ...known(
      'reason',
      served ? undefined : { code: 'endpoints_down', message: gone.map((one) => whyGone(one)).join('; ') },
    ),
  };
}

export function staticModelDetail(
  name: string,
  endpoints: readonly EndpointStatus[],
  config: ServerConfig,
): ModelDetailView {
  const declared = declaredModel(name, config);
  return {
    ...staticModelSummary(name, endpoints, config),
    profiles: [],
    fallback: declared?.fallback ?? [],
    priority: declared?.priority ?? 0,
    replicas: [],
    learned: [],
    backoffs: [],
    notDone: [],
  };
}

const declaredModel = (name: string, { models }: ServerConfig): ModelConfig | undefined =>
  models.find((model) => model.name === name);

const whyGone = ({ endpoint, state, reason }: EndpointStatus): string =>
  `${endpoint.id} is ${state}${reason === undefined ? '' : `: ${reason}`}`;
