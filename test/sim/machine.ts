/** The ground truth: machines, devices and the processes that really run, whatever anybody reports or believes. */
import type { GpuHealth, NodeView } from '../../src/domain/cluster.js';
import type { EngineKind } from '../../src/domain/model-spec.js';

export type ProcessState = 'loading' | 'ready' | 'hung' | 'dying' | 'dead';

/** One engine process group. */
export interface Process {
  /** `shardKey` of the start it came from. */
  readonly key: string;
  readonly shardId: string;
  readonly replicaId: string;
  readonly generation: number;
  readonly model: string;
  readonly profile: string;
  /** What it was started with, as the catalog had it then. */
  readonly args: readonly string[];
  readonly rank: number;
  /** Ranks of its gang, itself included. */
  readonly shards: number;
  readonly gpuUuids: readonly string[];
  /** Bytes really taken on each of its devices; undefined = as much as there is. */
  readonly memoryBytes: number | undefined;
  readonly port: number;
  readonly startedMs: number;
  /** Its weights are read; a gang's ranks then wait for each other. */
  loaded: boolean;
  state: ProcessState;
  /** Devices stay taken for a while after the process is gone. */
  holdsGpus: boolean;
  /** Exit as the agent will find it. */
  exit?: { readonly verdict: string; readonly exitCode?: number; readonly exitSignal?: string };
}

export interface Device {
  readonly uuid: string;
  readonly type: string;
  readonly memoryTotalBytes: number;
  health: GpuHealth;
  /** False once it fell off the bus. */
  present: boolean;
  foreignBytes: number;
}

export class Machine {
  up = true;
  boot = 1;
  /** The control network, per direction. */
  upCut = false;
  downCut = false;
  /** The way from the router to the engines. */
  dataCut = false;
  extraLatencyMs = 0;
  readonly processes = new Map<string, Process>();
  readonly portsGrabbed = new Set<number>();

  constructor(
    readonly id: string,
    readonly devices: readonly Device[],
    readonly labels: Readonly<Record<string, string>>,
    readonly engines: readonly EngineKind[],
  ) {}

  get address(): NodeView['address'] {
    return `10.0.0.${this.id.slice(1)}`;
  }

  live(): readonly Process[] {
    return [...this.processes.values()].filter(({ state }) => state !== 'dead');
  }

  /** Processes that take a device, the dead whose memory is not free yet included. */
  holders(uuid: string): readonly Process[] {
    return [...this.processes.values()].filter((one) => one.holdsGpus && one.gpuUuids.includes(uuid));
  }

  listener(port: number): Process | undefined {
    return this.live().find((one) => one.port === port && one.rank === 0 && one.state !== 'dying');
  }

  usedBytes(device: Device): number {
    let used = device.foreignBytes;
    for (const one of this.holders(device.uuid))
      used += one.memoryBytes ?? Math.floor(device.memoryTotalBytes * 0.9);
    return Math.min(used, device.memoryTotalBytes);
  }

  /** Power goes: nothing of what ran is left. */
  losePower(): void {
    this.up = false;
    this.boot += 1;
    for (const one of this.processes.values()) {
      one.state = 'dead';
      one.holdsGpus = false;
      one.exit ??= { verdict: 'signalled', exitSignal: 'SIGKILL' };
    }
  }

  forget(process: Process): void {
    if (process.state === 'dead' && !process.holdsGpus) this.processes.delete(process.key);
  }
}
