/**
 * Is there room on all GPUs of a start? A driver frees a dead process's memory only after a while, and an engine that
 * starts before that dies of it; so a start looks at every one of its devices first.
 */
import type { GpuPicture } from './monitor.js';

export interface RoomNeed {
  readonly gpuUuids: readonly string[];
  /** Needed on each GPU, bytes; undefined = the whole device. */
  readonly memoryBytes?: number;
}

/** Another shard of ours that is alive, starting or ending. */
export interface GpuHolder {
  readonly shardId: string;
  readonly gpuUuids: readonly string[];
  readonly memoryBytes?: number;
}

/** Contexts and firmware hold some memory on a device nobody uses. */
const IDLE_USE_BYTES = 1024 * 1024 * 1024;
const IDLE_USE_SHARE = 0.05;

/** Why the start must wait, one sentence naming device, amount and holders; undefined when all devices have room. */
export function lacksRoom(
  need: RoomNeed,
  picture: GpuPicture | undefined,
  holders: readonly GpuHolder[],
): string | undefined {
  if (need.gpuUuids.length === 0) return undefined;
  if (picture === undefined)
    return 'the GPU driver gives no answer, so nobody knows whether the GPUs are empty';
  for (const uuid of need.gpuUuids) {
    const why = gpuLacksRoom(uuid, need, picture, holders);
    if (why !== undefined) return why;
  }
  return undefined;
}

function gpuLacksRoom(
  uuid: string,
  need: RoomNeed,
  picture: GpuPicture,
  holders: readonly GpuHolder[],
): string | undefined {
  const gpu = picture.gpus.find((candidate) => candidate.uuid === uuid);
  if (gpu === undefined) return `gpu ${uuid} is not reported on this node`;
  if (gpu.health.reason === 'not_reported') return `gpu ${uuid} is not reported any more`;
  const sharing = holders.filter((holder) => holder.gpuUuids.includes(uuid));
  const exclusive = sharing.find(
    (holder) => need.memoryBytes === undefined || holder.memoryBytes === undefined,
  );
  if (exclusive !== undefined) return `gpu ${uuid} is still held by shard ${exclusive.shardId}`;
  if (gpu.vendor === 'static') return undefined;
  if (gpu.memoryUsedBytes === undefined) return `gpu ${uuid}: memory in use is unknown`;
  const processes = picture.processes.filter((process) => process.uuid === uuid);
  const holding = processes.map(({ pid, name }) => (name === undefined ? `${pid}` : `${pid} (${name})`));
  const pids = holding.length === 0 ? 'no visible process' : `pids ${holding.join(', ')}`;
  const total = gpu.memoryTotalBytes;
  if (need.memoryBytes !== undefined && total !== undefined) {
    const free = total - gpu.memoryUsedBytes;
    return free >= need.memoryBytes
      ? undefined
      : `gpu ${uuid} has ${mib(free)} MiB free of ${mib(need.memoryBytes)} MiB needed, ${pids}`;
  }
  const idle = Math.max(IDLE_USE_BYTES, (total ?? 0) * IDLE_USE_SHARE);
  return gpu.memoryUsedBytes <= idle && processes.length === 0
    ? undefined
    : `gpu ${uuid} still holds ${mib(gpu.memoryUsedBytes)} MiB, ${pids}`;
}

/**
 * What a shard whose processes are gone still seems to hold; undefined when nothing. Memory of strangers and of other
 * shards on a shared device is not its.
 */
export function stillHeld(
  ended: RoomNeed,
  picture: GpuPicture | undefined,
  holders: readonly GpuHolder[],
): string | undefined {
  if (picture === undefined)
    return 'the GPU driver gives no answer, so nobody knows whether the GPUs are empty';
  for (const uuid of ended.gpuUuids) {
    const gpu = picture.gpus.find((candidate) => candidate.uuid === uuid);
    const shared = holders.some((holder) => holder.gpuUuids.includes(uuid));
    const visible = picture.processes.some((process) => process.uuid === uuid);
    if (gpu?.memoryUsedBytes === undefined || shared || visible || gpu.vendor === 'static') continue;
    const idle = Math.max(IDLE_USE_BYTES, (gpu.memoryTotalBytes ?? 0) * IDLE_USE_SHARE);
    if (gpu.memoryUsedBytes > idle) return `gpu ${uuid} still holds ${mib(gpu.memoryUsedBytes)} MiB`;
  }
  return undefined;
}

const mib = (bytes: number): number => Math.round(bytes / 2 ** 20);
