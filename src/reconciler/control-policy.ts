import type { ControlConfig } from '../config/server-config.js';
import { DEFAULT_POLICY, type ControlPolicy } from '../domain/reconcile/policy.js';

/** The operator's settings in the domain's words; what the configuration does not offer keeps its one good value. */
export function controlPolicy(config: ControlConfig): ControlPolicy {
  return {
    ...DEFAULT_POLICY,
    baseBackoffMs: config.baseBackoff,
    maxBackoffMs: config.maxBackoff,
    unreachableAfterMs: config.unreachableAfter,
    lostAfterMs: config.lostAfter,
    settleAfterStartMs: config.settleAfterStart,
    portRange: config.portRange,
    maxConcurrentLoads: config.maxConcurrentLoads,
    steadyMs: config.steadyAfter,
    replacementFloorMs: config.replacementBound,
    streamGraceMs: config.streamGrace,
    drainDeadlineMs: config.drainDeadline,
  };
}
