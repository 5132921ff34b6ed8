/** What one reconcile pass decides: the plan, its steps, and the commands that agents get. */
import type {
  BackoffRecord,
  LearnedFact,
  NodeLiveness,
  PlacementExplanation,
  Reason,
  ReplicaRecord,
  ShardPorts,
} from './cluster.js';
import type { EngineKind, Profile } from './model-spec.js';
import type { ControlMemory, StandingCondition } from './snapshot.js';

/** One step of a plan. Each carries its reason; execution makes no choice of its own. */
export type Action =
  | { readonly kind: 'createReplica'; readonly record: ReplicaRecord; readonly reason: Reason }
  | { readonly kind: 'updateReplica'; readonly record: ReplicaRecord; readonly reason: Reason }
  | { readonly kind: 'deleteReplica'; readonly replicaId: string; readonly reason: Reason }
  | { readonly kind: 'startShard'; readonly command: StartShardCommand; readonly reason: Reason }
  | { readonly kind: 'stopShard'; readonly command: StopShardCommand; readonly reason: Reason }
  | { readonly kind: 'putBackoff'; readonly record: BackoffRecord; readonly reason: Reason }
  | { readonly kind: 'clearBackoff'; readonly record: BackoffRecord; readonly reason: Reason }
  | { readonly kind: 'putLearned'; readonly fact: LearnedFact; readonly reason: Reason }
  /** The grace is over: the router ends what still runs on this generation, each client with an error event. Comes before its stops. */
  | {
      readonly kind: 'abortInflight';
      readonly replicaId: string;
      readonly generation: number;
      readonly reason: Reason;
    }
  | {
      readonly kind: 'setNodeLiveness';
      readonly nodeId: string;
      readonly liveness: NodeLiveness;
      readonly reason: Reason;
    };

/** Everything an agent needs to build an engine's command line itself. */
export interface StartShardCommand {
  readonly nodeId: string;
  readonly shardId: string;
  readonly replicaId: string;
  readonly generation: number;
  readonly model: string;
  readonly aliases: readonly string[];
  readonly source?: string;
  readonly profile: Profile;
  readonly rank: number;
  readonly shards: number;
  readonly gpuUuids: readonly string[];
  readonly ports: ShardPorts;
  /** Every rank's address and ports, by rank. */
  readonly peers: readonly { readonly rank: number; readonly address: string; readonly ports: ShardPorts }[];
  readonly specDigest: string;
}

export interface StopShardCommand {
  readonly nodeId: string;
  readonly shardId: string;
  readonly replicaId: string;
  readonly generation: number;
  readonly graceMs: number;
}

/** A Ready replica as the router may use it. */
export interface PublishedReplica {
  readonly replicaId: string;
  readonly generation: number;
  readonly model: string;
  readonly profile: string;
  readonly nodeId: string;
  readonly address: string;
  readonly port: number;
  readonly engine: EngineKind;
  readonly maxConcurrency?: number;
  readonly weight: number;
}

/**
 * The immutable, numbered result of one reconcile pass. Carried out in this order: store the record actions, apply `published`
 * to the router, abort in-flight, send stops, send starts. Then `memory` goes into the next snapshot; a plan that was refused or
 * could not be stored leaves the former memory in place.
 */
export interface Plan {
  readonly number: number;
  readonly term: number;
  readonly actions: readonly Action[];
  /** What is not being done, and why: one entry per model, replica or node concerned. */
  readonly notDone: readonly { readonly subject: string; readonly reason: Reason }[];
  /** The complete list of what the router may use after this plan; anything else is unpublished before stops. */
  readonly published: readonly PublishedReplica[];
  /** Last placement attempt per model that wants more replicas than it has. */
  readonly explanations: readonly PlacementExplanation[];
  /** What happened in this pass and is told once: a bound was hit, a brake came on, a shard was adopted. */
  readonly events: readonly PlanEvent[];
  /** What holds without anything to be done by itself, e.g. copies that stand closer together than wanted. */
  readonly conditions: readonly StandingCondition[];
  readonly memory: ControlMemory;
}

/** Something the pass noticed, for the timeline of its subject (`node/n1`, `model/m`, `replica/r`). */
export interface PlanEvent {
  readonly subject: string;
  readonly reason: Reason;
}
