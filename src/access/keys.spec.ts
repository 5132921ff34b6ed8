import { afterEach, describe, expect, it } from 'vitest';
import { KeyedGateway } from '../../test/support/keyed-gateway.js';
import type { RequestHandler } from '../../test/support/fake-engine/fake-engine.js';
import { delta, DONE, finish, sse, type HarnessOptions } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';
import { systemClock } from '../shared/clock.js';
import { ENGINE_ROUTES } from '../router/routes.js';
import { seededRandom } from '../shared/random.js';

let gateway: KeyedGateway;
afterEach(() => gateway.harness.stop());

async function start(required = true, options: HarnessOptions = {}): Promise<KeyedGateway> {
  gateway = await KeyedGateway.start(required, options);
  gateway.harness.engines.forEach((engine) => engine.onRequest(whole(10, 20)));
  return gateway;
}

const usage = (prompt: number, completion: number) =>
  `"usage":{"prompt_tokens":${prompt},"completion_tokens":${completion}}`;

/** A whole answer with these counts. */
const whole =
  (prompt: number, completion: number): RequestHandler =>
  (_request, wire) =>
    wire.respond(200, `{"choices":[],${usage(prompt, completion)}}`);

/** What may not stand in a header at all. */
const CONTROLS = ['\0', '\x01', '\b', '\v', '\f', '\x1b', '\x1f', '\x7f', '\r', '\n'];

const header = (text: string, name: string): string | undefined =>
  new RegExp(`^${name}: (.*)\r$`, 'mi').exec(text)?.[1];

describe('who gets in', () => {
  it('with keys required: by Bearer or x-api-key or both alike, on every route but /health and preflights', async () => {
    await start();
    const secret = gateway.key('key-a');
    const { harness } = gateway;
    for (const headers of [
      { authorization: `Bearer ${secret}` },
      { authorization: `bearer  ${secret}` },
      { 'x-api-key': secret },
      { authorization: `Bearer ${secret}`, 'X-Api-Key': secret },
    ] as Record<string, string>[]) {
      expect((await (await harness.chat({}, headers)).response()).status).toBe(200);
    }
    const read = async (path: string, headers: Record<string, string> = {}) => {
      const client = await harness.connect();
      await client.get(path, headers);
      return (await client.response()).status;
    };
    expect(await read('/health')).toBe(200);
    for (const path of ['/v1/models', '/v1/models?all=true', '/v1/models/m1', '/v1/models/none']) {
      expect(await read(path)).toBe(401);
    }
    expect(await read('/v1/models', { 'x-api-key': secret })).toBe(200);
    for (const path of ['/v1/embeddings', '/v1/messages', '/v1/responses', '/v1/rerank', '/v1/tokenize']) {
      expect((await (await harness.post(path, { model: 'm1' })).response()).status).toBe(401);
    }
    const preflight = await harness.connect();
    await preflight.send('OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: x\r\norigin: http://a\r\n\r\n');
    expect((await preflight.response()).status).toBe(204);
    expect(harness.accessLog().filter(({ status }) => status === 200)).toHaveLength(5);
    for (const record of harness.accessLog()) {
      expect(record['key']).toBe(record['status'] === 200 ? 'key-a' : undefined);
    }
  });

  it('without: placeholders of clients are nobody, a key is itself, what looks like one and is none is refused', async () => {
    await start(false);
    const secret = gateway.key('key-a', { maxConcurrent: 1, models: ['other'] });
    expect((await (await gateway.harness.chat()).response()).status).toBe(200);
    for (const placeholder of ['none', 'EMPTY', 'sk-123', 'x'.repeat(200)]) {
      expect(await gateway.ask(placeholder)).toBe('200');
    }
    expect(await gateway.ask(secret)).toBe('403 model_not_allowed');
    expect(await gateway.ask(`${secret}x`)).toBe('401 invalid_api_key');
    gateway.revoke('key-a');
    expect(await gateway.ask(secret)).toBe('401 invalid_api_key');
  });

  /** CVE-2026-42208 was a quote in this header; others answered differently for a right beginning. */
  it('every wrong credential gets the same answer, byte for byte', async () => {
    await start();
    const secret = gateway.key('key-a');
    const expired = gateway.key('key-b', { expiresAt: '2026-01-02T00:00:00.000Z' });
    const revoked = gateway.key('key-c');
    gateway.revoke('key-c');
    const random = seededRandom(11);
    const noise = Array.from({ length: 40 }, () => {
      const length = 1 + Math.floor(random() * 60);
      // Any byte that may stand in a header at all.
      const bytes = Array.from({ length }, () => 0x21 + Math.floor(random() * (0xff - 0x21)));
      return Buffer.from(bytes.map((byte) => (byte === 0x7f ? 0x80 : byte))).toString('latin1');
    });
    const values = [
      ...[
        "'",
        '"',
        "' OR 1=1 --",
        '";DROP TABLE records;--',
        '\\u0000',
        '%00',
        '$' + '{7*7}',
        '{{7*7}}',
        '../..',
      ],
      ...['__proto__', 'constructor', 'undefined', 'null', 'true', '0', '[object Object]', '\u00e9\u00df'],
      ...[
        Buffer.from('ключ🔑', 'utf8').toString('latin1'),
        'a'.repeat(8 * 1024),
        'sk-llmgw-',
        'llmgw-admin-x',
      ],
      ...[secret.slice(0, -1), `${secret}x`, secret.toUpperCase(), `${secret} ${secret}`, `"${secret}"`],
      ...[expired, revoked, ...noise],
      // No HTTP at all, and for this header nobody's business either.
      ...CONTROLS.map((control) => `${control}${secret}`),
      ...CONTROLS.map((control) => `${secret.slice(0, 12)}${control}${secret.slice(12)}`),
      `${secret}\0`,
      `${'a'.repeat(8 * 1024)}\0`,
    ];
    const lines = [
      '',
      'authorization:',
      'authorization: Bearer',
      'authorization: Bearer ',
      'x-api-key:',
      `authorization: ${secret}`,
      `authorization: Basic ${Buffer.from(`u:${secret}`).toString('base64')}`,
      `authorization: Bearer\t${secret}`,
      `authorization: Token ${secret}`,
      `authorization: Bearer ${secret}\r\nauthorization: Bearer other`,
      `authorization: Bearer other\r\nauthorization: Bearer ${secret}`,
      `authorization: Bearer ${secret}\r\nauthorization: Bearer ${secret}`,
      `authorization: Bearer ${secret}\r\nx-api-key: other`,
      `authorization: Bearer other\r\nx-api-key: ${secret}`,
      `authorization: Basic x\r\nx-api-key: ${secret}`,
      `x-api-key:\r\nauthorization: Bearer ${secret}`,
      `x-api-key: ${secret}\r\nx-api-key: ${secret}`,
      `proxy-authorization: Bearer ${secret}`,
      `cookie: authorization=${secret}`,
      ...values.flatMap((value) => [`authorization: Bearer ${value}`, `x-api-key: ${value}`]),
    ];
    const head =
      'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: r\r\ncontent-type: application/json\r\n';
    const answers = new Map<string, string>();
    for (const line of lines) {
      // Secrets that were sent on purpose come back nowhere: the harness looks at all output in the end.
      const client = await gateway.harness.connect();
      const fields = line === '' ? '' : `${line}\r\n`;
      await client.send(Buffer.from(`${head}${fields}content-length: 2\r\n\r\n{}`, 'latin1'));
      await client.response();
      // Whether the connection lives on is no part of what is said.
      answers.set(client.text.replaceAll(/^(?:date|connection|keep-alive): .*\r\n/gim, ''), line);
      client.destroy();
    }
    const seen = [...answers].map(([answer, by]) => [answer.split('\r\n')[0], by.slice(0, 200)]);
    expect(seen).toEqual([['HTTP/1.1 401 Unauthorized', lines.at(-1)?.slice(0, 200)]]);
    expect([...answers.keys()][0]).toMatch(/www-authenticate: Bearer\r\n/i);
    expect(gateway.harness.engine().requests).toHaveLength(0);
  });

  describe('a control character in a credential', () => {
    const head = (path: string) => `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n`;
    /** Sends the pieces, each in a read of its own. */
    const answer = async (...pieces: string[]) => {
      const client = await gateway.harness.connect();
      for (const piece of pieces) {
        await client.send(Buffer.from(piece, 'latin1'));
        // Nothing depends on it: pieces that arrive in one read are the easier case.
        await gateway.harness.passed(2);
      }
      const { status, body } = await client.response();
      client.destroy();
      return { status, body: body.toString() };
    };
    const WRONG = { status: 401, body: expect.stringContaining('"code":"invalid_api_key"') as string };

    it('is a wrong credential on every guarded route, in the form of that route', async () => {
      await start();
      const rest = 'content-length: 2\r\n\r\n{}';
      const line = 'x-api-key: a\0b\r\n';
      for (const { path } of ENGINE_ROUTES) expect(await answer(head(path) + line + rest)).toEqual(WRONG);
      expect(await answer(head('/v1/messages') + line + rest)).toEqual({
        status: 401,
        body: expect.stringMatching(/^\{"type":"error","error":\{"type":"authentication_error"/) as string,
      });
      expect(await answer(`GET /v1/models HTTP/1.1\r\nhost: x\r\n${line}\r\n`)).toEqual(WRONG);
      expect((await answer(`GET /health HTTP/1.1\r\nhost: x\r\n${line}\r\n`)).status).toBe(400);
      expect((await answer(`GET /v1/none HTTP/1.1\r\nhost: x\r\n${line}\r\n`)).status).toBe(400);
      expect(
        await gateway.harness.metric('llmgw_requests_total{model="_unknown",route="other",code="401"}'),
      ).toBe(ENGINE_ROUTES.length + 2);
    });

    it('however the head comes in', async () => {
      await start();
      const secret = gateway.key('key-a');
      const [path, rest] = ['/v1/chat/completions', 'content-length: 2\r\n\r\n{}'];
      const value = 'a'.repeat(4_000);
      expect(
        await answer(head(path), `authorization: Bea`, `rer ${value}`, `${value}\0b\r\n${rest}`),
      ).toEqual(WRONG);
      expect(await answer(...(`${head(path)}authorization: Bearer a\0`.match(/[^]{1,3}/g) ?? []))).toEqual(
        WRONG,
      );
      // Behind a request that was served, and one that only Node's parser reads.
      const good = `${head(path)}authorization: Bearer ${secret}\r\ncontent-length: 14\r\n\r\n{"model":"m1"}`;
      for (const first of [good, good.replace('host:', 'te: trailers\r\nhost:')]) {
        const client = await gateway.harness.connect();
        await client.send(first);
        expect((await client.response()).status).toBe(200);
        await client.send(`${head(path)}authorization: Bearer \0${secret}\r\n${rest}`);
        expect((await client.response(1)).status).toBe(401);
        await client.waitClosed();
      }
    });

    it('elsewhere, or where no key is needed, is no HTTP', async () => {
      await start();
      const rest = 'content-length: 2\r\n\r\n{}';
      const path = '/v1/chat/completions';
      expect((await answer(`${head(path)}x-other: a\0b\r\n${rest}`)).status).toBe(400);
      expect((await answer(`${head(path)}x-authorization: a\0b\r\n${rest}`)).status).toBe(400);
      expect((await answer(`${head(path)}auth\0orization: a\r\n${rest}`)).status).toBe(400);
      await gateway.harness.stop();
      await start(false);
      expect((await answer(`${head(path)}authorization: Bearer a\0b\r\n${rest}`)).status).toBe(400);
    });
  });

  it('a query parameter, a body and a forwarded address are no credentials', async () => {
    await start();
    const secret = gateway.key('key-a');
    const forged = { 'x-forwarded-for': '127.0.0.1', 'x-real-ip': '127.0.0.1', 'x-llmgw-key': secret };
    const client = await gateway.harness.post(
      `/v1/chat/completions?api_key=${secret}`,
      { model: 'm1', api_key: secret },
      forged,
    );
    expect((await client.response()).status).toBe(401);
  });

  it('expiry and revocation hold for the next request, and a running stream goes on', async () => {
    let offsetMs = 0;
    await start(true, { clock: { ...systemClock, wallMs: () => systemClock.wallMs() + offsetMs } });
    const expiring = gateway.key('key-a', { expiresAt: new Date(Date.now() + 60_000).toISOString() });
    const revoked = gateway.key('key-b');
    let go = false;
    gateway.harness.engine().onNextRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
      await wire.until(() => go);
      await wire.chunk(finish() + DONE);
      await wire.lastChunk();
    });
    const running = await gateway.chat(revoked, { stream: true });
    await running.waitForText('"a"');
    expect(await gateway.ask(expiring)).toBe('200');
    gateway.revoke('key-b');
    offsetMs = 60_001;
    expect(await gateway.ask(revoked)).toBe('401 invalid_api_key');
    expect(await gateway.ask(expiring)).toBe('401 invalid_api_key');
    go = true;
    await running.response();
    expect(running.text).toContain('[DONE]');
  });
});

describe('a key that is revoked', () => {
  it('takes its requests with it that no engine has begun yet', async () => {
    await start(true, { endpoints: [{ maxConcurrency: 1 }] });
    const [revoked, other] = [gateway.key('key-a', { requestsPerMinute: 100 }), gateway.key('key-b')];
    const { harness } = gateway;
    let go = false;
    harness.engine().onRequest(async (_request, wire) => {
      await wire.until(() => go);
      await wire.respond(200, '{}');
    });
    const running = await gateway.chat(revoked);
    await harness.engine().request(0);
    const slow = await harness.connect();
    await slow.send(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${revoked}\r\ncontent-length: 14\r\n\r\n{"model"`,
    );
    const queued = [await gateway.chat(revoked), await gateway.chat(revoked), await gateway.chat(other)];
    await waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === 3);
    const key = gateway.known('key-a');
    gateway.revoke('key-a');
    await slow.send(':"m1"}');
    expect((await slow.response()).status).toBe(401);
    go = true;
    expect((await running.response()).status).toBe(200);
    const statuses = await Promise.all(queued.map(async (client) => (await client.response()).status));
    expect(statuses).toEqual([401, 401, 200]);
    expect(harness.engine().requests).toHaveLength(2);
    expect([key.limiter.concurrent, key.limiter.reservedTokens]).toEqual([0, 0]);
  });
});

describe('models', () => {
  it('a key sees and uses only its own, by any of their names', async () => {
    await start(true, {
      engines: 2,
      endpoints: [{ models: ['org/a', 'qwen-7b'] }, { models: ['org/b', 'qwen-72b', 'x'] }],
    });
    const secret = gateway.key('key-a', { models: ['org/*', 'qwen-7b'] });
    const client = await gateway.harness.connect();
    await client.get('/v1/models', { authorization: `Bearer ${secret}` });
    const list = JSON.parse((await client.response()).body.toString()) as { data: { id: string }[] };
    expect(list.data.map(({ id }) => id).toSorted()).toEqual(['org/a', 'org/b', 'qwen-7b']);
    for (const [index, [id, status]] of [
      ['org/b', 200],
      ['qwen-72b', 403],
      ['nope', 404],
    ].entries()) {
      await client.get(`/v1/models/${id}`, { 'x-api-key': secret });
      expect((await client.response(index + 1)).status).toBe(status);
    }
    expect(await gateway.ask(secret, { model: 'qwen-7b' })).toBe('200');
    expect(await gateway.ask(secret, { model: 'qwen-72b' })).toBe('403 model_not_allowed');
    expect(await gateway.ask(secret, { model: 'nope' })).toBe('404 model_not_found');
    expect(gateway.known('key-a').limiter.concurrent).toBe(0);
  });
});

describe('limits', () => {
  it('concurrent: exactly the fourth is refused, and a place is free however a request ends', async () => {
    await start(true, { deadlines: { firstToken: 500, firstTokenPer1kTokens: 0 } });
    const secret = gateway.key('key-a', { maxConcurrent: 3 });
    const engine = gateway.harness.engine();
    engine.onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
      await wire.waitClosed();
    });
    const three = () => Promise.all([1, 2, 3].map(() => gateway.chat(secret, { stream: true })));
    let open = await three();
    for (const client of open) await client.waitForText('"a"');
    const fourth = await gateway.chat(secret, { stream: true });
    const refused = await fourth.response();
    expect(refused.status).toBe(429);
    expect(header(fourth.text, 'retry-after')).toBe('1');
    expect(refused.body.toString()).toContain('"code":"rate_limit_exceeded"');
    // Clients that leave, then engines that fail: every place is free again.
    open.forEach((client) => client.rst());
    await waitFor(() => gateway.known('key-a').limiter.concurrent === 0);
    engine.onRequest((_request, wire) => wire.respond(500, '{"error":{}}'));
    for (const client of await three()) expect((await client.response()).status).toBe(500);
    engine.onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
    for (const client of await three()) expect((await client.response()).status).toBe(504);
    engine.onRequest(whole(1, 1));
    open = await three();
    for (const client of open) expect((await client.response()).status).toBe(200);
  });

  it('requests: refused ones use up nothing, one retried inside counts once, one nobody served not at all', async () => {
    await start(true, { engines: 2 });
    const secret = gateway.key('key-a', { requestsPerMinute: 4 });
    gateway.harness.engines.forEach((engine) => engine.onNextRequest((_request, wire) => wire.rst()));
    // The first one goes to one engine after the other, in vain; the second finds them well.
    expect(await gateway.ask(secret)).toBe('502 upstream_reset');
    const client = await gateway.chat(secret);
    await client.response();
    expect(header(client.text, 'x-ratelimit-limit-requests')).toBe('4');
    expect(header(client.text, 'x-ratelimit-remaining-requests')).toBe('3');
    expect(header(client.text, 'x-ratelimit-reset-requests')).toMatch(/^1[45](\.\d+)?s$/);
    expect(header(client.text, 'x-ratelimit-limit-tokens')).toBeUndefined();
    for (let i = 0; i < 3; i++) expect(await gateway.ask(secret)).toBe('200');
    for (let i = 0; i < 30; i++) expect(await gateway.ask(secret)).toBe('429 rate_limit_exceeded');
    const last = await gateway.chat(secret);
    await last.response();
    expect(Number(header(last.text, 'retry-after'))).toBeGreaterThanOrEqual(14);
    expect(Number(header(last.text, 'retry-after'))).toBeLessThanOrEqual(15);
    expect(header(last.text, 'x-ratelimit-remaining-requests')).toBe('0');
    expect(gateway.known('key-a').requests).toBe(5);
    expect(gateway.known('key-a').refused).toBe(31);
  });

  const PROMPT = 'x'.repeat(400);
  const messages = [{ role: 'user', content: PROMPT }];

  it.each<[string, RequestHandler, number | [number, number]]>([
    ['a whole answer: as reported', whole(700, 300), 1_000],
    [
      'a stream: as reported',
      async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(delta('a') + delta('b') + finish() + sse(`{"choices":[],${usage(600, 50)}}`) + DONE);
        await wire.lastChunk();
      },
      650,
    ],
    [
      'a stream the engine cut: what was delivered, and the estimate for the prompt',
      async (_request, wire) => {
        await wire.startStream();
        for (let i = 0; i < 50; i++) await wire.chunk(delta('a'));
        await wire.chunk('data: {"ha');
        wire.rst();
      },
      [50 + 80, 50 + 160],
    ],
    [
      'a whole answer without a report: by its size',
      (_r, wire) => wire.respond(200, `{"a":"${PROMPT}"}`),
      [180, 330],
    ],
    ['an engine that refuses: nothing', (_r, wire) => wire.respond(400, '{"error":{}}'), 0],
  ])('tokens, %s', async (_name, handler, charged) => {
    await start();
    const secret = gateway.key('key-a', { tokensPerMinute: 100_000 });
    gateway.harness.engine().onRequest(handler);
    const client = await gateway.chat(secret, { messages, stream: _name.includes('stream') });
    await client.response();
    await gateway.harness.settle();
    const { tokens, limiter } = gateway.known('key-a');
    const [least, most] = typeof charged === 'number' ? [charged, charged] : charged;
    expect(tokens).toBeGreaterThanOrEqual(least);
    expect(tokens).toBeLessThanOrEqual(most);
    expect(limiter.reservedTokens).toBe(0);
  });

  it('tokens, a stream the client left: what was delivered; and the next requests wait the debt off', async () => {
    await start();
    const secret = gateway.key('key-a', { tokensPerMinute: 60 });
    gateway.harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      for (let i = 0; i < 200; i++) await wire.chunk(delta('a'));
      await wire.waitClosed();
    });
    const client = await gateway.chat(secret, { stream: true, max_tokens: 500 });
    await waitFor(() => (client.text.match(/"a"/g)?.length ?? 0) === 200);
    client.rst();
    await gateway.harness.settle();
    expect(gateway.known('key-a').tokens).toBeGreaterThanOrEqual(200);
    expect(gateway.known('key-a').tokens).toBeLessThan(300);
    const refused = await gateway.chat(secret);
    expect((await refused.response()).status).toBe(429);
    expect(header(refused.text, 'x-ratelimit-limit-tokens')).toBe('60');
    expect(header(refused.text, 'x-ratelimit-remaining-tokens')).toBe('0');
    expect(header(refused.text, 'retry-after')).toBe('60');
  });
});

describe('the queue', () => {
  it('is ordered by the priority of keys, and shared among keys of one priority by tokens', async () => {
    await start(true, { endpoints: [{ maxConcurrency: 1 }] });
    const [greedy, modest, urgent] = [
      gateway.key('key-g'),
      gateway.key('key-m'),
      gateway.key('key-u', { priority: 500 }),
    ];
    let go = false;
    const { harness } = gateway;
    harness.engine().onNextRequest(async (_request, wire) => {
      await wire.until(() => go);
      await wire.respond(200, '{}');
    });
    const first = await gateway.chat(greedy);
    await harness.engine().request(0);
    const waiting = async (secret: string, user: string) => {
      const before = await harness.metric('llmgw_queue_depth{model="m1"}');
      const client = await gateway.chat(secret, { user });
      await waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === before + 1);
      return client;
    };
    const clients = [first];
    for (const [secret, user] of [
      [greedy, 'g1'],
      [greedy, 'g2'],
      [greedy, 'g3'],
      [modest, 'm1'],
      [modest, 'm2'],
      [urgent, 'u1'],
    ] as const) {
      clients.push(await waiting(secret, user));
    }
    go = true;
    for (const client of clients) await client.response();
    const order = harness
      .engine()
      .requests.slice(1)
      .map(({ body }) => /"user":"(\w+)"/.exec(body.toString())?.[1]);
    expect(order[0]).toBe('u1');
    expect(order.indexOf('m1')).toBeLessThan(order.indexOf('g2'));
    expect(order.indexOf('m2')).toBeLessThan(order.indexOf('g3'));
  });
});
