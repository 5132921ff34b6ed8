import { afterEach, describe, expect, it } from 'vitest';
import { RouterHarness } from '../../test/support/router-harness.js';

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
