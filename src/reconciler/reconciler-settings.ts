import type { ControlPolicy } from '../domain/reconcile/policy.js';
import type { reconcile } from '../domain/reconcile/reconcile.js';
import type { Clock } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';
import type { Random } from '../shared/random.js';

/** What the reconciler is given besides the control plane's parts. Read anew each time: a reload changes policy and interval. */
export interface ReconcilerSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly policy: ControlPolicy;
  /** The decision itself; tests plant faulty ones. */
  readonly decide: typeof reconcile;
  /** Pause between two passes without events, ms. */
  readonly intervalMs: number;
}

export const RECONCILER_SETTINGS = Symbol('ReconcilerSettings');
