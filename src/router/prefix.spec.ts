import { afterEach, describe, expect, it } from 'vitest';
import { RouterHarness } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const prompt = (topic: string, tail: string) => ({
  messages: [
    { role: 'system', content: `You know all about ${topic}. `.repeat(400) },
    { role: 'user', content: tail },
  ],
});

/** Engines that keep every prompt they have seen, and say so. */
function cachingEngines(): void {
  for (const engine of harness.engines) {
    const seen = new Set<string>();
    engine.onRequest((request, wire) => {
      const topic = /all about (\w+)/.exec(request.body.toString())?.[1] ?? '';
      const cached = seen.has(topic) ? 2_000 : 0;
      seen.add(topic);
      const usage = {
        prompt_tokens: 2_100,
        completion_tokens: 1,
        prompt_tokens_details: { cached_tokens: cached },
      };
      return wire.respond(200, JSON.stringify({ choices: [], usage }));
    });
  }
}

const ask = async (topic: string, tail: string, id: string) => {
  const client = await harness.chat({ ...prompt(topic, tail), max_tokens: 1 }, { 'x-request-id': id });
  expect((await client.response()).status).toBe(200);
  return harness.router.explainRequest(id)?.choices[0];
};

describe('prompts that begin alike', () => {
  // Sent wherever load was least, each replica computed the same long beginning again.
  it('go where the beginning is cached, and what was predicted is compared with what was delivered', async () => {
    harness = await RouterHarness.start({ engines: 3, profile: { policy: 'prefixAware' } });
    cachingEngines();
    const homes = new Map<string, Set<string | undefined>>();
    for (let round = 0; round < 6; round++) {
      for (const topic of ['rivers', 'stars', 'bread']) {
        const choice = await ask(topic, `question ${round}`, `${topic}-${round}`);
        homes.set(topic, (homes.get(topic) ?? new Set()).add(choice?.chosen));
        expect(choice?.policy).toBe('prefixAware');
        if (round > 0) expect(choice?.predictedCachedTokens).toBeGreaterThan(500);
      }
    }
    for (const chosen of homes.values()) expect(chosen.size).toBe(1);
    expect(await harness.metric('llmgw_prefix_delivered_tokens_total')).toBe(3 * 5 * 2_000);
    expect(await harness.metric('llmgw_prefix_predicted_tokens_total')).toBeGreaterThan(10_000);
  });

  // An agent's tools are most of what it sends, and the template puts them before everything else.
  it.each([
    [
      'tools',
      (text: string) => ({ tools: [{ type: 'function', function: { name: 'f', description: text } }] }),
    ],
    ['system', (text: string) => ({ system: text })],
    ['instructions', (text: string) => ({ instructions: text })],
  ])('begin with what is in "%s"', async (_where, beginning) => {
    harness = await RouterHarness.start({ engines: 3, profile: { policy: 'prefixAware' } });
    cachingEngines();
    const choose = async (topic: string, id: string) => {
      const text = `You know all about ${topic}. `.repeat(400);
      const messages = [{ role: 'user', content: id }];
      await (await harness.chat({ messages, ...beginning(text) }, { 'x-request-id': id })).response();
      return harness.router.explainRequest(id)?.choices[0];
    };
    const first = await choose('rivers', 'r1');
    expect(first?.predictedCachedTokens).toBe(0);
    expect((await choose('stars', 's1'))?.predictedCachedTokens).toBeLessThan(100);
    const again = await choose('rivers', 'r2');
    expect(again?.predictedCachedTokens).toBeGreaterThan(500);
    expect(again?.chosen).toBe(first?.chosen);
  });

  it('are not looked for where one endpoint serves all, nor by other policies', async () => {
    harness = await RouterHarness.start({ engines: 1, profile: { policy: 'prefixAware' } });
    cachingEngines();
    for (const id of ['a', 'b']) expect((await ask('rivers', 'x', id))?.predictedCachedTokens).toBe(0);
    expect(harness.router.table.prefixes.entries).toBe(0);
  });

  it('are forgotten with the endpoint that had them', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      profile: { policy: 'prefixAware' },
      configure: (config) => (config.endpoints = []),
    });
    cachingEngines();
    const table = (version: number, ids: readonly number[], generation: number) => ({
      version,
      models: [
        {
          name: 'm1',
          aliases: [],
          routingProfile: 'interactive',
          fallback: [],
          desired: 2,
          outlook: 'ready' as const,
        },
      ],
      endpoints: ids.map((i) => ({
        id: `r${i}`,
        generation,
        protocol: 'http' as const,
        host: '127.0.0.1',
        port: harness.engine(i).port,
        basePath: '',
        models: ['m1'],
        pool: 'p',
        weight: 1,
        engine: 'sim' as const,
      })),
    });
    harness.router.applyTable(table(1, [0, 1], 1));
    await ask('rivers', 'one', 'p1');
    expect((await ask('rivers', 'two', 'p2'))?.predictedCachedTokens).toBeGreaterThan(500);
    // Restarted: another generation, whose cache is empty.
    harness.router.applyTable(table(2, [0, 1], 2));
    expect((await ask('rivers', 'three', 'p3'))?.predictedCachedTokens).toBe(0);
    harness.router.applyTable(table(3, [], 2));
    expect(harness.router.table.prefixes.entries).toBe(0);
  });
});

describe('an endpoint that refuses connections', () => {
  // One that nobody but its operator restarts keeps its id and generation.
  it('has lost its cache', async () => {
    harness = await RouterHarness.start({ engines: 2, profile: { policy: 'prefixAware' } });
    cachingEngines();
    const home = (await ask('rivers', 'one', 'q1'))?.chosen;
    expect((await ask('rivers', 'two', 'q2'))?.chosen).toBe(home);
    const engine = harness.engine(home === 'e1' ? 0 : 1);
    await engine.close();
    expect((await ask('rivers', 'three', 'q3'))?.predictedCachedTokens).toBeGreaterThan(500);
    const [choice] = harness.router.explainRequest('q3')?.choices.slice(-1) ?? [];
    expect(choice?.chosen).not.toBe(home);
    await ask('rivers', 'four', 'q4');
    const after = harness.router.explainRequest('q4')?.choices[0]?.candidates;
    expect(after?.find(({ endpoint }) => endpoint === home)?.predictedCachedTokens).toBe(0);
    expect(after?.find(({ endpoint }) => endpoint !== home)?.predictedCachedTokens).toBeGreaterThan(500);
  });
});

describe('one beginning that everybody shares', () => {
  const shared = { role: 'system', content: 'You are a helpful assistant of this company. '.repeat(90) };
  const send = (tail: string) =>
    harness.chat(
      { messages: [shared, { role: 'user', content: tail }], max_tokens: 1 },
      { 'x-request-id': tail },
    );
  const open = () => harness.engines.map((engine) => engine.requests.length);

  // All went to the one replica that had the beginning, and the others stood idle.
  it('does not bring 400 requests at once to one replica', async () => {
    harness = await RouterHarness.start({ engines: 4, profile: { policy: 'prefixAware' } });
    let go = false;
    for (const engine of harness.engines) {
      engine.onRequest(async (_request, wire) => {
        await wire.until(() => go, { deadlineMs: 15_000 });
        await wire.respond(200, '{}');
      });
    }
    const clients = await Promise.all(Array.from({ length: 400 }, (_, i) => send(`all-${i}`)));
    await harness.engine().waitFor(() => open().reduce((sum, count) => sum + count, 0) === 400, 15_000);
    expect(Math.max(...open())).toBeLessThanOrEqual(1.25 * 100 + 2);
    go = true;
    for (const client of clients) expect((await client.response()).status).toBe(200);
  }, 30_000);

  it('stays at home one by one, goes to one other while home is full or gone, and comes back', async () => {
    harness = await RouterHarness.start({
      engines: 4,
      profile: { policy: 'prefixAware' },
      endpoints: Array.from({ length: 4 }, () => ({ maxConcurrency: 2 })),
    });
    const holding = new Set<number>();
    for (const engine of harness.engines) {
      engine.onRequest(async (request, wire) => {
        const held = /"content":"hold-(\d+)"/.exec(request.body.toString());
        if (held !== null) await wire.until(() => !holding.has(Number(held[1])), { deadlineMs: 15_000 });
        await wire.respond(200, '{}');
      });
    }
    const homeOf = async (tail: string) => {
      expect((await (await send(tail)).response()).status).toBe(200);
      return harness.router.explainRequest(tail)?.choices[0]?.chosen;
    };
    const homes = new Map<string, number>();
    for (let i = 0; i < 40; i++) {
      const home = (await homeOf(`one-${i}`)) ?? '';
      homes.set(home, (homes.get(home) ?? 0) + 1);
    }
    const [home = '', times = 0] = [...homes].sort((a, b) => b[1] - a[1])[0] ?? [];
    expect(times).toBeGreaterThanOrEqual(36);
    // Its two places are taken by requests that last.
    const holders = [];
    for (const i of [0, 1]) {
      holding.add(i);
      holders.push(await send(`hold-${i}`));
      await waitFor(() => inflight(home) === i + 1);
    }
    const others = new Set<string | undefined>();
    for (let i = 0; i < 10; i++) others.add(await homeOf(`full-${i}`));
    expect(others.size).toBe(1);
    expect(others.has(home)).toBe(false);
    holding.clear();
    for (const holder of holders) await holder.response();
    const again = [];
    for (let i = 0; i < 10; i++) again.push(await homeOf(`again-${i}`));
    // Both have it cached now; neither a third.
    expect(again.every((chosen) => chosen === home || others.has(chosen))).toBe(true);
  });

  const inflight = (id: string) =>
    harness.router.endpoints().find(({ endpoint }) => endpoint.id === id)?.inflight;
});
