/**
 * The other end: agents without engines, each with a connection of its own, in one process beside the server. They do what a
 * real one does to a server (hello, full report, heartbeats, orders obeyed at once, the same pauses before a new dial) and as
 * little else as possible.
 */
import { credentials } from '@grpc/grpc-js';
import { DEFAULT_TIMINGS } from '../../src/agent/limits.js';
import { FIRST_DIAL, nextDial } from '../../src/agent/reconnect.js';
import type { StartOrder } from '../../src/agent-protocol/messages.js';
import {
  createAgentGatewayClient,
  HEARTBEAT_INTERVAL_MS,
  type AgentGatewayClient,
  type AgentStream,
} from '../../src/agent-protocol/proto.js';
import { parseServerMessage } from '../../src/agent-protocol/to-domain.js';
import { helloToWire, reportToWire, resultToWire } from '../../src/agent-protocol/to-wire.js';
import type { WireAgentMessage, WireServerMessage } from '../../src/agent-protocol/wire.js';
import type { ShardReport } from '../../src/domain/cluster.js';
import { seededRandom } from '../../src/shared/random.js';
import { aGpu } from '../../test/support/cluster-builder.js';

/** How often the parent is told, ms. */
const TELL_EVERY_MS = 100;
/** Agents that dial in the same turn at the start, so that starting them is not what is measured. */
const START_BATCH = 50;

/** What the process of the agents tells its parent. */
export interface AgentsTell {
  readonly connected: number;
  /** Sent since the beginning. */
  readonly reports: number;
}

let reports = 0;

class ScriptedAgent {
  connected = false;
  private readonly shards = new Map<string, ShardReport>();
  private readonly gpus;
  private client: AgentGatewayClient | undefined;
  private stream: AgentStream | undefined;
  private memory = FIRST_DIAL;
  private sequence = 0;
  private heartbeat: NodeJS.Timeout | undefined;
  private openedMs = 0;
  private highestTerm = 0;

  constructor(
    private readonly address: string,
    private readonly nodeId: string,
    private readonly random: () => number,
  ) {
    this.gpus = Array.from({ length: 8 }, (_, index) =>
      aGpu(`${nodeId}-g${index}`, { memoryUsedBytes: 1 << 30 }),
    );
  }

  dial(): void {
    const client = createAgentGatewayClient(this.address, credentials.createInsecure());
    const stream = client.connect();
    this.client = client;
    this.stream = stream;
    stream.on('data', (message: WireServerMessage) => this.take(message));
    stream.on('error', () => undefined);
    stream.once('status', () => this.ended());
    this.write(
      helloToWire({
        protocolVersion: 1,
        minProtocolVersion: 1,
        build: 'bench',
        nodeId: this.nodeId,
        machineId: `machine-${this.nodeId}`,
        bootId: `boot-${this.nodeId}`,
        instanceId: `instance-${this.nodeId}`,
        labels: { zone: `z${this.nodeId.at(-1)}` },
        address: '127.0.0.1',
        highestTerm: this.highestTerm,
      }),
    );
  }

  private take(wire: WireServerMessage): void {
    const parsed = parseServerMessage(wire, this.nodeId);
    if (!parsed.ok) return;
    const { message } = parsed;
    if (message.kind === 'welcome') this.welcomed(message.welcome.term);
    else if (message.kind === 'start') this.obey(message.order);
    else if (message.kind === 'stop') {
      this.write(resultToWire({ commandId: message.order.commandId, outcome: 'accepted' }));
      this.shards.delete(message.order.shardId);
      this.report();
    }
  }

  private welcomed(term: number): void {
    this.connected = true;
    this.openedMs = performance.now();
    this.highestTerm = Math.max(term, this.highestTerm);
    this.report();
    this.heartbeat = setInterval(() => this.report(), HEARTBEAT_INTERVAL_MS);
  }

  private obey({ command, commandId }: StartOrder): void {
    this.write(resultToWire({ commandId, outcome: 'accepted' }));
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
      loadMs: 1_000,
    });
    this.report();
  }

  private report(): void {
    reports += 1;
    this.write(
      reportToWire({
        sequence: ++this.sequence,
        complete: true,
        gpus: this.gpus,
        shards: [...this.shards.values()],
        engines: [{ kind: 'sim', version: '1' }],
        portsTaken: [],
        weightsPresent: [],
        conditions: [],
        uptimeMs: 1_000,
      }),
    );
  }

  private write(message: WireAgentMessage): void {
    this.stream?.write(message);
  }

  private ended(): void {
    clearInterval(this.heartbeat);
    this.client?.close();
    const livedMs = this.connected ? performance.now() - this.openedMs : 0;
    this.connected = false;
    this.sequence = 0;
    const next = nextDial(this.memory, { kind: 'lost', livedMs }, this.random, DEFAULT_TIMINGS);
    this.memory = next.memory;
    setTimeout(() => this.dial(), next.pauseMs);
  }
}

/** Runs `count` agents against `address` until the process ends; tells the parent how many are connected. */
export function runAgents(address: string, count: number): void {
  const random = seededRandom(1);
  const agents: ScriptedAgent[] = [];
  setInterval(() => {
    const connected = agents.filter((agent) => agent.connected).length;
    process.send?.({ connected, reports } satisfies AgentsTell);
  }, TELL_EVERY_MS);
  const more = (): void => {
    for (let index = 0; index < START_BATCH && agents.length < count; index += 1) {
      const agent = new ScriptedAgent(address, `n${String(agents.length).padStart(4, '0')}`, random);
      agents.push(agent);
      agent.dial();
    }
    if (agents.length < count) setTimeout(more, HEARTBEAT_INTERVAL_MS / (count / START_BATCH));
  };
  more();
}
