/** What one engine does with the node's GPUs, seen from outside. */
import type { ProcessTable } from '../process-table.js';
import type { GpuPicture } from './monitor.js';

export interface GpuUsage {
  /** Largest memory of the engine on one of its devices, bytes; 0 while none is seen. */
  readonly peakBytes: number;
  /** A process of it on a device that is not its own: it would eat another shard's memory. */
  readonly stray?: { readonly pid: number; readonly uuid: string };
}

/** `sharedUuids` are devices that other shards of ours use too. */
export function gpuUsage(
  leaderPid: number,
  gpuUuids: readonly string[],
  sharedUuids: ReadonlySet<string>,
  picture: GpuPicture,
  processes: Pick<ProcessTable, 'read'>,
): GpuUsage {
  const ours = picture.processes.filter((user) => processes.read(user.pid)?.groupId === leaderPid);
  const perGpu = gpuUuids.map((uuid) => {
    const mine = ours.filter((user) => user.uuid === uuid);
    const bytes = mine.reduce((sum, user) => sum + (user.memoryBytes ?? 0), 0);
    // In a container the tool shows no processes; on a device of our own all that is used is ours.
    const gpu = picture.gpus.find((candidate) => candidate.uuid === uuid);
    const alone = !sharedUuids.has(uuid) && gpu?.foreign.length === 0;
    return bytes === 0 && alone ? (gpu.memoryUsedBytes ?? 0) : bytes;
  });
  // Processes of a slice are listed under the whole device as well.
  const sliced = gpuUuids.some((uuid) => uuid.startsWith('MIG-'));
  const stray = sliced ? undefined : ours.find((user) => !gpuUuids.includes(user.uuid));
  return {
    peakBytes: Math.max(0, ...perGpu),
    ...(stray === undefined ? {} : { stray: { pid: stray.pid, uuid: stray.uuid } }),
  };
}
