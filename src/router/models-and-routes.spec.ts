import { createHash } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { ModelConfig } from '../config/server-config.js';
import { systemClock } from '../shared/clock.js';
import { RouterHarness } from '../../test/support/router-harness.js';
import { nextTurn } from '../../test/support/wait-for.js';
import { BodyBudget, BodyBuffer } from './body-buffer.js';
import { Turns } from './turns.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const json = (body: Buffer): Record<string, unknown> =>
  JSON.parse(body.toString()) as Record<string, unknown>;
const OK = '{"ok":true}';

const declare = (name: string, extra: Partial<ModelConfig> = {}): ModelConfig =>
  Object.assign(new ModelConfig(), { name }, extra);

describe('models', () => {
  // Unknown models answered 500, 503 or 200 with an error inside, or were served by some other model.
  it('that do not exist, or are none, are refused before any engine is asked', async () => {
    harness = await RouterHarness.start({ configure: (config) => config.models.push(declare('m2')) });
    const cases: [unknown, number, string][] = [
      ['nope', 404, 'model_not_found'],
      ['M1', 404, 'model_not_found'],
      ['m1 ', 404, 'model_not_found'],
      ['x'.repeat(300), 404, 'model_not_found'],
      ['<b>\u001b[31m"', 404, 'model_not_found'],
      ['', 400, 'invalid_model'],
      [null, 400, 'invalid_model'],
      [7, 400, 'invalid_model'],
      [undefined, 400, 'missing_model'],
      ['m2', 503, 'no_ready_replica'],
    ];
    for (const [model, status, code] of cases) {
      const response = await (await harness.chat({ model })).response();
      expect([model, response.status]).toEqual([model, status]);
      const { error } = json(response.body) as { error: { message: string } };
      expect(error).toMatchObject({ code, param: code === 'no_ready_replica' ? null : 'model' });
      expect(error.message.length).toBeLessThan(200);
      expect(response.headers.get('retry-after') !== undefined).toBe(status === 503);
    }
    const twice = await (
      await harness.post('/v1/chat/completions', '{"model":"m1","model":"m2"}')
    ).response();
    expect(json(twice.body)).toMatchObject({ error: { code: 'duplicate_model' } });
    const broken = await (await harness.post('/v1/chat/completions', '{"model":"m1",}')).response();
    expect(broken.status).toBe(400);
    expect(json(broken.body)).toMatchObject({ error: { code: 'invalid_json' } });
    expect(harness.engine().requests).toHaveLength(0);
  });

  it('are listed from the gateway’s own state: what can be served, each once', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      configure: (config) => {
        config.models.push(declare('m1', { aliases: ['a1'] }), declare('m2'), declare('m3', { replicas: 0 }));
      },
    });
    await harness.engine(1).refuseConnections();
    const client = await harness.connect();
    await client.get('/v1/models');
    const list = json((await client.response(0)).body) as { data: { id: string }[] };
    expect(list).toMatchObject({ object: 'list' });
    expect(list.data.map((model) => model.id)).toEqual(['m1', 'a1']);
    await client.get('/v1/models?all=true');
    const all = json((await client.response(1)).body) as { data: { id: string; state: string }[] };
    expect(all.data.map((model) => [model.id, model.state])).toEqual([
      ['m1', 'ready'],
      ['a1', 'ready'],
      ['m2', 'unavailable'],
      ['m3', 'off'],
    ]);
    await client.get('/v1/models/m2');
    expect((await client.response(2)).status).toBe(503);
    await client.get('/v1/models/m9');
    expect((await client.response(3)).status).toBe(404);
    await client.get('/v1/models/a1');
    expect(json((await client.response(4)).body)).toMatchObject({ id: 'a1', root: 'm1' });
  });

  it('may have names with slashes, colons and at signs', async () => {
    const name = 'org/m-7b:q4@main';
    harness = await RouterHarness.start({ endpoints: [{ models: [name] }] });
    const client = await harness.connect();
    await client.get(`/v1/models/${name}`);
    await client.get(`/v1/models/${encodeURIComponent(name)}`);
    for (const index of [0, 1]) expect(json((await client.response(index)).body)).toMatchObject({ id: name });
  });

  it('are called by their own name at the engine, whatever alias the client used; all else stays as it was', async () => {
    harness = await RouterHarness.start({
      endpoints: [{ models: ['/models/"q"-7b'] }],
      configure: (config) =>
        config.models.push(declare('/models/"q"-7b', { aliases: ['chat', 'a/"b\\ü🔑'] })),
    });
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const real = String.raw`"/models/\"q\"-7b"`;
    for (const [before, alias, after] of [
      [
        '{ "vendor":{"model":"chat"}, "model" : ',
        '"chat"',
        ' ,"messages":[{"content":"\\"model\\":\\"chat\\""}]}',
      ],
      [
        String.raw`{"mod\u0065l":`,
        '"ch\\u0061t"',
        ',"tools":[{"model":["model"],"":{"model":"chat","model":"chat"}}]}',
      ],
      ['{"messages":[],"model":\n', String.raw`"a\/\"b\\\u00fc\uD83D\uDD11"`, '\n}'],
      ['{"stop":["\\\\"],"model":', String.raw`"a/\"b\\ü🔑"`, ',"n":1.0}\n'],
    ] as const) {
      const answer = await (await harness.post('/v1/chat/completions', before + alias + after)).response();
      expect([alias, answer.status]).toEqual([alias, 200]);
      expect(harness.engine().lastRequest.body.toString()).toBe(before + real + after);
    }
    // Engines differ in which of two they take.
    const twice = await harness.post(
      '/v1/chat/completions',
      '{"model":"chat","messages":[],"mode\\u006c":"chat"}',
    );
    expect(json((await twice.response()).body)).toMatchObject({ error: { code: 'duplicate_model' } });
  });
});

describe('bodies', () => {
  // Strict request types dropped or refused what engines understand; guards against prototypes refused legal schemas.
  it('reach the engine byte for byte', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const bodies = [
      '{"model":"m1","chat_template_kwargs":{"a":1},"min_p":0.1,"vendor_x":{"deep":[1,2]},"n":3,"logprobs":true}',
      '{"model":"m1","tools":[{"function":{"parameters":{"properties":{"__proto__":{"type":"string"},"constructor":{"prototype":{}}}}}}]}',
      `{"model":"m1","messages":[{"content":"data:image/png;base64,${'A'.repeat(2_000_000)}"}]}`,
      '{"a":1e400,"model":"m1","b":"\\ud83d\\ude00 h\u00e9","c":0.1000000000000000055}',
    ];
    for (const body of bodies) {
      const response = await (await harness.post('/v1/chat/completions', body)).response();
      expect(response.status).toBe(200);
      expect(harness.engine().lastRequest.body.equals(Buffer.from(body))).toBe(true);
    }
    expect(({} as Record<string, unknown>)['type']).toBeUndefined();
  });

  // A recursive reader died of these, and the process with it.
  it('nested ten thousand deep, or with a million members, are relayed or refused, and nothing breaks', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const deep = (n: number) => `{"x":${'['.repeat(n)}${']'.repeat(n)},"model":"m1"}`;
    const wide = `{"x":[${'1,'.repeat(1_000_000)}1],"model":"m1"}`;
    for (const body of [deep(10_000), deep(1_000_000), wide, `{"x":${'{"a":'.repeat(10_000)}1`]) {
      const response = await (await harness.post('/v1/chat/completions', body)).response();
      expect([200, 400]).toContain(response.status);
      if (response.status === 200)
        expect(harness.engine().lastRequest.body.equals(Buffer.from(body))).toBe(true);
      else expect(json(response.body)).toMatchObject({ error: { code: 'invalid_json' } });
    }
    expect((await (await harness.chat()).response()).status).toBe(200);
  });

  it('may come in chunks', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const client = await harness.connect();
    await client.send(
      'POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n' +
        '8\r\n{"model"\r\n6\r\n:"m1"}\r\n0\r\n\r\n',
    );
    expect((await client.response()).status).toBe(200);
    expect(harness.engine().lastRequest.body.toString()).toBe('{"model":"m1"}');
    expect(harness.engine().lastRequest.headers.get('content-length')).toBe('14');
    expect(harness.engine().lastRequest.headers.has('transfer-encoding')).toBe(false);
  });

  it('beyond the limit are refused as soon as that is known, in a way the client can read', async () => {
    harness = await RouterHarness.start({ configure: (config) => (config.router.bodyLimit = 100_000) });
    const declared = await harness.connect();
    await declared.send(
      'POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 33000000\r\n\r\n{"model":',
    );
    const first = await declared.response();
    expect(first.status).toBe(413);
    expect(json(first.body)).toMatchObject({
      error: {
        code: 'request_too_large',
        type: 'invalid_request_error',
        message: expect.stringContaining('100000') as string,
      },
    });
    const chunked = await harness.connect();
    await chunked.send('POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n');
    const piece = `4000\r\n${'x'.repeat(0x4000)}\r\n`;
    // It goes on sending after the refusal, as real clients do, and must still read it.
    for (let i = 0; i < 60; i++) await chunked.send(piece);
    expect((await chunked.response()).status).toBe(413);
    await chunked.send('0\r\n\r\n');
    expect(await chunked.waitClosed()).toBe('fin');
  });

  it('are held only as far as there is room for all of them', () => {
    const budget = new BodyBudget(100);
    const first = new BodyBuffer(1_000, budget, -1);
    const second = new BodyBuffer(1_000, budget, -1);
    expect(first.push(Buffer.alloc(60))).toBeUndefined();
    expect(second.push(Buffer.alloc(60))).toBe('no_room');
    first.release();
    first.release();
    expect(budget.heldBytes).toBe(0);
    expect(second.push(Buffer.alloc(60))).toBeUndefined();
    expect(new BodyBuffer(10, budget, -1).push(Buffer.alloc(11))).toBe('too_large');
  });

  it('that are large come whole, announced or not, and are read one per turn of the loop', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((request, wire) => wire.respond(200, `{"sha":"${request.bodySha256}"}`));
    const content = Array.from({ length: 300_000 }, (_, i) => String(i % 997)).join(' ');
    const body = JSON.stringify({ model: 'm1', messages: [{ content }] });
    const sha = createHash('sha256').update(body).digest('hex');
    const clients = await Promise.all(
      Array.from({ length: 5 }, () => harness.chat({ messages: [{ content }] })),
    );
    for (const client of clients) expect((await client.response()).body.toString()).toBe(`{"sha":"${sha}"}`);
    const order: number[] = [];
    const turns = new Turns(systemClock);
    for (let i = 0; i < 3; i++) turns.add(() => order.push(i));
    expect(order).toEqual([]);
    for (let before = 0; before < 3; before = order.length) {
      await nextTurn();
      expect(order.length - before).toBeLessThanOrEqual(1);
    }
    expect(order).toEqual([0, 1, 2]);
    expect(harness.router.bodies.heldBytes).toBe(0);
  });

  it('of other types or packed are refused with 415 in our form', async () => {
    harness = await RouterHarness.start();
    for (const headers of [
      { 'content-type': 'multipart/form-data; boundary=x' },
      { 'content-type': 'application/x-www-form-urlencoded' },
      { 'content-encoding': 'gzip' },
      { 'content-encoding': 'zstd' },
    ]) {
      const response = await (await harness.chat({}, headers)).response();
      expect(response.status).toBe(415);
      expect(json(response.body)).toMatchObject({ error: { code: 'unsupported_media_type' } });
    }
  });
});

describe('paths and methods', () => {
  it('that do not exist are 404, others 405 with Allow, in our form', async () => {
    harness = await RouterHarness.start();
    const cases: [string, string, number, string | undefined][] = [
      ['GET', '/v1/chat/completions', 405, 'POST, OPTIONS'],
      ['DELETE', '/v1/models', 405, 'GET, HEAD, OPTIONS'],
      ['POST', '/health', 405, 'GET, HEAD, OPTIONS'],
      ['GET', '/', 404, undefined],
      ['POST', '/v1/load_lora_adapter', 404, undefined],
      ['POST', '/v1/chat/completions/', 404, undefined],
      ['POST', '//v1/chat/completions', 404, undefined],
      ['POST', '/v1/../admin/v1/nodes', 404, undefined],
      ['GET', '/metrics', 404, undefined],
      ['GET', '/admin/v1/nodes', 404, undefined],
    ];
    for (const [method, path, status, allow] of cases) {
      const client = await harness.connect();
      await client.send(`${method} ${path} HTTP/1.1\r\nhost: x\r\n\r\n`);
      const response = await client.response();
      expect([method, path, response.status]).toEqual([method, path, status]);
      expect(response.headers.get('allow')).toBe(allow);
      expect(json(response.body)).toHaveProperty('error.code');
    }
    const batches = await (await harness.post('/v1/messages/batches', {})).response();
    expect([batches.status, json(batches.body)]).toMatchObject([404, { type: 'error' }]);
    expect(harness.engine().requests).toHaveLength(0);
  });

  it('HEAD equals GET without a body', async () => {
    harness = await RouterHarness.start();
    const client = await harness.connect();
    await client.send('HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n');
    const first = await client.response(0, { head: true });
    expect(first.status).toBe(200);
    expect(Number(first.headers.get('content-length'))).toBeGreaterThan(0);
    const list = await harness.connect();
    await list.send('HEAD /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
    await list.waitClosed();
    expect(list.text.split('\r\n\r\n')[1]).toBe('');
  });

  it('health tells nothing but whether something can be served', async () => {
    harness = await RouterHarness.start();
    const client = await harness.connect();
    await client.get('/health');
    expect((await client.response()).status).toBe(200);
    harness.router.applyTable({ version: 5, models: [], endpoints: [] });
    // The static endpoints stay whatever is published.
    await client.get('/health');
    expect((await client.response(1)).status).toBe(200);
  });

  it('every engine route reaches the engine on its own path, with its query', async () => {
    harness = await RouterHarness.start({ endpoints: [{ engine: 'vllm' }] });
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    for (const path of ['/v1/responses', '/v1/rerank', '/v1/score', '/v1/moderations', '/v1/audio/speech']) {
      expect((await (await harness.post(`${path}?a=b`, { model: 'm1' })).response()).status).toBe(200);
      expect(harness.engine().lastRequest.target).toBe(`${path}?a=b`);
    }
    await (await harness.post('/v1/tokenize', { model: 'm1', prompt: 'x' })).response();
    expect(harness.engine().lastRequest.target).toBe('/tokenize');
  });
});

describe('browsers', () => {
  it('get CORS only where it is configured, on errors and streams too', async () => {
    harness = await RouterHarness.start({
      configure: (config) => (config.router.cors.origins = ['http://ui']),
    });
    const client = await harness.connect();
    await client.send(
      'OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: x\r\norigin: http://ui\r\n' +
        'access-control-request-method: POST\r\naccess-control-request-headers: authorization, x-stainless-os\r\n\r\n',
    );
    const preflight = await client.response();
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get('access-control-allow-origin')).toBe('http://ui');
    expect(preflight.headers.get('access-control-allow-headers')).toBe('authorization, x-stainless-os');
    const error = await (await harness.chat({ model: 'nope' }, { origin: 'http://ui' })).response();
    expect(error.headers.get('access-control-allow-origin')).toBe('http://ui');
    const foreign = await (await harness.chat({ model: 'nope' }, { origin: 'http://evil' })).response();
    expect(foreign.headers.has('access-control-allow-origin')).toBe(false);
    await harness.stop();
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) =>
      wire.respond(200, OK, {
        'access-control-allow-origin': '*',
        'access-control-allow-credentials': 'true',
      }),
    );
    const off = await (await harness.chat({}, { origin: 'http://ui' })).response();
    expect([...off.headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
  });
});

describe('requests that are malformed', () => {
  it('are refused, and nothing of them reaches an engine', async () => {
    harness = await RouterHarness.start();
    const body = '{"model":"m1"}';
    const post = 'POST /v1/embeddings HTTP/1.1\r\n';
    const cases: [string, number][] = [
      [`${post}host: a\r\nhost: b\r\ncontent-length: 14\r\n\r\n${body}`, 400],
      [`POST http://x/v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 14\r\n\r\n${body}`, 400],
      [`GET /v1/models HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc`, 400],
      [`GET /v1/models HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`, 400],
      [`${post}host: a\r\ncontent-length: 14\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`, 400],
      [`${post}host: a\r\ncontent-length: 14\r\ncontent-length: 14\r\n\r\n${body}`, 400],
      [`${post}host: a\r\ncontent-length: +14\r\n\r\n${body}`, 400],
      [`${post}host : a\r\ncontent-length: 14\r\n\r\n${body}`, 400],
      [`${post}host: a\r\nx: y\r\n z\r\ncontent-length: 14\r\n\r\n${body}`, 400],
      [`${post}host: a\r\nx: ${'y'.repeat(17_000)}\r\n\r\n`, 431],
      [`${post}host: a\r\n${Array.from({ length: 120 }, (_, i) => `x${i}: y\r\n`).join('')}\r\n`, 431],
      ['garbage\r\n\r\n', 400],
      [`POST /v1/embeddings HTTP/0.9\r\nhost: a\r\n\r\n`, 400],
    ];
    for (const [bytes, status] of cases) {
      const client = await harness.connect();
      await client.send(bytes);
      await client.waitClosed();
      const [response] = client.responses();
      expect([bytes.slice(0, 80), response?.status]).toEqual([bytes.slice(0, 80), status]);
    }
    expect(harness.engine().requests).toHaveLength(0);
  });
});

describe('labels', () => {
  // Metric labels taken from paths and model names grew without bound.
  it('cannot be invented by clients', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const sendAll = async (seed: string) => {
      const client = await harness.connect();
      for (let i = 0; i < 30; i++) {
        await client.post(`/v1/x${seed}${i}`, { model: 'm1' });
        await client.post('/v1/embeddings', { model: `${seed}${i}` });
        await client.send(`PATCH /v1/models HTTP/1.1\r\nhost: x\r\nuser-agent: ${seed}${i}\r\n\r\n`);
      }
      await client.response(89);
    };
    await (await harness.chat()).response();
    await sendAll('a');
    const series = (text: string) =>
      text.split('\n').filter((line) => line !== '' && !line.startsWith('#')).length;
    await harness.settle();
    const before = series(await harness.metrics());
    await sendAll('b');
    await harness.settle();
    expect(series(await harness.metrics())).toBe(before);
    expect(await harness.metrics()).toContain(
      'llmgw_requests_total{model="_unknown",route="other",code="404"} ',
    );
  });

  it('of endpoints and models that are gone disappear', async () => {
    harness = await RouterHarness.start();
    const route = {
      protocol: 'http',
      host: '127.0.0.1',
      port: 9,
      basePath: '',
      pool: 'p',
      weight: 1,
    } as const;
    for (let version = 1; version <= 50; version++) {
      const name = `m-${version}`;
      harness.router.applyTable({
        version,
        models: [{ name, aliases: [], routingProfile: '', fallback: [], desired: 1, outlook: 'ready' }],
        endpoints: [{ ...route, id: `r-${version}`, generation: 1, models: [name], engine: 'sim' }],
      });
    }
    const text = await harness.metrics();
    expect(text).toContain('llmgw_endpoint_up{endpoint="r-50"} 1');
    expect(text).not.toContain('r-49');
    expect(text).not.toContain('m-49');
    expect(harness.router.endpoints().map((status) => status.endpoint.id)).toEqual(['e1', 'r-50']);
  });
});
