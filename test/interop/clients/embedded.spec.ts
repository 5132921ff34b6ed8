import type * as Anthropics from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LlmgwProcess, Scratch } from '../../support/llmgw-process.js';
import { waitFor } from '../../support/wait-for.js';
import { describeClients } from './installed.js';
import { errorOf } from './try-log.js';

// What somebody gets who only starts the program: its own small model, by the libraries they have at hand.
describeClients('the model that comes with the program', () => {
  const scratch = new Scratch();
  let up: LlmgwProcess;
  let library: typeof Anthropics;
  let client: Anthropics.Anthropic;
  let openai: OpenAI;
  let model = '';

  beforeAll(async () => {
    const listeners = ['--listen', '--admin-listen', '--agent-listen'].flatMap((flag) => [
      flag,
      '127.0.0.1:0',
    ]);
    up = new LlmgwProcess(['up', ...listeners, '--state-dir', scratch.path('state')], {}, scratch.dir);
    const url = await waitFor(
      () => {
        if (up.exited !== undefined) throw new Error(`up ended: ${up.stderr}`);
        return /curl [^]*?(http:\/\/[\d.]+:\d+)/.exec(up.stdout)?.[1];
      },
      { deadlineMs: 60_000, what: 'the line to try it with' },
    );
    library = await import('@anthropic-ai/sdk');
    client = new library.Anthropic({ apiKey: 'unused', baseURL: url, maxRetries: 0 });
    openai = new OpenAI({ apiKey: 'unused', baseURL: `${url}/v1`, maxRetries: 0 });
    model = (await openai.models.list()).data[0]?.id ?? '';
  });
  afterAll(async () => {
    await up?.dispose();
    scratch.remove();
  });

  const question = (maxTokens: number) => ({
    model,
    max_tokens: maxTokens,
    messages: [{ role: 'user' as const, content: 'What does a gateway do?' }],
  });

  it('answers the anthropic library, whole', async () => {
    const message = await client.messages.create(question(24));
    expect(message).toMatchObject({ type: 'message', role: 'assistant' });
    expect(message.content[0]).toMatchObject({ type: 'text', text: expect.stringMatching(/\w/) as string });
    expect(message.usage.input_tokens).toBeGreaterThan(0);
    expect(message.usage.output_tokens).toBeGreaterThan(0);
    expect(message.usage.output_tokens).toBeLessThanOrEqual(24);
    expect(['end_turn', 'max_tokens']).toContain(message.stop_reason);
  });

  it('streams to it, read event by event and by the helper', async () => {
    const names: string[] = [];
    let text = '';
    for await (const event of await client.messages.create({ ...question(24), stream: true })) {
      names.push(event.type);
      if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') text += event.delta.text;
    }
    expect(names[0]).toBe('message_start');
    expect(names.slice(-2)).toEqual(['message_delta', 'message_stop']);
    expect(text).toMatch(/\w/);
    const final = await client.messages.stream(question(24)).finalMessage();
    expect(final.content[0]?.type).toBe('text');
    expect(final.usage.output_tokens).toBeGreaterThan(0);
    expect(final.stop_reason).not.toBeNull();
  });

  it('takes a system prompt and blocks of text, and counts their tokens as it bills them', async () => {
    const { max_tokens: _, ...plain } = question(4);
    const long = {
      ...plain,
      system: 'Answer in few words.',
      messages: [
        { role: 'user' as const, content: [{ type: 'text' as const, text: 'Hello, who is there?' }] },
      ],
    };
    const short = await client.messages.countTokens(plain);
    const counted = await client.messages.countTokens(long);
    expect(counted.input_tokens).toBeGreaterThan(0);
    expect(counted.input_tokens).not.toBe(short.input_tokens);
    const message = await client.messages.create({ ...long, max_tokens: 4 });
    const { input_tokens: uncached, cache_read_input_tokens: cached } = message.usage;
    expect(uncached + (cached ?? 0)).toBe(counted.input_tokens);
  });

  it('stops when the reader does, and answers the next one', async () => {
    const stream = client.messages.stream(question(4_000));
    for await (const event of stream) if (event.type === 'content_block_delta') break;
    stream.abort();
    expect((await client.messages.create(question(4))).type).toBe('message');
  });

  it('refuses in the words its library knows', async () => {
    const unknown = await errorOf(client.messages.create({ ...question(4), model: 'nope' }));
    expect(unknown).toBeInstanceOf(library.NotFoundError);
    const { max_tokens: _, ...unlimited } = question(4);
    const missing = await errorOf(client.messages.create(unlimited as ReturnType<typeof question>));
    expect(missing).toBeInstanceOf(library.BadRequestError);
    expect(String(missing)).toContain('max_tokens');
  });

  it('answers the openai library the same text for the same seed, whole and streamed', async () => {
    const body = { ...question(24), seed: 11 };
    const whole = await openai.chat.completions.create(body);
    let text = '';
    for await (const chunk of await openai.chat.completions.create({ ...body, stream: true }))
      text += chunk.choices[0]?.delta.content ?? '';
    expect(text).toBe(whole.choices[0]?.message.content);
  });
});
