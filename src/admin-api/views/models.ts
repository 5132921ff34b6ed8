/** Models, and where their replicas may stand. See answers.ts for what holds of all these objects. */
import type { LearnedFact, PlacementExplanation, Reason, ReplicaState } from '../../domain/cluster.js';
import type { Profile } from '../../domain/model-spec.js';
import type { ModelTraffic } from '../../router/traffic.js';
import type { BackoffView, ReplicaSummaryView } from './replicas.js';

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

/** `GET traffic` */
export interface ModelTrafficView extends ModelTraffic {
  readonly model: string;
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

/** Answer of `PUT models/{name}/scale`, `POST models/{name}/restart` and `POST replicas/{id}/restart`. */
export interface ModelResultView {
  readonly model: string;
  /** The one replica it was about. */
  readonly replica?: string;
  readonly changed: boolean;
  readonly desired: number;
  readonly notes: readonly string[];
}
