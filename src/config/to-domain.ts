/** From configuration to what the control plane and the router work with. */
import { readFileSync } from 'node:fs';
import type { EnvValue, ModelSpec, Profile } from '../domain/model-spec.js';
import type { RouteEndpoint } from '../router/ports.js';
import { parseEndpointUrl } from './address.js';
import { withCanary } from './canary.js';
import type {
  EndpointConfig,
  EnvFromFile,
  ModelConfig,
  ProfileConfig,
  ServerConfig,
} from './server-config.js';

/** The declared models, in the order of the file. Those without profiles live on static endpoints alone. */
export function toModelSpecs(config: Pick<ServerConfig, 'models'>): ModelSpec[] {
  return config.models.map(toModelSpec);
}

function toModelSpec(model: ModelConfig): ModelSpec {
  return {
    name: model.name,
    aliases: model.aliases,
    ...(model.source === undefined ? {} : { source: model.source }),
    // Nothing can be started without a profile, so nothing is wanted either.
    replicas: model.profiles.length === 0 ? 0 : model.replicas,
    ...(model.routing === undefined ? {} : { routing: model.routing }),
    fallback: model.fallback,
    ...withCanary(model),
    priority: model.priority,
    placement: {
      strategy: model.placement.strategy,
      nodeSelector: model.placement.nodeSelector,
      ...(model.placement.spreadBy === undefined ? {} : { spreadBy: model.placement.spreadBy }),
      antiAffinity: model.placement.antiAffinity,
      ...(model.placement.mayYield ? { mayYield: true } : {}),
    },
    profiles: model.profiles.map(toProfile),
    onNoSurge: model.onNoSurge,
  };
}

function toProfile(profile: ProfileConfig): Profile {
  return {
    name: profile.name,
    engine: profile.engine,
    shards: profile.shards,
    gpus: profile.gpus,
    ...(profile.gpuMemory === undefined ? {} : { gpuMemoryBytes: profile.gpuMemory }),
    ...(profile.gpuType === undefined ? {} : { gpuType: profile.gpuType }),
    args: profile.args,
    env: Object.fromEntries(Object.entries(profile.env).map(([name, value]) => [name, toEnvValue(value)])),
    ...(profile.maxConcurrency === undefined ? {} : { maxConcurrency: profile.maxConcurrency }),
    startTimeoutMs: profile.startTimeout,
    stopGraceMs: profile.stopGrace,
    weight: profile.weight,
  };
}

const toEnvValue = (value: string | EnvFromFile): EnvValue =>
  typeof value === 'string' ? { value } : { fromFile: value.fromFile };

/**
 * The static endpoints with their keys read from their files.
 * Throws when a key file cannot be read: an endpoint without its key would only answer 401.
 */
export function toStaticEndpoints(config: Pick<ServerConfig, 'endpoints'>): RouteEndpoint[] {
  return config.endpoints.map(toRouteEndpoint);
}

function toRouteEndpoint(endpoint: EndpointConfig): RouteEndpoint {
  const target = parseEndpointUrl(endpoint.url);
  if (!target.ok) throw new Error(`endpoint ${endpoint.id}: ${target.problem}`);
  return {
    id: endpoint.id,
    generation: 0,
    ...target.value,
    models: endpoint.models,
    pool: endpoint.pool,
    weight: endpoint.weight,
    engine: endpoint.engine,
    ...(endpoint.maxConcurrency === undefined ? {} : { maxConcurrency: endpoint.maxConcurrency }),
    ...(endpoint.apiKeyFile === undefined
      ? {}
      : { apiKey: readFileSync(endpoint.apiKeyFile, 'utf8').trim() }),
  };
}
