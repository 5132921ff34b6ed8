/** Which GPU driver this machine's agent uses. */
import { existsSync } from 'node:fs';
import type { AgentGpusConfig } from '../../config/agent-config.js';
import { hasExecutable } from '../executables.js';
import { AmdSmiDriver, AmdSysfsDriver, RocmSmiDriver } from './amd.js';
import type { GpuDriver } from './driver.js';
import { KernelLog } from './kernel-log.js';
import { NvidiaDriver } from './nvidia.js';
import { StaticGpuDriver } from './static.js';
import { Tool } from './tool.js';

const NVIDIA_PROC_DIR = '/proc/driver/nvidia/gpus';

/** Undefined means: this node has no GPUs. A driver that was asked for by name and is not there fails its probes, visibly. */
export function findGpuDriver(config: AgentGpusConfig, env: NodeJS.ProcessEnv): GpuDriver | undefined {
  const has = (tool: string): boolean => hasExecutable(tool, env['PATH']);
  switch (config.driver) {
    case 'none':
      return undefined;
    case 'static':
      return new StaticGpuDriver(config.static);
    case 'nvidia':
      return nvidia(env);
    case 'amd':
      return amd(env, has);
    case 'auto':
      if (config.static.length > 0) return new StaticGpuDriver(config.static);
      // The kernel driver counts too: a machine whose tool was removed has not lost its GPUs.
      if (has('nvidia-smi') || existsSync(NVIDIA_PROC_DIR)) return nvidia(env);
      return has('amd-smi') || has('rocm-smi') ? amd(env, has) : undefined;
  }
}

function nvidia(env: NodeJS.ProcessEnv): GpuDriver {
  return new NvidiaDriver({
    tool: new Tool('nvidia-smi', env),
    kernelLog: new KernelLog(),
    procDir: NVIDIA_PROC_DIR,
  });
}

function amd(env: NodeJS.ProcessEnv, has: (tool: string) => boolean): GpuDriver {
  if (has('amd-smi')) return new AmdSmiDriver(new Tool('amd-smi', env));
  return has('rocm-smi') ? new RocmSmiDriver(new Tool('rocm-smi', env)) : new AmdSysfsDriver();
}
