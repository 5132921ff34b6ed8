import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DIALECTS } from '../../../src/engines/sim/options.js';
import { SimEngine } from '../../../src/engines/sim/sim-engine.js';
import { waitFor } from '../../support/wait-for.js';
import type { ClientKind, TextClient } from './adapters/client-kind.js';
import { CLIENT_KINDS } from './client-kinds.js';
import { Gateway, type EndpointSetup } from './gateway.js';
import { describeClients } from './installed.js';
import { errorOf, statusOf, TryLog } from './try-log.js';

const ASK = { prompt: 'Tell me about errors', maxTokens: 24, seed: 5 };

/** The same question with a fault for the engine that answers it. */
const faulty = (fault: string, engine?: string) => ({
  ...ASK,
  prompt: `${ASK.prompt}[[fault${engine === undefined ? '' : `@${engine}`}:${fault}]]`,
});

/** Engines of one kind of client, so that tests of different kinds do not disturb each other. */
class Fleet {
  readonly engines = new Map<string, SimEngine>();

  async add(model: string, name: string, options: ConstructorParameters<typeof SimEngine>[0] = {}) {
    const engine = new SimEngine({ models: [model], name, ...options });
    await engine.start();
    this.engines.set(`${model}/${name}`, engine);
    return engine;
  }

  get(model: string, name: string): SimEngine {
    const engine = this.engines.get(`${model}/${name}`);
    if (engine === undefined) throw new Error(`no engine ${model}/${name}`);
    return engine;
  }

  endpoints(maxConcurrency: Readonly<Record<string, number>> = {}): EndpointSetup[] {
    return [...this.engines].map(([key, engine]) => {
      const [model = ''] = key.split('/');
      const limit = maxConcurrency[model.replace(/\d+$/, '')];
      const endpoint = { id: key.replace('/', '-'), url: engine.url, models: [model] };
      return limit === undefined ? endpoint : { ...endpoint, maxConcurrency: limit };
    });
  }

  async stop(): Promise<void> {
    for (const engine of this.engines.values()) await engine.stop();
  }
}

const numbered = CLIENT_KINDS.map((kind, index) => ({ kind, index, name: kind.name }));

describeClients('errors before the answer', () => {
  const fleet = new Fleet();
  let gateway: Gateway;

  beforeAll(async () => {
    for (const dialect of DIALECTS) await fleet.add(dialect, 'only', { dialect });
    for (const { index } of numbered) {
      await fleet.add(`busy${index}`, 'only');
      await fleet.add(`narrow${index}`, 'only', { tpotMs: 5 });
      await fleet.add(`pair${index}`, 'a');
      await fleet.add(`pair${index}`, 'b');
    }
    const dead = { id: 'dead', url: 'http://127.0.0.1:1', models: ['halfdead'] };
    await fleet.add('halfdead', 'alive');
    gateway = await Gateway.start([dead, ...fleet.endpoints({ narrow: 1 })], {
      queue: { max: 0 },
      deadlines: { firstToken: '1500ms' },
      // Every request here is a retry by design.
      retries: { budget: '100%' },
    });
  });
  afterAll(async () => {
    await gateway?.stop();
    await fleet.stop();
  });

  const open = (kind: ClientKind, model: string, retries?: number, log?: TryLog): Promise<TextClient> =>
    kind.open({
      gateway: gateway.url,
      model,
      ...(retries === undefined ? {} : { retries }),
      ...(log === undefined ? {} : { fetch: log.fetch }),
    });

  describe.each(['whole', 'stream'] as const)('%s', (way) => {
    it.each(numbered)('$name: an unknown model is 404, at once and in words', async ({ kind }) => {
      const log = new TryLog();
      const error = await errorOf((await open(kind, 'no-such-model', undefined, log))[way](ASK));
      expect(statusOf(error)).toBe(404);
      expect(error.message).toContain('the model `no-such-model` does not exist');
      expect(log.statuses).toEqual([404]);
    });

    describe.each(DIALECTS)('%s', (dialect) => {
      it.each(numbered)('$name: a refusal of the engine is relayed and not repeated', async ({ kind }) => {
        const engine = fleet.get(dialect, 'only');
        const before = engine.stats().requests;
        const log = new TryLog();
        const client = await open(kind, dialect, undefined, log);
        const error = await errorOf(client[way](faulty('status=400,that is too much')));
        expect(statusOf(error)).toBe(400);
        // The libraries look for `error.message`; SGLang's flat errors have none, with and without a gateway.
        if (dialect !== 'sglang' || kind.api === 'messages') {
          expect(error.message).toContain('that is too much');
        }
        expect(log.statuses).toEqual([400]);
        expect(engine.stats().requests).toBe(before + 1);
      });
    });

    it.concurrent.each(numbered)('$name: comes back as late as a busy engine asks', async ({ kind, index }) => {
      const engine = fleet.get(`busy${index}`, 'only');
      engine.setFault('retry-after=2', { count: 1 });
      const log = new TryLog();
      const client = await open(kind, `busy${index}`, undefined, log);
      expect((await client[way](ASK)).text).not.toBe('');
      expect(log.statuses).toEqual([429, 200]);
      expect(log.header('retry-after')).toBe('2');
      expect(log.header('x-should-retry')).toBeNull();
      const [first, second] = log.tries;
      const waitedMs = (second?.startedMs ?? 0) - (first?.startedMs ?? 0);
      // LangChain takes the header as leave to retry and waits by its own clock.
      expect(waitedMs).toBeGreaterThan(kind.name === 'langchain' ? 900 : 1_900);
    });
  });

  it.concurrent.each(numbered)('$name: waits for a full gateway', async ({ kind, index }) => {
    const model = `narrow${index}`;
    const log = new TryLog();
    const occupant = (await open(kind, model, 0)).stream({ ...ASK, maxTokens: 60 });
    await waitFor(() => fleet.get(model, 'only').stats().running === 1);
    const client = await open(kind, model, undefined, log);
    expect((await client.stream(ASK)).text).not.toBe('');
    expect(log.statuses[0]).toBe(429);
    expect(Number(log.header('retry-after'))).toBeGreaterThanOrEqual(1);
    expect(log.statuses.at(-1)).toBe(200);
    expect((await occupant).text).not.toBe('');
  });
});
