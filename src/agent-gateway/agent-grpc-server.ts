import { experimental, Server, ServerCredentials, setLogger, type ChannelOptions } from '@grpc/grpc-js';
import { ServerGrpc } from '@nestjs/microservices';
import { createServer, type AddressInfo, type Server as SocketServer, type Socket } from 'node:net';
import {
  AGENT_PROTO_PACKAGE,
  agentPackageDefinition,
  GRPC_RECEIVE_LIMIT_BYTES,
  KEEPALIVE_CHANNEL_OPTIONS,
} from '../agent-protocol/proto.js';
import type { SocketAddress } from '../config/address.js';
import type { Clock } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';
import type { LiveTls } from '../shared/tls-files.js';
import { Doorstep } from './doorstep.js';

/** Streams of one connection; an agent needs one. */
const STREAMS_PER_CONNECTION_MAX = 16;

/** Time for connections to end by themselves at a shutdown, ms; by then every stream was ended with its reason. */
const CLOSE_LIMIT_MS = 500;

/** Connections the kernel keeps for us to accept: a fleet may dial while we are busy, and one turned away waits a second. */
const BACKLOG = 4_096;

/** Options of the server's end of every connection. */
export const SERVER_CHANNEL_OPTIONS = {
  ...KEEPALIVE_CHANNEL_OPTIONS,
  'grpc.max_receive_message_length': GRPC_RECEIVE_LIMIT_BYTES,
  'grpc.max_concurrent_streams': STREAMS_PER_CONNECTION_MAX,
  // Books for a debugging service that is not offered, kept for each connection, stream and message.
  'grpc.enable_channelz': 0,
} as const satisfies ChannelOptions;

type Injector = ReturnType<Server['createConnectionInjector']>;

/**
 * Nest's gRPC transport behind a listener of our own. Nest throws the bound port away, which tests and `port 0` need; and
 * gRPC takes connections as fast as they come, see {@link Doorstep}.
 */
export class AgentGrpcServer extends ServerGrpc {
  private bound: number | undefined;
  private server: Server | undefined;
  private listener: SocketServer | undefined;
  private injector: Injector | undefined;
  private readonly doorstep: Doorstep<Socket>;

  constructor(
    private readonly address: SocketAddress,
    private readonly credentials: ServerCredentials,
    private readonly clock: Clock,
  ) {
    super({ package: AGENT_PROTO_PACKAGE, packageDefinition: agentPackageDefinition() });
    this.doorstep = new Doorstep(clock, (socket) => this.letIn(socket));
  }

  /** The port agents reach; undefined until it is bound. */
  get port(): number | undefined {
    return this.bound;
  }

  /** The server of grpc-js, to prove that the options arrived there. */
  get grpcServer(): Server | undefined {
    return this.server;
  }

  /** The agent at `peer` had its answer: the next may come in. */
  answered(peer: string): void {
    this.doorstep.answered(peer);
  }

  private letIn(socket: Socket): void {
    this.injector?.injectConnection(socket);
    // Taking a socket over does not begin to read from one that was paused.
    socket.read(0);
  }

  /** Lets the last words leave: a forced close right after the streams' end would cut off why they ended. */
  override async close(): Promise<void> {
    const server = this.server;
    this.server = undefined;
    this.listener?.close();
    this.doorstep.close();
    if (server === undefined) return;
    await new Promise<void>((resolve) => {
      const timer = this.clock.setTimer(CLOSE_LIMIT_MS, () => {
        this.injector?.drain(0);
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
    this.injector = server.createConnectionInjector(this.credentials);
    // Whoever waits on the doorstep is not read from.
    const listener = createServer({ pauseOnConnect: true }, (socket) => this.doorstep.arrived(socket));
    const { host, port } = this.address;
    await new Promise<void>((resolve, reject) => {
      listener.once('error', reject);
      listener.listen({ host, port, backlog: BACKLOG }, resolve);
    });
    // A connection that could not be accepted is gone; it must not take the process with it.
    listener.on('error', () => undefined);
    this.bound = (listener.address() as AddressInfo).port;
    this.listener = listener;
    this.server = server;
    return server;
  }
}

/** TLS when there is a certificate, also after it is replaced; with a CA, agents must show a certificate it signed. */
export function agentCredentials(tls: LiveTls | undefined): ServerCredentials {
  if (tls === undefined) return ServerCredentials.createInsecure();
  const identity = new LiveCertificates(tls);
  const needsClients = tls.material.ca !== undefined;
  return experimental.createCertificateProviderServerCredentials(
    identity,
    needsClients ? identity : null,
    needsClients,
  );
}

type IdentityListener = Parameters<experimental.CertificateProvider['addIdentityCertificateListener']>[0];
type CaListener = Parameters<experimental.CertificateProvider['addCaCertificateListener']>[0];

/** Certificates that change, in the form in which grpc-js takes them. */
class LiveCertificates implements experimental.CertificateProvider {
  private readonly identityListeners = new Set<IdentityListener>();
  private readonly caListeners = new Set<CaListener>();

  constructor(private readonly tls: LiveTls) {
    tls.follow(() => {
      for (const listener of this.caListeners) this.tellCa(listener);
      for (const listener of this.identityListeners) this.tellIdentity(listener);
    });
  }

  // grpc-js attaches what a listener is told to a server only after it has added the listener.
  addIdentityCertificateListener(listener: IdentityListener): void {
    this.identityListeners.add(listener);
    process.nextTick(() => this.tellIdentity(listener));
  }

  removeIdentityCertificateListener(listener: IdentityListener): void {
    this.identityListeners.delete(listener);
  }

  addCaCertificateListener(listener: CaListener): void {
    this.caListeners.add(listener);
    process.nextTick(() => this.tellCa(listener));
  }

  removeCaCertificateListener(listener: CaListener): void {
    this.caListeners.delete(listener);
  }

  private tellIdentity(listener: IdentityListener): void {
    const { cert, key } = this.tls.material;
    if (cert !== undefined && key !== undefined) listener({ certificate: cert, privateKey: key });
  }

  private tellCa(listener: CaListener): void {
    const { ca } = this.tls.material;
    if (ca !== undefined) listener({ caCertificate: ca });
  }
}

/** grpc-js writes to the console by itself; what it says belongs into our log, where its failures are told anyway. */
export function quietGrpc(logger: Logger): void {
  const say = (...words: unknown[]) => logger.debug({ component: 'grpc' }, words.map(String).join(' '));
  setLogger({ error: say, info: say, debug: say });
}
