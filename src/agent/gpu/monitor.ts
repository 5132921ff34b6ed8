/**
 * Keeps the last good picture of the node's GPUs. Probing never stands in anybody's way: one probe at a time, each with
 * a hard deadline, and whoever asks gets the last picture with its age.
 */
import type { GpuReport, NodeCondition } from '../../domain/cluster.js';
import type { Clock } from '../../shared/clock.js';
import type { Logger } from '../../shared/logger.js';
import type { AgentTimings } from '../limits.js';
import type { StoredGpu } from '../state-file.js';
import { pause } from '../wait.js';
import type { GpuDriver, GpuProbe, GpuProcess } from './driver.js';
import { assess, NEW_MEMORY, type GpuMemory } from './health-policy.js';

/** A picture of the GPUs, taken by a probe that began at `beganMs` on the monotonic clock. */
export interface GpuPicture {
  readonly beganMs: number;
  readonly gpus: readonly GpuReport[];
  /** All processes on the devices, ours included. */
  readonly processes: readonly GpuProcess[];
  /** Places in PCI order by UUID; empty while a device is lost, for then nobody knows who counts it and who does not. */
  readonly indices: ReadonlyMap<string, number>;
}

export interface GpuMonitorDeps {
  readonly driver: GpuDriver | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly timings: Pick<AgentTimings, 'gpuProbeIntervalMs' | 'gpuProbeTimeoutMs' | 'gpuStaleMs'>;
  /** True for processes of our shards: they are no strangers on a device. */
  readonly isOurs: (pid: number) => boolean;
  /** Devices this node had before the agent started. */
  readonly remembered: readonly StoredGpu[];
  readonly bootId: () => string | undefined;
  readonly onChange: () => void;
}

export class GpuMonitor {
  private memory: Map<string, GpuMemory>;
  private last: GpuPicture | undefined;
  private running: Promise<void> | undefined;
  private failingSinceMs: number | undefined;
  private failure = '';
  private notes: readonly NodeCondition[] = [];
  private readonly ended = new AbortController();
  private loop: Promise<void> = Promise.resolve();

  constructor(private readonly deps: GpuMonitorDeps) {
    const seenMs = deps.clock.monotonicMs();
    this.memory = new Map(
      deps.remembered.map(({ uuid, type, busId, held }) => [
        uuid,
        {
          ...NEW_MEMORY,
          last: {
            uuid,
            type,
            vendor: deps.driver?.vendor ?? 'unknown',
            ...(busId === undefined ? {} : { busId }),
          },
          held: held.map((one) => ({ ...one, seenMs })),
        },
      ]),
    );
  }

  start(): void {
    if (this.deps.driver !== undefined) this.loop = this.run();
  }

  async close(): Promise<void> {
    this.ended.abort();
    await this.loop;
  }

  /** The last good picture; undefined before the first. Without a driver the node simply has no GPUs. */
  picture(): GpuPicture | undefined {
    if (this.deps.driver === undefined)
      return { beganMs: this.deps.clock.monotonicMs(), gpus: [], processes: [], indices: new Map() };
    return this.last ?? this.unseen();
  }

  /**
   * A driver that has answered nothing since the agent started must not keep the node's shards unknown for ever: after a
   * while its remembered devices are reported as what they are, not usable as far as anybody knows.
   */
  private unseen(): GpuPicture | undefined {
    const { clock, timings } = this.deps;
    if (this.failingSinceMs === undefined) return undefined;
    if (clock.monotonicMs() - this.failingSinceMs < timings.gpuStaleMs) return undefined;
    const gpus = [...this.memory.values()].map(({ last }): GpuReport => ({
      ...reported(last),
      foreign: [],
      health: {
        state: 'excluded',
        reason: 'probe_failing',
        evidence: `the GPU driver gives no answer: ${this.failure}`,
        clearedBy: 'an answer of the GPU driver',
      },
      linkedTo: [],
    }));
    return { beganMs: this.failingSinceMs, gpus, processes: [], indices: new Map() };
  }

  /** A picture from a probe that began after this call; undefined when that probe failed. */
  async fresh(): Promise<GpuPicture | undefined> {
    const askedMs = this.deps.clock.monotonicMs();
    if (this.deps.driver === undefined) return this.picture();
    // A probe under way began before the question, so its answer may be too old; the next one counts.
    await this.running;
    await this.probeOnce();
    return this.last !== undefined && this.last.beganMs >= askedMs ? this.last : undefined;
  }

  /** Devices to remember over a restart of the agent. */
  remembered(): StoredGpu[] {
    return [...this.memory.values()].map(({ last, held }) => ({
      uuid: last.uuid,
      type: last.type,
      ...(last.busId === undefined ? {} : { busId: last.busId }),
      held: held.map(({ seenMs: _seenMs, ...one }) => one),
    }));
  }

  conditions(): NodeCondition[] {
    if (this.failingSinceMs === undefined) return [...this.notes];
    const ageMs = this.deps.clock.monotonicMs() - this.failingSinceMs;
    const seconds = Math.round(ageMs / 1000);
    return [
      ...this.notes,
      {
        type: 'GpuProbeFailing',
        reason: `no answer from the GPU driver for ${seconds} s: ${this.failure}`,
        blocksPlacement: ageMs >= this.deps.timings.gpuStaleMs,
      },
    ];
  }

  private async run(): Promise<void> {
    while (!this.ended.signal.aborted) {
      await this.probeOnce();
      await pause(this.deps.clock, this.deps.timings.gpuProbeIntervalMs, this.ended.signal);
    }
  }

  /** At most one probe is alive; callers meanwhile share it. */
  private probeOnce(): Promise<void> {
    this.running ??= this.probe().finally(() => (this.running = undefined));
    return this.running;
  }

  private async probe(): Promise<void> {
    const { driver, clock, timings } = this.deps;
    if (driver === undefined) return;
    const beganMs = clock.monotonicMs();
    const deadline = new AbortController();
    const timer = clock.setTimer(timings.gpuProbeTimeoutMs, () => deadline.abort());
    try {
      const probe = await driver.probe(AbortSignal.any([deadline.signal, this.ended.signal]));
      this.take(probe, beganMs);
    } catch (error) {
      if (!this.ended.signal.aborted) this.failed(error, deadline.signal.aborted, beganMs);
    } finally {
      timer.cancel();
    }
  }

  private take(probe: GpuProbe, beganMs: number): void {
    const { clock, isOurs, onChange, logger } = this.deps;
    if (this.failingSinceMs !== undefined) logger.info('GPU probe answers again');
    this.failingSinceMs = undefined;
    const before = describe(this.memory);
    const bootId = this.deps.bootId();
    this.memory = assess(this.memory, probe, {
      monotonicMs: beganMs,
      wallMs: clock.wallMs(),
      ...(bootId === undefined ? {} : { bootId }),
    });
    this.notes = notesOf(probe);
    const seen = new Map(probe.gpus.map((gpu) => [gpu.uuid, gpu]));
    const gpus = [...this.memory.values()].map(({ last, health }): GpuReport => {
      const now = seen.get(last.uuid);
      return {
        ...reported(last),
        ...(now?.memoryUsedBytes === undefined ? {} : { memoryUsedBytes: now.memoryUsedBytes }),
        foreign: probe.processes
          .filter((process) => process.uuid === last.uuid && !isOurs(process.pid))
          .map(({ pid, name, memoryBytes }) => ({
            pid,
            ...(name === undefined ? {} : { name }),
            ...(memoryBytes === undefined ? {} : { memoryBytes }),
          })),
        health,
        linkedTo: now?.linkedTo ?? [],
      };
    });
    this.last = { beganMs, gpus, processes: probe.processes, indices: indicesOf(probe, gpus) };
    if (describe(this.memory) !== before) onChange();
  }

  private failed(error: unknown, timedOut: boolean, beganMs: number): void {
    const { logger, timings } = this.deps;
    this.failure = timedOut
      ? `killed after ${timings.gpuProbeTimeoutMs} ms`
      : error instanceof Error
        ? error.message
        : String(error);
    if (this.failingSinceMs === undefined) logger.warn({ reason: this.failure }, 'GPU probe fails');
    this.failingSinceMs ??= beganMs;
  }
}

function reported(last: GpuMemory['last']) {
  const { uuid, type, vendor, busId, memoryTotalBytes } = last;
  return {
    uuid,
    type,
    vendor,
    ...(busId === undefined ? {} : { busId }),
    ...(memoryTotalBytes === undefined ? {} : { memoryTotalBytes }),
  };
}

function indicesOf(probe: GpuProbe, gpus: readonly GpuReport[]): ReadonlyMap<string, number> {
  const lost = gpus.some(({ health }) => health.reason === 'not_reported' || health.reason === 'lost');
  if (lost) return new Map();
  return new Map(
    probe.gpus.flatMap(({ uuid, index }) => (index === undefined ? [] : [[uuid, index] as const])),
  );
}

/** What a person should know of a probe that went well. */
function notesOf(probe: GpuProbe): NodeCondition[] {
  const pending = probe.gpus.filter(({ signs }) => signs.remapPending === true).map(({ uuid }) => uuid);
  const notes: NodeCondition[] = probe.notes.map((reason) => ({
    type: 'GpuProbeIncomplete',
    reason,
    blocksPlacement: false,
  }));
  if (pending.length > 0) {
    const reason = `${pending.join(', ')}: memory repair waits for a reset; reset at the next drain`;
    notes.push({ type: 'GpuRepairPending', reason, blocksPlacement: false });
  }
  if (probe.xids === undefined && probe.gpus.some(({ vendor }) => vendor === 'nvidia')) {
    const reason = 'the kernel log cannot be read: GPU errors (Xids) are not observable here';
    notes.push({ type: 'GpuErrorsNotObservable', reason, blocksPlacement: false });
  }
  return notes;
}

/** What a change of which is worth a report at once: devices and their health, not every megabyte. */
function describe(memory: ReadonlyMap<string, GpuMemory>): string {
  return JSON.stringify(
    [...memory.values()].map(({ last, health }) => [last.uuid, health.state, health.reason]),
  );
}
