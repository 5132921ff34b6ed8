import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Test } from '@nestjs/testing';
import { register } from 'prom-client';
import { afterEach, describe, expect, it } from 'vitest';
import { FakeAgent } from '../../test/support/fake-agent.js';
import { waitFor } from '../../test/support/wait-for.js';
import { Readiness } from '../admin-api/readiness.js';
import { ServerFacts } from '../admin-api/server-facts.js';
import type { StatusView } from '../admin-api/views/status.js';
import { AgentGatewayService } from '../agent-gateway/agent-gateway.service.js';
import { ConfigInForce } from '../config/config-in-force.js';
import { EndpointConfig, ModelConfig, ProfileConfig, ServerConfig } from '../config/server-config.js';
import { DISPATCHER, STATUS_SINK } from '../reconciler/ports.js';
import { ReconcilerService } from '../reconciler/reconciler.service.js';
import { systemClock } from '../shared/clock.js';
import { createLogger } from '../shared/logger.js';
import { seededRandom } from '../shared/random.js';
import { MemoryStore } from '../store/memory-store.js';
import { Term } from '../store/term.js';
import { ListenerCertificates } from './listener-certificates.js';
import { ToldSource } from './config-watch.js';
import { startServer, type RunningServer } from './bootstrap.js';
import type { ServerParts } from './server-parts.js';
import { ServerModule } from './server.module.js';

const cleanups: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

const log: string[] = [];
const logger = createLogger({ level: 'debug', format: 'json' }, (line) => log.push(line));

function simModel(name: string, replicas: number): ModelConfig {
  const profile = Object.assign(new ProfileConfig(), { name: 'p', engine: 'sim' });
  return Object.assign(new ModelConfig(), { name, replicas, profiles: [profile] });
}

function config(change: Partial<ServerConfig> = {}): ServerConfig {
  const dir = mkdtempSync(join(tmpdir(), 'llmgw-server-'));
  cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
  return Object.assign(new ServerConfig(), {
    listen: '127.0.0.1:0',
    adminListen: '127.0.0.1:0',
    agentListen: '127.0.0.1:0',
    stateDir: dir,
    shutdownGrace: 1_000,
    ...change,
  });
}

const changed = (settings: ServerConfig, change: Partial<ServerConfig>): ServerConfig =>
  Object.assign(new ServerConfig(), settings, change);

async function start(configuration: ServerConfig): Promise<RunningServer> {
  const server = await startServer(configuration, { logger, random: seededRandom(1) });
  cleanups.push(() => server.close(0));
  return server;
}

const endpoint = Object.assign(new EndpointConfig(), { id: 'e1', url: 'http://127.0.0.1:9', models: ['m1'] });

describe('the module graph', () => {
  function parts(): ServerParts {
    register.clear();
    const store = new MemoryStore();
    const inForce = new ConfigInForce(config({ models: [simModel('m1', 1)] }));
    return {
      config: inForce.view,
      inForce,
      source: new ToldSource({
        load: () => ({ config: inForce.current(), warnings: [], origins: new Map() }),
      }),
      logger,
      clock: systemClock,
      random: seededRandom(1),
      decisionRandom: seededRandom(1),
      store,
      term: new Term(store),
      facts: new ServerFacts('0', 'control', 0, 0),
      readiness: new Readiness(),
      certificates: new ListenerCertificates({}, systemClock, logger),
    };
  }

  it.each(['reconcilerFirst', 'gatewayFirst'] as const)(
    'builds with the circle of dispatcher and status sink, %s',
    async (order) => {
      const module = await Test.createTestingModule({
        imports: [ServerModule.controlPlane(parts(), order)],
      }).compile();
      const reconciler = module.get(ReconcilerService, { strict: false });
      const gateway = module.get(AgentGatewayService, { strict: false });
      expect(module.get(STATUS_SINK, { strict: false })).toBe(reconciler);
      expect(module.get(DISPATCHER, { strict: false })).toBe(gateway);
      // The injected fields themselves: a forward reference gone wrong injects null, or another object.
      expect((reconciler as unknown as { dispatcher: unknown }).dispatcher).toBe(gateway);
      expect((gateway as unknown as { sink: unknown }).sink).toBe(reconciler);
      await module.close();
    },
  );

  it('without models has no control plane in it', async () => {
    const given = parts();
    const module = await Test.createTestingModule({ imports: [ServerModule.routerOnly(given)] }).compile();
    expect(() => module.get(ReconcilerService, { strict: false })).toThrow();
    expect(() => module.get(AgentGatewayService, { strict: false })).toThrow();
    await module.close();
  });

  it('uses a forward reference in two files and nowhere else', () => {
    const root = resolve(import.meta.dirname, '..');
    const users = readdirSync(root, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts') && !file.endsWith('.spec.ts'))
      .filter((file) => readFileSync(join(root, file), 'utf8').includes('forwardRef('));
    expect(users.toSorted()).toEqual(['reconciler/reconciler.service.ts', 'server/server.module.ts']);
  });
});

describe('a router-only server', () => {
  it('serves two listeners and says what it is', async () => {
    const server = await start(config({ endpoints: [endpoint] }));
    expect(server.addresses).not.toHaveProperty('agent');
    const admin = `http://${server.addresses.admin}`;
    const status = (await (await fetch(`${admin}/admin/v1/status`)).json()) as StatusView;
    expect(status).toMatchObject({ mode: 'router', endpoints: { total: 1 }, models: { total: 1 } });
    expect((await fetch(`${admin}/readyz`)).status).toBe(200);
    expect((await fetch(`http://${server.addresses.client}/admin/v1/status`)).status).toBe(404);
    const metrics = await (await fetch(`${admin}/metrics`)).text();
    expect(metrics).toContain('llmgw_build_info');
    expect(metrics).not.toContain('llmgw_reconcile_duration_seconds');
  });
});

describe('a control-plane server', () => {
  it('places a model on the node that joins and publishes it when it is Ready', async () => {
    const server = await start(config({ models: [simModel('m1', 1)] }));
    const port = Number(server.addresses.agent?.split(':')[1]);
    const agent = await FakeAgent.join({ port, nodeId: 'n1' });
    cleanups.push(() => agent.leave());
    const { order } = await agent.next('start');
    expect(order).toMatchObject({ term: 1, command: { model: 'm1', generation: 1, nodeId: 'n1' } });
    const status = async () =>
      (await (await fetch(`http://${server.addresses.admin}/admin/v1/status`)).json()) as StatusView;
    await waitFor(async () => (await status()).models.ready === 1);
    expect(await status()).toMatchObject({
      mode: 'control',
      term: 1,
      replicas: { desired: 1, byState: { ready: 1 } },
      nodes: { total: 1, byState: { connected: 1 } },
    });
    const metrics = await (await fetch(`http://${server.addresses.admin}/metrics`)).text();
    expect(metrics).toContain('llmgw_replicas{model="m1",state="ready"} 1');
    expect(metrics).toContain('llmgw_agents_connected 1');
  });

  it('after a restart routes from its records before any agent is back, and starts nothing', async () => {
    const settings = config({ models: [simModel('m1', 1)] });
    const first = await startServer(settings, { logger });
    const agent = await FakeAgent.join({ port: Number(first.addresses.agent?.split(':')[1]), nodeId: 'n1' });
    const ready = async (server: RunningServer) => {
      const response = await fetch(`http://${server.addresses.admin}/admin/v1/status`);
      return ((await response.json()) as StatusView).models.ready;
    };
    await waitFor(async () => (await ready(first)) === 1);
    await first.close(0);
    expect((await agent.ended()).details).toBe('the server is stopping');

    const second = await start(settings);
    expect(await ready(second)).toBe(1);
    const back = await FakeAgent.join({ port: Number(second.addresses.agent?.split(':')[1]), nodeId: 'n1' });
    cleanups.push(() => back.leave());
    for (const [id, shard] of agent.shards) back.shards.set(id, shard);
    back.report();
    expect((await back.next('welcome')).welcome.term).toBe(2);
    await waitFor(async () => (await ready(second)) === 1);
    expect(back.received.filter((message) => message.kind === 'start' || message.kind === 'stop')).toEqual(
      [],
    );
  });
});

describe('a server that is asked to stop', () => {
  /** An engine whose answers never end. */
  async function endlessEngine(): Promise<number> {
    const engine = createHttpServer((incoming, response) => {
      incoming.resume();
      if (incoming.method !== 'POST') return void response.end('{}');
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const chunk = { choices: [{ delta: { content: 'x' }, index: 0, finish_reason: null }] };
      const timer = setInterval(() => response.write(`data: ${JSON.stringify(chunk)}\n\n`), 20);
      response.on('close', () => clearInterval(timer));
    });
    await new Promise<void>((done) => engine.listen(0, '127.0.0.1', done));
    cleanups.push(() => {
      engine.closeAllConnections();
      engine.close();
    });
    return (engine.address() as { port: number }).port;
  }

  it('is not ready at once, lets the stream run to the grace, and is held up by nobody who idles', async () => {
    const port = await endlessEngine();
    const engine = Object.assign(new EndpointConfig(), {
      id: 'e1',
      url: `http://127.0.0.1:${port}`,
      models: ['m2'],
    });
    const server = await start(
      config({ models: [simModel('m1', 1)], endpoints: [engine], shutdownGrace: 600 }),
    );
    const { client, admin } = server.addresses;
    const agent = await FakeAgent.join({ port: Number(server.addresses.agent?.split(':')[1]), nodeId: 'n1' });
    cleanups.push(() => agent.leave());
    await agent.next('start');
    for (const address of [client, admin]) await (await fetch(`http://${address}/livez`)).text();
    const followed = await fetch(`http://${admin}/admin/v1/events?follow=true`);
    const answer = await fetch(`http://${client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm2', stream: true, messages: [{ role: 'user', content: 'go on' }] }),
    });
    expect(answer.status).toBe(200);
    const text = answer.text();

    const closing = server.close();
    const ready = await fetch(`http://${admin}/readyz?verbose`);
    expect(ready.status).toBe(503);
    expect(await ready.text()).toMatch(/\[-\] not-draining: stopping since/);
    const { warnings } = (await (await fetch(`http://${admin}/admin/v1/status`)).json()) as StatusView;
    expect(warnings[0]).toMatchObject({ code: 'server_stopping' });
    await closing;
    // The stream was told, not cut: an error event, and no [DONE] that would make it look whole.
    expect(await text).toContain('"shutting_down"');
    expect(await text).not.toContain('[DONE]');
    await followed.text();
    expect((await agent.ended()).details).toBe('the server is stopping');
    // Engines are none of a stopping server's business.
    expect(agent.received.filter((message) => message.kind === 'stop')).toEqual([]);
    await expect(fetch(`http://${client}/health`)).rejects.toThrow();
  });

  it('may be asked twice', async () => {
    const server = await start(config({ endpoints: [endpoint] }));
    await Promise.all([server.close(0), server.close(0)]);
  });
});

describe('a server that cannot start', () => {
  it('names the taken address, and leaves nothing open and nothing locked', async () => {
    const blocker = createServer();
    await new Promise<void>((done) => blocker.listen(0, '127.0.0.1', done));
    cleanups.push(() => new Promise((done) => blocker.close(done)));
    const taken = `127.0.0.1:${(blocker.address() as { port: number }).port}`;
    const settings = config({ models: [simModel('m1', 1)] });
    for (const key of ['listen', 'agentListen', 'adminListen'] as const) {
      await expect(startServer(changed(settings, { [key]: taken }), { logger })).rejects.toThrow(taken);
    }
    await start(settings);
  });

  it('refuses admin and agent listeners that anybody could use, naming both ways out', async () => {
    const open = config({ endpoints: [endpoint], adminListen: '0.0.0.0:0' });
    await expect(startServer(open, { logger })).rejects.toThrow(
      /auth\.admin\.tokens and auth\.admin\.tls, or write insecure: true/,
    );
    await start(changed(open, { insecure: true }));
  });

  it('refuses a second server on the same state', async () => {
    const settings = config({ models: [simModel('m1', 1)] });
    await start(settings);
    await expect(startServer(settings, { logger })).rejects.toThrow(
      /another server uses the state directory/,
    );
  });
});
