/** The server as a whole: its status, and what happened and was done in it. See answers.ts for what holds of all these objects. */
import type { GpuHealth, Reason, ReplicaState } from '../../domain/cluster.js';
import type { ConfigStatusView } from './configuration.js';
import type { NodeState } from './nodes.js';

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
  /** Of each listener with TLS; absent without. */
  readonly certificates?: readonly CertificateView[];
  /** What needs an operator's eye, worst first; empty when all is well. */
  readonly warnings: readonly Reason[];
}

/** The certificate that a listener shows now. */
export interface CertificateView {
  readonly listener: 'admin' | 'agent';
  /** Where it is read from; a new one is taken up while the server runs. */
  readonly file: string;
  readonly endsAt: string;
  /** Why what the files hold now is not taken; absent while it is what is shown. */
  readonly problem?: string;
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

/** `GET events`; also each event of the SSE stream, whose `id` is the sequence. */
export type { ClusterEvent as EventView, EventSubjectKind } from '../../events/event.js';

/** `GET shards/{id}/logs` */
export interface LogView {
  readonly shardId: string;
  /** The node that had it: after a move the run before was elsewhere. */
  readonly nodeId: string;
  readonly text: string;
}

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
