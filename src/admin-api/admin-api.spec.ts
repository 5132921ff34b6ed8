import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import { testGpu } from '../../test/support/fake-agent.js';
import { waitFor } from '../../test/support/wait-for.js';
import { AdminAuthConfig, AuthConfig } from '../config/auth-config.js';
import { EndpointConfig, type ServerConfig } from '../config/server-config.js';

const servers: ControlServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.dispose();
});

async function start(change: Partial<ServerConfig> = {}): Promise<ControlServer> {
  const server = await ControlServer.start({ models: [simModel('m1')], ...change });
  servers.push(server);
  return server;
}

/** A server with one node and its one replica Ready. */
async function ready(change: Partial<ServerConfig> = {}): Promise<ControlServer> {
  const server = await start(change);
  await server.join('node-1', { gpus: [testGpu('GPU-a')] });
  await waitFor(async () => (await server.admin('models/m1')).json.ready === 1);
  return server;
}

const put = (body: unknown) => ({ method: 'PUT', body });

describe('reading', () => {
  it('shows nodes, GPUs, models, replicas and endpoints as one cluster', async () => {
    const server = await ready();
    const [node] = (await server.admin('nodes')).json.items;
    expect(node).toMatchObject({
      id: 'node-1',
      state: 'connected',
      scheduling: { target: 'schedulable', state: 'schedulable', waitingFor: [] },
      gpus: { total: 1, healthy: 1 },
      agentVersion: 'fake',
    });
    const [gpu] = (await server.admin('gpus')).json.items;
    expect(gpu).toMatchObject({ uuid: 'GPU-a', nodeId: 'node-1', health: { state: 'healthy' } });
    const [model] = (await server.admin('models')).json.items;
    expect(model).toMatchObject({
      name: 'm1',
      desired: 1,
      ready: 1,
      outlook: 'ready',
      byState: { ready: 1 },
    });
    const [replica] = (await server.admin('replicas')).json.items;
    expect(replica).toMatchObject({ model: 'm1', state: 'ready', nodes: ['node-1'], published: true });
    expect(replica.address).toMatch(/^127\.0\.0\.1:\d+$/);
    const [endpoint] = (await server.admin('endpoints')).json.items;
    expect(endpoint).toMatchObject({ id: replica.id, generation: 1, nodeId: 'node-1', inflight: 0 });
    expect((await server.admin('nodes/node-1')).json.shards).toHaveLength(1);
    const detail = (await server.admin(`replicas/${replica.id}`)).json;
    expect(detail.shards[0]).toMatchObject({ phase: 'ready', wanted: true });
    expect(detail.placement.chosen.profile).toBe('p');
  });

  it('takes unique beginnings of ids, and names near ones', async () => {
    const server = await ready();
    const [replica] = (await server.admin('replicas')).json.items;
    expect((await server.admin(`replicas/${replica.id.slice(0, -1)}`)).json.id).toBe(replica.id);
    expect((await server.admin('nodes/nod')).json.id).toBe('node-1');
    const missed = await server.admin('nodes/nide-1');
    expect(missed.status).toBe(404);
    expect(missed.json.error).toEqual({
      code: 'not_found',
      message: 'there is no node "nide-1"; did you mean node-1?',
    });
    await server.join('node-2');
    expect((await server.admin('nodes/node')).json.error).toMatchObject({
      code: 'invalid_argument',
      message: 'node "node" could be node-1, node-2',
    });
  });

  it('knows a model whose name holds slashes and colons, and one by its alias', async () => {
    const name = 'org/model:8b@q4';
    const server = await start({ models: [simModel(name, { aliases: ['default'] })] });
    expect((await server.admin(`models/${encodeURIComponent(name)}`)).json.name).toBe(name);
    expect((await server.admin('models/default')).json.name).toBe(name);
  });

  it('explains a placement as it was decided, and as it would be now', async () => {
    const server = await ready();
    const [replica] = (await server.admin('replicas')).json.items;
    const decided = (await server.admin(`placements/m1/explain?replica=${replica.id}`)).json;
    expect(decided).toMatchObject({ basis: 'decided', replicaId: replica.id, have: 1, desired: 1 });
    expect(decided.explanation.chosen.shards[0].nodeId).toBe('node-1');
    const now = (await server.admin('placements/m1/explain')).json;
    expect(now.basis).toBe('now');
    expect(now.explanation.profiles[0].nodes[0].nodeId).toBe('node-1');
    expect((await server.admin('placements/m2/explain')).status).toBe(404);
  });

  it('shows the configuration without its secrets', async () => {
    const profile = { env: { HF_TOKEN: 'hf_FAKE123' }, args: ['--api-key', 'sk-FAKE456'] };
    const server = await start({ models: [simModel('m1', {}, profile)] });
    for (const path of ['config', 'models/m1', 'models', 'status', 'replicas', 'placements/m1/explain']) {
      const { text } = await server.admin(path);
      expect(text).not.toMatch(/FAKE/);
    }
  });

  it('says for a router-only server what it is', async () => {
    const endpoint = Object.assign(new EndpointConfig(), {
      id: 'e1',
      url: 'http://127.0.0.1:9',
      models: ['m1'],
    });
    const server = await start({ models: [], endpoints: [endpoint] });
    expect((await server.admin('status')).json.mode).toBe('router');
    expect((await server.admin('endpoints')).json.items).toHaveLength(1);
    expect((await server.admin('events')).json.items).toEqual([]);
    const nodes = await server.admin('nodes');
    expect(nodes.status).toBe(404);
    expect(nodes.json.error.message).toMatch(/router-only/);
  });

  // `ctl models` was empty on a router-only server, as if nothing could be asked for.
  it('lists models that only static endpoints serve, with and without a control plane', async () => {
    const endpoint = (id: string, models: string[]) =>
      Object.assign(new EndpointConfig(), { id, url: 'http://127.0.0.1:9', models });
    const endpoints = [endpoint('e1', ['b', 'a']), endpoint('e2', ['b', 'm1'])];
    const alone = await start({ models: [], endpoints });
    const names = async (server: ControlServer) =>
      (await server.admin('models')).json.items.map((one: { name: string }) => one.name);
    expect(await names(alone)).toEqual(['a', 'b', 'm1']);
    expect((await alone.admin('models/b')).json).toMatchObject({ desired: 0, staticEndpoints: ['e1', 'e2'] });
    expect((await alone.admin('models/c')).status).toBe(404);
    expect((await alone.admin('models/b/scale', put({ replicas: 1 }))).json.error.message).toMatch(
      /router-only/,
    );
    const managed = await start({ endpoints });
    expect(await names(managed)).toEqual(['m1', 'a', 'b']);
    expect((await managed.admin('models/a')).json).toMatchObject({ desired: 0, staticEndpoints: ['e1'] });
  });
});

describe('changing', () => {
  it('cordon stores who, when and why, is done once, and uncordon takes it back', async () => {
    const server = await ready();
    const done = await server.admin('nodes/node-1/scheduling', put({ target: 'cordoned', reason: 'disk' }));
    expect(done.json).toMatchObject({
      node: 'node-1',
      changed: true,
      scheduling: { target: 'cordoned', state: 'cordoned', actor: 'local', reason: 'disk', sequence: 1 },
    });
    const again = await server.admin('nodes/node-1/scheduling', put({ target: 'cordoned', reason: 'other' }));
    expect(again.json).toMatchObject({ changed: false, scheduling: { reason: 'disk', sequence: 1 } });
    await server.stop();
    await server.start();
    expect((await server.admin('nodes/node-1')).json.scheduling).toMatchObject({
      target: 'cordoned',
      reason: 'disk',
    });
    await server.admin('nodes/node-1/scheduling', put({ target: 'schedulable' }));
    const events = (await server.admin('events?kind=node&id=node-1')).json.items.map(
      (e: { type: string }) => e.type,
    );
    expect(events).toEqual(expect.arrayContaining(['NodeCordoned', 'NodeUncordoned']));
    expect((await server.admin('audit')).json.items[0]).toMatchObject({
      actor: 'local',
      action: 'uncordon',
      target: 'node-1',
      from: '127.0.0.1',
      outcome: 'ok',
    });
  });

  it('a drain shows its plan, refuses a gap without consent, and moves the replica when there is room', async () => {
    const server = await ready();
    const [replica] = (await server.admin('replicas')).json.items;
    const alone = await server.admin('nodes/node-1/scheduling?plan=true', put({ target: 'drained' }));
    expect(alone.json).toMatchObject({
      changed: false,
      gapExpected: true,
      moves: [{ replicaId: replica.id }],
    });
    expect(alone.json.moves[0]).not.toHaveProperty('target');
    const refused = await server.admin('nodes/node-1/scheduling', put({ target: 'drained' }));
    expect(refused.status).toBe(409);
    expect(refused.json.error).toMatchObject({ code: 'refused', field: 'allowGap' });
    expect((await server.admin('nodes/node-1')).json.scheduling.target).toBe('schedulable');

    await server.join('node-2');
    await waitFor(async () => (await server.admin('nodes/node-2')).json.state === 'connected');
    const plan = await server.admin('nodes/node-1/scheduling?plan=true', put({ target: 'drained' }));
    expect(plan.json).toMatchObject({
      changed: false,
      gapExpected: false,
      moves: [{ replicaId: replica.id, gapMs: 0, target: { shards: [{ nodeId: 'node-2' }] } }],
    });
    const drain = await server.admin('nodes/node-1/scheduling', put({ target: 'drained' }));
    expect(drain.json).toMatchObject({ changed: true, scheduling: { state: 'draining' } });
    await waitFor(async () => (await server.admin('replicas')).json.items.length === 2);
    const cancelled = await server.admin('nodes/node-1/scheduling', put({ target: 'schedulable' }));
    expect(cancelled.json.scheduling.state).toBe('schedulable');
    await waitFor(async () => {
      const { items } = (await server.admin('replicas')).json;
      return items.length === 1 && items[0].id === replica.id && items[0].state === 'ready';
    });
  });

  it('scale survives a restart and shows what the configuration says', async () => {
    const server = await ready();
    const scaled = await server.admin('models/m1/scale', put({ replicas: 0 }));
    expect(scaled.json).toMatchObject({ model: 'm1', changed: true, desired: 0 });
    await waitFor(async () => (await server.admin('replicas')).json.items.length === 0);
    await server.stop();
    await server.start();
    expect((await server.admin('models/m1')).json).toMatchObject({ desired: 0, declared: 1 });
    expect((await server.admin('models/m1/scale', put({ replicas: 0 }))).json.changed).toBe(false);
  });

  it('restart replaces the replica, the new one first', async () => {
    const server = await ready();
    const [old] = (await server.admin('replicas')).json.items;
    await server.join('node-2');
    expect((await server.admin('models/m1/restart', { method: 'POST', body: {} })).json.changed).toBe(true);
    await waitFor(async () => {
      const { items } = (await server.admin('replicas')).json;
      return items.some((one: { replaces?: string }) => one.replaces === old.id);
    });
    expect((await server.admin(`replicas/${old.id}`)).json.state).toBe('ready');
    const events = (await server.admin('events?kind=replica')).json.items;
    const messages = events.map((one: { reason: { message: string } }) => one.reason.message).join('\n');
    expect(messages).toContain('wants a new copy in its place');
    expect(messages).not.toContain('has changed since');
  });

  it('a node is removed only when it is gone', async () => {
    const server = await start();
    const agent = await server.join('node-1');
    expect((await server.admin('nodes/node-1', { method: 'DELETE' })).json.error.code).toBe('conflict');
    agent.leave();
    await waitFor(async () => (await server.admin('nodes/node-1', { method: 'DELETE' })).status === 200);
    expect((await server.admin('nodes')).json.items).toEqual([]);
  });

  it.each([
    ['nodes/node-1/scheduling', { target: 'gone' }, 'target', /schedulable, cordoned, drained/],
    ['nodes/node-1/scheduling', { target: 'drained', deadline: '30' }, 'deadline', /a duration with a unit/],
    [
      'nodes/node-1/scheduling',
      { target: 'drained', dedline: '30s' },
      'dedline',
      /there is no field dedline/,
    ],
    ['models/m1/scale', { replicas: 1.5 }, 'replicas', /whole number/],
    ['models/m1/scale', { replicas: '2' }, 'replicas', /whole number/],
    ['models/m1/scale', {}, 'replicas', /whole number/],
  ])('%s with %o names the wrong field', async (path, body, field, message) => {
    const server = await ready();
    const answer = await server.admin(path, put(body));
    expect(answer.status).toBe(400);
    expect(answer.json.error).toMatchObject({ code: 'invalid_argument', field });
    expect(answer.json.error.message).toMatch(message);
  });
});

describe('who may call', () => {
  it('a web page may not: foreign Host, foreign Origin, other content types', async () => {
    const server = await start();
    const rebound = await server.admin('status', { headers: { host: 'evil.example:8081' } });
    expect(rebound.json.error.code).toBe('forbidden');
    for (const host of ['localhost:8081', '127.0.0.1', '[::1]:8081']) {
      expect((await server.admin('status', { headers: { host } })).status).toBe(200);
    }
    const change = (headers: Record<string, string>, rawBody = '{"replicas":3}') =>
      server.admin('models/m1/scale', { method: 'PUT', rawBody, headers });
    expect((await change({ origin: 'http://evil.example' })).status).toBe(403);
    expect((await change({ 'sec-fetch-site': 'cross-site' })).status).toBe(403);
    expect((await change({ 'content-type': 'text/plain' })).status).toBe(415);
    expect((await change({ 'content-type': 'application/x-www-form-urlencoded' })).status).toBe(415);
    expect((await change({}, '{"__proto__":{"x":1},"replicas":3}')).status).toBe(400);
    expect((await change({}, '{"replicas":')).status).toBe(400);
    expect((await server.admin('models/m1')).json.desired).toBe(1);
  });

  it('a wrong path and a wrong method are told apart', async () => {
    const server = await start();
    expect((await server.admin('nothing')).json.error.code).toBe('not_found');
    const wrong = await server.admin('models/m1/scale');
    expect(wrong.status).toBe(405);
    expect(wrong.headers['allow']).toBe('PUT');
  });

  it('with tokens: each role only what is its own, and nobody without one', async () => {
    const token = (role: 'viewer' | 'operator' | 'admin') => ({
      name: role,
      role,
      hash: `sha256:${createHash('sha256').update(`secret-${role}`).digest('hex')}`,
    });
    const admin = Object.assign(new AdminAuthConfig(), {
      tokens: (['viewer', 'operator', 'admin'] as const).map(token),
    });
    const server = await start({ auth: Object.assign(new AuthConfig(), { admin }) });
    const as = (role: string) => ({ authorization: `Bearer secret-${role}` });
    for (const path of ['status', '/metrics', '/debug/eventloop', 'events']) {
      const refused = await server.admin(path);
      expect(refused.status).toBe(401);
      expect(refused.headers['www-authenticate']).toBe('Bearer');
      expect((await server.admin(path, { headers: as('nobody') })).status).toBe(401);
    }
    expect((await server.admin('/livez')).status).toBe(200);
    expect((await server.admin('/readyz')).status).toBe(200);
    expect((await server.admin('status', { headers: as('viewer') })).status).toBe(200);
    expect((await server.admin('/metrics', { headers: as('viewer') })).status).toBe(200);
    const scale = (role: string) =>
      server.admin('models/m1/scale', { method: 'PUT', body: { replicas: 2 }, headers: as(role) });
    expect((await scale('viewer')).json.error.code).toBe('forbidden');
    expect((await scale('operator')).status).toBe(200);
    expect((await server.admin('/debug/eventloop', { headers: as('operator') })).status).toBe(403);
    expect((await server.admin('/debug/eventloop', { headers: as('admin') })).status).toBe(200);
    expect((await server.admin('backup', { headers: as('operator') })).status).toBe(403);
    const audit = (await server.admin('audit', { headers: as('admin') })).json.items;
    expect(audit[0]).toMatchObject({ actor: 'operator', role: 'operator', action: 'scale' });
    expect(server.log.join('')).not.toContain('secret-');
  });
});

describe('learned facts', () => {
  it('come from what a replica really took, are shown, survive a restart, and place the next one', async () => {
    const GIB = 1024 ** 3;
    const gpu = (uuid: string, memoryUsedBytes: number) =>
      testGpu(uuid, { type: 'sim-80g', memoryUsedBytes });
    const models = [simModel('m1', { replicas: 1 }, { gpus: 1, gpuMemory: 10 * GIB })];
    const server = await start({ models });
    const agent = await server.join('node-1', { gpus: [gpu('GPU-a', 0)] });
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1);
    const [shardId = ''] = agent.shards.keys();
    agent.gpus = [gpu('GPU-a', 60 * GIB), gpu('GPU-b', 50 * GIB)];
    agent.setShard(shardId, { memoryPeakBytes: 60 * GIB });
    const learned = async () => (await server.admin('models/m1')).json.learned;
    const expected = [
      {
        model: 'm1',
        profile: 'p',
        gpuType: 'sim-80g',
        memoryPeakBytes: 60 * GIB,
        memoryPeakOf: expect.any(String) as string,
        loadMs: [10],
      },
    ];
    await waitFor(async () => JSON.stringify(await learned()).includes('memoryPeakBytes'));
    expect(await learned()).toEqual(expected);
    // The profile says 10 GiB and GPU-b has 30 left: a guess would place there, the measured 60 do not fit.
    await server.admin('models/m1/scale', put({ replicas: 2 }));
    const { explanation } = (await server.admin('placements/m1/explain')).json;
    expect(explanation.chosen).toBeUndefined();
    expect(JSON.stringify(explanation)).toContain(`"neededBytes":${60 * GIB}`);
    await server.stop();
    await server.start();
    expect(await learned()).toEqual(expected);
  });
});

describe('backup', () => {
  it('is the whole state with its digest, is written down, and leaves room for the next', async () => {
    const server = await ready();
    for (let round = 0; round < 2; round++) {
      const response = await fetch(`http://${server.server.addresses.admin}/admin/v1/backup`);
      expect(response.status).toBe(200);
      const bytes = Buffer.from(await response.arrayBuffer());
      expect(bytes.subarray(0, 15).toString()).toBe('SQLite format 3');
      const digest = createHash('sha256').update(bytes).digest('base64');
      expect(response.headers.get('content-digest')).toBe(`sha-256=:${digest}:`);
    }
    const [entry] = (await server.admin('audit')).json.items;
    expect(entry).toMatchObject({ actor: 'local', action: 'backup', outcome: 'ok' });
  });

  it('of a server that only routes is refused: it keeps nothing', async () => {
    const endpoint = Object.assign(new EndpointConfig(), {
      id: 'e1',
      url: 'http://127.0.0.1:9',
      models: ['m1'],
    });
    const server = await start({ models: [], endpoints: [endpoint] });
    expect((await server.admin('backup')).json.error).toMatchObject({ code: 'conflict' });
  });
});

describe('events', () => {
  it('are followed live, resumed after an id, and end with the server', async () => {
    const server = await start();
    const stream = await follow(server, {});
    await server.join('node-1');
    await waitFor(() => stream.text().includes('"NodeConnected"'));
    const ids = [...stream.text().matchAll(/^id: (\d+)$/gm)].map((match) => Number(match[1]));
    expect(ids).toEqual(ids.toSorted((a, b) => a - b));
    const resumed = await follow(server, { 'last-event-id': String(ids[0]) });
    await waitFor(() => resumed.text().includes(`id: ${(ids[0] ?? 0) + 1}\n`));
    expect(resumed.text()).not.toContain(`id: ${ids[0]}\n`);
    await server.stop();
    await waitFor(() => stream.ended() && resumed.ended());
  });

  it('survive a restart in order', async () => {
    const server = await ready();
    await server.admin('models/m1/scale', put({ replicas: 2 }));
    const before = (await server.admin('events')).json.items;
    await server.stop();
    await server.start();
    const after = (await server.admin('events')).json.items;
    expect(after.slice(0, before.length)).toEqual(before);
    expect(before.map((event: { type: string }) => event.type)).toEqual(
      expect.arrayContaining(['NodeConnected', 'ReplicaCreated', 'ReplicaReady', 'ModelScaled']),
    );
  });

  async function follow(server: ControlServer, headers: Record<string, string>) {
    let text = '';
    let ended = false;
    const [host = '', port = ''] = server.server.addresses.admin.split(':');
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request({ host, port, path: '/admin/v1/events?follow=true', headers }, resolve)
        .on('error', reject)
        .end();
    });
    expect(response.headers['content-type']).toContain('text/event-stream');
    response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    response.on('close', () => (ended = true));
    return { text: () => text, ended: () => ended };
  }
});

/** The first bytes of a long answer; the rest is not waited for. */
async function beginning(server: ControlServer, path: string): Promise<string> {
  const [host = '', port = ''] = server.server.addresses.admin.split(':');
  return new Promise((resolve, reject) => {
    const outgoing = request({ host, port, path }, (response) => {
      response.setEncoding('utf8').once('data', (text: string) => {
        resolve(text);
        response.destroy();
      });
    });
    outgoing.on('error', reject).end();
  });
}

describe('debug', () => {
  // The heap is the test runner's own, of some hundred MiB.
  it('gives a CPU profile, a heap snapshot and the delay of the loop', { timeout: 120_000 }, async () => {
    const server = await start();
    const profile = await server.admin('/debug/pprof/profile?seconds=1');
    expect(profile.json.nodes.length).toBeGreaterThan(1);
    expect(await beginning(server, '/debug/pprof/heap')).toContain('{"snapshot"');
    expect((await server.admin('/debug/eventloop')).json).toHaveProperty('p99');
  });

  it('takes one at a time, of a bounded length, and is free again when the reader leaves', async () => {
    const server = await start();
    const path = '/debug/pprof/profile?seconds=60';
    const port = Number(server.server.addresses.admin.split(':').at(-1));
    const leaving = request({ port, path });
    const arrived = once(server.server.app.getHttpServer(), 'request');
    leaving.on('error', () => undefined).end();
    await arrived;
    const next = async () => server.admin('/debug/pprof/profile?seconds=1');
    expect((await next()).status).toBe(409);
    expect((await server.admin('/debug/pprof/heap')).status).toBe(409);
    leaving.destroy();
    await waitFor(async () => (await next()).status === 200, { deadlineMs: 15_000 });
    for (const seconds of ['0', '121', '1.5', 'x']) {
      const refused = await server.admin(`/debug/pprof/profile?seconds=${seconds}`);
      expect([refused.status, refused.json.error.field]).toEqual([400, 'seconds']);
    }
  });
});
