import { afterAll, beforeAll, expect, it, describe } from 'vitest';
import { embeddedAvailable } from '../../../src/engines/embedded/availability.js';
import { DIALECTS, type Dialect } from '../../../src/engines/sim/options.js';
import { SimEngine } from '../../../src/engines/sim/sim-engine.js';
import { writeTinyModel } from '../../../src/engines/tiny-model/tiny-model.js';
import { Scratch } from '../../support/llmgw-process.js';
import type { ClientKind, Question } from './adapters/client-kind.js';
import { CHAT_KINDS, CLIENT_KINDS } from './client-kinds.js';
import { EngineProcess, Gateway } from './gateway.js';
import { describeClients } from './installed.js';
import { errorOf, statusOf } from './try-log.js';

const QUESTION: Question = { prompt: 'Tell me about the gateway', maxTokens: 24, seed: 5 };

/** What must hold for every client at every engine. */
function answers(
  kinds: readonly ClientKind[],
  setup: () => { gateway: string; engine: string; model: string },
) {
  it.each(kinds)('$name: a stream says what the whole answer says', async (kind) => {
    const client = await kind.open({ ...setup(), retries: 0 });
    const whole = await client.whole({ ...QUESTION, usage: true });
    const streamed = await client.stream({ ...QUESTION, usage: true });
    expect(whole.text).not.toBe('');
    expect(whole.usage?.prompt).toBeGreaterThan(0);
    expect(whole.usage?.completion).toBeGreaterThan(0);
    expect(streamed.text).toBe(whole.text);
    expect(streamed.usage).toEqual(whole.usage);
  });

  it.each(kinds)('$name: a stream is the same as straight from the engine', async (kind) => {
    const { gateway, engine, model } = setup();
    const through = await kind.open({ gateway, model, retries: 0 });
    const direct = await kind.open({ gateway: engine, model, retries: 0 });
    for (const usage of [true, false]) {
      const question = { ...QUESTION, usage };
      expect(await through.stream(question)).toEqual(await direct.stream(question));
    }
  });

  const choosers = kinds.filter(({ usageByChoice }) => usageByChoice);
  it.each(choosers)('$name: usage comes only when asked for', async (kind) => {
    const client = await kind.open({ ...setup(), retries: 0 });
    const told = await client.stream({ ...QUESTION, usage: false });
    expect(told.text).not.toBe('');
    expect(told.usage).toBeUndefined();
    expect(told.chunksWithoutChoice ?? 0).toBe(0);
  });
}

describeClients('answers of simulated engines', () => {
  const engines = new Map<Dialect, SimEngine>(
    DIALECTS.map((dialect) => [dialect, new SimEngine({ models: [dialect], dialect, tpotMs: 1 })]),
  );
  let gateway: Gateway;

  beforeAll(async () => {
    for (const engine of engines.values()) await engine.start();
    gateway = await Gateway.start(
      [...engines].map(([dialect, engine]) => ({ id: dialect, url: engine.url, models: [dialect] })),
    );
  });
  afterAll(async () => {
    await gateway?.stop();
    for (const engine of engines.values()) await engine.stop();
  });

  describe.each(DIALECTS)('%s', (dialect) => {
    const setup = () => ({ gateway: gateway.url, engine: engines.get(dialect)?.url ?? '', model: dialect });
    answers(CLIENT_KINDS, setup);

    it.each(CLIENT_KINDS)('$name: tool calls are put together', async (kind) => {
      const client = await kind.open({ ...setup(), retries: 0 });
      const question = { prompt: 'please call tool', seed: 5, tool: true };
      const whole = await client.whole(question);
      expect(whole.toolCalls).toEqual([
        {
          name: 'lookup',
          args: { query: expect.any(String) as unknown, limit: expect.any(Number) as unknown },
        },
      ]);
      expect((await client.stream(question)).toolCalls).toEqual(whole.toolCalls);
    });
  });
});

const availability = await embeddedAvailable();

describeClients('answers of the embedded engine', () => {
  if (!availability.available) return it.skip(availability.reason);
  const scratch = new Scratch();
  let engine: EngineProcess;
  let engineUrl: string;
  let gateway: Gateway;

  beforeAll(async () => {
    const model = scratch.path('tiny.gguf');
    await writeTinyModel(model);
    [engine, engineUrl] = await EngineProcess.start('embedded', ['--model-file', model, '--model', 'tiny']);
    gateway = await Gateway.start([{ id: 'e1', url: engineUrl, models: ['tiny'] }]);
  });
  afterAll(async () => {
    await gateway?.stop();
    await engine?.kill();
    scratch.remove();
  });

  answers(CHAT_KINDS, () => ({ gateway: gateway.url, engine: engineUrl, model: 'tiny' }));

  it.each(CHAT_KINDS)('$name: what the engine refuses reaches the caller in its words', async (kind) => {
    const client = await kind.open({ gateway: gateway.url, model: 'tiny' });
    for (const way of ['whole', 'stream'] as const) {
      const error = await errorOf(client[way]({ prompt: 'please call tool', tool: true }));
      expect(statusOf(error)).toBe(400);
      expect(error.message).toContain('tools is not supported by the embedded engine');
    }
  });
});
