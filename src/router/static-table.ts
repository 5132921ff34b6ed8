import { readFileSync } from 'node:fs';
import type { EndpointConfig, ServerConfig } from '../config/server-config.js';
import { withCanary } from '../config/canary.js';
import type { RouteEndpoint, RouteModel, RoutingTable } from './ports.js';

/** Reads a secret file; its trailing line break is not part of the secret. */
const readSecret = (path: string): string => readFileSync(path, 'utf8').trim();

/** A static endpoint of the configuration as the routing table has it. Throws when its key file cannot be read. */
export function staticEndpoint(config: EndpointConfig, readKey = readSecret): RouteEndpoint {
  const url = new URL(config.url);
  const secure = url.protocol === 'https:';
  const basePath = url.pathname.replace(/\/+$/, '');
  return {
    id: config.id,
    generation: 0,
    protocol: secure ? 'https' : 'http',
    host: url.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: url.port === '' ? (secure ? 443 : 80) : Number(url.port),
    // People copy base URLs from SDK settings; our paths bring the version prefix themselves.
    basePath: basePath.endsWith('/v1') ? basePath.slice(0, -3) : basePath,
    models: config.models,
    pool: config.pool,
    weight: config.weight,
    engine: config.engine,
    ...(config.maxConcurrency === undefined ? {} : { maxConcurrency: config.maxConcurrency }),
    ...(config.apiKeyFile === undefined ? {} : { apiKey: readKey(config.apiKeyFile) }),
  };
}

/**
 * What the configuration alone lets the router serve: its static endpoints and the models they name, with aliases and
 * routing profiles where the catalog declares them.
 */
export function staticTable(config: ServerConfig, readKey = readSecret): Omit<RoutingTable, 'version'> {
  const endpoints = config.endpoints.map((endpoint) => staticEndpoint(endpoint, readKey));
  const served = new Set(endpoints.flatMap((endpoint) => endpoint.models));
  const declared = new Map(config.models.map((model) => [model.name, model]));
  const names = new Set([...declared.keys(), ...served]);
  const models = [...names].map((name): RouteModel => {
    const model = declared.get(name);
    return {
      name,
      aliases: model?.aliases ?? [],
      routingProfile: model?.routing ?? config.router.defaultProfile,
      fallback: model?.fallback ?? [],
      ...withCanary(model),
      desired: model?.replicas ?? 0,
      outlook: served.has(name) ? 'ready' : 'none',
    };
  });
  return { models, endpoints };
}

/** A published table with the static endpoints added: they are there whatever the control plane does. */
export function withStatic(table: RoutingTable, fixed: Omit<RoutingTable, 'version'>): RoutingTable {
  const published = new Set(table.endpoints.map((endpoint) => endpoint.id));
  const known = new Set(table.models.map((model) => model.name));
  return {
    version: table.version,
    endpoints: [...table.endpoints, ...fixed.endpoints.filter((endpoint) => !published.has(endpoint.id))],
    models: [...table.models, ...fixed.models.filter((model) => !known.has(model.name))],
  };
}
