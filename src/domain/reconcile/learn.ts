/** Facts measured from real starts: they replace guesses in placement, in the bounds of moves and in what clients are told. */
import type { LearnedFact, ReplicaRecord } from '../cluster.js';
import type { Pass } from './pass.js';
import { because } from './reasons.js';
import type { ObservedReplica } from './replica-state.js';

/** Load times kept per fact: enough for a p95 that follows a change of disk or image within days. */
const LOADS_MAX = 20;
/** A peak is written again only when it grew by this share: every report would otherwise be a write. */
const PEAK_STEP = 1.02;

/** Takes load time (once per start) and memory peak (when it grew) of a Ready replica. */
export function learnFrom(
  pass: Pass,
  record: ReplicaRecord,
  seen: ObservedReplica,
  justReady: boolean,
): void {
  let [peak, loadMs] = [0, 0];
  for (const { status } of seen.shards) {
    if (status.kind !== 'seen') continue;
    peak = Math.max(peak, status.report.memoryPeakBytes ?? 0);
    if (justReady) loadMs = Math.max(loadMs, status.report.loadMs ?? 0);
  }
  if (peak === 0 && loadMs === 0) return;
  const gpuType = gpuTypeOf(pass, record);
  const before = pass.learned.of(record.model, record.profile, gpuType);
  const grew = peak > (before?.memoryPeakBytes ?? 0) * PEAK_STEP;
  if (!grew && loadMs === 0) return;
  const memoryPeakBytes = grew ? peak : before?.memoryPeakBytes;
  const loads = before?.loadMs ?? [];
  const fact: LearnedFact = {
    model: record.model,
    profile: record.profile,
    gpuType,
    ...(memoryPeakBytes === undefined ? {} : { memoryPeakBytes }),
    loadMs: loadMs > 0 ? [...loads, loadMs].slice(-LOADS_MAX) : loads,
  };
  pass.learn({ kind: 'putLearned', fact, reason: because('learned', `from ${record.id}`) });
}

/** GPU type a replica runs on; `cpu` without GPUs, as its learned facts are filed. */
export function gpuTypeOf(pass: Pick<Pass, 'nodes'>, record: ReplicaRecord): string {
  const shard = record.shards[0];
  const uuid = shard?.gpuUuids[0];
  if (shard === undefined || uuid === undefined) return 'cpu';
  return pass.nodes.get(shard.nodeId)?.gpus.find((gpu) => gpu.uuid === uuid)?.type ?? 'unknown';
}

/** 95th percentile of the known load times, ms; undefined while none is known. */
export function loadP95Ms(fact: LearnedFact | undefined): number | undefined {
  if (fact === undefined || fact.loadMs.length === 0) return undefined;
  const sorted = fact.loadMs.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.95))];
}

/** 95th percentile of the profile's measured load times over all GPU types, ms. */
export function usualLoadMs(
  record: Pick<ReplicaRecord, 'model' | 'profile'>,
  learned: readonly LearnedFact[],
): number | undefined {
  const loads = learned
    .filter((fact) => fact.model === record.model && fact.profile === record.profile)
    .flatMap((fact) => loadP95Ms(fact) ?? []);
  return loads.length === 0 ? undefined : Math.max(...loads);
}
