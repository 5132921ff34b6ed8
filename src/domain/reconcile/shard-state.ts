/** What is known of one shard of a record: seen, proven absent, or not known. The difference decides who may have its GPUs. */
import {
  type NodeView,
  type ShardAssignment,
  shardKey,
  type ShardPhase,
  type ShardReport,
} from '../cluster.js';

export type ShardStatus =
  /** Its node talks and reports it at the record's generation. */
  | { readonly kind: 'seen'; readonly report: ShardReport }
  /** Its node talks, its full report does not have it, and no command is under way: it does not run. */
  | { readonly kind: 'absent' }
  /** Its node talks but a command may be under way: it may run or not. */
  | { readonly kind: 'unsettled' }
  /** Its node is silent; `report` is the last word. `awaited`: it has not reported to this server yet. */
  | {
      readonly kind: 'silent';
      readonly lost: boolean;
      readonly awaited: boolean;
      readonly report?: ShardReport;
    }
  /** Its node was removed by an operator, who thereby said that nothing runs there. */
  | { readonly kind: 'removed' };

/** The state of one assigned shard at its record's generation. `node` is as judged in this pass. */
export function shardStatus(
  node: NodeView | undefined,
  shard: ShardAssignment,
  generation: number,
): ShardStatus {
  if (node === undefined) return { kind: 'removed' };
  const report = node.shards.find((one) => one.shardId === shard.shardId && one.generation === generation);
  if (!isTalking(node)) {
    const awaited = node.liveness === 'unseen' || node.liveness === 'connected';
    const silent = { kind: 'silent', lost: node.liveness === 'lost', awaited } as const;
    return report === undefined ? silent : { ...silent, report };
  }
  if (report !== undefined) return { kind: 'seen', report };
  return node.unsettled.includes(shardKey(shard.shardId, generation))
    ? { kind: 'unsettled' }
    : { kind: 'absent' };
}

/** Whether the node's last report may be taken as the present. */
export function isTalking(node: NodeView): boolean {
  switch (node.liveness) {
    case 'connected':
    case 'flapping':
      return node.reported;
    case 'unseen':
    case 'unreachable':
    case 'lost':
      return false;
  }
}

/** Proof that nothing of the shard runs any more, so that its GPUs and ports may go to others. */
export function isStopped(status: ShardStatus): boolean {
  switch (status.kind) {
    case 'seen':
      return status.report.phase === 'exited';
    case 'absent':
    case 'removed':
      return true;
    case 'unsettled':
    case 'silent':
      return false;
  }
}

/** Whether a rank other than 0 is in a phase in which rank 0's generated token vouches for it. */
export function isAlivePhase(phase: ShardPhase): boolean {
  switch (phase) {
    case 'starting':
    case 'loading':
    case 'compiling':
    case 'probing':
    case 'ready':
      return true;
    case 'waitingForGpu':
    case 'downloading':
    case 'unhealthy':
    case 'stopping':
    case 'exited':
    // A phase of a newer agent: neither good nor bad news, so not enough to serve on.
    case 'unknown':
      return false;
  }
}

/** Whether a shard is on its way to Ready. */
export function isComingUp(phase: ShardPhase): boolean {
  return phase !== 'ready' && phase !== 'unknown' && (isAlivePhase(phase) || isWaitingPhase(phase));
}

function isWaitingPhase(phase: ShardPhase): boolean {
  return phase === 'waitingForGpu' || phase === 'downloading';
}
