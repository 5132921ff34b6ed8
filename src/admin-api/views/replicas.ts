/** Replicas, their shards, and the endpoints of the router. See answers.ts for what holds of all these objects. */
import type {
  BackoffRecord,
  PlacementExplanation,
  Reason,
  ReplicaIntent,
  ReplicaState,
  ShardPhase,
  Verdict,
} from '../../domain/cluster.js';
import type { TrafficCounts } from '../../router/traffic.js';

export interface BackoffView extends BackoffRecord {
  readonly nextTryAt: string;
}

/** `GET replicas` */
export interface ReplicaSummaryView {
  readonly id: string;
  readonly model: string;
  readonly profile: string;
  readonly engine?: string;
  readonly state: ReplicaState;
  readonly reason?: Reason;
  readonly generation: number;
  readonly intent: ReplicaIntent;
  readonly intentReason: Reason;
  readonly nodes: readonly string[];
  /** Address of rank 0, `host:port`. */
  readonly address?: string;
  /** True while the router may send to it. */
  readonly published: boolean;
  readonly inflight: number;
  readonly restarts: number;
  readonly createdAt: string;
  readonly readySince?: string;
  readonly progress?: string;
  readonly replaces?: string;
  readonly nextTryAt?: string;
}

/** `GET replicas/{id}` */
export interface ReplicaDetailView extends ReplicaSummaryView {
  readonly shards: readonly ShardView[];
  readonly backoff?: BackoffView;
  /** The placement decision as it was made. */
  readonly placement?: PlacementExplanation;
  readonly specDigest: string;
}

export interface ShardView {
  readonly id: string;
  readonly replicaId: string;
  readonly model: string;
  readonly profile: string;
  readonly generation: number;
  readonly rank: number;
  readonly nodeId: string;
  readonly gpuUuids: readonly string[];
  readonly httpPort: number;
  readonly rendezvousPort?: number;
  /** Absent while the agent reports nothing about it. */
  readonly phase?: ShardPhase;
  readonly phaseAgeMs?: number;
  readonly pid?: number;
  readonly progress?: string;
  readonly exitCode?: number;
  readonly exitSignal?: string;
  readonly verdict?: Verdict;
  readonly message?: string;
  readonly logTail?: string;
  readonly memoryPeakBytes?: number;
  readonly loadMs?: number;
  /** False for a shard the agent reports although no record of ours asks for it. */
  readonly wanted: boolean;
}

/** `GET endpoints` */
export interface EndpointView extends TrafficCounts {
  readonly id: string;
  readonly generation: number;
  readonly url: string;
  readonly models: readonly string[];
  readonly pool: string;
  readonly weight: number;
  readonly engine: string;
  /** `unknown`: no sign of life yet, nor of its absence; `down`: nobody seems to be there. */
  readonly state: 'up' | 'unknown' | 'down' | 'ejected' | 'trial' | 'coolingDown';
  readonly reason?: string;
  readonly inflight: number;
  readonly maxConcurrency?: number;
  readonly outstandingTokens: number;
  readonly requestsTotal: number;
  readonly failuresTotal: number;
  readonly nodeId?: string;
  /** Time since the last byte of an answer. */
  readonly lastByteAgeMs?: number;
  readonly engineRunning?: number;
  readonly engineWaiting?: number;
}
