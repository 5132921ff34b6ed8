/** The agent protocol in the words of the domain, as both ends use it after checking what came over the wire. */
import type {
  EngineOffer,
  GpuReport,
  NodeCondition,
  ShardPorts,
  ShardReport,
  Verdict,
} from '../domain/cluster.js';
import type { StartShardCommand } from '../domain/plan.js';
import type { RefusalCause } from '../domain/reconcile/refusal.js';

export type AgentMessage =
  | { readonly kind: 'hello'; readonly hello: Hello }
  /** Asks what the answer to this hello would be. */
  | { readonly kind: 'probe'; readonly hello: Hello }
  | { readonly kind: 'report'; readonly report: NodeReport }
  | { readonly kind: 'result'; readonly result: CommandResult }
  | { readonly kind: 'log'; readonly chunk: LogChunk }
  | { readonly kind: 'pong'; readonly nonce: number }
  /** A body this program does not know, from a newer peer: ignored and counted. */
  | { readonly kind: 'unknown' };

export type ServerMessage =
  | { readonly kind: 'welcome'; readonly welcome: Welcome }
  | { readonly kind: 'refusal'; readonly refusal: Refusal }
  | { readonly kind: 'start'; readonly order: StartOrder }
  | { readonly kind: 'stop'; readonly order: StopOrder }
  | { readonly kind: 'drain'; readonly order: DrainOrder }
  | { readonly kind: 'fetchLogs'; readonly request: LogRequest }
  | { readonly kind: 'ping'; readonly nonce: number }
  | { readonly kind: 'ack'; readonly sequence: number }
  | { readonly kind: 'unknown' };

export interface Hello {
  /** Version of the protocol the agent speaks, and the oldest it understands. */
  readonly protocolVersion: number;
  readonly minProtocolVersion: number;
  readonly build: string;
  readonly nodeId: string;
  /** Stable identity of the machine, also across a new node id; undefined when it has none. */
  readonly machineId?: string;
  /** Changes with each boot. */
  readonly bootId?: string;
  /** Changes with each start of the agent. */
  readonly instanceId: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Address at which the node's engines are reached; undefined = where the stream comes from. */
  readonly address?: string;
  readonly hostname?: string;
  /** Highest term the agent ever obeyed. */
  readonly highestTerm: number;
  /** The agent's wall clock, ms since the epoch, for a warning about skew only. */
  readonly wallMs?: number;
  readonly joinToken?: string;
  /** The same for every agent on one state directory, whose lock lets only one live; absent from older agents. */
  readonly stateDirId?: string;
  /** For people, as is the process id. */
  readonly stateDir?: string;
  readonly pid?: number;
}

/** The whole truth about a node as of `sequence`. */
export interface NodeReport {
  /** Grows with each report of one agent instance. */
  readonly sequence: number;
  /** False while some part could not be read: what is absent then means nothing. */
  readonly complete: boolean;
  readonly gpus: readonly GpuReport[];
  readonly shards: readonly ShardReport[];
  readonly engines: readonly EngineOffer[];
  readonly portsTaken: readonly number[];
  readonly weightsPresent: readonly string[];
  readonly conditions: readonly NodeCondition[];
  /** Milliseconds since the agent started, on its monotonic clock. */
  readonly uptimeMs: number;
}

export interface CommandResult {
  readonly commandId: string;
  readonly outcome: 'accepted' | 'already' | 'refused' | 'unknown';
  readonly message?: string;
  readonly verdict?: Verdict;
  /** Why it was refused, when that is no matter of the engine; absent from older agents. */
  readonly cause?: RefusalCause;
}

export interface LogChunk {
  readonly requestId: string;
  /** Engines print what they like: these are bytes, not text. */
  readonly data: Uint8Array;
  /** No more follows for this request. */
  readonly end: boolean;
  readonly error?: string;
  /** The stream to the agent is gone, and not the log; never sent. */
  readonly lost?: boolean;
}

export interface Welcome {
  readonly term: number;
  readonly protocolVersion: number;
  readonly build: string;
  readonly heartbeatIntervalMs: number;
  /** The agent drops the stream and dials again after this long without any message, ms. */
  readonly silenceLimitMs: number;
  readonly maxLogTailBytes: number;
  readonly maxMessageBytes: number;
  /** Wall clock of the server, ms since the epoch; undefined from one that does not tell. */
  readonly wallMs?: number;
  /** First and last port that engines are given; undefined from a server that does not tell. */
  readonly portRange?: readonly [number, number];
  /** In the answer to a probe: the connected agent that has the node id and would give way, in words. */
  readonly holder?: string;
}

export const REFUSAL_CODES = [
  'incompatibleVersion',
  'nodeIdTaken',
  'unauthenticated',
  'invalidHello',
  'staleTerm',
  'unknown',
] as const;
/** Why the server does not take an agent. The agent backs off and never stops an engine because of it. */
export type RefusalCode = (typeof REFUSAL_CODES)[number];

export interface Refusal {
  readonly code: RefusalCode;
  readonly message: string;
  readonly serverBuild: string;
  readonly serverProtocolVersion: number;
}

/** Present on every command: an agent refuses a lower term than the highest it ever saw. */
interface Order {
  readonly term: number;
  readonly commandId: string;
}

export interface StartOrder extends Order {
  readonly command: StartShardCommand;
}

export interface StopOrder extends Order {
  readonly shardId: string;
  readonly generation: number;
  /** Time between TERM and KILL, ms. */
  readonly graceMs: number;
  readonly reason?: string;
}

export interface DrainOrder extends Order {
  readonly shardId: string;
  readonly generation: number;
  /** The drain was called off. */
  readonly over: boolean;
}

export interface LogRequest {
  readonly requestId: string;
  readonly shardId: string;
  /** Lines from the end; 0 = everything that is kept. */
  readonly tailLines: number;
  readonly follow: boolean;
  /** Ends a follow. */
  readonly stop: boolean;
  /** The run before the present one. */
  readonly previous: boolean;
}

/** A rank of a gang: where it is reached. */
export interface Peer {
  readonly rank: number;
  readonly address: string;
  readonly ports: ShardPorts;
}
