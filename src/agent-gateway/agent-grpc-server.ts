import { Server, ServerCredentials, setLogger, type ChannelOptions } from '@grpc/grpc-js';
import { ServerGrpc } from '@nestjs/microservices';
import { readFileSync } from 'node:fs';
import {
  AGENT_PROTO_PACKAGE,
  agentPackageDefinition,
  GRPC_RECEIVE_LIMIT_BYTES,
  KEEPALIVE_CHANNEL_OPTIONS,
} from '../agent-protocol/proto.js';
import type { TlsConfig } from '../config/auth-config.js';
import type { Clock } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';

/** Streams of one connection; an agent needs one. */
const STREAMS_PER_CONNECTION_MAX = 16;

/** Time for connections to end by themselves at a shutdown, ms; by then every stream was ended with its reason. */
const CLOSE_LIMIT_MS = 500;

/** Options of the server's end of every connection. */
export const SERVER_CHANNEL_OPTIONS = {
  ...KEEPALIVE_CHANNEL_OPTIONS,
  'grpc.max_receive_message_length': GRPC_RECEIVE_LIMIT_BYTES,
  'grpc.max_concurrent_streams': STREAMS_PER_CONNECTION_MAX,
  // Two servers on one port would each get some of the agents.
  'grpc.so_reuseport': 0,
} as const satisfies ChannelOptions;

/** Nest's gRPC transport, which also tells the port it got: tests and `port 0` need it, and Nest throws it away. */
export class AgentGrpcServer extends ServerGrpc {
  private bound: number | undefined;
  private server: Server | undefined;

  constructor(
    private readonly address: string,
    private readonly credentials: ServerCredentials,
    private readonly clock: Clock,
  ) {
    super({ package: AGENT_PROTO_PACKAGE, packageDefinition: agentPackageDefinition() });
  }

  /** The port agents reach; undefined until it is bound. */
  get port(): number | undefined {
    return this.bound;
  }

  /** The server of grpc-js, to prove that the options arrived there. */
  get grpcServer(): Server | undefined {
    return this.server;
  }

  /** Lets the last words leave: a forced close right after the streams' end would cut off why they ended. */
  override async close(): Promise<void> {
    const server = this.server;
    this.server = undefined;
    if (server === undefined) return;
    await new Promise<void>((resolve) => {
      const timer = this.clock.setTimer(CLOSE_LIMIT_MS, () => {
        server.forceShutdown();
        resolve();
      });
      server.tryShutdown(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  override async createClient(): Promise<Server> {
    const server = new Server(SERVER_CHANNEL_OPTIONS);
    this.bound = await new Promise<number>((resolve, reject) => {
      server.bindAsync(this.address, this.credentials, (error, port) => {
        if (error === null) resolve(port);
        else reject(error);
      });
    });
    this.server = server;
    return server;
  }
}

/** TLS when configured; with a CA, agents must show a certificate it signed. */
export function agentCredentials(tls: TlsConfig | undefined): ServerCredentials {
  if (tls === undefined) return ServerCredentials.createInsecure();
  const ca = tls.caFile === undefined ? null : readFileSync(tls.caFile);
  return ServerCredentials.createSsl(
    ca,
    [{ private_key: readFileSync(tls.keyFile), cert_chain: readFileSync(tls.certFile) }],
    ca !== null,
  );
}

/** grpc-js writes to the console by itself; what it says belongs into our log, where its failures are told anyway. */
export function quietGrpc(logger: Logger): void {
  const say = (...words: unknown[]) => logger.debug({ component: 'grpc' }, words.map(String).join(' '));
  setLogger({ error: say, info: say, debug: say });
}
