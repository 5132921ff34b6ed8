import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ControlServer, simModel, type AdminAnswer } from '../../test/support/control-server.js';
import { waitFor } from '../../test/support/wait-for.js';
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
  'GET /admin/v1/traffic': 'viewer',
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

interface Change {
  /** Makes what is to be changed, and gives its place below `/admin/v1/`. */
  readonly at: string | (() => Promise<string>);
  readonly body: object;
  /** What the record says of it. */
  readonly action: string;
  readonly target: string;
}

/** Every route that changes something, carried out here. */
const CHANGES: Readonly<Record<string, Change>> = {
  'PUT /admin/v1/nodes/{id}/scheduling': {
    at: 'nodes/n1/scheduling',
    body: { target: 'cordoned' },
    action: 'cordon',
    target: 'n1',
  },
  'DELETE /admin/v1/nodes/{id}': { at: goneNode, body: {}, action: 'remove-node', target: 'n-gone' },
  'PUT /admin/v1/models/{name}/scale': {
    at: 'models/m1/scale',
    body: { replicas: 2 },
    action: 'scale',
    target: 'm1',
  },
  'POST /admin/v1/models/{name}/restart': {
    at: 'models/m1/restart',
    body: {},
    action: 'restart',
    target: 'm1',
  },
  'POST /admin/v1/replicas/{id}/restart': {
    at: async () => `replicas/${(await idsOf('replicas'))[0]}/restart`,
    body: {},
    action: 'restart',
    target: 'm1-',
  },
  'POST /admin/v1/config/reload': { at: 'config/reload', body: {}, action: 'reload', target: '' },
  'POST /admin/v1/keys': { at: 'keys', body: { name: 'k' }, action: 'create key', target: 'key-' },
  'DELETE /admin/v1/keys/{id}': {
    at: async () => `keys/${(await idsOf('keys'))[0]}`,
    body: {},
    action: 'revoke key',
    target: 'key-',
  },
  'POST /admin/v1/tokens': {
    at: 'tokens',
    body: { name: 't', role: 'viewer' },
    action: 'create token',
    target: 't',
  },
  'DELETE /admin/v1/tokens/{id}': {
    at: async () => `tokens/${(await idsOf('tokens'))[0]}`,
    body: {},
    action: 'revoke token',
    target: 't',
  },
};

/** What else each body needs to be right. */
const GOOD: Readonly<Record<string, object>> = {
  ...Object.fromEntries(Object.entries(CHANGES).map(([key, { body }]) => [key, body])),
  'POST /admin/v1/config/plan': { text: '' },
};

/** Asked with a body, and nothing changes. */
const ASKS = ['POST /admin/v1/config/plan'];

let server: ControlServer;
let routes: readonly DeclaredRoute[];

const as = (role: string) => ({ authorization: `Bearer secret-${role}` });
const keyOf = ({ method, path }: DeclaredRoute): string => `${method} ${path}`;
/** Node announces no length for the body of a DELETE by itself. */
const withBody = (body: object) => ({
  body,
  headers: { 'content-length': String(Buffer.byteLength(JSON.stringify(body))), ...as('admin') },
});
const bodyFor = (method: string, headers: Record<string, string>) =>
  method === 'GET' ? { headers } : { body: {}, headers: { 'content-length': '2', ...headers } };

/** With ids that nothing has: whoever gets past the door finds nothing there. */
const call = (key: string, headers: Record<string, string>): Promise<AdminAnswer> => {
  const [method = '', path = ''] = key.split(' ');
  const url = path.replaceAll(/\{\w+\}/g, 'no-such-thing');
  return server.admin(url, { method, ...bodyFor(method, headers) });
};

/** Those that can be taken away: a token of the configuration cannot. */
async function idsOf(kind: 'replicas' | 'keys' | 'tokens'): Promise<readonly string[]> {
  const { items } = (await server.admin(kind, { headers: as('admin') })).json as {
    items: readonly { readonly id: string; readonly source?: string; readonly state?: string }[];
  };
  return items.filter(({ source }) => source !== 'configuration').map(({ id }) => id);
}

/** A node whose agent has gone. */
async function goneNode(): Promise<string> {
  const agent = await server.join('n-gone');
  agent.leave();
  await waitFor(
    async () => (await server.admin('nodes/n-gone', { headers: as('admin') })).json.state !== 'connected',
    { what: 'the end of its stream' },
  );
  return 'nodes/n-gone';
}

/** Bodies of all routes that take one, as the API's document has them. */
interface Schema {
  readonly properties: Readonly<
    Record<string, { readonly type?: string; readonly enum?: readonly string[] }>
  >;
}

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

  it('is known here: a route that changes something and is not in the table is one that nobody checks', () => {
    const changing = Object.keys(ROUTES).filter((key) => !key.startsWith('GET'));
    expect(changing.toSorted()).toEqual([...Object.keys(CHANGES), ...ASKS].toSorted());
  });

  it.each(Object.entries(CHANGES))(
    '%s is written down, with who did it',
    async (route, { at, body, action, target }) => {
      // A reload that finds nothing new changes nothing.
      server.edited = { models: [simModel('m1'), simModel('m2')] };
      const path = typeof at === 'string' ? at : await at();
      const before = (await records()).length;
      const [method = ''] = route.split(' ');
      const answer = await server.admin(path, { method, ...withBody(body) });
      expect(answer.status, answer.text).toBeLessThan(300);
      const after = await records();
      expect(after.length).toBe(before + 1);
      expect(after[0]).toMatchObject({ actor: 'admin', role: 'admin', outcome: 'ok' });
      expect(after[0]?.action).toContain(action);
      expect(after[0]?.target).toContain(target);
    },
  );

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

describe('every body', () => {
  /** Not of the type that the document gives. */
  const wrong = ({ type }: { readonly type?: string }): unknown => (type === 'string' ? 7 : 'seven');
  const bodies = async (): Promise<readonly (readonly [string, Schema])[]> => {
    const { paths } = (await server.admin('openapi.json', { headers: as('viewer') })).json as {
      paths: Record<
        string,
        Record<string, { requestBody?: { content: { 'application/json': { schema: Schema } } } }>
      >;
    };
    return Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).flatMap(([method, { requestBody }]) =>
        requestBody === undefined
          ? []
          : [[`${method.toUpperCase()} ${path}`, requestBody.content['application/json'].schema] as const],
      ),
    );
  };
  /** With a node, a model and a replica that are there: it is the body that is wrong. */
  const ask = async (key: string, body: object): Promise<AdminAnswer> => {
    const [method = '', path = ''] = key.split(' ');
    return server.admin(path.replace('{id}', 'n1').replace('{name}', 'm1'), { method, ...withBody(body) });
  };

  it('is in the document', async () => {
    const described = (await bodies()).map(([key]) => key);
    expect(described.toSorted()).toEqual([...Object.keys(CHANGES), ...ASKS].toSorted());
  });

  it('with a field that is not known, or of another type, is refused by the name of that field', async () => {
    let tried = 0;
    for (const [key, { properties }] of await bodies()) {
      const cases = [
        ['nonsense', 1],
        ...Object.entries(properties).map(([field, schema]) => [field, wrong(schema)] as const),
      ] as const;
      for (const [field, value] of cases) {
        const answer = await ask(key, { ...GOOD[key], [field]: value });
        const { error } = answer.json as { error: { code: string; field?: string; message: string } };
        expect([answer.status, error.code, error.field], `${key} ${field}: ${answer.text}`).toEqual([
          400,
          'invalid_argument',
          field,
        ]);
        expect(error.message).toContain(field);
        tried += 1;
      }
    }
    expect(tried).toBeGreaterThan(25);
  });

  it('that is no JSON, or no object, is refused too', async () => {
    for (const [key] of await bodies()) {
      const [method = '', path = ''] = key.split(' ');
      for (const rawBody of ['{', '[]', '7']) {
        const headers = {
          ...as('admin'),
          'content-type': 'application/json',
          'content-length': String(rawBody.length),
        };
        const answer = await server.admin(path.replace('{id}', 'n1').replace('{name}', 'm1'), {
          method,
          rawBody,
          headers,
        });
        expect(answer.status, `${key} ${rawBody}: ${answer.text}`).toBe(400);
      }
    }
  });
});
