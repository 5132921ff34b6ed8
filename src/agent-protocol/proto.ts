import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  loadPackageDefinition,
  type ChannelCredentials,
  type ChannelOptions,
  type ClientDuplexStream,
  type ServerDuplexStream,
} from '@grpc/grpc-js';
import { loadSync, type Options, type PackageDefinition } from '@grpc/proto-loader';
import type { WireAgentMessage, WireServerMessage } from './wire.js';

/** The protocol's package name in the proto file. */
export const AGENT_PROTO_PACKAGE = 'llmgw.agent.v1';

/**
 * Written out in full because every default of the loader loses something: 64-bit numbers as JavaScript numbers lose
 * digits, enums as numbers make an unknown value look like a known one, and without `oneofs` an absent body is a guess.
 */
const LOADER_OPTIONS: Options = {
  keepCase: false,
  longs: String,
  enums: String,
  defaults: true,
  arrays: true,
  objects: true,
  oneofs: true,
};

/** Largest message either side may send, bytes; senders cut log tails to stay below. */
export const MESSAGE_LIMIT_BYTES = 256 * 1024;

/**
 * Where gRPC itself gives up, which ends the whole stream. Well above our own limit, so that a message that is a little
 * too long is refused by itself and the stream lives on.
 */
export const GRPC_RECEIVE_LIMIT_BYTES = 4 * 1024 * 1024;

/** How often agents report without any change, ms. */
export const HEARTBEAT_INTERVAL_MS = 5_000;

/** A stream without any message for this long is dead, whatever TCP says, ms: three heartbeats. */
export const SILENCE_LIMIT_MS = 15_000;

/** Clocks further apart than this are told of, ms; nothing is decided by them. */
export const CLOCK_SKEW_WARN_MS = 30_000;

/**
 * Keepalive of both ends: a pulled cable sends no FIN, and without pings the kernel notices after a quarter of an hour.
 * The server must also permit the client's pings, or it answers them with GOAWAY "too many pings".
 */
export const KEEPALIVE_CHANNEL_OPTIONS = {
  'grpc.keepalive_time_ms': 5_000,
  'grpc.keepalive_timeout_ms': 5_000,
  'grpc.keepalive_permit_without_calls': 1,
  'grpc.http2.min_ping_interval_without_data_ms': 1_000,
} as const satisfies ChannelOptions;

/** The agent's end of the stream. */
export type AgentStream = ClientDuplexStream<WireAgentMessage, WireServerMessage>;
/** The server's end of the stream. */
export type GatewayStream = ServerDuplexStream<WireAgentMessage, WireServerMessage>;

/** What the agent dials with. */
export interface AgentGatewayClient {
  connect(): AgentStream;
  close(): void;
}

let loaded: PackageDefinition | undefined;

/** The protocol as gRPC wants it, read once per process. */
export function agentPackageDefinition(): PackageDefinition {
  loaded ??= loadSync(agentProtoPath(), LOADER_OPTIONS);
  return loaded;
}

/** Path of the proto file, found upwards from here: this module runs from `src` as well as from `dist`. */
export function agentProtoPath(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    const path = join(folder, 'proto', 'llmgw', 'agent', 'v1', 'agent.proto');
    if (existsSync(path)) return path;
    const parent = dirname(folder);
    if (parent === folder) throw new Error('agent.proto is missing from this installation');
    folder = parent;
  }
}

type ClientConstructor = new (
  address: string,
  credentials: ChannelCredentials,
  options: ChannelOptions,
) => AgentGatewayClient;

/** A client for `address` (`host:port`). Keepalive and size limits are set; `options` adds to them or overrides them. */
export function createAgentGatewayClient(
  address: string,
  credentials: ChannelCredentials,
  options: ChannelOptions = {},
): AgentGatewayClient {
  const root = loadPackageDefinition(agentPackageDefinition()) as unknown as {
    llmgw: { agent: { v1: { AgentGateway: ClientConstructor } } };
  };
  return new root.llmgw.agent.v1.AgentGateway(address, credentials, {
    ...KEEPALIVE_CHANNEL_OPTIONS,
    'grpc.max_receive_message_length': GRPC_RECEIVE_LIMIT_BYTES,
    // Channels to one address share sockets by default; a new dial must be a new connection, or a dead one is inherited.
    'grpc.use_local_subchannel_pool': 1,
    ...options,
  });
}
