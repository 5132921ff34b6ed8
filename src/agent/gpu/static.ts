/** Devices declared in the agent's file, for machines without GPUs and for tests; and the driver for none at all. */
import type { StaticGpuConfig } from '../../config/agent-config.js';
import type { GpuDriver, GpuProbe } from './driver.js';

export class StaticGpuDriver implements GpuDriver {
  readonly vendor = 'static';
  private readonly answer: GpuProbe;

  constructor(devices: readonly StaticGpuConfig[]) {
    this.answer = {
      gpus: devices.map((device) => ({
        uuid: device.uuid,
        type: device.type,
        vendor: 'static',
        ...(device.memory === undefined ? {} : { memoryTotalBytes: device.memory }),
        // Declared by hand means: for our use alone. What our own shards take is booked by the control plane.
        memoryUsedBytes: 0,
        linkedTo: [],
        signs: {},
      })),
      processes: [],
      notes: [],
    };
  }

  probe(): Promise<GpuProbe> {
    return Promise.resolve(this.answer);
  }
}
