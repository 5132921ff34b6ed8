import { createHash } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { eventData } from '../../../test/support/http-responses.js';
import { RawClient } from '../../../test/support/raw-client.js';
import { waitFor } from '../../../test/support/wait-for.js';
import type { SimOptions } from './options.js';
import { SimEngine } from './sim-engine.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

async function startEngine(options: Partial<SimOptions> = {}): Promise<SimEngine> {
  const engine = new SimEngine({ models: ['m1'], ...options });
  cleanups.push(() => engine.stop());
  await engine.start();
  return engine;
}

async function connect(engine: SimEngine): Promise<RawClient> {
  const client = await RawClient.connect(engine.port);
  cleanups.push(() => client.destroy());
  return client;
}

const chat = (text: string, more: object = {}) => ({
  model: 'm1',
  messages: [{ role: 'user', content: text }],
  max_tokens: 8,
  ...more,
});

async function post(engine: SimEngine, path: string, body: unknown, headers: Record<string, string> = {}) {
  const response = await fetch(engine.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text };
}

interface ChatChunk {
  choices: {
    delta: {
      content?: string;
      tool_calls?: { id?: string; function: { name?: string; arguments: string } }[];
    };
  }[];
  usage?: { completion_tokens: number; prompt_tokens_details: { cached_tokens: number } } | null;
}

const chunks = (text: string) =>
  eventData(text)
    .filter((data) => data !== '[DONE]')
    .map((data) => JSON.parse(data) as ChatChunk);
const streamedText = (text: string) =>
  chunks(text)
    .map((chunk) => chunk.choices[0]?.delta.content ?? '')
    .join('');

interface Whole {
  choices: { message: { content: string }; finish_reason: string }[];
  usage: {
    prompt_tokens: number;
    completion_tokens: number;
    prompt_tokens_details: { cached_tokens: number };
  };
}
const whole = (text: string) => JSON.parse(text) as Whole;

describe('answers', () => {
  it('are the same streamed or not, on any replica with the same seed, and differ by prompt and seed', async () => {
    const [a, b, other] = await Promise.all([
      startEngine(),
      startEngine({ name: 'b' }),
      startEngine({ seed: 2 }),
    ]);
    const plain = whole((await post(a, '/v1/chat/completions', chat('hello'))).text).choices[0]?.message
      .content;
    const streamed = streamedText(
      (await post(b, '/v1/chat/completions', chat('hello', { stream: true }))).text,
    );
    expect(streamed).toBe(plain);
    const texts = await Promise.all(
      [chat('hello!'), chat('hello', { seed: 7 })].map(
        async (body) => whole((await post(a, '/v1/chat/completions', body)).text).choices[0]?.message.content,
      ),
    );
    const fromOther = whole((await post(other, '/v1/chat/completions', chat('hello'))).text).choices[0];
    expect(new Set([plain, ...texts, fromOther?.message.content]).size).toBe(4);
  });

  it('have exactly max_tokens tokens, or end by themselves within the default', async () => {
    const engine = await startEngine({ maxTokensDefault: 20 });
    const limited = whole((await post(engine, '/v1/chat/completions', chat('a', { max_tokens: 13 }))).text);
    expect(limited.usage.completion_tokens).toBe(13);
    expect(limited.choices[0]?.finish_reason).toBe('length');
    const free = whole((await post(engine, '/v1/chat/completions', { ...chat('a'), max_tokens: null })).text);
    expect(free.choices[0]?.finish_reason).toBe('stop');
    expect(free.usage.completion_tokens).toBeLessThanOrEqual(20);
  });

  it('stop before a stop string', async () => {
    const engine = await startEngine();
    const full =
      whole((await post(engine, '/v1/chat/completions', chat('a'))).text).choices[0]?.message.content ?? '';
    const stop = full.slice(20, 24);
    const body = chat('a', { stop: [stop, 'never this'] });
    const cut = whole((await post(engine, '/v1/chat/completions', body)).text).choices[0];
    expect(cut?.message.content).toBe(full.slice(0, full.indexOf(stop)));
    expect(cut?.finish_reason).toBe('stop');
    const streamed = await post(engine, '/v1/chat/completions', { ...body, stream: true });
    expect(streamedText(streamed.text)).toBe(cut?.message.content);
  });

  it('report usage only when asked, running usage only when asked for that', async () => {
    const engine = await startEngine();
    const usages = async (options: object) => {
      const { text } = await post(engine, '/v1/chat/completions', chat('a', { stream: true, ...options }));
      return chunks(text).map((chunk) => (chunk.usage === null ? null : chunk.usage?.completion_tokens));
    };
    expect(new Set(await usages({}))).toEqual(new Set([undefined]));
    const once = await usages({ stream_options: { include_usage: true } });
    expect(once.slice(0, -1).every((usage) => usage === null)).toBe(true);
    expect(once.at(-1)).toBe(8);
    const running = await usages({ stream_options: { include_usage: true, continuous_usage_stats: true } });
    expect(running).toEqual([null, 1, 2, 3, 4, 5, 6, 7, 8, null, 8]);
  });

  it('call a tool in pieces: id and name first, arguments after', async () => {
    const engine = await startEngine();
    const tools = [{ type: 'function', function: { name: 'lookup', parameters: {} } }];
    const body = chat('please call tool now', { tools, stream: true });
    const { text } = await post(engine, '/v1/chat/completions', body);
    const calls = chunks(text).flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []);
    expect(calls[0]).toMatchObject({ index: 0, function: { name: 'lookup', arguments: '' } });
    expect(calls.slice(1).every((call) => call.id === undefined)).toBe(true);
    const args = calls.map((call) => call.function.arguments).join('');
    expect(JSON.parse(args)).toHaveProperty('query');
    expect(text).toContain('"finish_reason":"tool_calls"');
  });

  it('speak Anthropic’s and the Responses API’s events', async () => {
    const engine = await startEngine();
    const messages = await post(engine, '/v1/messages', chat('a', { stream: true }));
    const names = messages.text.match(/^event: (.*)$/gm)?.map((line) => line.slice(7)) ?? [];
    expect([names[0], names[1], names[2]]).toEqual([
      'message_start',
      'content_block_start',
      'content_block_delta',
    ]);
    expect(names.slice(-3)).toEqual(['content_block_stop', 'message_delta', 'message_stop']);
    const responses = await post(engine, '/v1/responses', { model: 'm1', input: 'a', stream: true });
    const numbers = eventData(responses.text).map(
      (data) => (JSON.parse(data) as { sequence_number: number }).sequence_number,
    );
    expect(numbers).toEqual(numbers.map((_, index) => index));
    expect(responses.text).toContain('event: response.completed');
    expect(responses.text).not.toContain('[DONE]');
  });

  it('come on the other routes too: embeddings, scores, tokens, files', async () => {
    const engine = await startEngine();
    const embed = async (more: object) =>
      JSON.parse(
        (await post(engine, '/v1/embeddings', { model: 'm1', input: ['a', 'b'], ...more })).text,
      ) as {
        data: { embedding: number[] | string }[];
      };
    const [plain, coded] = await Promise.all([embed({}), embed({ encoding_format: 'base64' })]);
    const vector = plain.data[0]?.embedding as number[];
    const bytes = Buffer.from(coded.data[0]?.embedding as string, 'base64');
    expect(vector).toHaveLength(64);
    expect(bytes.readFloatLE(0)).toBe(vector[0]);
    expect(plain.data[1]?.embedding).not.toEqual(vector);

    const tokens = JSON.parse((await post(engine, '/tokenize', { prompt: 'grüße, world' })).text) as {
      tokens: number[];
    };
    const back = await post(engine, '/detokenize', { tokens: tokens.tokens });
    expect(JSON.parse(back.text)).toMatchObject({ prompt: 'grüße, world' });

    const documents = ['x', 'y', 'z'];
    const ranked = await post(engine, '/v1/rerank', { model: 'm1', query: 'q', documents, top_n: 2 });
    expect((JSON.parse(ranked.text) as { results: unknown[] }).results).toHaveLength(2);

    for (const [path, body, member] of [
      ['/v1/classify', { input: ['x'] }, 'data'],
      ['/v1/moderations', { input: 'x' }, 'results'],
      ['/v1/images/generations', { prompt: 'x' }, 'data'],
    ] as const) {
      expect(JSON.parse((await post(engine, path, { model: 'm1', ...body })).text)).toHaveProperty(member);
    }
    const spoken = await post(engine, '/v1/audio/speech', { model: 'm1', input: 'hello' });
    expect(spoken.headers.get('content-type')).toBe('audio/mpeg');
    expect(spoken.headers.get('content-length')).toBe(String(32 * 6));

    const form = new FormData();
    const file = Buffer.from(Array.from({ length: 1000 }, (_, index) => index % 256));
    form.set('model', 'm1');
    form.set('file', new Blob([file]), 'a.wav');
    const heard = await fetch(`${engine.url}/v1/audio/transcriptions`, { method: 'POST', body: form });
    expect(await heard.json()).toMatchObject({ text: createHash('sha256').update(file).digest('hex') });
  });
});

describe('the prefix cache', () => {
  const long = 'The same long system prompt. '.repeat(40);

  it('makes the shared part of a second prompt cached, and says how much', async () => {
    const engine = await startEngine();
    const cached = async (text: string) =>
      whole((await post(engine, '/v1/chat/completions', chat(text))).text).usage.prompt_tokens_details
        .cached_tokens;
    expect(await cached(`${long}one`)).toBe(0);
    expect(await cached(`${long}two`)).toBeGreaterThan(250);
    expect(await cached(`other ${long}`)).toBe(0);
  });

  it('keeps the answer for the next turn of a conversation', async () => {
    const engine = await startEngine();
    const first = whole((await post(engine, '/v1/chat/completions', chat(long, { max_tokens: 60 }))).text);
    const messages = [
      { role: 'user', content: long },
      { role: 'assistant', content: first.choices[0]?.message.content },
      { role: 'user', content: 'and then?' },
    ];
    const second = whole((await post(engine, '/v1/chat/completions', { ...chat(''), messages })).text);
    expect(second.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(first.usage.prompt_tokens + 30);
  });

  it('forgets the least recently used when it is full', async () => {
    const engine = await startEngine({ cacheBlocks: 32 });
    const ask = async (text: string) =>
      whole((await post(engine, '/v1/chat/completions', chat(text, { max_tokens: 1 }))).text).usage
        .prompt_tokens_details.cached_tokens;
    await ask(`a ${long}`);
    expect(await ask(`a ${long}`)).toBeGreaterThan(0);
    await ask(`b ${long}`);
    await ask(`c ${long}`);
    expect(await ask(`a ${long}`)).toBe(0);
    expect(engine.stats().cacheBlocks).toBeLessThanOrEqual(32);
  });

  it('shortens the time to the first token', async () => {
    const engine = await startEngine({ prefillMsPerToken: 0.2 });
    await post(engine, '/v1/chat/completions', chat(long));
    await post(engine, '/v1/chat/completions', chat(long));
    const [cold, warm] = engine.requests();
    // 290 tokens at 0.2 ms against at most one block and a rest: ten times less, so load on the machine cannot turn it round.
    expect(cold?.firstTokenAfterMs).toBeGreaterThan(50);
    expect(warm?.cachedTokens).toBeGreaterThan(250);
    expect((warm?.firstTokenAfterMs ?? Infinity) - (warm?.startedAfterMs ?? 0)).toBeLessThan(
      cold?.firstTokenAfterMs ?? 0,
    );
  });
});

describe('slots and queue', () => {
  it('runs no more than its slots and serves the rest in order', async () => {
    const engine = await startEngine({ slots: 2, tpotMs: 3 });
    await Promise.all(
      Array.from({ length: 6 }, (_, index) =>
        post(engine, '/v1/chat/completions', chat(`q${index}`), { 'x-request-id': `r${index}` }),
      ),
    );
    const stats = engine.stats();
    expect(stats).toMatchObject({ maxRunning: 2, completed: 6, running: 0, waiting: 0 });
    const starts = engine.requests().map((record) => record.receivedAtMs + (record.startedAfterMs ?? 0));
    expect(starts).toEqual([...starts].sort((a, b) => a - b));
  });

  it.each([
    ['vllm', 503],
    ['sglang', 200],
  ] as const)('refuses a stream when the queue is full: %s answers %i', async (dialect, status) => {
    const engine = await startEngine({ dialect, slots: 1, maxQueue: 0, tpotMs: 1000 });
    const busy = await connect(engine);
    await busy.post('/v1/chat/completions', chat('long', { stream: true }));
    await waitFor(() => engine.stats().running === 1);
    const refused = await post(engine, '/v1/chat/completions', chat('b', { stream: true }));
    expect(refused.status).toBe(status);
    const [first] = dialect === 'sglang' ? eventData(refused.text) : [refused.text];
    expect(JSON.parse(first ?? '')).toHaveProperty('error.code', 503);
    const plain = await post(engine, '/v1/chat/completions', chat('b'));
    expect(plain.status).toBe(503);
  });

  it('lets llama.cpp’s dialect wait without limit and without headers', async () => {
    const engine = await startEngine({ dialect: 'llamacpp', slots: 1, maxQueue: 0, tpotMs: 1000 });
    const busy = await connect(engine);
    await busy.post('/v1/chat/completions', chat('long', { stream: true }));
    await busy.waitForText('\r\n\r\n');
    const waiting = await connect(engine);
    await waiting.post('/v1/chat/completions', chat('b', { stream: true, max_tokens: 1 }));
    await waitFor(() => engine.stats().waiting === 1);
    expect(waiting.text).toBe('');
    busy.rst();
    await waiting.response();
  });
});

describe('header timing', () => {
  it.each([
    ['vllm', true],
    ['llamacpp', true],
    ['sglang', false],
  ] as const)('%s sends the head before the first token: %s', async (dialect, early) => {
    const engine = await startEngine({ dialect, ttftMs: 100_000 });
    const client = await connect(engine);
    await client.post('/v1/chat/completions', chat('a', { stream: true }));
    await waitFor(() => engine.stats().running === 1);
    if (early) await client.waitForText('text/event-stream');
    else expect(client.text).toBe('');
    expect(client.text).not.toContain('data:');
  });

  it('vllm sends the head even while the request waits for a slot', async () => {
    const engine = await startEngine({ slots: 1, ttftMs: 100_000 });
    const [first, second] = [await connect(engine), await connect(engine)];
    await first.post('/v1/chat/completions', chat('a', { stream: true }));
    await waitFor(() => engine.stats().running === 1);
    await second.post('/v1/chat/completions', chat('b', { stream: true }));
    await second.waitForText('text/event-stream');
    expect(engine.stats().waiting).toBe(1);
  });

  it('llama.cpp’s dialect pings a silent stream', async () => {
    const engine = await startEngine({ dialect: 'llamacpp', ttftMs: 100_000, pingMs: 5 });
    const client = await connect(engine);
    await client.post('/v1/chat/completions', chat('a', { stream: true }));
    await client.waitForText(':\n\n');
  });
});

describe('loading', () => {
  it('vllm refuses connections until it is loaded', async () => {
    const engine = new SimEngine({ startupMs: 50 });
    cleanups.push(() => engine.stop());
    const starting = engine.start({ port: 0 });
    expect(engine.stats()).toMatchObject({ ready: false });
    expect(engine.port).toBe(0);
    await starting;
    expect((await fetch(`${engine.url}/health`)).status).toBe(200);
  });

  it('llama.cpp answers 503 on every path, sglang where the model is needed', async () => {
    const [llama, sglang] = await Promise.all([
      startEngine({ dialect: 'llamacpp', startupMs: 100_000 }),
      startEngine({ dialect: 'sglang', startupMs: 100_000 }),
    ]);
    for (const path of ['/health', '/v1/models', '/metrics']) {
      const response = await fetch(llama.url + path);
      expect(response.status).toBe(503);
      expect(await response.json()).toEqual({
        error: { message: 'Loading model', type: 'unavailable_error', code: 503 },
      });
    }
    expect((await fetch(`${sglang.url}/health`)).status).toBe(503);
    expect((await fetch(`${sglang.url}/ping`)).status).toBe(200);
  });

  it('becomes ready by itself', async () => {
    const engine = await startEngine({ dialect: 'sglang', startupMs: 20 });
    await waitFor(async () => (await fetch(`${engine.url}/health`)).status === 200);
  });
});

describe('refusals', () => {
  it('have each dialect’s shape', async () => {
    const refuse = async (dialect: SimOptions['dialect'], path: string, body: unknown) => {
      const engine = await startEngine({ dialect });
      const { status, text } = await post(engine, path, body);
      return [status, JSON.parse(text)] as const;
    };
    const wrongModel = { ...chat('a'), model: 'nope' };
    expect(await refuse('vllm', '/v1/chat/completions', wrongModel)).toEqual([
      404,
      {
        error: {
          message: 'The model `nope` does not exist.',
          type: 'NotFoundError',
          param: 'model',
          code: 404,
        },
      },
    ]);
    expect(await refuse('sglang', '/v1/chat/completions', wrongModel)).toMatchObject([
      404,
      { object: 'error', type: 'NotFoundError', code: 404 },
    ]);
    expect((await refuse('llamacpp', '/v1/chat/completions', wrongModel))[0]).toBe(200);
    expect(await refuse('llamacpp', '/v1/chat/completions', '{"model":')).toMatchObject([
      500,
      { error: { code: 500, type: 'server_error' } },
    ]);
    expect((await refuse('vllm', '/v1/chat/completions', '{"model":'))[0]).toBe(400);
    expect((await refuse('vllm', '/v1/chat/completions', { model: 'm1' }))[0]).toBe(400);
    expect(await refuse('vllm', '/v1/messages', wrongModel)).toMatchObject([
      404,
      { type: 'error', error: { type: 'not_found_error' } },
    ]);
    expect((await refuse('vllm', '/nowhere', {}))[0]).toBe(404);
  });

  it('name a prompt that does not fit', async () => {
    const long = 'x'.repeat(4 * 200);
    const [vllm, llama] = await Promise.all([
      startEngine({ maxModelLen: 100 }),
      startEngine({ maxModelLen: 100, dialect: 'llamacpp' }),
    ]);
    for (const stream of [false, true]) {
      expect((await post(vllm, '/v1/chat/completions', chat(long, { stream }))).status).toBe(400);
      const tooLong = await post(llama, '/v1/chat/completions', chat(long, { stream }));
      expect(tooLong.status).toBe(400);
      expect(JSON.parse(tooLong.text)).toMatchObject({
        error: { type: 'exceed_context_size_error', n_ctx: 100 },
      });
    }
    expect((await post(vllm, '/v1/chat/completions', chat('hi', { max_tokens: 100 }))).status).toBe(400);
    expect((await post(llama, '/v1/chat/completions', chat('hi', { max_tokens: 500 }))).status).toBe(200);
  });
});

describe('a client that leaves', () => {
  it.each([
    [
      'in the stream',
      { stream: true },
      { tpotMs: 2 },
      (engine: SimEngine) => engine.stats().tokensGenerated >= 2,
    ],
    [
      'before the first token',
      { stream: true },
      { ttftMs: 100_000 },
      (engine: SimEngine) => engine.stats().running === 1,
    ],
    ['in prefill', {}, { prefillMsPerToken: 10_000 }, (engine: SimEngine) => engine.stats().running === 1],
    [
      'while a whole answer grows',
      {},
      { tpotMs: 2 },
      (engine: SimEngine) => engine.stats().tokensGenerated >= 2,
    ],
  ])('%s frees its slot at once', async (_when, more, options, reached) => {
    const engine = await startEngine(options);
    for (const leave of ['rst', 'halfClose'] as const) {
      engine.reset();
      const client = await connect(engine);
      await client.post('/v1/chat/completions', chat('a', { max_tokens: 10_000, ...more }));
      await waitFor(() => reached(engine));
      client[leave]();
      await waitFor(() => engine.stats().running === 0);
      expect(engine.stats()).toMatchObject({ abortedByClient: 1, tokensAfterAbort: 0, completed: 0 });
      expect(engine.requests().map((record) => record.outcome)).toEqual(['aborted']);
    }
  });

  it('leaves the queue, too, and the next moves up', async () => {
    const engine = await startEngine({ slots: 1, ttftMs: 100_000 });
    const [running, queued, patient] = [await connect(engine), await connect(engine), await connect(engine)];
    for (const [index, client] of [running, queued, patient].entries()) {
      await client.post('/v1/chat/completions', chat(`q${index}`));
      await waitFor(() => engine.stats().requests === index + 1);
    }
    queued.rst();
    await waitFor(() => engine.stats().waiting === 1);
    running.rst();
    await waitFor(() => engine.requests()[2]?.startedAfterMs !== undefined);
    expect(engine.stats()).toMatchObject({ running: 1, waiting: 0, abortedByClient: 2 });
  });

  it('is ignored when asked so: the engine generates on for nobody', async () => {
    const engine = await startEngine({ tpotMs: 1 });
    const client = await connect(engine);
    const body = chat('a', { stream: true, max_tokens: 30 });
    await client.post('/v1/chat/completions', body, { 'x-sim-fault': 'ignore-disconnect' });
    await client.waitForText('data: ');
    client.rst();
    await waitFor(() => engine.stats().running === 0);
    expect(engine.stats().tokensGenerated).toBe(30);
    expect(engine.stats().tokensAfterAbort).toBeGreaterThan(0);
    expect(engine.stats().abortedByClient).toBe(1);
  });

  it('can be told to sglang by its rid', async () => {
    const engine = await startEngine({ dialect: 'sglang', ttftMs: 100_000 });
    const client = await connect(engine);
    await client.post('/v1/chat/completions', chat('a', { stream: true, rid: 'r-1' }));
    await waitFor(() => engine.stats().running === 1);
    await post(engine, '/abort_request', { rid: 'other' });
    expect(engine.stats().running).toBe(1);
    await post(engine, '/abort_request', { rid: 'r-1' });
    expect(engine.stats().running).toBe(0);
    await client.waitClosed();
  });

  it('is told apart from an engine that stops', async () => {
    const engine = await startEngine({ ttftMs: 100_000 });
    const client = await connect(engine);
    await client.post('/v1/chat/completions', chat('a'));
    await waitFor(() => engine.stats().running === 1);
    await engine.stop();
    expect(engine.stats()).toMatchObject({ abortedByClient: 0, running: 0, openConnections: 0 });
  });
});

describe('a client that reads slowly', () => {
  it('holds the answer back instead of filling memory, and gets all of it in the end', async () => {
    const engine = await startEngine({ maxModelLen: 200_000 });
    const client = await connect(engine);
    client.pause();
    const tokens = 100_000;
    await client.post('/v1/chat/completions', chat('a', { stream: true, max_tokens: tokens }));
    await waitFor(() => engine.stats().tokensGenerated > 1000);
    // More than the kernel's buffers take: what was generated must stand still far before the end.
    let before = -1;
    await waitFor(() => {
      const now = engine.stats().tokensGenerated;
      const still = now === before;
      before = now;
      return still;
    });
    expect(engine.stats().tokensGenerated).toBeLessThan(tokens / 2);
    client.resume();
    await waitFor(() => engine.stats().completed === 1);
    await client.waitForText('data: [DONE]\n\n');
  });
});

describe('load and log', () => {
  it('slows down with the slots taken', async () => {
    const engine = await startEngine({ slots: 2, tpotMs: 4, loadFactor: 10 });
    await post(engine, '/v1/chat/completions', chat('alone'));
    await Promise.all([
      post(engine, '/v1/chat/completions', chat('one')),
      post(engine, '/v1/chat/completions', chat('two')),
    ]);
    const [alone, , second] = engine.requests().map((record) => record.endedAfterMs ?? 0);
    expect(alone).toBeGreaterThanOrEqual(28 - 1);
    expect(second).toBeGreaterThanOrEqual(280 - 1);
  });

  it('keeps what came in by request id, without header values', async () => {
    const engine = await startEngine();
    await post(engine, '/v1/chat/completions', chat('a'), {
      'x-request-id': 'r1-1',
      authorization: 'Bearer secret',
    });
    await post(engine, '/v1/chat/completions', chat('a'), { 'x-request-id': 'r1-2' });
    await post(engine, '/v1/chat/completions', chat('a'), { 'x-request-id': 'r10' });
    const log = await (await fetch(`${engine.url}/sim/requests?id=r1`)).text();
    expect(
      (JSON.parse(log) as { requests: { requestId: string }[] }).requests.map((r) => r.requestId),
    ).toEqual(['r1-1', 'r1-2']);
    expect(log).toContain('authorization');
    expect(log).not.toContain('secret');
  });

  it.each(['vllm', 'sglang', 'llamacpp'] as const)('has metrics in the names of %s', async (dialect) => {
    const engine = await startEngine({ dialect, slots: 1, ttftMs: 100_000 });
    const [running, queued] = [await connect(engine), await connect(engine)];
    await running.post('/v1/chat/completions', chat('a'));
    await waitFor(() => engine.stats().running === 1);
    await queued.post('/v1/chat/completions', chat('b'));
    await waitFor(() => engine.stats().waiting === 1);
    const text = await (await fetch(`${engine.url}/metrics`)).text();
    const names = {
      vllm: [
        'vllm:num_requests_running{model_name="m1",engine="0"} 1',
        'vllm:num_requests_waiting{model_name="m1",engine="0"} 1',
      ],
      sglang: ['sglang:num_running_reqs{model_name="m1"} 1', 'sglang:num_queue_reqs{model_name="m1"} 1'],
      llamacpp: ['llamacpp:requests_processing 1', 'llamacpp:requests_deferred 1'],
    }[dialect];
    for (const name of names) expect(text).toContain(`${name}\n`);
  });
});
