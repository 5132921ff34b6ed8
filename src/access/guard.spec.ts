import { afterEach, describe, expect, it } from 'vitest';
import { KeyedGateway } from '../../test/support/keyed-gateway.js';
import { ENGINE_ROUTES, matchRoute, type RouteMatch } from '../router/routes.js';

let gateway: KeyedGateway;
afterEach(() => gateway.harness.stop());

/** What is asked on each kind of route; a kind that is added must say here whether it is guarded. */
const KINDS: Record<RouteMatch['kind'], readonly [guarded: boolean, method: string, path: string] | 'each'> =
  {
    engine: 'each',
    models: [true, 'GET', '/v1/models'],
    model: [true, 'GET', '/v1/models/m1'],
    health: [false, 'GET', '/health'],
    preflight: [false, 'OPTIONS', '/v1/models'],
    methodNotAllowed: [false, 'DELETE', '/v1/models'],
    notFound: [false, 'GET', '/v1/engines'],
  };

describe('with keys required', () => {
  it('every route of the table is closed without one, and opens with one', async () => {
    gateway = await KeyedGateway.start(true);
    const { harness } = gateway;
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{"ok":1}'));
    const secret = gateway.key('key-a');
    const send = async (method: string, path: string, headers: Record<string, string>) => {
      const client = await harness.connect();
      const fields = Object.entries({ host: 'x', ...headers }).map(
        ([name, value]) => `${name}: ${value}\r\n`,
      );
      const body = method === 'POST' ? '{"model":"m1"}' : '';
      await client.send(
        `${method} ${path} HTTP/1.1\r\n${fields.join('')}content-length: ${body.length}\r\n\r\n${body}`,
      );
      return (await client.response()).status;
    };
    const json = { 'content-type': 'application/json' };
    for (const { path } of ENGINE_ROUTES) {
      expect([path, await send('POST', path, json)]).toEqual([path, 401]);
      const status = await send('POST', path, { ...json, authorization: `Bearer ${secret}` });
      expect([path, status]).not.toEqual([path, 401]);
    }
    expect(harness.engine().requests.length).toBeGreaterThan(10);
    for (const [kind, what] of Object.entries(KINDS)) {
      if (what === 'each') continue;
      const [guarded, method, path] = what;
      expect([path, matchRoute(method, path).kind]).toEqual([path, kind]);
      expect([path, (await send(method, path, {})) === 401]).toEqual([path, guarded]);
    }
  });

  it('a key that is revoked opens nothing more on a connection that it opened', async () => {
    gateway = await KeyedGateway.start(true);
    gateway.harness.engine().onRequest((_request, wire) => wire.respond(200, '{"ok":1}'));
    const secret = gateway.key('key-a');
    const client = await gateway.harness.connect();
    const statuses: number[] = [];
    const ask = async () => {
      const body = '{"model":"m1","messages":[]}';
      await client.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` });
      statuses.push((await client.response(statuses.length)).status);
    };
    await ask();
    await ask();
    gateway.revoke('key-a');
    await ask();
    expect(statuses).toEqual([200, 200, 401]);
    expect(gateway.harness.engine().requests).toHaveLength(2);
  });
});
