import type { EnvFromFile, ModelConfig, ProfileConfig } from '../config/server-config.js';
import type { EnvValue, ModelSpec, Profile } from '../domain/model-spec.js';

/** What operators changed about a model at run time; stored, and stronger than the configuration. */
export interface ModelOverride {
  /** Set by `ctl scale`. */
  readonly replicas?: number;
  /** What the configuration said then. Once it says something else, it wins: whoever edited it came later and meant it. */
  readonly declaredReplicas?: number;
  /** Set by `ctl restart`. */
  readonly restartedWallMs?: number;
  readonly restartedBy?: string;
  /** Set by `ctl restart --allow-gap`, for that restart. */
  readonly restartAllowsGap?: boolean;
  readonly actor: string;
  readonly atWallMs: number;
}

/** A model of the configuration, with what operators changed about it, as the domain knows it. */
export function modelSpec(config: ModelConfig, override: ModelOverride | undefined): ModelSpec {
  return {
    name: config.name,
    aliases: config.aliases,
    replicas: wantedReplicas(config, override),
    fallback: config.fallback,
    priority: config.priority,
    placement: {
      strategy: config.placement.strategy,
      nodeSelector: config.placement.nodeSelector,
      antiAffinity: config.placement.antiAffinity,
      ...(config.placement.mayYield ? { mayYield: true } : {}),
      ...(config.placement.spreadBy === undefined ? {} : { spreadBy: config.placement.spreadBy }),
    },
    profiles: config.profiles.map(profileSpec),
    onNoSurge: config.onNoSurge,
    ...(config.source === undefined ? {} : { source: config.source }),
    ...(config.routing === undefined ? {} : { routing: config.routing }),
    ...(override?.restartedWallMs === undefined ? {} : { restartedWallMs: override.restartedWallMs }),
    ...(override?.restartedBy === undefined ? {} : { restartedBy: override.restartedBy }),
    ...(override?.restartAllowsGap === true ? { restartAllowsGap: true } : {}),
  };
}

/** The operator's number while the configuration still says what it said when it was set, else the configuration's. */
function wantedReplicas(config: ModelConfig, override: ModelOverride | undefined): number {
  if (override?.replicas === undefined || isOverruled(config, override)) return config.replicas;
  return override.replicas;
}

/** Whether the configuration has changed its mind since an operator scaled the model. */
export function isOverruled(config: ModelConfig | undefined, override: ModelOverride): boolean {
  if (override.replicas === undefined) return false;
  // A model that left the configuration and comes back starts with what it says then.
  if (config === undefined) return true;
  return override.declaredReplicas !== undefined && override.declaredReplicas !== config.replicas;
}

function profileSpec(config: ProfileConfig): Profile {
  return {
    name: config.name,
    engine: config.engine,
    shards: config.shards,
    gpus: config.gpus,
    args: config.args,
    env: Object.fromEntries(Object.entries(config.env).map(([name, value]) => [name, envValue(value)])),
    startTimeoutMs: config.startTimeout,
    stopGraceMs: config.stopGrace,
    weight: config.weight,
    ...(config.gpuMemory === undefined ? {} : { gpuMemoryBytes: config.gpuMemory }),
    ...(config.gpuType === undefined ? {} : { gpuType: config.gpuType }),
    ...(config.maxConcurrency === undefined ? {} : { maxConcurrency: config.maxConcurrency }),
  };
}

function envValue(value: string | EnvFromFile): EnvValue {
  return typeof value === 'string' ? { value } : { fromFile: value.fromFile };
}
