/** What must hold before an engine is started, each check with its own "no". */
import { statfs } from 'node:fs/promises';
import type { StartShardCommand } from '../domain/plan.js';
import type { Clock } from '../shared/clock.js';
import { canBind, listenerOf, listens } from './ports-in-use.js';
import type { EngineDriver, ModelSource, Refusal } from './engines/driver.js';
import { hubCacheDir, inHubCache, lackOf } from './engines/model-source.js';
import { lacksRoom, stillHeld, type GpuHolder } from './gpu/emptiness.js';
import type { GpuMonitor } from './gpu/monitor.js';
import { DISK_FREE_DOWNLOAD_MIN_BYTES, DISK_FREE_MIN_BYTES, type AgentTimings } from './limits.js';
import type { ShardSpec } from './shard-spec.js';
import { pause } from './wait.js';

export interface StartChecksDeps {
  readonly clock: Clock;
  readonly timings: Pick<AgentTimings, 'gpuWaitMs' | 'gpuWaitPollMs' | 'probeMaxMs' | 'probeTimeoutMs'>;
  readonly gpus: Pick<GpuMonitor, 'fresh'>;
  readonly stateDir: string;
  /** Other live shards of this agent. */
  holders(exceptShardId: string): readonly GpuHolder[];
  /** A shard that is fetching the same weights right now. */
  loaderOf(source: string, exceptShardId: string): string | undefined;
}

/** Called while a check waits, with what it waits for. */
export type Waiting = (phase: 'waitingForGpu' | 'downloading' | 'starting', what: string) => void;

/** Waits until every GPU of the shard has room; bounded, and then it is not the model's fault. */
export async function gpusHaveRoom(
  spec: ShardSpec,
  deps: StartChecksDeps,
  waiting: Waiting,
  signal: AbortSignal,
): Promise<Refusal | undefined> {
  if (spec.gpuUuids.length === 0) return undefined;
  const need = {
    gpuUuids: spec.gpuUuids,
    ...(spec.gpuMemoryBytes === undefined ? {} : { memoryBytes: spec.gpuMemoryBytes }),
  };
  const { clock, timings, gpus } = deps;
  const deadlineMs = clock.monotonicMs() + timings.gpuWaitMs;
  while (!signal.aborted) {
    const why = lacksRoom(need, await gpus.fresh(), deps.holders(spec.shardId));
    if (why === undefined) return undefined;
    if (clock.monotonicMs() >= deadlineMs) return { verdict: 'gpuNotEmpty', message: why };
    waiting('waitingForGpu', why);
    await pause(clock, timings.gpuWaitPollMs, signal);
  }
  return undefined;
}

/**
 * Waits until a dead shard's devices hold nothing of it any more: others are given them on our word. Bounded, because
 * memory that nobody visible holds is for a person to look at; the next start looks again.
 */
export async function gpusLetGo(
  spec: ShardSpec,
  deps: StartChecksDeps,
  waiting: (what: string) => void,
): Promise<void> {
  const { clock, timings, gpus } = deps;
  const deadlineMs = clock.monotonicMs() + timings.gpuWaitMs;
  while (spec.gpuUuids.length > 0) {
    const why = stillHeld(spec, await gpus.fresh(), deps.holders(spec.shardId));
    if (why === undefined || clock.monotonicMs() >= deadlineMs) return;
    waiting(why);
    await pause(clock, timings.gpuWaitPollMs);
  }
}

/** What lies on the disk must be the whole model: engines find out late, and not all of them say it clearly. */
export async function weightsAreWhole(source: ModelSource): Promise<Refusal | undefined> {
  if (source.kind !== 'path') return undefined;
  const lack = await lackOf(source.path);
  return lack === undefined
    ? undefined
    : { verdict: 'missingWeights', message: `${source.path} is not whole: it lacks ${lack}` };
}

/**
 * One loader per model and node: two that fetch the same files write over each other and double the time of both. `claim`
 * is called in the moment in which the turn is ours, so that of two that start together one waits.
 */
export async function turnToLoad(
  spec: ShardSpec,
  launch: { readonly source: ModelSource; readonly env: Readonly<Record<string, string>> },
  deps: StartChecksDeps,
  waiting: Waiting,
  signal: AbortSignal,
  claim: () => void,
): Promise<void> {
  const { source, env } = launch;
  if (source.kind !== 'repository' || spec.source === undefined) return;
  for (;;) {
    // What is there already is read by as many as like to.
    if (await inHubCache(hubCacheDir(env), source.id)) return;
    const loader = deps.loaderOf(spec.source, spec.shardId);
    if (loader === undefined || signal.aborted) return claim();
    waiting('downloading', `waiting for shard ${loader}, which fetches ${source.id}`);
    await pause(deps.clock, deps.timings.probeMaxMs, signal);
  }
}

/** A head that starts before its RPC workers listen gives up at once. */
export async function peersListen(
  driver: EngineDriver,
  start: StartShardCommand,
  deps: StartChecksDeps,
  waiting: Waiting,
  signal: AbortSignal,
): Promise<Refusal | undefined> {
  if (!driver.headWaitsForPeers || start.rank !== 0) return undefined;
  const { clock, timings } = deps;
  const deadlineMs = clock.monotonicMs() + start.profile.startTimeoutMs;
  for (const peer of start.peers.filter(({ rank }) => rank !== 0)) {
    const where = `${peer.address}:${peer.ports.http}`;
    const address = { host: peer.address, port: peer.ports.http };
    while (!signal.aborted && !(await listens(address, clock, timings.probeTimeoutMs))) {
      if (clock.monotonicMs() >= deadlineMs)
        return { verdict: 'noProgress', message: `rank ${peer.rank} does not listen on ${where}` };
      waiting('starting', `waiting for rank ${peer.rank} on ${where}`);
      await pause(clock, timings.probeMaxMs / 4, signal);
    }
  }
  return undefined;
}

/** The HTTP port, and where the ranks meet when that is here. Engines say less clearly which port it was. */
export async function portsAreFree(bindHost: string, spec: ShardSpec): Promise<Refusal | undefined> {
  const { http, rendezvous } = spec.ports;
  const ports = rendezvous !== undefined && spec.rank === 0 ? [http, rendezvous] : [http];
  for (const port of ports) {
    if (await canBind({ host: bindHost, port })) continue;
    const pid = listenerOf(port);
    const by = pid === undefined ? 'somebody else' : `process ${pid}`;
    return { verdict: 'portTaken', message: `port ${port} on ${bindHost} is held by ${by}` };
  }
  return undefined;
}

export async function diskHasRoom(
  source: ModelSource,
  stateDir: string,
  env: Readonly<Record<string, string>>,
): Promise<Refusal | undefined> {
  const free = await freeBytes(stateDir);
  if (free !== undefined && free < DISK_FREE_MIN_BYTES)
    return { verdict: 'diskFull', message: `${mib(free)} MiB are free for logs and state in ${stateDir}` };
  if (source.kind !== 'repository') return undefined;
  const cache = hubCacheDir(env);
  if (await inHubCache(cache, source.id)) return undefined;
  const cacheFree = await freeBytes(cache);
  if (cacheFree === undefined || cacheFree >= DISK_FREE_DOWNLOAD_MIN_BYTES) return undefined;
  return {
    verdict: 'diskFull',
    message: `${mib(cacheFree)} MiB are free in ${cache}, too little to fetch ${source.id}`,
  };
}

/** Free space where `path` is or would be; undefined when it cannot be told. */
export async function freeBytes(path: string): Promise<number | undefined> {
  try {
    const { bavail, bsize } = await statfs(path);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}

const mib = (bytes: number): number => Math.round(bytes / 2 ** 20);
