/**
 * Every reason placement can give, in one place: the code, and the sentence with the numbers in it. Nothing else in the program
 * words a placement "no"; explain, records, events, metrics and `ctl` show these values unchanged.
 */
import type { NodeView, Reason } from '../cluster.js';

/** Codes and what each stands for. The order is the order in which an operator would want to read them. */
export const PLACEMENT_REASONS = {
  node_unknown: 'the model is pinned to a node nobody has heard of',
  node_unseen: 'the node is known from earlier but has not been seen since this server started',
  node_unreachable: 'the node is silent',
  node_lost: 'the node was given up',
  node_flapping: 'the node comes and goes too often',
  node_disconnected: 'the node has no open stream at this moment',
  node_not_reported: 'no full report of the node has arrived yet',
  node_cordoned: 'an operator keeps new work off the node',
  node_draining: 'the node is being emptied',
  node_condition: 'the node reports a condition that blocks new work',
  engine_not_offered: 'the node does not offer the engine',
  engine_unavailable: 'the engine is configured on the node but cannot run',
  label_mismatch: 'the node lacks a wanted label',
  anti_affinity: 'the node already runs a replica of the model',
  parked: 'the profile cannot work on the node until something changes',
  backoff: 'the replica failed on the node and waits',
  gpus_too_few: 'not enough usable GPUs of one type on the node',
  no_free_port: 'no port of the range is free on the node',
  gpu_type_mismatch: 'the GPU is of another type',
  gpu_excluded: 'the GPU is excluded for its health',
  gpu_not_reported: 'the GPU is known from earlier and no report of it has arrived yet',
  gpu_suspect: 'the GPU is under suspicion',
  gpu_draining: 'the GPU is being emptied or kept free by an operator',
  gpu_held: 'the GPU is held whole by a shard',
  gpu_shared: 'the GPU is partly held and the profile wants it whole',
  gpu_foreign: 'a process that is none of ours is on the GPU and the profile wants it whole',
  gpu_in_use: 'memory of the GPU is in use by nobody we know and the profile wants it whole',
  gpu_memory_unknown: 'the free memory of the GPU is not known',
  gpu_memory_short: 'the GPU has too little free memory',
  gang_too_few_nodes: 'too few nodes can take a shard at the same time',
  no_nodes: 'there are no nodes',
  no_profiles: 'the model declares no profile',
} as const;

export type PlacementReasonCode = keyof typeof PLACEMENT_REASONS;

/** A reason with its sentence; the only way placement makes one. */
export function placementReason(
  code: PlacementReasonCode,
  message: string,
  numbers?: Readonly<Record<string, number>>,
): Reason {
  return numbers === undefined ? { code, message } : { code, message, numbers };
}

const GIB = 1024 ** 3;
const MIB = 1024 ** 2;

/** Bytes as people write them: `6.2 GiB`, `512 MiB`. */
export function bytes(count: number): string {
  if (count >= GIB) return `${trimmed(count / GIB)} GiB`;
  return `${trimmed(count / MIB)} MiB`;
}

/** Milliseconds as people say them: `12 s`, `4 min`, `2 h`. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1_000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.ceil(seconds / 60)} min`;
  return `${trimmed(seconds / 3_600)} h`;
}

/** Why nothing is known of a node yet: its agent has not reported to this server. */
export function awaitingFirstReport(node: Pick<NodeView, 'lastSeenWallMs'>, nowWallMs: number): string {
  const { lastSeenWallMs } = node;
  const seen = lastSeenWallMs === undefined ? '' : `, last seen ${duration(nowWallMs - lastSeenWallMs)} ago`;
  return `waiting for the agent's first report to this server${seen}`;
}

/** `1 node`, `2 nodes`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

function trimmed(value: number): string {
  return value.toFixed(1).replace(/\.0$/, '');
}
