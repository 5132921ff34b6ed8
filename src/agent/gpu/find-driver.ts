/** Which GPU driver this machine's agent uses. */
import type { AgentGpusConfig } from '../../config/agent-config.js';
import type { GpuDriver } from './driver.js';
import { StaticGpuDriver } from './static.js';

/** Undefined means: this node has no GPUs. */
export function findGpuDriver(config: AgentGpusConfig): GpuDriver | undefined {
  switch (config.driver) {
    case 'none':
      return undefined;
    case 'static':
      return new StaticGpuDriver(config.static);
    case 'nvidia':
    case 'amd':
    case 'auto':
      return config.static.length > 0 ? new StaticGpuDriver(config.static) : undefined;
  }
}
