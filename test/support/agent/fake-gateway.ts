/** The server's end of the agent protocol over a real socket, scripted by a test. */
import { Server, ServerCredentials, loadPackageDefinition, type ServiceDefinition } from '@grpc/grpc-js';
import type { AgentMessage, NodeReport } from '../../../src/agent-protocol/messages.js';
import {
  agentPackageDefinition,
  GRPC_RECEIVE_LIMIT_BYTES,
  KEEPALIVE_CHANNEL_OPTIONS,
  MESSAGE_LIMIT_BYTES,
  type GatewayStream,
} from '../../../src/agent-protocol/proto.js';
import { parseAgentMessage } from '../../../src/agent-protocol/to-domain.js';
import {
  ackToWire,
  drainToWire,
  logRequestToWire,
  refusalToWire,
  startToWire,
  stopToWire,
  welcomeToWire,
} from '../../../src/agent-protocol/to-wire.js';
import type { LogRequest, Refusal } from '../../../src/agent-protocol/messages.js';
import type { WireServerMessage } from '../../../src/agent-protocol/wire.js';
import type { ShardReport } from '../../../src/domain/cluster.js';
import type { StartShardCommand } from '../../../src/domain/plan.js';
import { waitFor } from '../wait-for.js';

export interface FakeGatewayOptions {
  readonly term?: number;
  readonly heartbeatIntervalMs?: number;
  readonly silenceLimitMs?: number;
  /** The answer to a probe; undefined = the welcome. */
  readonly onProbe?: (stream: GatewayStream) => void;
  /** What to do with a hello; undefined = welcome. */
  readonly onHello?: (stream: GatewayStream, count: number) => void;
  readonly acks?: boolean;
  /** What its clock says; undefined = the right time. */
  readonly wallMs?: number;
  /** Its certificate and key, PEM; undefined = no TLS. */
  readonly tls?: { readonly cert: string; readonly key: string };
}

function credentialsOf({ tls }: FakeGatewayOptions): ServerCredentials {
  if (tls === undefined) return ServerCredentials.createInsecure();
  const own = { private_key: Buffer.from(tls.key), cert_chain: Buffer.from(tls.cert) };
  return ServerCredentials.createSsl(null, [own], false);
}

export class FakeGateway {
  readonly messages: AgentMessage[] = [];
  readonly problems: string[] = [];
  streams: GatewayStream[] = [];
  hellos = 0;
  term: number;
  private commands = 0;

  private constructor(
    private readonly server: Server,
    readonly port: number,
    private readonly options: FakeGatewayOptions,
  ) {
    this.term = options.term ?? 1;
  }

  static async listen(options: FakeGatewayOptions = {}, port = 0): Promise<FakeGateway> {
    const server = new Server({
      ...KEEPALIVE_CHANNEL_OPTIONS,
      'grpc.max_receive_message_length': GRPC_RECEIVE_LIMIT_BYTES,
    });
    const root = loadPackageDefinition(agentPackageDefinition()) as unknown as {
      llmgw: { agent: { v1: { AgentGateway: { service: ServiceDefinition } } } };
    };
    let gateway: FakeGateway | undefined;
    server.addService(root.llmgw.agent.v1.AgentGateway.service, {
      connect: (stream: GatewayStream) => gateway?.opened(stream),
    });
    const bound = await new Promise<number>((resolve, reject) => {
      server.bindAsync(`127.0.0.1:${port}`, credentialsOf(options), (error, at) =>
        error === null ? resolve(at) : reject(error),
      );
    });
    gateway = new FakeGateway(server, bound, options);
    return gateway;
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  close(): void {
    this.server.forceShutdown();
  }

  /** Ends every stream; agents come back. */
  dropStreams(): void {
    for (const stream of this.streams.splice(0)) stream.end();
  }

  send(message: WireServerMessage): void {
    this.streams.at(-1)?.write(message);
  }

  start(command: StartShardCommand, term = this.term): string {
    const id = `c${++this.commands}`;
    this.send(startToWire(term, id, command));
    return id;
  }

  stop(shardId: string, generation: number, graceMs: number, term = this.term): string {
    const id = `c${++this.commands}`;
    this.send(
      stopToWire(term, id, { nodeId: 'n', shardId, replicaId: shardId, generation, graceMs }, 'test'),
    );
    return id;
  }

  drain(shardId: string, generation: number, over = false, term = this.term): string {
    const commandId = `c${++this.commands}`;
    this.send(drainToWire({ term, commandId, shardId, generation, over }));
    return commandId;
  }

  fetchLogs(request: LogRequest): void {
    this.send(logRequestToWire(request));
  }

  refuse(stream: GatewayStream, refusal: Refusal): void {
    stream.write(refusalToWire(refusal));
    stream.end();
  }

  get reports(): NodeReport[] {
    return this.messages.flatMap((message) => (message.kind === 'report' ? [message.report] : []));
  }

  get lastReport(): NodeReport | undefined {
    return this.reports.at(-1);
  }

  shard(shardId: string): ShardReport | undefined {
    return this.lastReport?.shards.find((shard) => shard.shardId === shardId);
  }

  waitForShard(
    shardId: string,
    what: string,
    holds: (shard: ShardReport) => boolean,
    deadlineMs = 15_000,
  ): Promise<ShardReport> {
    return waitFor(
      () => {
        const shard = this.shard(shardId);
        if (shard !== undefined && holds(shard)) return shard;
        throw new Error(`shard is ${JSON.stringify(shard)}`);
      },
      { what: `shard ${shardId} ${what}`, deadlineMs },
    );
  }

  result(commandId: string) {
    return waitFor(
      () =>
        this.messages.flatMap((message) =>
          message.kind === 'result' && message.result.commandId === commandId ? [message.result] : [],
        )[0],
      { what: `result of ${commandId}` },
    );
  }

  private opened(stream: GatewayStream): void {
    this.streams.push(stream);
    stream.on('data', (wire) => {
      const parsed = parseAgentMessage(wire);
      if (!parsed.ok) {
        this.problems.push(parsed.problem.message);
        return;
      }
      this.messages.push(parsed.message);
      if (parsed.message.kind === 'hello') this.greeted(stream);
      if (parsed.message.kind === 'probe') this.asked(stream);
      if (parsed.message.kind === 'report' && this.options.acks !== false)
        stream.write(ackToWire(parsed.message.report.sequence));
    });
    stream.on('error', () => {});
    stream.on('end', () => stream.end());
  }

  private greeted(stream: GatewayStream): void {
    this.hellos += 1;
    if (this.options.onHello !== undefined) this.options.onHello(stream, this.hellos);
    else this.welcome(stream);
  }

  private asked(stream: GatewayStream): void {
    if (this.options.onProbe !== undefined) return this.options.onProbe(stream);
    this.welcome(stream);
    stream.end();
  }

  welcome(stream: GatewayStream): void {
    stream.write(
      welcomeToWire({
        term: this.term,
        protocolVersion: 1,
        build: 'test',
        heartbeatIntervalMs: this.options.heartbeatIntervalMs ?? 200,
        silenceLimitMs: this.options.silenceLimitMs ?? 5_000,
        maxLogTailBytes: 16 * 1024,
        maxMessageBytes: MESSAGE_LIMIT_BYTES,
        wallMs: this.options.wallMs ?? Date.now(),
      }),
    );
  }
}
