import { createHash } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import { AdminAuthConfig, AuthConfig } from '../config/auth-config.js';
import { EndpointConfig, type ServerConfig } from '../config/server-config.js';

const servers: ControlServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) {
    const log = server.log.join('');
    await server.dispose();
    expect(log).not.toMatch(/sk-llmgw-[\w-]{43}|llmgw-(admin|join)-[\w-]{43}/);
  }
});

async function start(change: Partial<ServerConfig> = {}): Promise<ControlServer> {
  const server = await ControlServer.start({ models: [simModel('m1', { aliases: ['default'] })], ...change });
  servers.push(server);
  return server;
}

const post = (body: unknown, token?: string) => ({ method: 'POST', body, headers: bearer(token) });
const bearer = (token: string | undefined): Record<string, string> =>
  token === undefined ? {} : { authorization: `Bearer ${token}` };

describe('keys', () => {
  it('are made with what was asked, shown without their secret, and revoked once', async () => {
    const server = await start();
    const limits = { requestsPerMinute: 60, tokensPerMinute: 1_000, maxConcurrent: 2, priority: 0 };
    const made = await server.admin(
      'keys',
      post({ name: 'ci', models: ['default', 'm*', 'x'], expires: '1h', ...limits }),
    );
    expect(made.status).toBe(201);
    expect(made.headers['cache-control']).toBe('no-store');
    const { secret, notes, ...view } = made.json;
    expect(secret).toMatch(/^sk-llmgw-[\w-]{43}$/);
    expect(notes).toEqual(['no model is named x now']);
    expect(view).toMatchObject({
      ...limits,
      name: 'ci',
      state: 'active',
      createdBy: 'local',
      use: { inflight: 0 },
    });
    const listed = await server.admin('keys');
    expect(listed.json).toEqual({ items: [view] });
    const hash = createHash('sha256').update(secret).digest('hex');
    expect(made.text + listed.text).not.toContain(hash);

    const revoked = await server.admin(`keys/${view.id.slice(0, 8)}`, { method: 'DELETE' });
    expect(revoked.json).toMatchObject({ id: view.id, state: 'revoked', revokedBy: 'local' });
    expect(revoked.json).not.toHaveProperty('use');
    const again = await server.admin(`keys/${view.id}`, { method: 'DELETE' });
    expect(again.json).toEqual(revoked.json);
    expect((await server.admin('keys/key-none', { method: 'DELETE' })).status).toBe(404);

    const audit = (await server.admin('audit')).json.items;
    expect(audit.map(({ action }: { action: string }) => action)).toEqual(['revoke key', 'create key']);
    expect(audit[1].detail).toMatch(
      /^ci: models=default,m\*,x rpm=60 tpm=1000 concurrent=2 priority=0 expires=2/,
    );
    const events = (await server.admin(`events?kind=key&id=${view.id}`)).json.items;
    expect(events.map(({ type }: { type: string }) => type)).toEqual(['KeyCreated', 'KeyRevoked']);
  });

  it.each([
    [{}, 'name', /expected a name/],
    [{ name: '' }, 'name', /not empty/],
    [{ name: 'a\nb' }, 'name', /control characters/],
    [{ name: 'x'.repeat(101) }, 'name', /at most 100/],
    [{ name: 'x', models: 'm1' }, 'models', /a list of model names/],
    [{ name: 'x', models: ['a b'] }, 'models', /names of models/],
    [{ name: 'x', models: [7] }, 'models', /names of models/],
    [{ name: 'x', requestsPerMinute: 0 }, 'requestsPerMinute', /a whole number from 1/],
    [{ name: 'x', tokensPerMinute: 1.5 }, 'tokensPerMinute', /a whole number from 1/],
    [{ name: 'x', maxConcurrent: '3' }, 'maxConcurrent', /a whole number from 1/],
    [{ name: 'x', priority: 1_001 }, 'priority', /1000/],
    [{ name: 'x', expires: 'soon' }, 'expires', /expected a duration such as/],
    [{ name: 'x', expires: '2020-01-01' }, 'expires', /in the past/],
    [{ name: 'x', rpm: 5 }, 'rpm', /there is no field rpm/],
  ])('%j names the wrong field', async (body, field, message) => {
    const server = await start();
    const answer = await server.admin('keys', post(body));
    expect([answer.status, answer.json.error]).toMatchObject([400, { code: 'invalid_argument', field }]);
    expect(answer.json.error.message).toMatch(message);
    expect((await server.admin('keys')).json.items).toEqual([]);
  });

  it('show their last use when they are revoked, also after a restart', async () => {
    const server = await start();
    const [used, idle] = await Promise.all(
      ['used', 'idle'].map(async (name) => (await server.admin('keys', post({ name }))).json),
    );
    const url = `http://${server.server.addresses.client}/v1/models`;
    expect((await fetch(url, { headers: bearer(used.secret) })).status).toBe(200);
    const { lastUsedAt } = (await server.admin('keys')).json.items.find(
      ({ id }: { id: string }) => id === used.id,
    ).use;
    expect(lastUsedAt).toMatch(/^\d{4}-/);
    const revoke = async (id: string) => (await server.admin(`keys/${id}`, { method: 'DELETE' })).json;
    expect(await revoke(used.id)).toMatchObject({ lastUsedAt });
    expect(await revoke(idle.id)).not.toHaveProperty('lastUsedAt');
    await server.stop();
    await server.start();
    const all = (await server.admin('keys')).json.items;
    expect(all.map(({ name, lastUsedAt: at }: { name: string; lastUsedAt?: string }) => [name, at])).toEqual(
      expect.arrayContaining([
        ['used', lastUsedAt],
        ['idle', undefined],
      ]),
    );
  });

  it('made on a server that only routes are there after its restart', async () => {
    const models = ['m1'];
    const endpoint = Object.assign(new EndpointConfig(), { id: 'e1', url: 'http://127.0.0.1:9', models });
    const server = await start({ models: [], endpoints: [endpoint] });
    const { id, secret } = (await server.admin('keys', post({ name: 'a', models: ['none'] }))).json;
    await server.stop();
    await server.start();
    expect((await server.admin('keys')).json.items).toMatchObject([{ id, name: 'a' }]);
    const list = await fetch(`http://${server.server.addresses.client}/v1/models?all=true`, {
      headers: bearer(secret),
    });
    expect(await list.json()).toEqual({ object: 'list', data: [] });
  });
});

describe('tokens', () => {
  it('the first one must be an admin’s, and closes the door at once; each role may what is its own', async () => {
    const server = await start();
    const early = await server.admin('tokens', post({ name: 'v' }));
    expect([early.status, early.json.error.field]).toEqual([409, 'role']);
    const first = (await server.admin('tokens', post({ name: 'root', role: 'admin', expires: '1h' }))).json;
    expect(first.secret).toMatch(/^llmgw-admin-[\w-]{43}$/);
    expect(first.hash).toBe(`sha256:${createHash('sha256').update(first.secret).digest('hex')}`);
    expect(first.notes.join()).toMatch(/needs a token.*make another one before/);
    expect((await server.admin('status')).status).toBe(401);
    const viewer = (await server.admin('tokens', post({ name: 'v' }, first.secret))).json;
    expect(viewer).toMatchObject({
      role: 'viewer',
      kind: 'admin',
      createdBy: 'root',
      source: 'store',
      notes: [],
    });
    expect((await server.admin('status', { headers: bearer(viewer.secret) })).status).toBe(200);
    for (const path of ['keys', 'tokens']) {
      expect((await server.admin(path, { headers: bearer(viewer.secret) })).status).toBe(403);
      expect((await server.admin(path, post({ name: 'x', role: 'admin' }, viewer.secret))).status).toBe(403);
    }
    const join = (await server.admin('tokens', post({ name: 'j', kind: 'join' }, first.secret))).json;
    expect(join).not.toHaveProperty('role');
    expect((await server.admin('status', { headers: bearer(join.secret) })).status).toBe(401);
    const wrong = await server.admin(
      'tokens',
      post({ name: 'j', kind: 'join', role: 'viewer' }, first.secret),
    );
    expect(wrong.json.error).toMatchObject({ code: 'invalid_argument', field: 'role' });
    await server.stop();
    await server.start();
    expect((await server.admin('status')).status).toBe(401);
    expect((await server.admin('status', { headers: bearer(viewer.secret) })).status).toBe(200);
  });

  it('nobody locks everybody out, and revoking the last one opens the door and says so', async () => {
    const server = await start();
    const root = (await server.admin('tokens', post({ name: 'root', role: 'admin' }))).json;
    const viewer = (await server.admin('tokens', post({ name: 'v' }, root.secret))).json;
    const revoke = (id: string) =>
      server.admin(`tokens/${id}`, { method: 'DELETE', headers: bearer(root.secret) });
    expect((await revoke(root.id)).json.error).toMatchObject({ code: 'refused' });
    expect((await revoke(viewer.id)).json).toMatchObject({ state: 'revoked', revokedBy: 'root', notes: [] });
    expect((await server.admin('status', { headers: bearer(viewer.secret) })).status).toBe(401);
    expect((await revoke(root.id)).json.notes).toEqual([expect.stringContaining('without a token again')]);
    // The one who brings it hears of it, though anybody gets in without.
    expect((await server.admin('status', { headers: bearer(root.secret) })).status).toBe(401);
    expect((await server.admin('status')).status).toBe(200);
  });

  it('of the configuration are shown, count, and are changed there', async () => {
    const hash = `sha256:${createHash('sha256').update('secret-ops').digest('hex')}`;
    const admin = Object.assign(new AdminAuthConfig(), { tokens: [{ name: 'ops', role: 'admin', hash }] });
    const server = await start({ auth: Object.assign(new AuthConfig(), { admin }) });
    const viewer = (await server.admin('tokens', post({ name: 'v' }, 'secret-ops'))).json;
    const { items } = (await server.admin('tokens', { headers: bearer('secret-ops') })).json;
    expect(items).toMatchObject([
      { id: 'config:ops', role: 'admin', source: 'configuration' },
      { id: viewer.id, source: 'store' },
    ]);
    const refused = await server.admin('tokens/config:ops', {
      method: 'DELETE',
      headers: bearer('secret-ops'),
    });
    expect(refused.json.error).toMatchObject({ code: 'refused' });
  });
});
