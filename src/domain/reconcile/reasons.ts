/** Every reason the reconciler can give, with its code; what placement says is in `placement/reasons.ts`. */
import type { Reason } from '../cluster.js';

/** Codes and what each stands for. */
export const RECONCILE_REASONS = {
  // why a replica exists, moves or ends
  wanted: 'the model wants more replicas than it has',
  placed: 'a place was found',
  adopted: 'running engines without a record were taken over',
  generation_ahead:
    'the agents know a newer generation than the store, which was restored from an older copy',
  scale_down: 'the model wants fewer replicas than it has',
  model_removed: 'the model is no longer in the catalog',
  node_draining: 'its node is being drained',
  gpu_draining: 'its GPU is being drained',
  gpu_failed: 'its GPU is excluded or gone',
  profile_changed: 'the model or profile has changed',
  restart_wanted: 'an operator wants a new copy in its place',
  node_lost: 'its node was given up',
  node_removed: 'its node was removed',
  revived: 'what made it leave no longer holds',
  stopped_by_others: 'its agent was asked to stop it by somebody other than this server',
  failed: 'it failed and is started again under a new generation',
  replaced: 'its replacement is Ready and steady',
  yields: 'it makes room for a replica of a model with a higher priority',
  yielded: 'it made room for a replica of a model with a higher priority, and nothing else is spare',
  room_asked: 'replicas of lower priority make room for it',
  room_given_up: 'the room that others were to make for it is no longer asked for',
  yield_over: 'the model is no longer short of what it yielded',
  drained: 'it has no request in flight any more',
  stream_grace_over: 'its requests did not end within the stream grace',
  drain_deadline: 'the deadline of the drain is over',
  node_drained: 'nothing of ours runs there any more',
  stop_first: 'nothing is spare and stopping first was allowed',
  stopped: 'all its shards are confirmed stopped',
  started: 'an agent reports it for the first time',
  became_ready: 'it became Ready',
  not_ready: 'it is no longer Ready',
  released: 'its failed shards are confirmed gone, its GPUs are free',
  place_taken: 'nothing of it runs and something else runs in its place; it is placed anew',
  stale_generation: 'it is of an older generation',
  orphan: 'no record names it and it cannot be taken over',
  healthy_again: 'it was healthy long enough for its failures to be forgotten',
  obsolete: 'what it was about is gone',
  learned: 'measured from a real start',
  // why something is not done
  settling: 'the control plane has just started and waits for its nodes to report',
  state_lost: 'the stored state is older than the cluster, so all agents are waited for',
  mass_loss: 'so many nodes are silent at once that the control plane presumes itself sick',
  backoff: 'it waits after a failure',
  no_place: 'it fits nowhere',
  next_pass: 'enough places were decided in this pass',
  no_stream: 'a node of it has no open stream',
  no_target: 'there is no place to move it to',
  no_surge: 'there is no room for the new copy beside the old one',
  waits_for_replacement: 'its replacement is not Ready and steady yet',
  waits_for_streams: 'requests are still in flight',
  waits_for_stop: 'its stop is not confirmed yet',
  waits_for_turn: 'another replica is being moved first',
  waits_for_room: 'others are leaving the room it gets',
  waits_for_load: 'enough engines are loading already',
  unreachable: 'its node is silent',
  awaits_agent: 'its node has not reported to this server yet',
  no_nodes: 'no agent has ever reported, so there is nowhere to place anything',
  moving: 'it is being moved',
  replacement_overdue: 'its replacement takes longer than the bound',
  gap_not_allowed:
    'the deadline is over but stopping it would leave the model without a copy, which was not allowed',
  // what holds although nothing can or must be done about it
  spread_not_met: 'its copies stand closer together than they were to',
  spread_met: 'its copies stand apart again',
  // events of nodes
  node_connected: 'it reports',
  node_unreachable: 'it is silent',
  node_flapping: 'it comes and goes too often',
  brake_on: 'mass loss: nothing is moved',
  brake_off: 'the mass loss is over',
  slept: 'the control plane itself stood still',
} as const;

export type ReconcileReasonCode = keyof typeof RECONCILE_REASONS;

/** A reason with its sentence; the only way the reconciler makes one. */
export function because(
  code: ReconcileReasonCode,
  message: string,
  numbers?: Readonly<Record<string, number>>,
): Reason {
  return numbers === undefined ? { code, message } : { code, message, numbers };
}
