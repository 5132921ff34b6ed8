/** The configuration in force and what another one would change. See answers.ts for what holds of all these objects. */
import type { SettingChange } from '../../config/config-diff.js';
import type { ModelChange } from '../../domain/catalog/catalog-diff.js';
import type { Reason } from '../../domain/cluster.js';
import type { ConfigProblem } from '../../shared/errors.js';

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

/** `GET config` */
export interface ConfigView {
  /** The configuration in force, secrets masked. */
  readonly config: unknown;
  readonly status: ConfigStatusView;
}

/** What a configuration changes against the one in force. */
export interface ConfigChangesView {
  /** Models that are added, removed or changed. */
  readonly models: readonly ModelChange[];
  /** Everything else that is changed. */
  readonly settings: readonly SettingChange[];
  /** Settings that only the next start of the server takes over; the rest is taken over without it. */
  readonly needsRestart: readonly string[];
  /** What is valid but probably not meant. */
  readonly warnings: readonly ConfigProblem[];
}

/** Answer of `POST config/reload`. */
export interface ReloadResultView extends ConfigChangesView {
  /** False when the configuration means what it meant before. */
  readonly changed: boolean;
  /** Sentences for the operator, e.g. the next command. */
  readonly notes: readonly string[];
}

/** Answer of `POST config/plan`: what a configuration would change. Nothing is changed. */
export interface ConfigPlanView extends ConfigChangesView {
  /** False when it means what the one in force means. */
  readonly changed: boolean;
  /** What would happen to running copies, in order, decided by the code that would decide it. */
  readonly steps: readonly ConfigStepView[];
  /** How each model with a step would be served on the way. */
  readonly service: readonly ConfigServiceView[];
  /** What would be left undone when nothing moves any more, and why. */
  readonly notDone: readonly { readonly subject: string; readonly reason: Reason }[];
  /** When nothing would move any more, from measured load times; requests in flight come on top. */
  readonly expectedMs: number;
  /** `model/profile` never started here: a minute is taken for their load. */
  readonly unmeasured: readonly string[];
  /** The steps are cut: there was more to come than is looked at. */
  readonly cut: boolean;
  /** Sentences for the operator, e.g. the next command. */
  readonly notes: readonly string[];
}

export interface ConfigStepView {
  /** From now. */
  readonly atMs: number;
  readonly kind: 'starts' | 'serves' | 'leaves' | 'stopped';
  /** Id of a replica, or `MODEL (new N)` for one that does not exist yet. */
  readonly replica: string;
  readonly model: string;
  readonly profile: string;
  readonly nodes: readonly string[];
  readonly reason: Reason;
  /** The copy in whose place it starts. */
  readonly replaces?: string;
  /** Requests in flight now, which a copy that leaves would finish first. */
  readonly inflight?: number;
}

export interface ConfigServiceView {
  readonly model: string;
  /** Copies serving now, and the fewest at any time. */
  readonly now: number;
  readonly fewest: number;
  /** Time without any copy serving; 0 = none. */
  readonly gapMs: number;
}
