/** What the ranks of a replica must know of each other, and of their share of a device. */
import type { StartShardCommand } from '../../domain/plan.js';
import type { LaunchContext, Refusal } from './driver.js';

export function peerAddress(start: StartShardCommand, rank: number): string {
  return start.peers.find((peer) => peer.rank === rank)?.address ?? '127.0.0.1';
}

/** Where the ranks meet: at rank 0, on the port the control plane chose for this start. */
export function rendezvousOf(start: StartShardCommand): { address: string; port: number } | Refusal {
  const head = start.peers.find((peer) => peer.rank === 0);
  const port = head?.ports.rendezvous ?? start.ports.rendezvous;
  if (head === undefined || port === undefined)
    return { verdict: 'badFlag', message: `a start of ${start.shards} shards names no rendezvous` };
  return { address: head.address, port };
}

/** Below this nothing fits anyway, above it a driver's own needs would not. */
const SHARE_MIN = 0.05;
const SHARE_MAX = 0.95;

/** The booked part of a device's memory, rounded down to hundredths; undefined when the whole device is ours. */
export function memoryShare({ start, gpuMemoryTotalBytes }: LaunchContext): number | undefined {
  const { gpuMemoryBytes } = start.profile;
  if (gpuMemoryBytes === undefined || gpuMemoryTotalBytes === undefined) return undefined;
  const share = Math.floor((gpuMemoryBytes / gpuMemoryTotalBytes) * 100) / 100;
  return Math.min(SHARE_MAX, Math.max(SHARE_MIN, share));
}
