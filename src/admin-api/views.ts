/**
 * The objects of the admin API. `ctl -o json` prints exactly these.
 *
 * Times of day are ISO 8601 strings named `...At` or `...Since`; lengths of time are milliseconds; sizes are bytes.
 * A field that is absent is unknown or does not apply; it never stands for zero.
 */
import type { CredentialState, TokenKind } from '../access/records.js';
import type {
  BackoffRecord,
  EngineOffer,
  GpuHealth,
  LearnedFact,
  NodeCondition,
  NodeLiveness,
  PlacementExplanation,
  Profile,
  Reason,
  ReplicaIntent,
  ReplicaState,
  ShardPhase,
  Verdict,
} from '../domain/cluster.js';
import type { DrainMove } from '../domain/reconcile/plan-drain.js';
import type { AdminErrorCode, ConfigProblem } from '../shared/errors.js';

/** Every list of the API. */
export interface ListView<T> {
  readonly items: readonly T[];
}

/** Body of every failed call. */
export interface ErrorView {
  readonly error: {
    readonly code: AdminErrorCode;
    readonly message: string;
    readonly field?: string;
    readonly hint?: string;
    /** Everything that is wrong with a configuration, for `invalid_configuration`. */
    readonly problems?: readonly ConfigProblem[];
  };
}

/** `GET status` */
export interface StatusView {
  readonly version: string;
  /** `router` = static endpoints only, no control plane in this process. */
  readonly mode: 'control' | 'router';
  readonly now: string;
  readonly startedAt: string;
  readonly uptimeMs: number;
  readonly pid: number;
  /** Incarnation of the control plane; absent in a router-only run. */
  readonly term?: number;
  readonly addresses: { readonly client?: string; readonly admin?: string; readonly agent?: string };
  /** Whether requests can be served: models with a usable endpoint among those declared. */
  readonly models: { readonly total: number; readonly ready: number };
  readonly replicas: { readonly desired: number; readonly byState: Partial<Record<ReplicaState, number>> };
  readonly nodes: { readonly total: number; readonly byState: Partial<Record<NodeState, number>> };
  readonly gpus: { readonly total: number; readonly byHealth: Partial<Record<GpuHealth['state'], number>> };
  readonly endpoints: { readonly total: number; readonly up: number };
  readonly requestsInFlight: number;
  readonly plan?: PlanSummaryView;
  readonly store?: { readonly ok: boolean; readonly reason?: string };
  readonly config: ConfigStatusView;
  /** What needs an operator's eye, worst first; empty when all is well. */
  readonly warnings: readonly Reason[];
}

export interface PlanSummaryView {
  readonly number: number;
  readonly at: string;
  readonly actions: number;
  /** Length of the last reconcile pass. */
  readonly durationMs: number;
  /** Set when the last plan broke an invariant and was refused. */
  readonly refused?: Reason;
  /** What is not being done, and why. */
  readonly notDone: readonly { readonly subject: string; readonly reason: Reason }[];
}

export interface ConfigStatusView {
  readonly loadedAt: string;
  /** When the last reload was tried, whatever became of it; absent while there was none. */
  readonly lastReloadAt?: string;
  /** Set when the last reload was refused: the configuration in force is the one before. */
  readonly lastError?: string;
  /** Everything that was wrong then. */
  readonly problems?: readonly ConfigProblem[];
  /** Settings that were changed and are taken over by the next start of the server only; absent when there are none. */
  readonly needsRestart?: readonly string[];
}

/** State of a node as shown: its liveness, or that it never came back since this server started. */
export type NodeState = NodeLiveness;

/** What an operator wants of the node, and how far it is. */
export interface SchedulingView {
  readonly target: 'schedulable' | 'cordoned' | 'drained';
  /** `draining` while replicas still stand there; `drained` only on confirmed stops or a Lost node. */
  readonly state: 'schedulable' | 'cordoned' | 'draining' | 'drained';
  readonly actor?: string;
  readonly reason?: string;
  readonly since?: string;
  readonly gpuUuid?: string;
  readonly deadlineMs?: number;
  readonly streamGraceMs?: number;
  readonly allowGap?: boolean;
  readonly sequence: number;
  /** What the drain still waits for, one entry per replica. */
  readonly waitingFor: readonly { readonly replicaId: string; readonly reason: Reason }[];
}

/** `GET nodes` */
export interface NodeSummaryView {
  readonly id: string;
  readonly state: NodeState;
  readonly stateReason?: string;
  readonly stateSince?: string;
  readonly scheduling: SchedulingView;
  readonly address: string;
  readonly hostname?: string;
  readonly agentVersion?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly engines: readonly EngineOffer[];
  readonly gpus: { readonly total: number; readonly healthy: number; readonly free: number };
  /** Ids of the replicas that have a shard here. */
  readonly replicas: readonly string[];
  readonly conditions: readonly NodeCondition[];
  readonly lastReportAt?: string;
  /** Agents that were refused under this id, newest last. */
  readonly refused?: readonly RefusedAgentView[];
}

export interface RefusedAgentView {
  readonly at: string;
  readonly from: string;
  readonly reason: Reason;
  readonly count: number;
}

/** `GET nodes/{id}` */
export interface NodeDetailView extends NodeSummaryView {
  readonly bootId?: string;
  readonly machineId?: string;
  readonly gpuDevices: readonly GpuView[];
  readonly shards: readonly ShardView[];
  readonly portsTaken: readonly number[];
  readonly weightsPresent: readonly string[];
}

/** `GET gpus` */
export interface GpuView {
  readonly uuid: string;
  readonly nodeId: string;
  readonly type: string;
  readonly vendor: string;
  readonly busId?: string;
  readonly memoryTotalBytes?: number;
  readonly memoryUsedBytes?: number;
  readonly health: GpuHealth;
  /** Shards of ours that hold the device, also while they start or stop. */
  readonly heldBy: readonly {
    readonly shardId: string;
    readonly replicaId: string;
    readonly model: string;
    readonly memoryBytes?: number;
  }[];
  readonly foreign: readonly {
    readonly pid: number;
    readonly name?: string;
    readonly memoryBytes?: number;
  }[];
  readonly linkedTo: readonly string[];
}

/** `GET models` */
export interface ModelSummaryView {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly source?: string;
  readonly desired: number;
  /** The count in the configuration, when `ctl scale` changed it. */
  readonly declared?: number;
  readonly ready: number;
  readonly byState: Partial<Record<ReplicaState, number>>;
  readonly outlook: 'ready' | 'coming' | 'none';
  readonly expectedReadyMs?: number;
  readonly routingProfile: string;
  /** Why it has fewer Ready replicas than desired. */
  readonly reason?: Reason;
  /** What holds without anything being done about it by itself, e.g. replicas that stand closer together than wanted. */
  readonly conditions: readonly Reason[];
  /** Static endpoints that serve it too. */
  readonly staticEndpoints: readonly string[];
}

/** `GET models/{name}` */
export interface ModelDetailView extends ModelSummaryView {
  readonly profiles: readonly Profile[];
  readonly fallback: readonly string[];
  readonly priority: number;
  readonly replicas: readonly ReplicaSummaryView[];
  readonly learned: readonly LearnedFact[];
  readonly backoffs: readonly BackoffView[];
  readonly notDone: readonly { readonly subject: string; readonly reason: Reason }[];
}

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
export interface EndpointView {
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

/** `GET events`; also each event of the SSE stream, whose `id` is the sequence. */
export type { ClusterEvent as EventView, EventSubjectKind } from '../events/event.js';

/** `GET placements/{model}/explain` */
export interface PlacementView {
  readonly model: string;
  readonly at: string;
  /** `decided`: as it was when the replica was placed; `now`: as it would be decided now. */
  readonly basis: 'decided' | 'now';
  readonly replicaId?: string;
  readonly desired: number;
  /** Replicas that have a place; those that wait for one are not counted. */
  readonly have: number;
  /** What holds of the model's replicas as they stand, e.g. that they stand closer together than wanted. */
  readonly conditions: readonly Reason[];
  readonly explanation: PlacementExplanation;
}

/** Answer of `PUT nodes/{id}/scheduling`, also with `?plan=true`. */
export interface SchedulingResultView {
  readonly node: string;
  /** False with `?plan=true`, or when the node was already so. */
  readonly changed: boolean;
  readonly scheduling: SchedulingView;
  /** What a drain moves; empty for cordon and uncordon. */
  readonly moves: readonly DrainMoveView[];
  /** Time until the drained node is empty, ms, streams in flight not counted; absent while unknown. */
  readonly expectedMs?: number;
  /** True when a model would be without a serving replica for a while, which needs `allowGap`. */
  readonly gapExpected: boolean;
  /** Sentences for the operator, e.g. the next command. */
  readonly notes: readonly string[];
}

export type DrainMoveView = DrainMove;

/** Answer of `PUT models/{name}/scale`, `POST models/{name}/restart` and `POST replicas/{id}/restart`. */
export interface ModelResultView {
  readonly model: string;
  /** The one replica it was about. */
  readonly replica?: string;
  readonly changed: boolean;
  readonly desired: number;
  readonly notes: readonly string[];
}

/** Answer of `DELETE nodes/{id}`. */
export interface RemovedView {
  readonly removed: string;
}

/** `GET shards/{id}/logs` */
export interface LogView {
  readonly shardId: string;
  /** The node that had it: after a move the run before was elsewhere. */
  readonly nodeId: string;
  readonly text: string;
}

/** `GET config` */
export interface ConfigView {
  /** The configuration in force, secrets masked. */
  readonly config: unknown;
  readonly status: ConfigStatusView;
}

export type {
  ConfigChangesView,
  ConfigPlanView,
  ConfigServiceView,
  ConfigStepView,
  ReloadResultView,
} from './config-views.js';

/** `GET audit` */
export interface AuditView {
  readonly at: string;
  readonly actor: string;
  readonly role: string;
  readonly from: string;
  readonly action: string;
  readonly target: string;
  readonly detail?: string;
  readonly outcome: 'ok' | 'refused';
}

/** `GET keys`; also the answer of `DELETE keys/{id}`. */
export interface KeyView {
  readonly id: string;
  readonly name: string;
  readonly state: CredentialState;
  /** Names of models, also with `*`; empty = every model. */
  readonly models: readonly string[];
  /** Limits; absent = none. */
  readonly requestsPerMinute?: number;
  readonly tokensPerMinute?: number;
  readonly maxConcurrent?: number;
  /** In the queue, in place of the routing profile's. */
  readonly priority?: number;
  readonly createdAt: string;
  readonly createdBy: string;
  readonly expiresAt?: string;
  readonly revokedAt?: string;
  readonly revokedBy?: string;
  /** What it was used for since the server started; absent on a revoked one. */
  readonly use?: KeyUseView;
}

export interface KeyUseView {
  readonly lastUsedAt?: string;
  /** Requests that wait or run now. */
  readonly inflight: number;
  readonly requestsTotal: number;
  /** Turned away by a limit. */
  readonly refusedTotal: number;
  readonly tokensTotal: number;
}

/** Answer of `POST keys`. */
export interface CreatedKeyView extends KeyView {
  /** The key itself. It is shown here and never again: only its hash is kept. */
  readonly secret: string;
  /** Sentences for the operator. */
  readonly notes: readonly string[];
}

/** `GET tokens` */
export interface TokenView {
  readonly id: string;
  readonly name: string;
  /** `admin`: for the admin API; `join`: for agents. */
  readonly kind: TokenKind;
  /** Of `admin` tokens. */
  readonly role?: 'viewer' | 'operator' | 'admin';
  readonly state: CredentialState;
  /** Where it stands; one of the configuration file is changed there. */
  readonly source: 'store' | 'configuration';
  readonly createdAt?: string;
  readonly createdBy?: string;
  readonly expiresAt?: string;
  readonly revokedAt?: string;
  readonly revokedBy?: string;
}

/** Answer of `DELETE tokens/{id}`. */
export interface RevokedTokenView extends TokenView {
  /** Sentences for the operator. */
  readonly notes: readonly string[];
}

/** Answer of `POST tokens`. */
export interface CreatedTokenView extends TokenView {
  /** The token itself. It is shown here and never again: only its hash is kept. */
  readonly secret: string;
  /** For a configuration file, where the same token is to work elsewhere too. */
  readonly hash: string;
  /** Sentences for the operator. */
  readonly notes: readonly string[];
}
