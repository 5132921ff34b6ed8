/** How a report changes what is known of a node. */
import type { GpuReport, ShardReport } from '../domain/cluster.js';
import { shardKey } from '../domain/cluster.js';
import type { NodeReport } from '../agent-protocol/messages.js';

/**
 * The report to judge by: a complete one as it is; an incomplete one laid over the last known, because what an incomplete
 * report lacks could simply not be read.
 */
export function mergeReport(last: NodeReport | undefined, report: NodeReport): NodeReport {
  if (report.complete || last === undefined) return report;
  return {
    ...report,
    gpus: overlay(last.gpus, report.gpus, (gpu) => gpu.uuid),
    shards: overlay(last.shards, report.shards, (shard) => shardKey(shard.shardId, shard.generation)),
    engines: overlay(last.engines, report.engines, (engine) => engine.kind),
    portsTaken: [...new Set([...last.portsTaken, ...report.portsTaken])],
    weightsPresent: [...new Set([...last.weightsPresent, ...report.weightsPresent])],
  };
}

function overlay<T>(last: readonly T[], fresh: readonly T[], key: (item: T) => string): readonly T[] {
  const merged = new Map(last.map((item) => [key(item), item]));
  for (const item of fresh) merged.set(key(item), item);
  return [...merged.values()];
}

/** What is remembered of a device across reports and restarts: who it is, not what it does. */
export interface RememberedGpu {
  readonly uuid: string;
  readonly type: string;
  readonly vendor: GpuReport['vendor'];
  readonly busId?: string;
  readonly memoryTotalBytes?: number;
}

export function rememberGpu(gpu: GpuReport): RememberedGpu {
  return {
    uuid: gpu.uuid,
    type: gpu.type,
    vendor: gpu.vendor,
    ...(gpu.busId === undefined ? {} : { busId: gpu.busId }),
    ...(gpu.memoryTotalBytes === undefined ? {} : { memoryTotalBytes: gpu.memoryTotalBytes }),
  };
}

/**
 * The node's devices: those reported, and those it once had and no longer reports. A device that fell off the bus is not
 * merely absent: it stays visible, excluded, until an operator removes the node or the device returns.
 */
export function gpusWithMissing(
  reported: readonly GpuReport[],
  remembered: ReadonlyMap<string, RememberedGpu>,
  missingSinceWallMs: ReadonlyMap<string, number>,
): readonly GpuReport[] {
  const seen = new Set(reported.map((gpu) => gpu.uuid));
  const missing = [...remembered.values()].filter((gpu) => !seen.has(gpu.uuid));
  if (missing.length === 0) return reported;
  return [
    ...reported,
    ...missing.map((gpu): GpuReport => {
      const since = missingSinceWallMs.get(gpu.uuid);
      return {
        ...gpu,
        foreign: [],
        linkedTo: [],
        health: {
          state: 'excluded',
          reason: 'not_reported',
          evidence: 'the node reported this device before and no longer does',
          ...(since === undefined ? {} : { sinceWallMs: since }),
          clearedBy: 'the device being reported again',
        },
      };
    }),
  ];
}

/** Devices known from before this server started: whether they are there, and well, is not known until the first full report. */
export function gpusNotYetReported(remembered: Iterable<RememberedGpu>): readonly GpuReport[] {
  return [...remembered].map((gpu) => ({
    ...gpu,
    foreign: [],
    linkedTo: [],
    health: {
      state: 'unknown',
      reason: 'not_yet_reported',
      evidence: "waiting for the agent's first report since this server started",
      clearedBy: 'the first report',
    },
  }));
}

/**
 * Whether nothing that could change a decision differs; heartbeats that only move ages and counters are alike. Both share what they
 * have in common, so lists and values that are no other objects are not looked into.
 */
export function decideAlike(a: NodeReport, b: NodeReport): boolean {
  return (
    a.complete === b.complete &&
    alike(a.gpus, b.gpus, gpuAlike) &&
    alike(a.shards, b.shards, shardAlike) &&
    a.engines === b.engines &&
    a.conditions === b.conditions &&
    a.portsTaken === b.portsTaken
  );
}

function alike<T>(a: readonly T[], b: readonly T[], same: (a: T, b: T) => boolean): boolean {
  if (a === b) return true;
  return (
    a.length === b.length &&
    a.every((one, index) => {
      const other = b[index];
      return one === other || (other !== undefined && same(one, other));
    })
  );
}

function gpuAlike(a: GpuReport, b: GpuReport): boolean {
  return (
    a.uuid === b.uuid &&
    a.health.state === b.health.state &&
    a.health.reason === b.health.reason &&
    a.foreign.length === b.foreign.length
  );
}

function shardAlike(a: ShardReport, b: ShardReport): boolean {
  return (
    a.shardId === b.shardId &&
    a.generation === b.generation &&
    a.phase === b.phase &&
    a.verdict === b.verdict &&
    a.exitCode === b.exitCode &&
    a.ports.http === b.ports.http &&
    a.ports.rendezvous === b.ports.rendezvous
  );
}
