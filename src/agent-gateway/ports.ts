import type { LogChunk } from '../agent-protocol/messages.js';
import type { Clock } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';

/** What of a shard's log is asked for. */
export interface LogQuery {
  readonly shardId: string;
  /** Lines from the end; 0 = everything that is kept. */
  readonly tailLines: number;
  readonly follow: boolean;
  /** The run before the present one. */
  readonly previous: boolean;
}

/** Where logs of shards come from: the agents that keep them. */
export interface LogSource {
  /**
   * Asks the node's agent. `listener` gets every piece until one with `end`, which also comes when the agent's stream
   * breaks. The returned function ends it early. Undefined when the node's agent is not connected or takes no messages.
   */
  openLog(nodeId: string, query: LogQuery, listener: (chunk: LogChunk) => void): (() => void) | undefined;
}

export const LOG_SOURCE = Symbol('LogSource');

/** What the gateway needs beyond the control plane's own parts. */
export interface GatewaySettings {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Version of this program. */
  readonly build: string;
  /** Agents must present a token, from this file or from the store. */
  readonly joinTokensFile?: string;
  /** They must, also without a file. */
  readonly joinTokensRequired?: boolean;
  /** Silence after which a node is judged, ms: agents must be heard several times within it. Read at each welcome. */
  readonly unreachableAfterMs?: number;
  /** First and last port of engines, told to agents. Read at each welcome. */
  readonly portRange?: readonly [number, number];
  /** Tests shorten these. */
  readonly silenceLimitMs?: number;
  readonly helloLimitMs?: number;
}

export const GATEWAY_SETTINGS = Symbol('GatewaySettings');
