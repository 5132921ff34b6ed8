/**
 * What a history is about. Most are about everything; some are only about what a mixture hardly ever reaches. A theme is a matter
 * of the seed's last digit and draws nothing in other histories, so that those stay what they were.
 */
import type { ModelSpec, Profile } from '../../src/domain/model-spec.js';
import type { ControlPolicy } from '../../src/domain/reconcile/policy.js';
import type { Random } from '../../src/shared/random.js';
import type { Dice, OperatorAction } from './dice.js';

export type Theme =
  | 'mixed'
  /** Models want more devices than there are, and may take them from each other. */
  | 'contested'
  /** The same on few machines with many devices, where one that is to be placed may displace several, or one too many. */
  | 'crowded'
  /** Nodes are emptied all the time, with every option, under long streams. */
  | 'drains'
  /** Every model runs on several machines. */
  | 'gangs'
  /** The server's state goes, whole or back to a copy, while agents come one by one. */
  | 'stateLoss'
  /** What operators do, most of it at once: copies are scaled, restarted and moved, and settings change meanwhile. */
  | 'operators';

/** Their rows are thin, as the last digit alone was spent before they came. */
const LATE: Readonly<Record<number, Theme>> = {
  13: 'operators',
  17: 'stateLoss',
  43: 'operators',
  47: 'stateLoss',
  73: 'operators',
  77: 'stateLoss',
};

export function themeOf(seed: number): Theme {
  const late = LATE[seed % 100];
  if (late !== undefined) return late;
  switch (seed % 10) {
    case 0:
      return 'drains';
    case 1:
      return 'gangs';
    case 4:
      return 'crowded';
    case 9:
      return 'contested';
    default:
      return 'mixed';
  }
}

/** Whether models take devices from each other. */
export function isContested(theme: Theme): boolean {
  return theme === 'contested' || theme === 'crowded';
}

const between = (random: Random, least: number, most: number): number => least + random() * (most - least);

const DRAIN_ACTIONS: readonly OperatorAction[] = [
  'drain',
  'drain',
  'drain',
  'drainGpu',
  'uncordon',
  'uncordon',
  'scale',
  'changeArgs',
  'refit',
  'removeModel',
  'addModel',
];

const GANG_ACTIONS: readonly OperatorAction[] = [
  'drain',
  'drain',
  'drainGpu',
  'uncordon',
  'uncordon',
  'scale',
  'scale',
  'changeArgs',
  'restartReplica',
];

const OPERATOR_ACTIONS: readonly OperatorAction[] = [
  'scale',
  'scale',
  'restartModel',
  'restartWithGap',
  'restartReplica',
  'restartReplicaWithGap',
  'reload',
  'reload',
  'drain',
  'drainGpu',
  'uncordon',
  'uncordon',
  'changeArgs',
  'revert',
];

/** The dice of a history with a theme. */
export function themedDice(theme: Theme, dice: Dice, random: Random): Dice {
  switch (theme) {
    case 'mixed':
    case 'contested':
      return dice;
    case 'crowded':
      return {
        ...dice,
        faults: random() < 0.5 ? ['engineCrash'] : dice.faults,
        permanent: 0,
        loadMs: [500, between(random, 1_000, 8_000)],
        doomed: random() < 0.3 ? ['m2'] : [],
      };
    case 'drains':
      return {
        ...dice,
        actions: DRAIN_ACTIONS,
        actionEveryMs: between(random, 5_000, 25_000),
        faults: random() < 0.6 ? ['serverRestoreOld', 'sessionDrop'] : dice.faults,
        faultEveryMs: between(random, 15_000, 60_000),
        loadMs: [500, between(random, 2_000, 8_000)],
        requestEveryMs: between(random, 600, 2_500),
        requestMs: [50, between(random, 20_000, 240_000)],
      };
    case 'gangs':
      return {
        ...dice,
        actions: GANG_ACTIONS,
        actionEveryMs: between(random, 8_000, 40_000),
        loadMs: [500, between(random, 2_000, 15_000)],
        crashAtStart: random() < 0.5 ? 0 : 0.15,
        permanent: 0,
      };
    case 'stateLoss':
      return {
        ...dice,
        faults: [
          'serverLostState',
          'serverLostState',
          'serverRestoreOld',
          'serverRestart',
          'agentRestart',
          'partition',
          'engineCrash',
        ],
        faultEveryMs: between(random, 15_000, 60_000),
        loadMs: [500, between(random, 2_000, 8_000)],
        crashAtStart: random() < 0.7 ? 0 : 0.15,
        permanent: 0,
      };
    case 'operators':
      return {
        ...dice,
        faults: random() < 0.5 ? ['sessionDrop', 'serverRestart'] : dice.faults,
        faultEveryMs: between(random, 20_000, 60_000),
        actions: OPERATOR_ACTIONS,
        actionEveryMs: between(random, 4_000, 25_000),
        loadMs: [500, between(random, 2_000, 10_000)],
        permanent: 0,
        requestEveryMs: between(random, 200, 1_500),
      };
  }
}

/** Settings as a reload in the middle of a history changes them. */
export function reloadedPolicy(policy: ControlPolicy, random: Random): ControlPolicy {
  return {
    ...policy,
    maxConcurrentLoads: 1 + Math.floor(random() * 3),
    steadyMs: between(random, 1_000, 8_000),
    replacementFloorMs: between(random, 20_000, 90_000),
    streamGraceMs: between(random, 5_000, 60_000),
    drainDeadlineMs: between(random, 60_000, 300_000),
  };
}

export function themedPolicy(theme: Theme, policy: ControlPolicy, random: Random): ControlPolicy {
  return theme === 'drains' ? { ...policy, streamGraceMs: between(random, 20_000, 120_000) } : policy;
}

/** How many machines, and how many devices each has. */
export function themedMachines(theme: Theme, drawn: number): number {
  if (theme === 'gangs') return Math.max(4, drawn);
  return isContested(theme) ? Math.min(3, drawn) : drawn;
}

export function themedDevices(theme: Theme, drawn: number): number {
  if (theme === 'crowded') return Math.max(3, drawn);
  return theme === 'gangs' ? Math.max(2, drawn) : drawn;
}

export function themedModelCount(theme: Theme, drawn: number): number {
  if (theme === 'crowded') return 3;
  return theme === 'drains' || theme === 'operators' ? Math.max(2, drawn) : drawn;
}

/** Time between copies of the store; in a history of drains they are old when they are needed. */
export function backUpEveryMs(theme: Theme, drawnMs: number, first: boolean): number {
  if (theme !== 'drains') return drawnMs;
  return first ? drawnMs / 8 : drawnMs * 2;
}

/** A drawn model as the theme wants it. */
export function themedModel(theme: Theme, model: ModelSpec, random: Random): ModelSpec {
  switch (theme) {
    case 'mixed':
    case 'drains':
    case 'stateLoss':
      return model;
    case 'operators':
      // Copies of one shard, more of them than of anything else: who of many goes is the question.
      return {
        ...model,
        replicas: 1 + model.replicas,
        profiles: model.profiles.map((profile) => ({ ...profile, shards: 1 })),
      };
    case 'contested':
      return contested(model);
    case 'crowded':
      return crowded(contested(model), random);
    case 'gangs':
      return {
        ...model,
        replicas: Math.min(2, Math.max(1, model.replicas)),
        profiles: model.profiles.map((profile) => ({
          ...profile,
          engine: 'sim',
          shards: random() < 0.7 ? 2 : 3,
          gpus: Math.max(1, profile.gpus),
        })),
      };
  }
}

const PRIORITIES = [50, 100, 200] as const;

/** A model that wants more than is there, and gives or takes room by its priority. */
function contested(model: ModelSpec): ModelSpec {
  const priority = PRIORITIES[Number(model.name.charAt(1)) % 3] ?? 100;
  return {
    ...model,
    priority,
    replicas: model.replicas + 1,
    profiles: model.profiles.map((profile) => ({ ...profile, gpus: Math.max(1, profile.gpus) })),
    placement: { ...model.placement, mayYield: priority < 200 && model.onNoSurge !== 'swap' },
  };
}

/** Many small ones of low priority, a few large ones of high priority. */
function crowded(model: ModelSpec, random: Random): ModelSpec {
  const low = model.priority === 50;
  const shaped = ({ gpuMemoryBytes: _memory, gpuType: _type, ...profile }: Profile): Profile => ({
    ...profile,
    engine: 'sim',
    shards: 1,
    gpus: low ? 1 : 1 + Math.floor(random() * 3),
  });
  const count = low ? 3 + Math.floor(random() * 4) : 1 + Math.floor(random() * 2);
  return { ...model, replicas: count, profiles: model.profiles.slice(0, 1).map(shaped) };
}
