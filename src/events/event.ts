import type { Reason } from '../domain/cluster.js';

export const EVENT_SUBJECT_KINDS = ['node', 'gpu', 'model', 'replica', 'server', 'key', 'token'] as const;
export type EventSubjectKind = (typeof EVENT_SUBJECT_KINDS)[number];

/** Something an event is about. */
export interface EventSubject {
  readonly kind: EventSubjectKind;
  readonly id: string;
}

/** One entry of the timeline. */
export interface ClusterEvent {
  /** Grows by one with each event, also across restarts; after a server was killed it skips some. */
  readonly sequence: number;
  /** ISO 8601. */
  readonly at: string;
  /** What happened, e.g. `ReplicaReady`, `NodeLost`, `DrainRequested`. */
  readonly type: string;
  readonly severity: 'info' | 'warning' | 'error';
  readonly subject: EventSubject;
  /** Why, unchanged from where it was decided. */
  readonly reason: Reason;
  /** Who: `reconciler`, `agent`, or the operator's name. */
  readonly actor: string;
  /** Other things concerned, so that a timeline of a node also shows its replicas. */
  readonly related: readonly EventSubject[];
}
