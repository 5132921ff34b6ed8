import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import type { RequestHandler } from '../../test/support/fake-engine/fake-engine.js';
import { delta, DONE, RouterHarness, sse } from '../../test/support/router-harness.js';

let harness: RouterHarness;
let dir: string | undefined;
afterEach(async () => {
  await harness.stop();
  if (dir !== undefined) rmSync(dir, { recursive: true });
  dir = undefined;
});

const OK = '{"ok":true}';

describe('credentials', () => {
  // Clients' Authorization and cookies were passed to engines or written to logs; an engine's own key came back in a
  // response header.
  it('of clients never reach an engine, those of engines never a client, and none any output', async () => {
    dir = mkdtempSync(join(tmpdir(), 'llmgw-key-'));
    const apiKeyFile = join(dir, 'key');
    writeFileSync(apiKeyFile, 'engine-secret-3\n');
    harness = await RouterHarness.start({ engines: 1, endpoints: [{ apiKeyFile }] });
    harness.secrets.push(
      'client-secret-1',
      'client-secret-2',
      'a=cookie-secret',
      'engine-secret-3',
      'proxy-secret-4',
    );
    harness.engine().onRequest((_request, wire) =>
      wire.respond(200, OK, {
        'x-engine-key': 'engine-secret-3',
        'set-cookie': 'a=cookie-secret',
        server: 'uvicorn',
        'x-request-id': 'not-ours',
        'openai-processing-ms': '7',
      }),
    );
    const headers = {
      authorization: 'Bearer client-secret-1',
      cookie: 'a=cookie-secret',
      'x-api-key': 'client-secret-2',
      'proxy-authorization': 'Basic proxy-secret-4',
      'x-forwarded-for': '10.1.2.3',
      'x-request-id': 'r1',
      'x-llmgw-secret': 'x',
      'x-conversation-id': 'c1',
      'accept-encoding': 'br, gzip',
      'anthropic-version': '2023-06-01',
      accept: 'application/json',
    };
    for (const stream of [false, true]) {
      const response = await (await harness.chat({ stream }, headers)).response();
      expect(response.headers.get('x-request-id')).toBe('r1');
      expect([...response.headers.keys()].toSorted()).toEqual([
        'connection',
        'content-length',
        'content-type',
        'date',
        'keep-alive',
        'openai-processing-ms',
        'x-request-id',
      ]);
    }
    const seen = harness.engine().lastRequest.headers;
    expect(Object.fromEntries(seen)).toEqual({
      host: `127.0.0.1:${harness.engine().port}`,
      authorization: 'Bearer engine-secret-3',
      'content-type': 'application/json',
      'content-length': expect.stringMatching(/^\d+$/) as string,
      'accept-encoding': 'identity',
      'x-request-id': 'r1-1',
      accept: 'application/json',
      'anthropic-version': '2023-06-01',
    });
    await harness.engine().refuseConnections();
    await harness.engine().close();
    const failed = await (await harness.chat({}, headers)).response();
    expect(failed.status).toBe(502);
    expect(failed.headers.get('x-request-id')).toBe('r1');
    expect(JSON.stringify(harness.router.explainRequest('r1'))).not.toMatch(/secret/);
  });

  // An engine that did not accept its key quoted it in its refusal, and the client read it.
  it('of engines are not shown where engines quote them in an error', async () => {
    dir = mkdtempSync(join(tmpdir(), 'llmgw-key-'));
    const apiKeyFile = join(dir, 'key');
    writeFileSync(apiKeyFile, 'engine"secret\\5\n');
    harness = await RouterHarness.start({ endpoints: [{ apiKeyFile }] });
    harness.secrets.push('engine"secret', 'engine\\"secret');
    const said = { message: 'no such key: engine"secret\\5', type: 'auth', code: 401 };
    const acts: RequestHandler[] = [
      (_request, wire) => wire.respond(401, JSON.stringify({ error: said })),
      (_request, wire) => wire.respond(401, said.message, { 'content-type': 'text/plain' }),
      async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(sse({ error: said }));
      },
    ];
    for (const act of acts) {
      harness.engine().onRequest(act);
      const response = await (await harness.chat({ stream: true })).response();
      expect(response.status).toBe(401);
      expect(JSON.parse(response.body.toString())).toMatchObject({
        error: { message: 'no such key: [hidden]' },
      });
    }
  });

  it.each([
    ['?beta=true', '?beta=true'],
    ['?key=client-secret-1', ''],
    ['?a=1&api_key=client-secret-1&b=%20&API-Key=client-secret-1', '?a=1&b=%20'],
    ['?x&%6bey=client-secret-1&access_token=client-secret-1&&c=d=e', '?x&&c=d=e'],
    ['?%zz=1&token&monkey=1&keys=2', '?%zz=1&monkey=1&keys=2'],
    ['?', '?'],
  ])('of clients in a query (%s) stay here, and all else of it goes on', async (query, kept) => {
    harness = await RouterHarness.start();
    harness.secrets.push('client-secret-1');
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    for (const headers of [{}, { te: 'trailers' }]) {
      await (await harness.post(`/v1/messages${query}`, { model: 'm1' }, headers)).response();
      expect(harness.engine().lastRequest.target).toBe(`/v1/messages${kept}`);
    }
  });

  it('are not invented where an endpoint has none', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    await (await harness.chat({}, { authorization: 'Bearer x', 'x-api-key': 'y' })).response();
    expect(harness.engine().lastRequest.headers.has('authorization')).toBe(false);
    expect(harness.engine().lastRequest.headers.has('x-api-key')).toBe(false);
  });
});

describe('request ids', () => {
  it('are kept when presentable and made when not, one per attempt for engines', async () => {
    harness = await RouterHarness.start({ engines: 2 });
    let asked = 0;
    for (const engine of harness.engines) {
      engine.onRequest((_request, wire) => (asked++ === 0 ? wire.respond(503, '{}') : wire.respond(200, OK)));
    }
    const first = await (await harness.chat({}, { 'x-request-id': 'abc' })).response();
    expect(first.headers.get('x-request-id')).toBe('abc');
    const ids = harness.engines.map((engine) => engine.requests[0]?.headers.get('x-request-id'));
    expect(new Set(ids)).toEqual(new Set(['abc-1', 'abc-2']));
    for (const bad of ['', 'with blank', 'x'.repeat(200), 'h\u00e9']) {
      const response = await (await harness.chat({}, { 'x-request-id': bad })).response();
      expect(response.headers.get('x-request-id')).toMatch(/^req-/);
    }
  });
});

describe('explain', () => {
  it('names endpoint, policy and attempts on demand, and keeps everything for later', async () => {
    harness = await RouterHarness.start({ engines: 2 });
    harness.engine(0).onRequest((_request, wire) => wire.rst());
    harness.engine(1).onRequest((_request, wire) => wire.respond(200, OK));
    let explained = false;
    for (let i = 0; i < 4; i++) {
      const id = `e-${i}`;
      const response = await (
        await harness.chat({}, { 'x-llmgw-explain': '1', 'x-request-id': id })
      ).response();
      expect(response.headers.get('x-llmgw-endpoint')).toBe('e2');
      expect(response.headers.get('x-llmgw-policy')).toBe('leastLoad');
      const explanation = harness.router.explainRequest(id);
      expect(explanation).toMatchObject({ model: 'm1', status: 200, route: '/v1/chat/completions' });
      expect(response.headers.get('x-llmgw-attempts')).toBe(String(explanation?.attempts.length));
      if (explanation?.attempts.length !== 2) continue;
      explained = true;
      expect(explanation.choices[0]?.candidates).toHaveLength(2);
      expect(explanation.attempts).toMatchObject([
        { endpoint: 'e1', outcome: 'reset_before_response', next: 'retry_elsewhere' },
        { endpoint: 'e2', outcome: 'ok', status: 200 },
      ]);
    }
    expect(explained).toBe(true);
    const quiet = await (await harness.chat()).response();
    expect([...quiet.headers.keys()].some((name) => name.startsWith('x-llmgw'))).toBe(false);
  });
});

describe('encodings', () => {
  // A client library unpacked the body while its headers still said gzip; or the length was that of the packed body.
  it('of an engine that packs all the same pass as they are', async () => {
    harness = await RouterHarness.start();
    const packed = gzipSync(OK);
    harness.engine().onRequest((_request, wire) => wire.respond(200, packed, { 'content-encoding': 'gzip' }));
    const response = await (await harness.chat()).response();
    expect(response.headers.get('content-encoding')).toBe('gzip');
    expect(response.headers.get('content-length')).toBe(String(packed.length));
    expect(response.body.equals(packed)).toBe(true);
  });

  it('are never asked for on streams', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a') + DONE);
      await wire.lastChunk();
    });
    const response = await (
      await harness.chat({ stream: true }, { 'accept-encoding': 'br, gzip' })
    ).response();
    expect(response.headers.has('content-encoding')).toBe(false);
    expect(harness.engine().lastRequest.headers.get('accept-encoding')).toBe('identity');
  });

  it('204 has neither body nor length', async () => {
    harness = await RouterHarness.start();
    harness
      .engine()
      .onRequest((_request, wire) => wire.write('HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n'));
    const client = await harness.chat();
    const response = await client.response();
    expect(response.status).toBe(204);
    expect(response.headers.has('content-length')).toBe(false);
    expect(response.headers.has('transfer-encoding')).toBe(false);
  });
});
