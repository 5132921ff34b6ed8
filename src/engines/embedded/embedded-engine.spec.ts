import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { eventData } from '../../../test/support/http-responses.js';
import { RawClient } from '../../../test/support/raw-client.js';
import { waitFor } from '../../../test/support/wait-for.js';
import { writeTinyModel } from '../tiny-model/tiny-model.js';
import { embeddedAvailable } from './availability.js';
import { EmbeddedEngine } from './embedded-engine.js';

const availability = await embeddedAvailable();

interface Answer {
  choices: { text?: string; message?: { role: string; content: string }; finish_reason: string }[];
  usage: {
    prompt_tokens: number;
    completion_tokens: number;
    prompt_tokens_details: { cached_tokens: number };
  };
}

interface Chunk {
  choices: { index: number; delta?: { content?: string }; text?: string; finish_reason: string | null }[];
  usage?: Answer['usage'] | null;
}

describe.skipIf(!availability.available)('EmbeddedEngine', () => {
  let directory: string;
  let modelFile: string;
  let engine: EmbeddedEngine;

  beforeAll(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'llmgw-embedded-'));
    modelFile = path.join(directory, 'tiny.gguf');
    await writeTinyModel(modelFile);
    engine = new EmbeddedEngine({
      modelFile,
      models: ['tiny', 'alias'],
      slots: 2,
      contextTokens: 1024,
      maxQueue: 4,
    });
    await engine.start();
    const early = await fetch(`http://127.0.0.1:${engine.port}/health`);
    expect(early.status).toBe(503);
    const refused = await post('/v1/completions', { model: 'tiny', prompt: 'x' });
    expect(refused.status).toBe(503);
    expect(refused.json).toHaveProperty('error.code', 503);
    await engine.loaded;
    expect((await fetch(`http://127.0.0.1:${engine.port}/health`)).status).toBe(200);
  }, 60_000);

  afterAll(async () => {
    await engine.stop();
    await rm(directory, { recursive: true });
  });

  const clients: RawClient[] = [];
  afterEach(() => {
    for (const client of clients.splice(0)) client.destroy();
  });

  async function post(pathname: string, body: unknown) {
    const response = await fetch(`http://127.0.0.1:${engine.port}${pathname}`, {
      method: 'POST',
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
    const text = await response.text();
    return { status: response.status, text, json: parse(text) };
  }

  function parse(text: string): unknown {
    try {
      return JSON.parse(text);
    } catch {
      return undefined;
    }
  }

  async function connect(): Promise<RawClient> {
    const client = await RawClient.connect(engine.port);
    clients.push(client);
    return client;
  }

  async function metric(name: string): Promise<number> {
    const text = await (await fetch(`http://127.0.0.1:${engine.port}/metrics`)).text();
    const line = text.split('\n').find((candidate) => candidate.startsWith(`vllm:${name}{`));
    return Number(line?.split(' ').at(-1));
  }

  const chat = (content: string, more: object = {}) => ({
    model: 'tiny',
    messages: [{ role: 'user', content }],
    seed: 5,
    max_tokens: 24,
    ...more,
  });
  const answer = async (body: object, pathname = '/v1/chat/completions') =>
    (await post(pathname, body)).json as Answer;
  const chunksOf = (text: string) =>
    eventData(text)
      .filter((data) => data !== '[DONE]')
      .map((data) => JSON.parse(data) as Chunk);

  it('says the same streamed and not, and the same again with the same seed', async () => {
    const whole = await answer(chat('hello'));
    const again = await answer(chat('hello'));
    const streamed = chunksOf((await post('/v1/chat/completions', chat('hello', { stream: true }))).text);
    const text = streamed.map((chunk) => chunk.choices[0]?.delta?.content ?? '').join('');
    expect(text).toMatch(/^[A-Z][a-z]+ [a-z]/);
    expect([whole.choices[0]?.message?.content, again.choices[0]?.message?.content]).toEqual([text, text]);
    expect(streamed.at(-1)?.choices[0]?.finish_reason).toBe('length');
    const others = await Promise.all([1, 2, 3].map((seed) => answer(chat('hello', { seed }))));
    expect(new Set(others.map((other) => other.choices[0]?.message?.content)).size).toBeGreaterThan(1);
  });

  it('speaks Anthropic’s API, streamed and not, and counts the tokens of a request', async () => {
    const messages = [{ role: 'user', content: [{ type: 'text', text: 'hello' }] }];
    const body = { model: 'tiny', system: 'Be brief.', messages, max_tokens: 12, seed: 5 };
    const whole = (await post('/v1/messages', body)).json as {
      content: { text: string }[];
      usage: { input_tokens: number; output_tokens: number; cache_read_input_tokens: number };
    };
    expect(whole).toMatchObject({
      ...{ type: 'message', role: 'assistant', model: 'tiny', stop_reason: 'max_tokens' },
      content: [{ type: 'text', text: expect.stringMatching(/^[A-Z][a-z]+ [a-z]/) as string }],
      usage: { output_tokens: 12 },
    });
    const { text } = await post('/v1/messages?beta=true', { ...body, stream: true });
    const events = eventData(text).map((data) => JSON.parse(data) as Record<string, unknown>);
    expect([...text.matchAll(/^event: (.*)$/gm)].map((match) => match[1])).toEqual(
      events.map((event) => event['type']),
    );
    const deltas = events.filter((event) => event['type'] === 'content_block_delta');
    expect(deltas.map((event) => (event['delta'] as { text: string }).text).join('')).toBe(
      whole.content[0]?.text,
    );
    const others = events.filter((event) => event['type'] !== 'content_block_delta');
    expect(others).toMatchObject([
      { type: 'message_start', message: { usage: { output_tokens: 0 } } },
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
      { type: 'ping' },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: 'max_tokens' }, usage: { output_tokens: 12 } },
      { type: 'message_stop' },
    ]);
    const counted = await post('/v1/messages/count_tokens', body);
    const { input_tokens: input, cache_read_input_tokens: cached } = whole.usage;
    expect(counted.json).toEqual({ input_tokens: input + cached });
    expect((await post('/v1/messages', { model: 'tiny', messages })).status).toBe(400);
  });

  it('is greedy at temperature 0, whatever the seed', async () => {
    const texts = await Promise.all(
      [1, 2].map(
        async (seed) => (await answer(chat('hi', { seed, temperature: 0 }))).choices[0]?.message?.content,
      ),
    );
    expect(texts[0]).toBe(texts[1]);
  });

  it('reuses the prefix that a slot remembers and says how much', async () => {
    const prompt = 'Some quite particular words that nobody has asked before. '.repeat(5);
    const first = await answer(chat(prompt));
    const second = await answer(chat(prompt));
    expect(first.usage.prompt_tokens_details.cached_tokens).toBeLessThan(20);
    expect(second.usage.prompt_tokens_details.cached_tokens).toBe(second.usage.prompt_tokens - 1);
    expect(second.choices).toEqual(first.choices);
    const messages = [
      { role: 'user', content: prompt },
      { role: 'assistant', content: second.choices[0]?.message?.content },
      { role: 'user', content: 'and then?' },
    ];
    const turn = await answer({ ...chat(''), messages });
    expect(turn.usage.prompt_tokens_details.cached_tokens).toBeGreaterThanOrEqual(
      second.usage.prompt_tokens - 1,
    );
    expect(await metric('prefix_cache_hits_total')).toBeGreaterThan(second.usage.prompt_tokens);
  });

  it('reports usage in a stream when asked, running usage when asked for that', async () => {
    const options = { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
    const chunks = chunksOf(
      (await post('/v1/chat/completions', chat('usage', { ...options, max_tokens: 3 }))).text,
    );
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 3 } });
    expect(chunks.slice(1, 4).map((chunk) => chunk.usage?.completion_tokens)).toEqual([1, 2, 3]);
    const without = await post('/v1/chat/completions', chat('usage', { stream: true }));
    expect(without.text).not.toContain('usage');
    expect(without.text.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  it('stops before a stop string, also one that spans tokens, and never shows a part of it', async () => {
    const full = (await answer(chat('stop'))).choices[0]?.message?.content ?? '';
    const stop = full.slice(12, 21);
    const body = chat('stop', { stop: ['never said', stop] });
    const cut = (await answer(body)).choices[0];
    expect(cut).toMatchObject({
      message: { content: full.slice(0, full.indexOf(stop)) },
      finish_reason: 'stop',
    });
    const streamed = chunksOf((await post('/v1/chat/completions', { ...body, stream: true })).text);
    expect(streamed.map((chunk) => chunk.choices[0]?.delta?.content ?? '').join('')).toBe(
      cut?.message?.content,
    );
  });

  it('ends by itself, or goes on when told to ignore that', async () => {
    const free = await answer(chat('free', { max_tokens: 900 }));
    expect(free.choices[0]).toMatchObject({ finish_reason: 'stop' });
    const forced = await answer(chat('free', { max_tokens: 400, ignore_eos: true }));
    expect(forced.usage.completion_tokens).toBe(400);
  });

  it('completes text, several texts and token ids', async () => {
    const body = { model: 'tiny', seed: 1, max_tokens: 4 };
    const two = await answer({ ...body, prompt: ['The gateway', 'A client'] }, '/v1/completions');
    expect(two.choices.map((choice) => typeof choice.text)).toEqual(['string', 'string']);
    expect(two.usage.completion_tokens).toBe(8);
    const { tokens } = (await post('/tokenize', { prompt: 'The gateway' })).json as { tokens: number[] };
    const byIds = await answer({ ...body, prompt: tokens }, '/v1/completions');
    expect(byIds.choices[0]?.text).toBe(two.choices[0]?.text);
    expect((await post('/detokenize', { tokens })).json).toEqual({ prompt: 'The gateway' });
    const streamed = chunksOf(
      (await post('/v1/completions', { ...body, prompt: ['The', 'A'], stream: true })).text,
    );
    expect(new Set(streamed.map((chunk) => chunk.choices[0]?.index))).toEqual(new Set([0, 1]));
  });

  it.each([
    ['a prompt longer than the context', chat('word '.repeat(3000)), 400],
    ['another model', { ...chat('a'), model: 'other' }, 404],
    ['no model', { messages: [] }, 400],
    ['broken JSON', '{"model":', 400],
    ['no messages', { model: 'tiny' }, 400],
    ['logprobs', chat('a', { logprobs: true }), 400],
    ['unknown token ids', { model: 'tiny', prompt: [99999] }, 400],
  ])('refuses %s in OpenAI’s shape, streamed or not', async (_what, body, status) => {
    const pathname =
      typeof body === 'object' && 'prompt' in body ? '/v1/completions' : '/v1/chat/completions';
    for (const stream of [false, true]) {
      const { status: got, json } = await post(
        pathname,
        typeof body === 'string' ? body : { ...body, stream },
      );
      expect(got).toBe(status);
      expect(json).toMatchObject({ error: { code: status, message: expect.any(String) as string } });
    }
  });

  it('knows its routes', async () => {
    const models = await (await fetch(`http://127.0.0.1:${engine.port}/v1/models`)).json();
    expect(models).toMatchObject({ data: [{ id: 'tiny', max_model_len: 1024 }, { id: 'alias' }] });
    expect(await answer({ ...chat('a'), model: 'alias' })).toMatchObject({ model: 'alias' });
    expect((await post('/nowhere', {})).status).toBe(404);
    expect((await fetch(`http://127.0.0.1:${engine.port}/v1/models`, { method: 'PUT' })).status).toBe(405);
  });

  it('gives embeddings as numbers and as base64', async () => {
    const embed = async (more: object) =>
      (await post('/v1/embeddings', { model: 'tiny', input: ['The gateway', 'A client'], ...more })).json as {
        data: { embedding: number[] | string }[];
      };
    const [plain, coded] = [await embed({}), await embed({ encoding_format: 'base64' })];
    const vector = plain.data[1]?.embedding as number[];
    expect(vector.some((value) => value !== 0)).toBe(true);
    const bytes = Buffer.from(coded.data[1]?.embedding as string, 'base64');
    expect(vector.map((_, index) => bytes.readFloatLE(index * 4))).toEqual(
      vector.map((value) => Math.fround(value)),
    );
  });

  it('frees the slot of a client that leaves in the stream', async () => {
    const client = await connect();
    await client.post(
      '/v1/chat/completions',
      chat('leave', { stream: true, max_tokens: 900, ignore_eos: true }),
    );
    await client.waitForText('content');
    client.rst();
    await waitFor(async () => (await metric('num_requests_running')) === 0);
    const generated = await metric('generation_tokens_total');
    await answer(chat('next', { max_tokens: 1 }));
    expect((await metric('generation_tokens_total')) - generated).toBe(1);
  });

  it('frees the slot of a client that leaves before the first byte, and the place of one that waits', async () => {
    const aborted = await metric('request_success_total');
    expect(aborted).toBeGreaterThan(0);
    const long = chat('w '.repeat(400), { max_tokens: 500, ignore_eos: true });
    const busy = [await connect(), await connect()];
    for (const client of busy) await client.post('/v1/chat/completions', long);
    await waitFor(async () => (await metric('num_requests_running')) === 2);
    const queued = await connect();
    await queued.post('/v1/chat/completions', long);
    await waitFor(async () => (await metric('num_requests_waiting')) === 1);
    queued.rst();
    await waitFor(async () => (await metric('num_requests_waiting')) === 0);
    for (const client of busy) client.halfClose();
    await waitFor(async () => (await metric('num_requests_running')) === 0);
    expect((await answer(chat('still works'))).choices).toHaveLength(1);
  });

  it('refuses what does not fit into the queue', async () => {
    const long = chat('q', { max_tokens: 900, ignore_eos: true });
    const others = await Promise.all(Array.from({ length: 6 }, connect));
    for (const client of others) await client.post('/v1/chat/completions', long);
    await waitFor(async () => (await metric('num_requests_waiting')) === 4);
    const { status } = await post('/v1/chat/completions', chat('one more'));
    expect(status).toBe(503);
    for (const client of others) client.rst();
    await waitFor(async () => (await metric('num_requests_running')) === 0);
  });

  it('lets running requests finish when it stops, and refuses the rest', async () => {
    const other = new EmbeddedEngine({ modelFile, models: ['tiny'], slots: 1, contextTokens: 1024 });
    await other.start();
    await other.loaded;
    const [running, queued] = await Promise.all([
      RawClient.connect(other.port),
      RawClient.connect(other.port),
    ]);
    clients.push(running, queued);
    const body = chat('stop', { stream: true, max_tokens: 300, ignore_eos: true });
    await running.post('/v1/chat/completions', body);
    await running.waitForText('content');
    await queued.post('/v1/chat/completions', body);
    const stopping = other.stop(60_000);
    expect((await queued.response()).status).toBe(503);
    expect((await running.response()).body.toString()).toContain('[DONE]');
    await stopping;
  });

  it('cuts what runs on when the grace is over', async () => {
    const other = new EmbeddedEngine({ modelFile, models: ['tiny'], contextTokens: 4096 });
    await other.start();
    await other.loaded;
    const client = await RawClient.connect(other.port);
    clients.push(client);
    await client.post(
      '/v1/chat/completions',
      chat('cut', { stream: true, max_tokens: 4000, ignore_eos: true }),
    );
    await client.waitForText('content');
    await other.stop(0);
    await client.waitClosed();
    expect(client.text).not.toContain('[DONE]');
  });

  it('says what is wrong with a model file', async () => {
    const [garbage, truncated] = [
      path.join(directory, 'garbage.gguf'),
      path.join(directory, 'truncated.gguf'),
    ];
    await writeFile(garbage, 'GGUF and then nothing');
    await writeFile(truncated, (await readFile(modelFile)).subarray(0, 30_000));
    for (const [modelPath, message] of [
      [garbage, 'GGUF version'],
      [truncated, 'cannot load'],
      [path.join(directory, 'missing.gguf'), 'cannot read'],
      [import.meta.filename, 'is no GGUF file'],
    ] as const) {
      const bad = new EmbeddedEngine({ modelFile: modelPath, models: ['x'] });
      await bad.start();
      await expect(bad.loaded).rejects.toThrow(message);
      await bad.stop();
    }
  });
});
