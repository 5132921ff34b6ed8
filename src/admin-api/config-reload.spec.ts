import { afterEach, describe, expect, it } from 'vitest';
import { AdminTokenConfig } from '../config/auth-config.js';
import { EndpointConfig, LogConfig } from '../config/server-config.js';
import { ConfigError } from '../shared/errors.js';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import { testGpu } from '../../test/support/fake-agent.js';
import { waitFor } from '../../test/support/wait-for.js';

const servers: ControlServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.dispose();
});

async function started(...[change, control]: Parameters<typeof ControlServer.start>): Promise<ControlServer> {
  const server = await ControlServer.start(change, control);
  servers.push(server);
  return server;
}

const reload = (server: ControlServer) => server.admin('config/reload', { method: 'POST', body: {} });
const metric = async (server: ControlServer): Promise<string | undefined> =>
  /^llmgw_config_last_reload_successful (\d)$/m.exec((await server.admin('/metrics')).text)?.[1];
const eventTypes = async (server: ControlServer): Promise<readonly string[]> =>
  (await server.admin('events')).json.items.map((event: { type: string }) => event.type);

describe('reloading', () => {
  it('of a configuration that means the same changes nothing and says so', async () => {
    const server = await started({ models: [simModel('m1')] });
    const answer = await reload(server);
    expect(answer.json).toMatchObject({ changed: false, models: [], settings: [], needsRestart: [] });
    expect(await eventTypes(server)).not.toContain('ConfigReloaded');
  });

  it('adds, changes and removes models, told with their fields', async () => {
    const server = await started({ models: [simModel('m1'), simModel('m2')] });
    server.edited = { models: [simModel('m1', {}, { args: ['--slots', '2'] }), simModel('m3')] };
    const answer = await reload(server);
    expect(answer.status).toBe(200);
    expect(answer.json.models).toMatchObject([
      {
        model: 'm1',
        kind: 'changed',
        rolls: ['p'],
        changes: [{ path: 'profiles[p].args', after: '["--slots","2"]' }],
      },
      { model: 'm2', kind: 'removed' },
      { model: 'm3', kind: 'added' },
    ]);
    const models = await server.admin('models');
    expect(models.json.items.map((model: { name: string }) => model.name)).toEqual(['m1', 'm3']);
    expect((await server.admin('config')).json.config.models).toHaveLength(2);
    expect(await eventTypes(server)).toContain('ConfigReloaded');
    const audit = await server.admin('audit');
    expect(audit.json.items[0]).toMatchObject({ action: 'reload', actor: 'local', outcome: 'ok' });
  });

  it('of something invalid changes nothing, and log, event, metric and status say why until it is mended', async () => {
    const server = await started({ models: [simModel('m1')] });
    const problems = [
      {
        source: 'llmgw.yaml',
        line: 3,
        column: 5,
        path: 'models[0].replicas',
        message: 'expected an integer',
      },
      {
        source: 'llmgw.yaml',
        line: 7,
        column: 1,
        path: 'modles',
        message: 'is not known; did you mean models?',
      },
    ];
    server.edited = new ConfigError(problems);
    const answer = await reload(server);
    expect(answer.status).toBe(400);
    expect(answer.json.error).toMatchObject({ code: 'invalid_configuration', problems });
    expect(await metric(server)).toBe('0');
    const status = (await server.admin('status')).json;
    expect(status.config).toMatchObject({ problems });
    expect(status.config.lastError).toContain('llmgw.yaml:3:5: models[0].replicas: expected an integer');
    expect(status.warnings.map((one: { code: string }) => one.code)).toContain('config_refused');
    expect(await eventTypes(server)).toContain('ConfigRefused');
    expect(server.log.join('')).toContain('llmgw.yaml:7:1');
    expect((await server.admin('models')).json.items).toHaveLength(1);

    server.edited = {};
    expect((await reload(server)).json.changed).toBe(false);
    expect(await metric(server)).toBe('1');
    expect((await server.admin('status')).json.config.lastError).toBeUndefined();
  });

  it('says of what is in force already when it was taken over, by whom, and what it changed', async () => {
    const server = await started({ models: [simModel('m1')] });
    expect((await reload(server)).json.notes).toEqual([]);
    server.edited = { models: [simModel('m1'), simModel('m2', { replicas: 0 })] };
    expect((await reload(server)).json.notes.join()).not.toContain('taken over');
    const again = (await reload(server)).json;
    expect(again).toMatchObject({ changed: false });
    expect(again.notes).toEqual([
      expect.stringMatching(/^the one in force was taken over \d+ s ago, by .+: models: m2 added$/),
    ]);
  });

  it('names what needs a restart and takes the rest over', async () => {
    const server = await started({ models: [simModel('m1')] });
    server.edited = {
      listen: '127.0.0.1:9999',
      stateDir: '/elsewhere',
      log: Object.assign(new LogConfig(), { level: 'error' }),
    };
    const answer = await reload(server);
    expect(answer.json.needsRestart).toEqual(['listen', 'stateDir']);
    expect(answer.json.notes).toContain('needs a restart: listen, stateDir');
    const { config } = (await server.admin('config')).json;
    expect(config).toMatchObject({
      listen: '127.0.0.1:0',
      stateDir: server.config.stateDir,
      log: { level: 'error' },
    });
    const status = (await server.admin('status')).json;
    expect(status.warnings.map((one: { code: string }) => one.code)).toContain('config_needs_restart');
    const lines = server.log.length;
    server.edited = { ...server.edited, shutdownGrace: 2_000 };
    await reload(server);
    expect(server.log.slice(lines).filter((line) => line.includes('"level":"info"'))).toEqual([]);
  });

  it('takes over static endpoints, routing profiles and admin tokens', async () => {
    const server = await started({ models: [simModel('m1')] });
    const endpoint = Object.assign(new EndpointConfig(), {
      id: 'e1',
      url: 'http://127.0.0.1:9',
      models: ['x1'],
    });
    const token = Object.assign(new AdminTokenConfig(), {
      name: 'ann',
      hash: `sha256:${'0'.repeat(64)}`,
      role: 'admin',
    });
    server.edited = { endpoints: [endpoint] };
    expect((await reload(server)).json.settings).toMatchObject([{ path: 'endpoints[e1]' }]);
    expect((await server.admin('endpoints')).json.items).toMatchObject([{ id: 'e1', models: ['x1'] }]);
    const { auth } = server.config;
    const copy = <T extends object>(of: T, change: Partial<T>): T =>
      Object.assign(Object.create(Object.getPrototypeOf(of) as object) as T, of, change);
    server.edited = { auth: copy(auth, { admin: copy(auth.admin, { tokens: [token] }) }) };
    expect((await reload(server)).text).not.toContain('sha256');
    expect((await server.admin('nodes')).status).toBe(401);
  });

  it('lets a count set by an operator stand until the file says another', async () => {
    const server = await started({ models: [simModel('m1', { replicas: 2 })] });
    await server.admin('models/m1/scale', { method: 'PUT', body: { replicas: 0 } });
    const desired = async () => (await server.admin('models/m1')).json.desired;
    server.edited = { models: [simModel('m1', { replicas: 2, priority: 7 })] };
    await reload(server);
    expect(await desired()).toBe(0);
    server.edited = { models: [simModel('m1', { replicas: 3 })] };
    await reload(server);
    expect(await desired()).toBe(3);
    expect(await eventTypes(server)).toContain('ScaleOverruled');
    // Said once, it is over: the number of before does not come back with the file's.
    server.edited = { models: [simModel('m1', { replicas: 2 })] };
    await reload(server);
    expect(await desired()).toBe(2);
  });

  it('changes nothing when the change cannot be stored', async () => {
    const server = await started({ models: [simModel('m1')] });
    server.edited = { models: [simModel('m2')] };
    const { STATE_STORE } = await import('../store/ports.js');
    const store = server.server.app.get<{ close(): void }>(STATE_STORE, { strict: false });
    store.close();
    expect((await reload(server)).status).toBe(503);
    expect((await server.admin('config')).json.config.models[0].name).toBe('m1');
  });

  it('puts a removed model and its replicas out of the router, and back when it is back', async () => {
    const server = await started({ models: [simModel('m1'), simModel('m2')] });
    await server.join('n1');
    const names = async () =>
      (await server.admin('models')).json.items.map((model: { name: string }) => model.name);
    server.edited = { models: [simModel('m2')] };
    await reload(server);
    expect(await names()).toEqual(['m2']);
    server.edited = {};
    await reload(server);
    await waitFor(async () => (await names()).length === 2, { what: 'both models' });
  });
});

describe('a plan', () => {
  const yaml = (server: ControlServer, models: string): string => `
listen: 127.0.0.1:0
adminListen: 127.0.0.1:0
agentListen: 127.0.0.1:0
stateDir: ${server.config.stateDir}
shutdownGrace: 1s
control: { interval: 100ms, settleAfterStart: 0s }
models:${models}`;
  const m1 = (args: string): string => `
  - name: m1
    profiles:
      - { name: p, engine: sim, args: ${args} }`;
  const plan = (server: ControlServer, text: string) =>
    server.admin('config/plan', { method: 'POST', body: { text, name: '/etc/new.yaml' } });

  it('of what is in force, however it is written, is empty', async () => {
    const server = await started({ models: [simModel('m1')] });
    const answer = await plan(server, `# the same\n${yaml(server, m1('[]'))}`);
    expect(answer.json).toMatchObject({
      changed: false,
      models: [],
      settings: [],
      steps: [],
      needsRestart: [],
    });
  });

  it('has the steps in order, and does none of them', async () => {
    const server = await started({ models: [simModel('m1')] });
    await server.join('n1', { gpus: [] });
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1, { what: 'm1 Ready' });
    const answer = await plan(server, yaml(server, m1('["--slots", "2"]')));
    expect(answer.status).toBe(200);
    expect(answer.json).toMatchObject({
      changed: true,
      models: [{ model: 'm1', rolls: ['p'] }],
      steps: [
        { kind: 'starts', replica: 'm1 (new 1)', nodes: ['n1'], atMs: 0 },
        { kind: 'serves', replica: 'm1 (new 1)' },
        { kind: 'leaves', inflight: 0 },
        { kind: 'stopped' },
      ],
      service: [{ model: 'm1', now: 1, fewest: 1, gapMs: 0 }],
      unmeasured: [],
    });
    expect((await server.admin('replicas')).json.items).toHaveLength(1);
    expect((await server.admin('status')).json.config.lastReloadAt).toBeUndefined();
  });

  it('of what is not valid names everything under the name given, and spoils no status', async () => {
    const server = await started({ models: [simModel('m1')] });
    const answer = await plan(server, 'modles: []\nlisten: 8080\n');
    expect(answer.status).toBe(400);
    const { problems } = answer.json.error;
    expect(problems).toMatchObject([
      { source: '/etc/new.yaml', line: 1, path: 'modles' },
      { source: '/etc/new.yaml', line: 2, path: 'listen' },
    ]);
    expect(await metric(server)).toBe('1');
  });
});

describe('restarting', () => {
  it('of one replica is stored, told, and the same when asked again', async () => {
    const server = await started({ models: [simModel('m1')] });
    await server.join('n1', { gpus: [] });
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1, { what: 'm1 Ready' });
    const [{ id }] = (await server.admin('replicas')).json.items;
    const ask = () => server.admin(`replicas/${id}/restart`, { method: 'POST', body: {} });
    expect((await ask()).json).toMatchObject({ changed: true, replica: id, model: 'm1' });
    expect((await ask()).json).toMatchObject({ changed: false });
    expect(await eventTypes(server)).toContain('ReplicaRestarted');
    await waitFor(async () => (await server.admin('replicas')).json.items.length === 2, {
      what: 'the new copy',
    });
    const again = (await server.admin('models/m1/restart', { method: 'POST', body: {} })).json;
    expect(again.changed).toBe(true);
    expect((await server.admin('models/m1/restart', { method: 'POST', body: {} })).json.changed).toBe(false);
  });

  it('that stands still for want of room can be given leave for a gap; it is the same restart', async () => {
    const server = await started({ models: [simModel('m1', {}, { gpus: 1 })] });
    await server.join('n1', { gpus: [testGpu('g1')] });
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1, { what: 'm1 Ready' });
    const [{ id }] = (await server.admin('replicas')).json.items;
    const ask = async (path: string, body: object) =>
      (await server.admin(`${path}/restart`, { method: 'POST', body })).json;
    expect((await ask('models/m1', {})).changed).toBe(true);
    const why = async () => (await server.admin('models/m1')).json.notDone[0]?.reason.code === 'no_surge';
    await waitFor(why, { what: 'the word that there is no room' });
    expect(await ask('models/m1', { allowGap: true })).toMatchObject({
      changed: true,
      notes: [expect.stringContaining('leave for a gap'), expect.anything()],
    });
    expect((await ask('models/m1', { allowGap: true })).changed).toBe(false);
    await waitFor(
      async () => {
        const { items } = (await server.admin('replicas')).json;
        return items.length === 1 && items[0].published && items[0].id !== id;
      },
      { what: 'the new copy in its place', deadlineMs: 15_000 },
    );
    const [audited] = (await server.admin('audit')).json.items;
    expect(audited).toMatchObject({ action: 'restart', target: 'm1', detail: 'with leave for a gap' });
  });
});
