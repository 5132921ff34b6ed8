/**
 * What can go wrong in one run, drawn from its seed. Whole kinds of faults are switched off at random: a run in which everything
 * fails at once never gets far enough to show what one fault does to a cluster that was doing fine.
 */
import { DEFAULT_POLICY, type ControlPolicy } from '../../src/domain/reconcile/policy.js';
import type { Random } from '../../src/shared/random.js';

export const FAULTS = [
  'sessionDrop',
  'partition',
  'oneWayUp',
  'oneWayDown',
  'dataCut',
  'clog',
  'massSilence',
  'agentRestart',
  'agentFreeze',
  'reboot',
  'powerLoss',
  'engineCrash',
  'engineHang',
  'engineKilled',
  'gpuFlip',
  'gpuLost',
  'foreignProcess',
  'portGrab',
  'serverRestart',
  'serverCrashMidway',
  'serverRestoreOld',
  'serverZombie',
  'serverStall',
  'wallStep',
  'flap',
] as const;
/** Those of the list happen in any history, the others only where a theme names them. */
export type Fault = (typeof FAULTS)[number] | 'serverLostState';

export const ACTIONS = [
  'scale',
  'cordon',
  'uncordon',
  'drain',
  'drainGpu',
  'changeArgs',
  'restartModel',
  'restartAll',
  'removeModel',
  'addModel',
  'removeNode',
  'refit',
  'revert',
  'restartReplica',
] as const;
/** Those of the list happen in any history, the others only where a theme names them. */
export type OperatorAction = (typeof ACTIONS)[number] | 'restartWithGap' | 'restartReplicaWithGap' | 'reload';

export interface Dice {
  readonly faults: readonly Fault[];
  readonly actions: readonly OperatorAction[];
  /** Mean time between faults and between operator actions, ms. */
  readonly faultEveryMs: number;
  readonly actionEveryMs: number;
  readonly latencyMs: readonly [number, number];
  readonly loadMs: readonly [number, number];
  /** Chances per event. */
  readonly duplicate: number;
  readonly dropReport: number;
  readonly incompleteReport: number;
  readonly crashAtStart: number;
  /** Models whose engines never start, and so never get out of their failures. */
  readonly doomed: readonly string[];
  readonly portTaken: number;
  readonly permanent: number;
  readonly ignoresTerm: number;
  readonly slowRelease: number;
  readonly earlyReady: number;
  readonly requestEveryMs: number;
  readonly requestMs: readonly [number, number];
}

export function drawDice(random: Random): Dice {
  const some = <T>(all: readonly T[], share: number): readonly T[] => all.filter(() => random() < share);
  const chance = (most: number) => (random() < 0.5 ? 0 : random() * most);
  return {
    // A store that is set back needs runs of its own: among all other faults it would hardly ever matter.
    faults: random() < 0.15 ? ['serverRestoreOld', 'engineCrash'] : some(FAULTS, 0.2 + random() * 0.6),
    actions: some(ACTIONS, 0.3 + random() * 0.6),
    faultEveryMs: 3_000 + random() * 40_000,
    actionEveryMs: 10_000 + random() * 60_000,
    latencyMs: [1, 5 + random() * 400],
    loadMs: [500 + random() * 2_000, 3_000 + random() * 30_000],
    duplicate: chance(0.2),
    dropReport: chance(0.3),
    incompleteReport: chance(0.1),
    // Now and then a model that hardly ever starts: only long rows of failures reach the longest waits.
    crashAtStart: random() < 0.15 ? 0.9 : chance(0.3),
    doomed: [],
    portTaken: chance(0.1),
    permanent: chance(0.2),
    ignoresTerm: chance(0.5),
    slowRelease: chance(0.5),
    earlyReady: chance(0.2),
    requestEveryMs: 500 + random() * 4_000,
    requestMs: [50, 1_000 + random() * 60_000],
  };
}

/** Times short enough for much to happen in one run, in the proportions of the real ones. */
export function drawPolicy(random: Random): ControlPolicy {
  return {
    ...DEFAULT_POLICY,
    baseBackoffMs: 1_000 + Math.floor(random() * 4_000),
    maxBackoffMs: 40_000,
    healthyResetMs: 60_000,
    unreachableAfterMs: 15_000,
    lostAfterMs: 30_000 + Math.floor(random() * 60_000),
    massLossHoldMs: 180_000,
    flapWindowMs: 180_000,
    flapSteadyMs: 60_000,
    startMissingMs: 30_000,
    // A narrow range, so that ports are short and given out again.
    portRange: [20_000, 20_000 + 5 + Math.floor(random() * 20)],
    maxConcurrentLoads: 1 + Math.floor(random() * 3),
    steadyMs: 4_000,
    replacementFloorMs: 60_000,
    streamGraceMs: 30_000,
    drainDeadlineMs: 240_000,
    unhealthyRestartMs: 15_000,
    orphanGraceMs: 20_000,
  };
}
