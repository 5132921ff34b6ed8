/** Facts measured from real starts: they replace guesses in placement, in the bounds of moves and in what clients are told. */
import { sameContent } from '../catalog/spec-digest.js';
import type { LearnedFact, ReplicaRecord, ShardAssignment } from '../cluster.js';
import type { Pass } from './pass.js';
import { because } from './reasons.js';
import type { ObservedReplica } from './replica-state.js';

/** Load times kept per fact: enough for a p95 that follows a change of disk or image within days. */
const LOADS_MAX = 20;
/** A peak is written again only when it grew by this share: every report would otherwise be a write. */
const PEAK_STEP = 1.02;
/** A load longer than this was not measured but made up, ms: a bound of a move would be twice as long. */
const LOAD_MAX_MS = 24 * 3_600_000;

/** Takes load time (once per start) and memory peak (when it grew) of a Ready replica. */
export function learnFrom(
  pass: Pass,
  record: ReplicaRecord,
  seen: ObservedReplica,
  justReady: boolean,
): void {
  const gpuType = gpuTypeOf(pass, record);
  // Which device it was cannot be told any more: a fact about no type is of use to none.
  if (gpuType === undefined) return;
  let [peak, loadMs] = [0, 0];
  for (const { shard, status } of seen.shards) {
    if (status.kind !== 'seen') continue;
    peak = Math.max(peak, possiblePeak(pass, shard, status.report.memoryPeakBytes));
    if (justReady) loadMs = Math.max(loadMs, possibleLoad(status.report.loadMs));
  }
  // While old and new copies stand side by side only the new ones tell what the next one needs.
  const wanted = pass.digestOf(record.model, record.profile);
  if (wanted === undefined || !sameContent(record.specDigest, wanted)) peak = 0;
  if (peak === 0 && loadMs === 0) return;
  const before = pass.learned.of(record.model, record.profile, gpuType);
  const same = before?.memoryPeakOf !== undefined && sameContent(before.memoryPeakOf, record.specDigest);
  const grew = peak > (same ? (before.memoryPeakBytes ?? 0) * PEAK_STEP : 0);
  if (!grew && loadMs === 0) return;
  const loads = before?.loadMs ?? [];
  const fact: LearnedFact = {
    model: record.model,
    profile: record.profile,
    gpuType,
    ...(grew ? { memoryPeakBytes: peak, memoryPeakOf: record.specDigest } : peakIn(before)),
    loadMs: loadMs > 0 ? [...loads, loadMs].slice(-LOADS_MAX) : loads,
  };
  pass.learn({ kind: 'putLearned', fact, reason: because('learned', `from ${record.id}`) });
}

const peakIn = (fact: LearnedFact | undefined): Pick<LearnedFact, 'memoryPeakBytes' | 'memoryPeakOf'> => ({
  ...(fact?.memoryPeakBytes === undefined ? {} : { memoryPeakBytes: fact.memoryPeakBytes }),
  ...(fact?.memoryPeakOf === undefined ? {} : { memoryPeakOf: fact.memoryPeakOf }),
});

/** The peak, or 0 for one that no device of the shard has room for: believed, it would keep the model from every machine for ever. */
function possiblePeak(pass: Pick<Pass, 'nodes'>, shard: ShardAssignment, peak: number | undefined): number {
  const gpus = pass.nodes.get(shard.nodeId)?.gpus ?? [];
  const totals = gpus.filter(({ uuid }) => shard.gpuUuids.includes(uuid)).map((gpu) => gpu.memoryTotalBytes);
  const fits = totals.some((total) => total === undefined || (peak ?? 0) <= total);
  return fits || shard.gpuUuids.length === 0 ? (peak ?? 0) : 0;
}

const possibleLoad = (loadMs = 0): number => (loadMs <= LOAD_MAX_MS ? loadMs : 0);

/** GPU type a replica runs on; `cpu` without GPUs, as its learned facts are filed; undefined while its device is not known. */
export function gpuTypeOf(pass: Pick<Pass, 'nodes'>, record: ReplicaRecord): string | undefined {
  const shard = record.shards[0];
  const uuid = shard?.gpuUuids[0];
  if (shard === undefined || uuid === undefined) return 'cpu';
  return pass.nodes.get(shard.nodeId)?.gpus.find((gpu) => gpu.uuid === uuid)?.type;
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
