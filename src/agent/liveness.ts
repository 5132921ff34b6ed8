/**
 * Does a Ready engine still work? Slow is not dead: engines under load miss probes for minutes. Dead is: nobody listens,
 * or requests stand still, counted by what the engine itself counts.
 */
import type { WorkSample } from './engines/metrics.js';
import type { AgentTimings } from './limits.js';

/** What one look at the engine found. */
export type LivenessLook =
  | { readonly kind: 'refused' }
  /** No answer in time; `cpuTicks` tells a busy engine from a stuck one. */
  | { readonly kind: 'timeout'; readonly cpuTicks?: number }
  | { readonly kind: 'answer'; readonly work: WorkSample };

export interface LivenessMemory {
  readonly refusals: number;
  readonly canaryMisses: number;
  readonly lastCanaryMs: number;
  readonly counter?: number;
  readonly cpuTicks?: number;
  /** Last time something showed work, or that there was none to do. */
  readonly movedMs: number;
}

export interface LivenessJudgement {
  readonly memory: LivenessMemory;
  /** Why the engine counts as unhealthy; undefined while it is alive. */
  readonly unhealthy?: string;
  /** Time to ask the idle engine for a token. */
  readonly canaryDue: boolean;
}

export type LivenessLimits = Pick<
  AgentTimings,
  'livenessRefusals' | 'stallMs' | 'canaryIntervalMs' | 'canaryMisses'
>;

export const newLivenessMemory = (nowMs: number): LivenessMemory => ({
  refusals: 0,
  canaryMisses: 0,
  lastCanaryMs: nowMs,
  movedMs: nowMs,
});

/** Less processor time than this between two looks is idling, not working. */
const CPU_TICKS_BUSY = 5;

export function judgeLiveness(
  memory: LivenessMemory,
  look: LivenessLook,
  nowMs: number,
  limits: LivenessLimits,
): LivenessJudgement {
  switch (look.kind) {
    case 'refused': {
      const refusals = memory.refusals + 1;
      return {
        memory: { ...memory, refusals },
        canaryDue: false,
        ...(refusals >= limits.livenessRefusals
          ? { unhealthy: `the port refused ${refusals} connections in a row although the process lives` }
          : {}),
      };
    }
    case 'timeout':
      return stalled({ ...worked(memory, look.cpuTicks, nowMs), refusals: 0 }, nowMs, limits);
    case 'answer':
      return judgeWork({ ...memory, refusals: 0 }, look.work, nowMs, limits);
  }
}

function worked(memory: LivenessMemory, cpuTicks: number | undefined, nowMs: number): LivenessMemory {
  // Where nothing can be measured nothing is concluded: the router sees whether tokens flow.
  if (cpuTicks === undefined) return { ...memory, movedMs: nowMs };
  const busy = memory.cpuTicks === undefined || cpuTicks - memory.cpuTicks >= CPU_TICKS_BUSY;
  return { ...memory, cpuTicks, ...(busy ? { movedMs: nowMs } : {}) };
}

function judgeWork(
  memory: LivenessMemory,
  work: WorkSample,
  nowMs: number,
  limits: LivenessLimits,
): LivenessJudgement {
  const moved = work.progress !== undefined && work.progress !== memory.counter;
  const next: LivenessMemory = {
    ...memory,
    ...(work.progress === undefined ? {} : { counter: work.progress }),
    ...(moved ? { movedMs: nowMs, canaryMisses: 0 } : {}),
  };
  if (next.canaryMisses >= limits.canaryMisses) {
    return {
      memory: next,
      canaryDue: canaryDue(next, nowMs, limits),
      unhealthy: `idle, and ${next.canaryMisses} requests for one token in a row were not answered`,
    };
  }
  const load = work.running === undefined ? undefined : work.running + (work.waiting ?? 0);
  if (load === 0) return { memory: { ...next, movedMs: nowMs }, canaryDue: canaryDue(next, nowMs, limits) };
  if (load === undefined || work.progress === undefined)
    return { memory: { ...next, movedMs: nowMs }, canaryDue: false };
  return stalled(next, nowMs, limits);
}

function stalled(memory: LivenessMemory, nowMs: number, limits: LivenessLimits): LivenessJudgement {
  const stillMs = nowMs - memory.movedMs;
  return {
    memory,
    canaryDue: false,
    ...(stillMs >= limits.stallMs
      ? { unhealthy: `no token was made for ${Math.round(stillMs / 1000)} s although requests are running` }
      : {}),
  };
}

function canaryDue(memory: LivenessMemory, nowMs: number, limits: LivenessLimits): boolean {
  return nowMs - memory.lastCanaryMs >= limits.canaryIntervalMs;
}

/** Takes in what became of a canary. An engine that got busy meanwhile has proven nothing either way. */
export function afterCanary(
  memory: LivenessMemory,
  answered: boolean,
  busyMeanwhile: boolean,
  nowMs: number,
): LivenessMemory {
  if (answered) return { ...memory, canaryMisses: 0, lastCanaryMs: nowMs, movedMs: nowMs };
  return {
    ...memory,
    lastCanaryMs: nowMs,
    canaryMisses: busyMeanwhile ? 0 : memory.canaryMisses + 1,
  };
}
