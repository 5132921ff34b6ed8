/** Nodes, their devices and their scheduling. See answers.ts for what holds of all these objects. */
import type { EngineOffer, GpuHealth, NodeCondition, NodeLiveness, Reason } from '../../domain/cluster.js';
import type { DrainMove } from '../../domain/reconcile/plan-drain.js';
import type { ShardView } from './replicas.js';

/** State of a node as shown: its liveness, or that it never came back since this server started. */
export type NodeState = NodeLiveness;

/** What an operator wants of the node, and how far it is. */
export interface SchedulingView {
  readonly target: 'schedulable' | 'cordoned' | 'drained';
  /** `draining` while replicas still stand there; `drained` only on confirmed stops or a Lost node. */
  readonly state: 'schedulable' | 'cordoned' | 'draining' | 'drained';
  /** Set when `drained` is presumed and not confirmed. */
  readonly stateReason?: string;
  readonly actor?: string;
  readonly reason?: string;
  readonly since?: string;
  readonly gpuUuid?: string;
  readonly deadlineMs?: number;
  readonly streamGraceMs?: number;
  readonly allowGap?: boolean;
  /** Left to the drain until its overall deadline, ms; 0 = over. Absent before its first pass, and when it is not draining. */
  readonly leftMs?: number;
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
