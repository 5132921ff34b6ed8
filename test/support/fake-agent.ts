import { credentials, type ChannelCredentials, type StatusObject } from '@grpc/grpc-js';
import type {
  CommandResult,
  Hello,
  NodeReport,
  ServerMessage,
  StartOrder,
} from '../../src/agent-protocol/messages.js';
import {
  createAgentGatewayClient,
  type AgentGatewayClient,
  type AgentStream,
} from '../../src/agent-protocol/proto.js';
import { parseServerMessage } from '../../src/agent-protocol/to-domain.js';
import {
  helloToWire,
  logChunkToWire,
  pongToWire,
  reportToWire,
  resultToWire,
} from '../../src/agent-protocol/to-wire.js';
import type { WireAgentMessage, WireServerMessage } from '../../src/agent-protocol/wire.js';
import type { GpuReport, ShardPhase, ShardReport } from '../../src/domain/cluster.js';
import type { StartShardCommand } from '../../src/domain/plan.js';
import { waitFor } from './wait-for.js';

/** A healthy static device. */
export function testGpu(uuid: string, change: Partial<GpuReport> = {}): GpuReport {
  return {
    uuid,
    type: 'static',
    vendor: 'static',
    memoryTotalBytes: 80 * 1024 ** 3,
    memoryUsedBytes: 0,
    foreign: [],
    health: { state: 'healthy' },
    linkedTo: [],
    ...change,
  };
}

export interface FakeAgentOptions {
  readonly port: number;
  readonly nodeId: string;
  readonly hello?: Partial<Hello>;
  readonly gpus?: readonly GpuReport[];
  /**
   * What a start order does: the phases its shard goes through, each reported at once. `manual` leaves everything to the
   * test. Default: straight to ready.
   */
  readonly onStart?: readonly ShardPhase[] | 'manual';
  /** What it connects with; default: without TLS. */
  readonly channel?: ChannelCredentials;
}

let instances = 0;

/**
 * An agent without engines over a real gRPC stream. By default it behaves: says hello, reports, obeys starts and stops at
 * once. A test may say or leave out anything by hand.
 */
export class FakeAgent {
  /** Everything the server sent, in order. */
  readonly received: ServerMessage[] = [];
  /** How the stream ended; undefined while it is open. */
  status: StatusObject | undefined;
  gpus: readonly GpuReport[];
  readonly shards = new Map<string, ShardReport>();
  readonly hello: Hello;
  private sequence = 0;
  private readonly client: AgentGatewayClient;
  private readonly stream: AgentStream;

  private constructor(private readonly options: FakeAgentOptions) {
    this.gpus = options.gpus ?? [];
    this.hello = {
      protocolVersion: 1,
      minProtocolVersion: 1,
      build: 'fake',
      nodeId: options.nodeId,
      machineId: `machine-${options.nodeId}`,
      bootId: `boot-${options.nodeId}`,
      instanceId: `instance-${++instances}`,
      labels: {},
      address: '127.0.0.1',
      highestTerm: 0,
      ...options.hello,
    };
    const channel = options.channel ?? credentials.createInsecure();
    this.client = createAgentGatewayClient(`127.0.0.1:${options.port}`, channel);
    this.stream = this.client.connect();
    this.stream.on('data', (message: WireServerMessage) => this.take(message));
    this.stream.on('error', () => undefined);
    this.stream.on('status', (status: StatusObject) => (this.status = status));
  }

  /** Opens a stream and says nothing. */
  static dial(options: FakeAgentOptions): FakeAgent {
    return new FakeAgent(options);
  }

  /** Opens a stream, says hello, is welcomed and sends its first report. */
  static async join(options: FakeAgentOptions): Promise<FakeAgent> {
    const agent = new FakeAgent(options);
    agent.sayHello();
    await agent.next('welcome');
    agent.report();
    return agent;
  }

  sayHello(): void {
    this.send(helloToWire(this.hello));
  }

  /** Sends what it has, with changes. Returns the sequence. */
  report(change: Partial<NodeReport> = {}): number {
    const sequence = change.sequence ?? ++this.sequence;
    this.send(
      reportToWire({
        sequence,
        complete: true,
        gpus: this.gpus,
        shards: [...this.shards.values()],
        engines: [{ kind: 'sim', version: '1' }, { kind: 'command' }],
        portsTaken: [],
        weightsPresent: [],
        conditions: [],
        uptimeMs: 1_000,
        ...change,
      }),
    );
    return sequence;
  }

  /** Changes what is said of a shard, and reports. */
  setShard(shardId: string, change: Partial<ShardReport>): void {
    const shard = this.shards.get(shardId);
    if (shard === undefined) throw new Error(`${this.options.nodeId} has no shard ${shardId}`);
    this.shards.set(shardId, { ...shard, ...change });
    this.report();
  }

  answer(result: CommandResult): void {
    this.send(resultToWire(result));
  }

  log(requestId: string, text: string, end = false): void {
    this.send(logChunkToWire({ requestId, data: Buffer.from(text), end }));
  }

  /** Answers that it has no such log. */
  noLog(requestId: string, error: string): void {
    this.send(logChunkToWire({ requestId, data: new Uint8Array(), end: true, error }));
  }

  /** Any message, however wrong. */
  send(message: WireAgentMessage): void {
    if (this.status === undefined) this.stream.write(message);
  }

  /** Waits for the first message of a kind that is not older than `from` in `received`. */
  async next<K extends ServerMessage['kind']>(
    kind: K,
    from = 0,
  ): Promise<Extract<ServerMessage, { kind: K }>> {
    return waitFor(
      () => {
        const found = this.received.slice(from).find((message) => message.kind === kind);
        if (found === undefined && this.status !== undefined) {
          throw new Error(`the stream ended: ${this.status.details}`);
        }
        return found as Extract<ServerMessage, { kind: K }> | undefined;
      },
      { what: `a ${kind} for ${this.options.nodeId}` },
    ) as Promise<Extract<ServerMessage, { kind: K }>>;
  }

  /** Waits until the server has ended the stream. */
  async ended(): Promise<StatusObject> {
    return waitFor(() => this.status, {
      what: `the end of ${this.options.nodeId}'s stream`,
    }) as Promise<StatusObject>;
  }

  /** Hangs up as a process that ended does. */
  leave(): void {
    this.stream.cancel();
    this.client.close();
  }

  private take(wire: WireServerMessage): void {
    const parsed = parseServerMessage(wire, this.options.nodeId);
    if (!parsed.ok) throw parsed.problem;
    const { message } = parsed;
    this.received.push(message);
    if (message.kind === 'ping') this.send(pongToWire(message.nonce));
    if (this.options.onStart === 'manual') return;
    if (message.kind === 'start') this.obeyStart(message.order);
    if (message.kind === 'stop') {
      this.answer({ commandId: message.order.commandId, outcome: 'accepted' });
      this.shards.delete(message.order.shardId);
      this.report();
    }
  }

  /** Has the shard of a start from now on in its reports, Ready if nothing else is said of it. */
  shows(command: StartShardCommand, change: Partial<ShardReport> = {}): void {
    this.shards.set(command.shardId, {
      shardId: command.shardId,
      replicaId: command.replicaId,
      model: command.model,
      profile: command.profile.name,
      generation: command.generation,
      rank: command.rank,
      phase: 'ready',
      gpuUuids: command.gpuUuids,
      ports: command.ports,
      specDigest: command.specDigest,
      ...change,
    });
  }

  private obeyStart({ command, commandId }: StartOrder): void {
    this.answer({ commandId, outcome: 'accepted' });
    for (const phase of this.options.onStart === 'manual' ? [] : (this.options.onStart ?? ['ready'])) {
      this.shows(command, { phase, ...(phase === 'ready' ? { loadMs: 10 } : {}) });
      this.report();
    }
  }
}
