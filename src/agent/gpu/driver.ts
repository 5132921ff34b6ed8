/** What a GPU driver reads in one probe. Undefined is unknown, never zero. */
import type { GpuVendor } from '../../domain/cluster.js';

/** A finding of the kernel's log about one device. */
export interface XidEvent {
  readonly busId: string;
  readonly xid: number;
  readonly text: string;
  /** How long ago; 0 when the log does not tell. A new agent reads what happened since boot. */
  readonly ageMs: number;
}

/** Signs of health as far as the tool tells them. */
export interface GpuSigns {
  /** The tool could not reach the device; its words. */
  readonly lost?: string;
  /** NVIDIA's own word what is needed, e.g. `None`, `GPU Reset`. */
  readonly recoveryAction?: string;
  readonly remapFailure?: boolean;
  readonly remapPending?: boolean;
  readonly sramThresholdExceeded?: boolean;
  readonly unrepairableMemory?: boolean;
  /** Uncorrectable ECC errors since the driver was loaded. */
  readonly eccUncorrected?: number;
  readonly thermalSlowdown?: boolean;
  readonly inactiveLinks?: number;
}

export interface GpuObservation {
  readonly uuid: string;
  readonly type: string;
  readonly vendor: GpuVendor;
  readonly busId?: string;
  /** Place in PCI order, for engines that take nothing else; another one as soon as a device is lost. */
  readonly index?: number;
  readonly memoryTotalBytes?: number;
  readonly memoryUsedBytes?: number;
  readonly linkedTo: readonly string[];
  readonly signs: GpuSigns;
}

export interface GpuProcess {
  readonly uuid: string;
  readonly pid: number;
  readonly name?: string;
  readonly memoryBytes?: number;
}

export interface GpuProbe {
  readonly gpus: readonly GpuObservation[];
  readonly processes: readonly GpuProcess[];
  /** Xids since the last probe; undefined when the kernel's log cannot be read: then "none seen" means nothing. */
  readonly xids?: readonly XidEvent[];
  /** Things a person should know, e.g. a field this driver version does not have. */
  readonly notes: readonly string[];
}

export interface GpuDriver {
  readonly vendor: GpuVendor;
  /** Runs one probe; it must end when the signal is aborted. Throws when nothing could be read. */
  probe(signal: AbortSignal): Promise<GpuProbe>;
}
