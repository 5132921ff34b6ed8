/** Decides from one probe after another which GPUs new work may use. Pure: memory in, memory out. */
import type { GpuHealth } from '../../domain/cluster.js';
import type { GpuObservation, GpuProbe } from './driver.js';

/** What is remembered of one device between probes. */
export interface GpuMemory {
  /** The device as it was last seen. */
  readonly last: Pick<GpuObservation, 'uuid' | 'type' | 'vendor' | 'busId' | 'memoryTotalBytes'>;
  readonly health: GpuHealth;
}

export interface AssessTime {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

const HEALTHY: GpuHealth = { state: 'healthy' };

export function assess(
  memory: ReadonlyMap<string, GpuMemory>,
  probe: GpuProbe,
  now: AssessTime,
): Map<string, GpuMemory> {
  const next = new Map<string, GpuMemory>();
  for (const gpu of probe.gpus) next.set(gpu.uuid, { last: gpu, health: HEALTHY });
  for (const [uuid, before] of memory) {
    if (next.has(uuid)) continue;
    next.set(uuid, {
      ...before,
      health:
        before.health.reason === 'not_reported'
          ? before.health
          : {
              state: 'excluded',
              reason: 'not_reported',
              evidence: `${uuid} was on this node and is not reported any more`,
              sinceWallMs: now.wallMs,
              clearedBy: 'the device being reported again',
            },
    });
  }
  return next;
}
