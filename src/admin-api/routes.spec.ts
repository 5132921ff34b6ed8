import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ControlServer, simModel, type AdminAnswer } from '../../test/support/control-server.js';
import { AdminAuthConfig, AuthConfig } from '../config/auth-config.js';
import { declaredRoutes, type DeclaredRoute } from './openapi.js';
import { OpenApiController } from './openapi.controller.js';
import { ROLES, allows, type Role } from './roles.js';

/** Every route, with what it takes at least. What is not here is not there, and the other way round. */
const ROUTES: Readonly<Record<string, Role | 'open'>> = {
  'GET /livez': 'open',
  'GET /readyz': 'open',
  'GET /healthz': 'open',
  'GET /metrics': 'viewer',
  'GET /debug/eventloop': 'admin',
  'GET /debug/pprof/profile': 'admin',
  'GET /debug/pprof/heap': 'admin',
  'GET /admin/v1/openapi.json': 'viewer',
  'GET /admin/v1/status': 'viewer',
  'GET /admin/v1/nodes': 'viewer',
  'GET /admin/v1/nodes/{id}': 'viewer',
  'DELETE /admin/v1/nodes/{id}': 'admin',
  'PUT /admin/v1/nodes/{id}/scheduling': 'operator',
  'GET /admin/v1/gpus': 'viewer',
  'GET /admin/v1/models': 'viewer',
  'GET /admin/v1/models/{name}': 'viewer',
  'PUT /admin/v1/models/{name}/scale': 'operator',
  'POST /admin/v1/models/{name}/restart': 'operator',
  'GET /admin/v1/replicas': 'viewer',
  'GET /admin/v1/replicas/{id}': 'viewer',
  'POST /admin/v1/replicas/{id}/restart': 'operator',
  'GET /admin/v1/endpoints': 'viewer',
  'GET /admin/v1/events': 'viewer',
  'GET /admin/v1/placements/{model}/explain': 'viewer',
  'GET /admin/v1/requests/{id}/explain': 'viewer',
  'GET /admin/v1/shards/{id}/logs': 'viewer',
  'GET /admin/v1/config': 'viewer',
  'POST /admin/v1/config/reload': 'operator',
  'POST /admin/v1/config/plan': 'operator',
  'GET /admin/v1/audit': 'admin',
  'GET /admin/v1/keys': 'admin',
  'POST /admin/v1/keys': 'admin',
  'DELETE /admin/v1/keys/{id}': 'admin',
  'GET /admin/v1/tokens': 'admin',
  'POST /admin/v1/tokens': 'admin',
  'DELETE /admin/v1/tokens/{id}': 'admin',
  'GET /admin/v1/backup': 'admin',
};

/** Changes that are carried out here, with a body that is accepted and what the record says of it. */
const CHANGES: readonly [route: string, path: string, body: object, action: string, target: string][] = [
  ['PUT /admin/v1/nodes/{id}/scheduling', 'nodes/n1/scheduling', { target: 'cordoned' }, 'cordon', 'n1'],
  ['PUT /admin/v1/models/{name}/scale', 'models/m1/scale', { replicas: 2 }, 'scale', 'm1'],
  ['POST /admin/v1/models/{name}/restart', 'models/m1/restart', {}, 'restart', 'm1'],
  ['POST /admin/v1/config/reload', 'config/reload', {}, 'reload', ''],
  ['POST /admin/v1/keys', 'keys', { name: 'k' }, 'create key', 'key-'],
  ['POST /admin/v1/tokens', 'tokens', { name: 't', role: 'viewer' }, 'create token', 't'],
];

let server: ControlServer;
let routes: readonly DeclaredRoute[];

const as = (role: string) => ({ authorization: `Bearer secret-${role}` });
const keyOf = ({ method, path }: DeclaredRoute): string => `${method} ${path}`;
/** Node announces no length for the body of a DELETE by itself. */
const bodyFor = (method: string, headers: Record<string, string>) =>
  method === 'GET' ? { headers } : { body: {}, headers: { 'content-length': '2', ...headers } };

/** With ids that nothing has: whoever gets past the door finds nothing there. */
const call = (key: string, headers: Record<string, string>): Promise<AdminAnswer> => {
  const [method = '', path = ''] = key.split(' ');
  const url = path.replaceAll(/\{\w+\}/g, 'no-such-thing');
  return server.admin(url, { method, ...bodyFor(method, headers) });
};

beforeAll(async () => {
  const admin = Object.assign(new AdminAuthConfig(), {
    tokens: ROLES.map((role) => ({
      name: role,
      role,
      hash: `sha256:${createHash('sha256').update(`secret-${role}`).digest('hex')}`,
    })),
  });
  server = await ControlServer.start({
    models: [simModel('m1')],
    auth: Object.assign(new AuthConfig(), { admin }),
  });
  await server.join('n1');
  const controller = server.server.app.get(OpenApiController, { strict: false });
  routes = declaredRoutes((controller as unknown as { controllers(): [] }).controllers());
});
afterAll(() => server.dispose());

describe('every route', () => {
  it('is known here with its role, and no other is there', () => {
    const declared = routes.filter(({ handler }) => handler !== 'AgentGatewayController.connect');
    expect(Object.fromEntries(declared.map((route) => [keyOf(route), route.role]))).toEqual(ROUTES);
  });

  it('of the API is in its document, and nothing else is', async () => {
    const { paths } = (await server.admin('openapi.json', { headers: as('viewer') })).json as {
      paths: Record<string, Record<string, unknown>>;
    };
    const documented = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(documented.filter((key) => ROUTES[key] === undefined)).toEqual([]);
    expect(Object.keys(ROUTES).filter((key) => key.includes('/admin/') && !documented.includes(key))).toEqual(
      [],
    );
  });

  it.each(Object.entries(ROUTES))('%s lets in whoever is %s, and nobody else', async (key, needs) => {
    const without = await call(key, {});
    if (needs === 'open') {
      expect([200, 503]).toContain(without.status);
      return;
    }
    expect(without.status).toBe(401);
    expect((await call(key, { authorization: 'Bearer lgw_wrong' })).status).toBe(401);
    for (const role of ROLES) {
      // What takes seconds or changes everything is not carried out by everybody who may.
      if (allows(role, needs)) continue;
      expect((await call(key, as(role))).status, role).toBe(403);
    }
    if (/pprof|backup|events|reload/.test(key)) return;
    const { status } = await call(key, as(needs));
    expect([200, 400, 404]).toContain(status);
  });

  it.each(Object.keys(ROUTES).filter((key) => !key.startsWith('GET')))(
    '%s takes no change from another site or in another type',
    async (key) => {
      const token = as('admin');
      expect((await call(key, { ...token, origin: 'http://evil.example' })).status).toBe(403);
      expect((await call(key, { ...token, 'sec-fetch-site': 'cross-site' })).status).toBe(403);
      expect((await call(key, { ...token, 'content-type': 'text/plain' })).status).toBe(415);
    },
  );

  it.each(Object.keys(ROUTES))('%s says what else its path takes', async (key) => {
    const [, path = ''] = key.split(' ');
    const methods = Object.keys(ROUTES)
      .filter((one) => one.endsWith(` ${path}`))
      .map((one) => one.split(' ')[0]!);
    const wrong = await call(`PATCH ${path}`, as('admin'));
    expect(wrong.status).toBe(405);
    expect(wrong.headers['allow']).toBe(methods.toSorted().join(', '));
  });
});

describe('without tokens', () => {
  it('a name of somebody else’s leads nowhere, on no route', async () => {
    const open = await ControlServer.start({ models: [simModel('m1')] });
    try {
      for (const key of Object.keys(ROUTES)) {
        const [method = '', path = ''] = key.split(' ');
        const url = path.replaceAll(/\{\w+\}/g, 'x');
        const headers = { host: 'evil.example:8081' };
        expect((await open.admin(url, { method, ...bodyFor(method, headers) })).status, key).toBe(403);
      }
    } finally {
      await open.dispose();
    }
  });
});

describe('every change', () => {
  const records = async (): Promise<{ actor: string; action: string; target: string; outcome: string }[]> =>
    (await server.admin('audit', { headers: as('admin') })).json.items;

  it.each(CHANGES)('%s is written down, with who did it', async (route, path, body, action, target) => {
    // A reload that finds nothing new changes nothing.
    server.edited = { models: [simModel('m1'), simModel('m2')] };
    const before = (await records()).length;
    const answer = await server.admin(path, { method: route.split(' ')[0]!, body, headers: as('admin') });
    expect(answer.status, answer.text).toBeLessThan(300);
    const after = await records();
    expect(after.length).toBeGreaterThan(before);
    expect(after[0]).toMatchObject({ actor: 'admin', role: 'admin', outcome: 'ok' });
    expect(after[0]?.action).toContain(action);
    expect(after[0]?.target).toContain(target);
  });

  it('that takes something away is written down too', async () => {
    for (const kind of ['keys', 'tokens'] as const) {
      const list = (await server.admin(kind, { headers: as('admin') })).json.items as {
        id: string;
        source?: string;
        state: string;
      }[];
      const own = list.find(({ source }) => source !== 'configuration')!;
      const before = (await records()).length;
      const gone = await server.admin(`${kind}/${own.id}`, {
        method: 'DELETE',
        ...bodyFor('DELETE', as('admin')),
      });
      expect(gone.status, gone.text).toBe(200);
      expect((await records()).length).toBe(before + 1);
    }
    const [replica] = (await server.admin('replicas', { headers: as('admin') })).json.items as {
      id: string;
    }[];
    const before = (await records()).length;
    await server.admin(`replicas/${replica!.id}/restart`, {
      method: 'POST',
      body: {},
      headers: as('operator'),
    });
    expect((await records())[0]).toMatchObject({
      actor: 'operator',
      action: expect.stringContaining('restart') as string,
    });
    expect((await records()).length).toBe(before + 1);
  });

  it('that only asks is not', async () => {
    const before = (await records()).length;
    const headers = as('operator');
    await server.admin('nodes/n1/scheduling?plan=true', {
      method: 'PUT',
      body: { target: 'drained' },
      headers,
    });
    await server.admin('config/plan', { method: 'POST', body: { text: 'models: []' }, headers });
    expect((await records()).length).toBe(before);
  });
});
