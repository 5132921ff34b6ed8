/**
 * The control plane's settings: times, bounds and limits, each with the reason for its default. All times are milliseconds.
 * Those under `control:` in the configuration are the operator's; the rest have one good value and are named here so that
 * tests can shorten them.
 */
export interface ControlPolicy {
  // -- back-off
  readonly baseBackoffMs: number;
  readonly maxBackoffMs: number;
  /** A failure is forgotten only after the larger of this and the current delay spent healthy, else a slow crash loop never slows down. */
  readonly healthyResetMs: number;

  // -- liveness
  readonly unreachableAfterMs: number;
  readonly lostAfterMs: number;
  readonly settleAfterStartMs: number;
  /** A gap of our own loop longer than this means we slept: nobody is judged by the time we missed. */
  readonly suspendGapMs: number;
  /** With this many nodes silent at once, and at least half of the fleet, we presume that we are the sick one. */
  readonly massLossMinNodes: number;
  /** After this long of mass loss, with at least one node still talking, the loss is believed. */
  readonly massLossHoldMs: number;
  /** This many reconnects within the window make a node flapping... */
  readonly flapCount: number;
  readonly flapWindowMs: number;
  /** ...until it has kept one stream for this long. */
  readonly flapSteadyMs: number;

  // -- commands
  /** An unanswered command is sent again after this long: long enough for a slow agent, short enough for a lost message. */
  readonly commandResendMs: number;
  /** A start that no report shows after this long has failed. */
  readonly startMissingMs: number;

  // -- ports
  /** First and last port handed to shards on every node, both included. */
  readonly portRange: readonly [number, number];

  // -- moves
  /** Engines loading at once in the whole cluster for drains and rolling changes: each load saturates disk and network. */
  readonly maxConcurrentLoads: number;
  /** New places decided in one pass; the rest follow in the next, so that a pass stays short in a large cluster. */
  readonly maxPlacementsPerPass: number;
  /** A new copy counts only after it has been Ready for this long. */
  readonly steadyMs: number;
  readonly replacementFloorMs: number;
  readonly streamGraceMs: number;
  readonly drainDeadlineMs: number;

  // -- health
  /** First-token timeouts in a row, without any token between them, that prove an engine dead although it answers probes. */
  readonly hungAfterTimeouts: number;
  /** An engine its agent calls unhealthy leaves the router at once and is restarted after this long. */
  readonly unhealthyRestartMs: number;
  /** A stranger of ours (no record, cannot be adopted) is stopped after this long, not at once: a restored backup may be behind. */
  readonly orphanGraceMs: number;
}

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

export const DEFAULT_POLICY: ControlPolicy = {
  baseBackoffMs: 5 * SECOND,
  maxBackoffMs: 5 * MINUTE,
  healthyResetMs: 10 * MINUTE,
  unreachableAfterMs: 15 * SECOND,
  lostAfterMs: 90 * SECOND,
  settleAfterStartMs: 20 * SECOND,
  suspendGapMs: 7.5 * SECOND,
  massLossMinNodes: 3,
  massLossHoldMs: 15 * MINUTE,
  flapCount: 4,
  flapWindowMs: 10 * MINUTE,
  flapSteadyMs: 5 * MINUTE,
  commandResendMs: 10 * SECOND,
  startMissingMs: MINUTE,
  portRange: [20_000, 20_999],
  maxConcurrentLoads: 4,
  maxPlacementsPerPass: 16,
  steadyMs: 10 * SECOND,
  replacementFloorMs: 10 * MINUTE,
  streamGraceMs: 15 * MINUTE,
  drainDeadlineMs: 60 * MINUTE,
  hungAfterTimeouts: 3,
  unhealthyRestartMs: MINUTE,
  orphanGraceMs: 2 * MINUTE,
};
