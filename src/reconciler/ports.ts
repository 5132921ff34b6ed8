/**
 * The two ends of the one cycle in the module graph. The reconciler sends commands through a Dispatcher (the agent
 * gateway, which holds the open streams); the gateway hands what agents report to the StatusSink (the reconciler's side).
 */
import type { RefusalCause } from '../domain/reconcile/refusal.js';
import type { Verdict } from '../domain/cluster.js';
import type { StartShardCommand, StopShardCommand } from '../domain/plan.js';

/** What became of a command on its way out. */
export type DispatchResult =
  | { readonly sent: true }
  /** Not sent; the next pass decides anew. Never queued: a late command is a wrong one. */
  | { readonly sent: false; readonly reason: 'notConnected' | 'backlogged' | 'staleTerm' };

/** The shard's replica left the router and only finishes what it has; `over`: it is in the router again. */
export interface DrainShardCommand {
  readonly nodeId: string;
  readonly shardId: string;
  readonly generation: number;
  readonly over: boolean;
}

export interface Dispatcher {
  startShard(term: number, command: StartShardCommand): DispatchResult;
  /** `why` is shown on the agent's side, unchanged. */
  stopShard(term: number, command: StopShardCommand, why: string): DispatchResult;
  /** Advisory: an agent that never hears of it stops the shard all the same when told to. */
  drainShard(term: number, command: DrainShardCommand): DispatchResult;
  /** Node ids with an open stream. */
  connectedNodes(): readonly string[];
}

export const DISPATCHER = Symbol('Dispatcher');

/** Told that something changed: events only wake the loop early, the loop compares wanted with seen. */
export interface StatusSink {
  /** A report was taken into the inventory, or a stream opened or closed. */
  nodeChanged(nodeId: string): void;
  /** An agent came back, went, or was not taken; for the timeline. */
  linkChanged(nodeId: string, change: LinkChange): void;
  /** An agent answered a command. */
  commandAnswered(nodeId: string, answer: CommandAnswer): void;
}

/** How the link to a node's agent changed. `from` is the address of its end. */
export type LinkChange =
  | { readonly kind: 'closed'; readonly from: string; readonly reason: string }
  /** Told with the first report of the new stream, so that it can say what runs there. */
  | {
      readonly kind: 'reconnected';
      readonly from: string;
      readonly sameProcess: boolean;
      readonly sameBoot: boolean;
      /** Time without a stream, ms; undefined when the new one came before the old one ended. */
      readonly awayMs?: number;
      /** Shards of ours that run there. */
      readonly engines: readonly string[];
    }
  | { readonly kind: 'refused'; readonly from: string; readonly code: string; readonly message: string }
  /** A command of ours was refused because the agent obeys a higher term. */
  | { readonly kind: 'staleTerm'; readonly message: string };

export interface CommandAnswer {
  readonly commandId: string;
  readonly outcome: 'accepted' | 'already' | 'refused' | 'unknown';
  readonly message?: string;
  readonly verdict?: Verdict;
  /** Why it was refused, when that is no matter of the engine. */
  readonly cause?: RefusalCause;
  /** The start or stop it was about (`shardKey`); undefined when nobody remembers the command. */
  readonly shardKey?: string;
}

export const STATUS_SINK = Symbol('StatusSink');
