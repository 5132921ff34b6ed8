/** Watches a started engine: first until it is Ready, then whether it still works. */
import type { ShardPhase, Verdict } from '../domain/cluster.js';
import type { Clock } from '../shared/clock.js';
import type { EngineHttp } from './engine-http.js';
import type { EngineDriver } from './engines/driver.js';
import { readWork } from './engines/metrics.js';
import type { AgentTimings } from './limits.js';
import {
  afterCanary,
  judgeLiveness,
  newLivenessMemory,
  type LivenessLook,
  type LivenessMemory,
} from './liveness.js';
import type { LoadProgress } from './load-progress.js';
import { listens } from './ports-in-use.js';
import { GENERATION_RECIPES, type ReadinessProbe, type ReadyAnswer, type ReadyTarget } from './readiness.js';
import type { EngineProcess } from './supervisor.js';
import { pause } from './wait.js';

export interface WatchDeps {
  readonly clock: Clock;
  readonly timings: AgentTimings;
  readonly http: EngineHttp;
  readonly probe: ReadinessProbe;
}

export interface WatchTarget extends ReadyTarget {
  readonly driver: EngineDriver;
  readonly rank: number;
  readonly startTimeoutMs: number;
  readonly process: Pick<EngineProcess, 'cpuTicks'>;
  /** True while only what the engine has is finished: a token for us would look like work that is left. */
  readonly draining: () => boolean;
}

/** A start that must be ended by us. */
export interface WatchFailure {
  readonly verdict: Verdict;
  readonly message: string;
}

/** Told of each change of phase. */
export type OnPhase = (phase: ShardPhase, text?: string) => void;

/** Waits until the engine has proven that it works; undefined = it has (or the signal came first). */
export async function untilReady(
  target: WatchTarget,
  progress: LoadProgress,
  deps: WatchDeps,
  onPhase: OnPhase,
  signal: AbortSignal,
): Promise<WatchFailure | undefined> {
  const { clock, timings } = deps;
  const beganMs = clock.monotonicMs();
  let lastState: ReadyAnswer['state'] | undefined;
  while (!signal.aborted) {
    const answer = await look(target, deps, onPhase, signal);
    if (signal.aborted || answer.state === 'ready') return undefined;
    if (answer.state === 'mismatch') return { verdict: 'modelMismatch', message: answer.message };
    if (answer.state !== lastState) progress.moved(clock.monotonicMs());
    lastState = answer.state;
    showPhase(answer, progress, onPhase);
    const stillMs = progress.stillMs(clock.monotonicMs());
    if (stillMs >= target.startTimeoutMs) return noProgress(stillMs, answer, progress);
    // Quick engines are seen quickly, slow ones are left in peace.
    const pauseMs = (clock.monotonicMs() - beganMs) / 20;
    await pause(clock, Math.min(timings.probeMaxMs, Math.max(timings.probeMinMs, pauseMs)), signal);
  }
  return undefined;
}

async function look(
  target: WatchTarget,
  deps: WatchDeps,
  onPhase: OnPhase,
  signal: AbortSignal,
): Promise<ReadyAnswer> {
  const ready: ReadyAnswer = { state: 'ready', recipe: anyRecipe };
  switch (target.driver.readiness(target.rank)) {
    case 'running':
      return ready;
    case 'listening':
      return (await listens(target.address, deps.clock, deps.timings.probeTimeoutMs))
        ? ready
        : { state: 'notListening' };
    case 'token':
      return deps.probe.look(target, signal, () => onPhase('probing', 'asking for one token'));
  }
}

const [anyRecipe] = GENERATION_RECIPES as readonly [(typeof GENERATION_RECIPES)[number]];

function showPhase(answer: ReadyAnswer, progress: LoadProgress, onPhase: OnPhase): void {
  const step = progress.current;
  if (step !== undefined) onPhase(step.phase, step.detail);
  else if (answer.state === 'notListening') onPhase('starting');
  else if (answer.state === 'loading' || answer.state === 'busy') onPhase('loading', answer.detail);
}

function noProgress(stillMs: number, answer: ReadyAnswer, progress: LoadProgress): WatchFailure {
  const last = progress.current?.detail ?? ('detail' in answer ? answer.detail : 'the port never opened');
  return {
    verdict: 'noProgress',
    message: `no progress for ${Math.round(stillMs / 1000)} s; last seen: ${last}`,
  };
}

/** Looks at a Ready engine until the signal comes; healthy and unhealthy are only told, the control plane decides. */
export async function whileReady(
  target: WatchTarget,
  deps: WatchDeps,
  onPhase: OnPhase,
  signal: AbortSignal,
): Promise<void> {
  const { clock, timings } = deps;
  let memory = newLivenessMemory(clock.monotonicMs());
  while (!signal.aborted) {
    if (target.driver.readiness(target.rank) === 'token') {
      const judged = judgeLiveness(
        memory,
        await lookAlive(target, deps, signal),
        clock.monotonicMs(),
        timings,
      );
      if (signal.aborted) return;
      memory = judged.memory;
      if (judged.unhealthy === undefined) onPhase('ready');
      else onPhase('unhealthy', judged.unhealthy);
      if (judged.canaryDue && !target.draining()) memory = await canary(memory, target, deps, signal);
    }
    await pause(clock, timings.livenessIntervalMs, signal);
  }
}

async function lookAlive(target: WatchTarget, deps: WatchDeps, signal: AbortSignal): Promise<LivenessLook> {
  const options = { timeoutMs: deps.timings.probeTimeoutMs, signal };
  const metrics = await deps.http.ask(target.address, '/metrics', options);
  switch (metrics.kind) {
    case 'refused':
      return { kind: 'refused' };
    case 'timeout': {
      const cpuTicks = target.process.cpuTicks();
      return { kind: 'timeout', ...(cpuTicks === undefined ? {} : { cpuTicks }) };
    }
    case 'broken':
      return { kind: 'answer', work: {} };
    case 'answer':
      return {
        kind: 'answer',
        work: metrics.status === 200 ? readWork(metrics.body, target.driver.metrics) : {},
      };
  }
}

async function canary(
  memory: LivenessMemory,
  target: WatchTarget,
  deps: WatchDeps,
  signal: AbortSignal,
): Promise<LivenessMemory> {
  const answer = await deps.probe.generate(target, GENERATION_RECIPES, signal);
  const answered = answer.state !== 'busy' && answer.state !== 'notListening';
  const after = answered ? undefined : await lookAlive(target, deps, signal);
  // The canary itself may count as the one that runs.
  const busy = after?.kind === 'answer' && (after.work.running ?? 0) + (after.work.waiting ?? 0) > 1;
  return afterCanary(memory, answered, busy, deps.clock.monotonicMs());
}
