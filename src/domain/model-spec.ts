/**
 * What is wanted: models and the profiles they run by, as the catalog holds them. See cluster.ts for what was seen and decided.
 */

export const ENGINE_KINDS = ['vllm', 'sglang', 'llamacpp', 'command', 'sim', 'embedded'] as const;
/** Which engine driver runs a profile. */
export type EngineKind = (typeof ENGINE_KINDS)[number];

/** A value handed to an engine's environment: literal, or read on the agent's machine from a file. */
export type EnvValue = { readonly value: string } | { readonly fromFile: string };

/** Where a model's replicas may and should stand. */
export interface PlacementRules {
  /** `pack` leaves the largest hole free; `spread` puts replicas on different nodes first. */
  readonly strategy: 'pack' | 'spread';
  /** Labels a node must carry, all of them. */
  readonly nodeSelector: Readonly<Record<string, string>>;
  /** Label whose values are failure domains, e.g. `rack`; undefined = the node itself. */
  readonly spreadBy?: string;
  /** At most one replica of the model per node when true. */
  readonly antiAffinity: boolean;
  /** Whether its replicas may be moved or stopped to make room for a missing one of a model with a higher priority; unset = no. */
  readonly mayYield?: boolean;
}

/** A launch profile: one way to run a model. */
export interface Profile {
  readonly name: string;
  readonly engine: EngineKind;
  /** Nodes per replica; rank 0 serves HTTP. */
  readonly shards: number;
  /** GPUs per shard; 0 = runs on the CPU. */
  readonly gpus: number;
  /** Memory needed on each GPU, bytes; undefined = not declared (then a GPU counts as wholly used). */
  readonly gpuMemoryBytes?: number;
  /** Glob over the GPU type, e.g. `H100*`; undefined = any. */
  readonly gpuType?: string;
  /** Extra engine arguments; the agent's allow-list decides what passes. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, EnvValue>>;
  /** Concurrent requests one replica takes; undefined = no limit of ours. */
  readonly maxConcurrency?: number;
  /** A start without any progress for this long has failed, ms. */
  readonly startTimeoutMs: number;
  /** Time between TERM and KILL, ms. */
  readonly stopGraceMs: number;
  /** Canary weight of this profile's replicas against others of the model. */
  readonly weight: number;
}

/** One trial beside what a model is served by: another model, or one pool (launch profile) of its own endpoints. */
export interface CanarySide {
  readonly kind: 'model' | 'pool';
  readonly name: string;
  /** Share of the model's requests, 0..1; 0 gets none. */
  readonly weight: number;
}

/** What clients ask for by name. */
export interface ModelSpec {
  readonly name: string;
  readonly aliases: readonly string[];
  /** Repository id or a path under an allowed model root of the agent; undefined for engines that need none (`sim`). */
  readonly source?: string;
  /** Desired replicas, after `ctl scale`. */
  readonly replicas: number;
  /** Name of the routing profile. */
  readonly routing?: string;
  /** Models tried when nothing of this one can serve. */
  readonly fallback: readonly string[];
  /** Shares of its requests that go elsewhere on trial; absent = none. */
  readonly canary?: readonly CanarySide[];
  /** Higher is moved and placed first when several want room; what runs is displaced only where `placement.mayYield` allows it. */
  readonly priority: number;
  readonly placement: PlacementRules;
  /** Best first. */
  readonly profiles: readonly Profile[];
  /**
   * What a rolling change does when the new copy fits nowhere beside the old one: `wait` (the default) keeps the old one
   * and says so, `swap` stops one old copy at a time first.
   */
  readonly onNoSurge?: 'wait' | 'swap';
  /** Wall time of the last `restart` of the model, ms. Part of the spec digest, so a restart is an ordinary rolling change. */
  readonly restartedWallMs?: number;
  /** Who asked for that restart; unknown of one that an older version stored. */
  readonly restartedBy?: string;
  /** Copies of before that restart may stop first where nothing is spare; a later change of the model is not meant. */
  readonly restartAllowsGap?: boolean;
}
