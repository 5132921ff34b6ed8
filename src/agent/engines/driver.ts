/** What the agent must know of an engine to run it. A driver is plain data and pure functions; starting is the supervisor's. */
import type { AgentEngineConfig } from '../../config/agent-config.js';
import type { GpuVendor, Verdict } from '../../domain/cluster.js';
import type { EngineKind } from '../../domain/model-spec.js';
import type { StartShardCommand } from '../../domain/plan.js';

/** A typed "no" to a start. */
export interface Refusal {
  readonly verdict: Verdict;
  readonly message: string;
}

/** Where the weights are, after the agent's own checks. */
export type ModelSource =
  /** A real path under an allowed model root. */
  | { readonly kind: 'path'; readonly path: string }
  /** A repository id the engine fetches by itself. */
  | { readonly kind: 'repository'; readonly id: string; readonly revision?: string }
  | { readonly kind: 'none' };

export interface LaunchContext {
  readonly start: StartShardCommand;
  readonly config: AgentEngineConfig;
  readonly source: ModelSource;
  /** Address engines listen on. */
  readonly bindHost: string;
  /** Interface of rank-to-rank traffic; undefined = the engine finds one. */
  readonly interfaceName?: string;
  /** Vendor of the shard's GPUs; undefined without any. */
  readonly gpuVendor?: GpuVendor;
  /** Places of the shard's GPUs in PCI order; undefined when they cannot be told for sure. */
  readonly gpuIndices?: readonly number[];
  /** Memory of the smallest of the shard's GPUs, bytes. */
  readonly gpuMemoryTotalBytes?: number;
}

/** How it is known that a rank is up. */
export type Readiness =
  /** It serves HTTP: loaded, right model id, one token really generated. */
  | 'token'
  /** It listens on its port; its worth is proven by rank 0's token. */
  | 'listening'
  /** It runs; its worth is proven by rank 0's token. */
  | 'running';

/** A step of loading, read from a line of output. */
export interface LoadStep {
  readonly phase: 'downloading' | 'loading' | 'compiling';
  /** In words, with numbers when there are any. */
  readonly detail: string;
}

/** Names of the engine's load metrics; several spellings over its versions. */
export interface MetricNames {
  readonly running: readonly string[];
  readonly waiting: readonly string[];
  /** Counters that move while tokens are made. */
  readonly progress: readonly string[];
}

export interface EngineDriver {
  readonly kind: EngineKind;
  /** Program looked up when the agent's file names none; undefined = the agent's file must. */
  readonly defaultBinary?: string;
  /** Arguments without the program and the configured base arguments. */
  args(context: LaunchContext): readonly string[] | Refusal;
  /** Environment of this rank, beyond what every engine gets. */
  env(context: LaunchContext): Readonly<Record<string, string>>;
  /** May a profile set this variable? */
  readonly takesEnv: (name: string) => boolean;
  /** Other programs for some ranks, given the resolved one; the first that is there is taken. */
  binariesFor?(context: LaunchContext, binary: string): readonly string[];
  readonly needsSource: boolean;
  /** Whether it takes devices by their UUID, or crashes on anything but numbers. */
  readonly devicesBy: 'uuid' | 'index';
  /** True when values may stand anywhere in the arguments without a flag before them. */
  readonly freeArgs: boolean;
  readiness(rank: number): Readiness;
  /** Rank 0 starts only once the others listen. */
  readonly headWaitsForPeers: boolean;
  readStep(line: string): LoadStep | undefined;
  readonly metrics: MetricNames;
}

export function isRefusal(value: object): value is Refusal {
  return 'verdict' in value;
}
