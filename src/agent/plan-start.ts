import type { StartShardCommand } from '../domain/plan.js';
import type { EngineCatalog } from './engines/catalog.js';
import type { EngineDriver, Refusal } from './engines/driver.js';
import { planLaunch, type Launch, type LaunchSettings } from './engines/launch.js';
import type { GpuMonitor } from './gpu/monitor.js';
import { optional } from './optional.js';

export interface PlanStartDeps {
  readonly engines: EngineCatalog;
  readonly launch: LaunchSettings;
  readonly gpus: Pick<GpuMonitor, 'picture'>;
}

/** Program, arguments and environment of a start, with what the last look at the GPUs showed of its devices. */
export function planStart(
  driver: EngineDriver,
  command: StartShardCommand,
  { engines, launch, gpus }: PlanStartDeps,
): Promise<Launch | Refusal> {
  const { gpuUuids } = command;
  const picture = gpus.picture();
  const devices = picture?.gpus.filter(({ uuid }) => gpuUuids.includes(uuid)) ?? [];
  const indices = gpuUuids.flatMap((uuid) => picture?.indices.get(uuid) ?? []);
  const totals = devices.flatMap(({ memoryTotalBytes }) => memoryTotalBytes ?? []);
  return planLaunch(driver, engines.settings(driver.kind), command, {
    ...launch,
    ...optional('gpuVendor', devices[0]?.vendor),
    ...optional('gpuIndices', indices.length === gpuUuids.length ? indices : undefined),
    ...optional('gpuMemoryTotalBytes', totals.length === 0 ? undefined : Math.min(...totals)),
  });
}
