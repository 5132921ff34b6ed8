import { credentials, ServerCredentials, status as GrpcStatus } from '@grpc/grpc-js';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { INestMicroservice } from '@nestjs/common';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { FakeAgent, testGpu, type FakeAgentOptions } from '../../test/support/fake-agent.js';
import { waitFor } from '../../test/support/wait-for.js';
import { TOKEN_RING } from '../access/ports.js';
import { ServerConfig } from '../config/server-config.js';
import { secretHash } from '../access/secrets.js';
import { TokenRing } from '../access/token-ring.js';
import type { LogChunk } from '../agent-protocol/messages.js';
import { createAgentGatewayClient } from '../agent-protocol/proto.js';
import type { WireAgentMessage } from '../agent-protocol/wire.js';
import type { StartShardCommand } from '../domain/plan.js';
import { InventoryService } from '../inventory/inventory.service.js';
import { STATUS_SINK, type CommandAnswer, type LinkChange, type StatusSink } from '../reconciler/ports.js';
import { CLOCK, systemClock } from '../shared/clock.js';
import { createLogger } from '../shared/logger.js';
import { MemoryStore } from '../store/memory-store.js';
import { StoreModule } from '../store/store.module.js';
import { Term } from '../store/term.js';
import { AgentGatewayModule } from './agent-gateway.module.js';
import { AgentGatewayService } from './agent-gateway.service.js';
import { AgentGrpcServer } from './agent-grpc-server.js';
import type { GatewaySettings } from './ports.js';

class RecordingSink implements StatusSink {
  readonly changed: string[] = [];
  readonly answers: CommandAnswer[] = [];
  readonly links: LinkChange[] = [];
  linkChanged(_: string, change: LinkChange): void {
    this.links.push(change);
  }
  nodeChanged(nodeId: string): void {
    this.changed.push(nodeId);
  }
  commandAnswered(_: string, answer: CommandAnswer): void {
    this.answers.push(answer);
  }
}

interface Gateway {
  readonly app: INestMicroservice;
  readonly port: number;
  readonly server: AgentGrpcServer;
  readonly service: AgentGatewayService;
  readonly inventory: InventoryService;
  readonly sink: RecordingSink;
  readonly term: Term;
  readonly log: string[];
  readonly tokens: TokenRing;
}

const cleanups: (() => Promise<unknown> | void)[] = [];
const unhandled: unknown[] = [];
process.on('unhandledRejection', (error) => unhandled.push(error));

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
  expect(unhandled).toEqual([]);
});

async function startGateway(settings: Partial<GatewaySettings> = {}): Promise<Gateway> {
  const sink = new RecordingSink();
  const store = new MemoryStore();
  const term = new Term(store);
  const log: string[] = [];
  const logger = createLogger({ level: 'debug', format: 'json' }, (line) => log.push(line));

  @Module({ providers: [{ provide: STATUS_SINK, useValue: sink }], exports: [STATUS_SINK] })
  class SinkModule {}
  const tokens = new TokenRing(store, systemClock, new ServerConfig());
  const globals = [
    { provide: CLOCK, useValue: systemClock },
    { provide: TOKEN_RING, useValue: tokens },
  ];
  @Module({ providers: globals, exports: [CLOCK, TOKEN_RING] })
  class GlobalModule {}
  @Module({
    imports: [
      { module: GlobalModule, global: true },
      StoreModule.register(store, term),
      AgentGatewayModule.register({
        reconciler: SinkModule,
        settings: { clock: systemClock, logger, build: '9.9.9', ...settings },
      }),
    ],
  })
  class Root {}

  const address = { host: '127.0.0.1', port: 0 };
  const server = new AgentGrpcServer(address, ServerCredentials.createInsecure(), systemClock);
  const app = await NestFactory.createMicroservice(Root, { strategy: server, logger: false });
  app.get(AgentGatewayService).onAnswered((peer) => server.answered(peer));
  await app.listen();
  cleanups.push(() => app.close());
  return {
    app,
    port: server.port ?? 0,
    server,
    service: app.get(AgentGatewayService),
    inventory: app.get(InventoryService),
    sink,
    term,
    log,
    tokens,
  };
}

function dial(gateway: { port: number }, options: Partial<FakeAgentOptions> = {}): FakeAgent {
  const agent = FakeAgent.dial({ port: gateway.port, nodeId: 'n1', ...options });
  cleanups.push(() => agent.leave());
  return agent;
}

async function joined(
  gateway: { port: number },
  options: Partial<FakeAgentOptions> = {},
): Promise<FakeAgent> {
  const agent = await FakeAgent.join({ port: gateway.port, nodeId: 'n1', ...options });
  cleanups.push(() => agent.leave());
  return agent;
}

const start: StartShardCommand = {
  nodeId: 'n1',
  shardId: 's1',
  replicaId: 'r1',
  generation: 1,
  model: 'm1',
  aliases: [],
  profile: {
    name: 'p',
    engine: 'sim',
    shards: 1,
    gpus: 1,
    args: [],
    env: {},
    startTimeoutMs: 1,
    stopGraceMs: 1,
    weight: 1,
  },
  rank: 0,
  shards: 1,
  gpuUuids: ['GPU-1'],
  ports: { http: 20_000 },
  peers: [],
  specDigest: 'd',
};

describe('a stream', () => {
  it('is welcomed with term and settings, and its reports become the node', async () => {
    const gateway = await startGateway();
    const agent = dial(gateway, { gpus: [testGpu('GPU-1')] });
    agent.sayHello();
    const { welcome } = await agent.next('welcome');
    expect(welcome).toMatchObject({
      term: 1,
      protocolVersion: 1,
      build: '9.9.9',
      heartbeatIntervalMs: 5_000,
    });
    const sequence = agent.report();
    expect((await agent.next('ack')).sequence).toBe(sequence);
    expect(gateway.inventory.node('n1')).toMatchObject({ reported: true, address: '127.0.0.1' });
    expect(gateway.inventory.node('n1')?.gpus[0]?.uuid).toBe('GPU-1');
    expect(gateway.service.connectedNodes()).toEqual(['n1']);
    agent.leave();
    await waitFor(() => gateway.inventory.node('n1')?.streamSinceMs === undefined);
    expect(gateway.service.connectedNodes()).toEqual([]);
  });

  it('carries commands with term and id, and the answer comes back with what it was about', async () => {
    const gateway = await startGateway();
    expect(gateway.service.startShard(1, start)).toEqual({ sent: false, reason: 'notConnected' });
    const agent = await joined(gateway, { onStart: 'manual' });
    expect(gateway.service.startShard(1, start)).toEqual({ sent: true });
    const { order } = await agent.next('start');
    expect(order).toMatchObject({ term: 1, command: { shardId: 's1', generation: 1, specDigest: 'd' } });
    expect(gateway.inventory.node('n1')?.unsettled).toEqual(['s1@1']);

    // A report from before the answer says nothing about the command...
    await waitFor(() => gateway.inventory.node('n1')?.reported);
    agent.report();
    agent.answer({ commandId: order.commandId, outcome: 'refused', verdict: 'notAllowed' });
    await waitFor(() => gateway.sink.answers.length === 1);
    expect(gateway.sink.answers[0]).toMatchObject({
      outcome: 'refused',
      verdict: 'notAllowed',
      shardKey: 's1@1',
    });
    expect(gateway.inventory.node('n1')?.unsettled).toEqual(['s1@1']);
    // ...the first one after it does.
    agent.report();
    await waitFor(() => gateway.inventory.node('n1')?.unsettled.length === 0);
  });

  it('of an overtaken term sends nothing', async () => {
    const gateway = await startGateway();
    await joined(gateway);
    gateway.term.raiseAbove(7);
    expect(gateway.service.startShard(1, start)).toEqual({ sent: false, reason: 'staleTerm' });
  });

  it('without a hello is ended', async () => {
    const gateway = await startGateway({ helloLimitMs: 50 });
    expect((await dial(gateway).ended()).code).toBe(GrpcStatus.DEADLINE_EXCEEDED);
  });

  it('ends when the server stops, at once', async () => {
    const gateway = await startGateway();
    const agent = await joined(gateway);
    gateway.service.beforeApplicationShutdown();
    expect(await agent.ended()).toMatchObject({
      code: GrpcStatus.UNAVAILABLE,
      details: 'the server is stopping',
    });
    expect((await dial(gateway).ended()).code).toBe(GrpcStatus.UNAVAILABLE);
  });
});

describe('garbage ends at most its own stream', () => {
  it.each<[string, WireAgentMessage | Partial<FakeAgentOptions>]>([
    ['a hello without a node id', { hello: { nodeId: '' } }],
    ['a first message that is no hello', { pong: { nonce: 1 } }],
    ['an empty first message', {}],
    ['an engine address on a metadata service', { hello: { address: '169.254.169.254' } }],
    ['a term nobody can have taken', { hello: { highestTerm: 2 ** 52 } }],
  ])('%s', async (_, given) => {
    const gateway = await startGateway();
    const bystander = await joined(gateway, { nodeId: 'n2' });
    const agent = dial(gateway, 'hello' in given ? (given as Partial<FakeAgentOptions>) : {});
    if ('hello' in given) agent.sayHello();
    else agent.send(given as WireAgentMessage);
    expect((await agent.ended()).code).toBe(GrpcStatus.INVALID_ARGUMENT);
    expect(gateway.term.current()).toBe(1);
    bystander.report();
    await waitFor(() => bystander.received.filter((message) => message.kind === 'ack').length >= 1);
    expect(bystander.status).toBeUndefined();
  });

  it('a report that makes no sense is left out, the next one is taken', async () => {
    const gateway = await startGateway();
    const agent = await joined(gateway);
    agent.report({ portsTaken: [70_000] });
    await waitFor(() => gateway.service.counts.messagesRefused === 1);
    const sequence = agent.report();
    await waitFor(() =>
      agent.received.some((message) => message.kind === 'ack' && message.sequence === sequence),
    );
    expect(gateway.inventory.node('n1')?.portsTaken).toEqual([]);
  });

  it('an inventory that throws costs the stream, not the process', async () => {
    const gateway = await startGateway();
    const agent = await joined(gateway);
    const bystander = await joined(gateway, { nodeId: 'n2' });
    gateway.inventory.reported = (nodeId) => {
      if (nodeId === 'n1') throw new Error('planted');
      return 'unchanged';
    };
    agent.report();
    expect((await agent.ended()).code).toBe(GrpcStatus.INTERNAL);
    await waitFor(() => gateway.service.connectedNodes().join() === 'n2');
    expect(bystander.status).toBeUndefined();
    expect(gateway.log.join('')).toContain('planted');
  });
});

describe('versions and tokens', () => {
  it('an agent of another protocol is told both versions', async () => {
    const gateway = await startGateway();
    const agent = dial(gateway, { hello: { protocolVersion: 99, minProtocolVersion: 99 } });
    agent.sayHello();
    const { refusal } = await agent.next('refusal');
    expect(refusal).toMatchObject({
      code: 'incompatibleVersion',
      serverBuild: '9.9.9',
      serverProtocolVersion: 1,
    });
    expect(refusal.message).toMatch(/agent speaks protocol 99, the server 1/);
    expect((await agent.ended()).code).toBe(GrpcStatus.FAILED_PRECONDITION);
    const [refused] = gateway.inventory.refusedAgents().get('n1') ?? [];
    expect(refused).toMatchObject({ from: '127.0.0.1', count: 1, reason: { code: 'incompatibleVersion' } });
  });

  it('a join token is asked for, checked and re-read', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'llmgw-tokens-'));
    cleanups.push(() => rmSync(dir, { recursive: true }));
    const file = join(dir, 'tokens');
    writeFileSync(file, '# none yet\nshort\n');
    const gateway = await startGateway({ joinTokensFile: file });
    for (const joinToken of [undefined, 'short', 'x'.repeat(43)]) {
      const agent = dial(gateway, joinToken === undefined ? {} : { hello: { joinToken } });
      agent.sayHello();
      expect((await agent.ended()).code).toBe(GrpcStatus.UNAUTHENTICATED);
    }
    expect(gateway.inventory.nodes()).toEqual([]);
    writeFileSync(file, `${'x'.repeat(43)}\n`);
    await joined(gateway, { hello: { joinToken: 'x'.repeat(43) } });
    expect(gateway.log.join('')).not.toContain('xxxxx');
  });

  it('an agent that obeyed our number for another server makes this one take a higher, once', async () => {
    const gateway = await startGateway();
    const other = await joined(gateway, { nodeId: 'n2' });
    other.leave();
    await waitFor(() => gateway.service.connectedNodes().length === 0);
    // It was welcomed here with this very term: that is no second server.
    const again = await joined(gateway, { nodeId: 'n2', hello: { highestTerm: 1 } });
    expect((await again.next('welcome')).welcome.term).toBe(1);
    const agent = await joined(gateway, { hello: { highestTerm: 1 } });
    expect((await agent.next('welcome')).welcome.term).toBe(2);
  });

  it('a stored join token works beside or without a file, until it is revoked; an admin token never', async () => {
    const gateway = await startGateway({ joinTokensRequired: true });
    const token = (id: string, kind: 'admin' | 'join') => {
      const [createdAt, createdBy] = ['2026-01-01T00:00:00.000Z', 'test'];
      return { id, kind, name: id, hash: secretHash(`llmgw-join-${id}`), createdAt, createdBy } as const;
    };
    gateway.tokens.put(token('a', 'join'));
    gateway.tokens.put(token('b', 'admin'));
    await joined(gateway, { hello: { joinToken: 'llmgw-join-a' } });
    gateway.tokens.put({ ...token('a', 'join'), revokedAt: '2026-01-02T00:00:00.000Z' });
    for (const joinToken of ['llmgw-join-a', 'llmgw-join-b', 'llmgw-join-']) {
      const agent = dial(gateway, { nodeId: 'n2', hello: { joinToken } });
      agent.sayHello();
      expect((await agent.ended()).code).toBe(GrpcStatus.UNAUTHENTICATED);
    }
  });

  it('an agent that obeyed a higher term makes this server take a higher one', async () => {
    const gateway = await startGateway();
    const agent = await joined(gateway, { hello: { highestTerm: 12 } });
    expect((await agent.next('welcome')).welcome.term).toBe(13);
    expect(gateway.service.startShard(13, start)).toEqual({ sent: true });
  });
});

describe('one holder per node id', () => {
  const machine = (machineId: string, bootId: string, instanceId: string) => ({
    machineId,
    bootId,
    instanceId,
  });

  it('another machine with the same id is refused, naming both addresses, and nothing alternates', async () => {
    const gateway = await startGateway();
    const first = await joined(gateway, { hello: machine('m', 'b1', 'x') });
    for (const hello of [machine('m2', 'b2', 'y'), machine('m2', 'b2', 'y2')]) {
      const clone = dial(gateway, { hello });
      clone.sayHello();
      const ended = await clone.ended();
      expect(ended.code).toBe(GrpcStatus.ALREADY_EXISTS);
      expect(ended.details).toMatch(/n1 is held by 127\.0\.0\.1:\d+, and 127\.0\.0\.1 is another machine/);
    }
    expect(first.status).toBeUndefined();
    // The holder was asked whether it lives, so that a dead one would not keep the id for long.
    await first.next('ping');
  });

  it('a quick restart of the same machine takes over; the late close of the old stream changes nothing', async () => {
    const gateway = await startGateway();
    const before = await joined(gateway, { hello: machine('m', 'b', 'x') });
    const after = await joined(gateway, { hello: machine('m', 'b', 'y') });
    expect((await before.ended()).code).toBe(GrpcStatus.ABORTED);
    before.leave();
    after.report();
    await waitFor(() => after.received.filter((message) => message.kind === 'ack').length >= 1);
    expect(gateway.service.connectedNodes()).toEqual(['n1']);
    expect(gateway.inventory.node('n1')?.streamSinceMs).toBeDefined();
    // What lost the id to a later start is no restart: two agents on one machine must not take turns.
    const again = dial(gateway, { hello: machine('m', 'b', 'x') });
    again.sayHello();
    expect((await again.ended()).details).toMatch(/two agents run with one node id/);
    expect(after.status).toBeUndefined();
  });

  it('the reports of a restarted agent count from the start again', async () => {
    const gateway = await startGateway();
    const before = await joined(gateway, { hello: machine('m', 'b', 'x'), gpus: [testGpu('GPU-1')] });
    before.report({ sequence: 500 });
    await waitFor(() =>
      before.received.some((message) => message.kind === 'ack' && message.sequence === 500),
    );
    await joined(gateway, { hello: machine('m', 'b', 'y'), gpus: [testGpu('GPU-2')] });
    const uuids = () => gateway.inventory.node('n1')?.gpus.map((gpu) => `${gpu.uuid} ${gpu.health.state}`);
    await waitFor(() => uuids()?.includes('GPU-2 healthy'));
    expect(uuids()).toEqual(['GPU-2 healthy', 'GPU-1 excluded']);
  });
});

describe('a half-open connection', () => {
  it('is noticed by our own deadline although TCP says nothing', async () => {
    const gateway = await startGateway({ silenceLimitMs: 150 });
    const proxy = await stallingProxy(gateway.port);
    const agent = await joined({ port: proxy.port });
    await waitFor(() => gateway.inventory.node('n1')?.reported);
    proxy.stall();
    await waitFor(() => gateway.service.connectedNodes().length === 0);
    expect(gateway.log.join('')).toMatch(/silent for/);
    // The node is back on a new connection.
    agent.leave();
    await joined(gateway);
    await waitFor(() => gateway.service.connectedNodes().length === 1);
  });

  it('the keepalive options arrive at both ends of grpc-js', async () => {
    const gateway = await startGateway();
    // Private fields, on purpose: options of a wrong name are swallowed silently, and that is the fault to see.
    expect(gateway.server.grpcServer).toMatchObject({ keepaliveTimeMs: 5_000, keepaliveTimeoutMs: 5_000 });
    const client = createAgentGatewayClient(`127.0.0.1:${gateway.port}`, credentials.createInsecure());
    cleanups.push(() => client.close());
    const channel = JSON.stringify(
      (client as unknown as { getChannel(): { internalChannel: { options: object } } }).getChannel()
        .internalChannel.options,
    );
    expect(JSON.parse(channel)).toMatchObject({
      'grpc.keepalive_time_ms': 5_000,
      'grpc.keepalive_timeout_ms': 5_000,
    });
  });
});

describe('logs', () => {
  it('are asked for, passed on piece by piece, and a follow is ended at the agent', async () => {
    const gateway = await startGateway();
    const agent = await joined(gateway);
    const chunks: LogChunk[] = [];
    const query = { shardId: 's1', tailLines: 10, follow: true, previous: false };
    const stop = gateway.service.openLog('n1', query, (chunk) => chunks.push(chunk));
    const { request } = await agent.next('fetchLogs');
    expect(request).toMatchObject({ ...query, stop: false });
    agent.log(request.requestId, 'one\n');
    agent.log('nobody-asked', 'two\n');
    await waitFor(() => chunks.length === 1);
    stop?.();
    await waitFor(() =>
      agent.received.some((message) => message.kind === 'fetchLogs' && message.request.stop),
    );
  });

  it('end for their reader when the agent goes', async () => {
    const gateway = await startGateway();
    const agent = await joined(gateway);
    const chunks: LogChunk[] = [];
    gateway.service.openLog('n1', { shardId: 's1', tailLines: 1, follow: true, previous: false }, (chunk) =>
      chunks.push(chunk),
    );
    agent.leave();
    await waitFor(() => chunks.at(-1)?.end === true);
    expect(chunks.at(-1)?.error).toMatch(/not connected/);
    expect(
      gateway.service.openLog('n9', { shardId: 's', tailLines: 1, follow: false, previous: false }, () => {}),
    ).toBeUndefined();
  });
});

/** Forwards until told to stall: then bytes are taken and kept, and nobody is told. */
async function stallingProxy(target: number): Promise<{ port: number; stall(): void }> {
  let stalled = false;
  const sockets = new Set<Socket>();
  const server: Server = createServer((client) => {
    const upstream = connect(target, '127.0.0.1');
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('data', (data) => stalled || to.write(data));
      from.on('close', () => stalled || to.destroy());
      from.on('error', () => undefined);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return { port: (server.address() as AddressInfo).port, stall: () => (stalled = true) };
}
