import type { ControlPolicy } from '../domain/reconcile/policy.js';
import type { Clock } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';
import type { Random } from '../shared/random.js';

/** What the reconciler is given besides the control plane's parts. */
export interface ReconcilerSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly policy: ControlPolicy;
  /** Pause between two passes without events, ms. */
  readonly intervalMs: number;
}

export const RECONCILER_SETTINGS = Symbol('ReconcilerSettings');
