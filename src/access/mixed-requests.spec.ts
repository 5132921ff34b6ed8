import { afterEach, describe, expect, it } from 'vitest';
import type { RequestHandler } from '../../test/support/fake-engine/fake-engine.js';
import { KeyedGateway } from '../../test/support/keyed-gateway.js';
import { delta, DONE, finish, sse } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';
import { ModelConfig } from '../config/server-config.js';
import { seededRandom } from '../shared/random.js';
import type { ApiKey } from './api-key.js';

let gateway: KeyedGateway;
afterEach(() => gateway.harness.stop());

const whole: RequestHandler = (_request, wire) =>
  wire.respond(200, '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}');

const ACTS: Readonly<Record<string, RequestHandler>> = {
  whole,
  silentAboutUsage: (_request, wire) => wire.respond(200, '{"choices":[]}'),
  stream: async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(delta('a') + delta('b') + finish() + DONE);
    await wire.lastChunk();
  },
  cut: async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(`${delta('a')}data: {"half`);
    wire.rst();
  },
  refused: (_request, wire) => wire.respond(400, '{"error":{}}'),
  broken: (_request, wire) => wire.respond(500, '{"error":{}}'),
  busy: (_request, wire) => wire.respond(503, '{"error":{}}'),
  reset: (_request, wire) => wire.rst(),
  errorFirst: async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(sse({ error: { message: 'full', code: 503 } }));
    await wire.lastChunk();
  },
  silent: (_request, wire) => wire.waitClosed().then(() => undefined),
  endless: async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(delta('a'));
    await wire.waitClosed();
  },
};

const PROMPT_ACTS = Object.keys(ACTS).filter((name) => name !== 'endless' && name !== 'silent');

describe('counters', () => {
  /** They leaked on failures and cancellations elsewhere, until a key that used nothing was locked out for good. */
  it('are all 0 after 10,000 mixed requests', { timeout: 300_000 }, async () => {
    gateway = await KeyedGateway.start(true, {
      engines: 3,
      endpoints: [{ maxConcurrency: 12 }, { maxConcurrency: 12 }, { models: ['poor'], maxConcurrency: 12 }],
      deadlines: { firstToken: 300, firstTokenPer1kTokens: 0, idle: 150, queue: 300 },
      profile: { queue: { max: 20, priority: 100 }, hedging: { after: 50, budget: 1 } },
      configure: (config) => {
        config.router.bodyLimit = 10_000;
        for (const [name, next] of [
          ['poor', 'm1'],
          ['nothing', 'poor'],
        ]) {
          config.models.push(Object.assign(new ModelConfig(), { name, replicas: 0, fallback: [next] }));
        }
      },
    });
    const { harness } = gateway;
    const random = seededRandom(23);
    for (const engine of harness.engines) {
      engine.onRequest(async (request, wire) => {
        const act = /"act":"(\w+)"/.exec(request.body.toString())?.[1] ?? '';
        if (act === 'late' && random() < 0.5) await harness.passed(80);
        await (ACTS[act] ?? whole)(request, wire);
      });
    }
    harness.engine(2).onRequest((_request, wire) => wire.respond(500, '{"error":{}}'));
    const ids = ['key-0', 'key-1', 'key-2', 'key-3'];
    const secrets = [
      gateway.key('key-0'),
      gateway.key('key-1', { maxConcurrent: 5 }),
      gateway.key('key-2', { requestsPerMinute: 500, tokensPerMinute: 3_000 }),
      gateway.key('key-3', { models: ['other'], maxConcurrent: 1 }),
      'sk-llmgw-unknown',
    ];
    const renewed = (): ApiKey => {
      secrets[5] = gateway.key('key-4', { tokensPerMinute: 1e6, priority: 200 });
      return gateway.known('key-4');
    };
    const keys = [renewed()];
    const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T;
    const outcomes = new Map<string, number>();
    let left = 10_000;
    const one = async () => {
      // Those that hang until a deadline are few, or the test would mostly wait.
      const lot = random();
      const rare = lot < 0.02 ? 'endless' : lot < 0.03 ? 'silent' : lot < 0.05 ? 'late' : undefined;
      const act = rare ?? pick(PROMPT_ACTS);
      const leaves =
        act === 'endless'
          ? 'atFirstByte'
          : act === 'silent'
            ? 'never'
            : pick(['never', 'never', 'never', 'atOnce', 'atFirstByte']);
      const flaw = pick(['none', 'none', 'none', 'none', 'none', 'model', 'json', 'large']);
      const client = await harness.connect();
      const pad = flaw === 'large' ? 'x'.repeat(20_000) : 'x';
      const model = flaw === 'model' ? 'nope' : pick(['m1', 'm1', 'm1', 'm1', 'poor', 'nothing']);
      const body = JSON.stringify({
        model,
        stream: /stream|cut|First|endless/.test(act),
        act,
        // One that is never answered has a deadline by its length.
        max_tokens: act === 'silent' ? 9 : pick([9, 9, -1e12, 1e12]),
        n: pick([1, 1, 5]),
        messages: [pad],
      });
      const text = flaw === 'json' ? body.slice(1) : body;
      await client.post('/v1/chat/completions', text, { authorization: `Bearer ${pick(secrets)}` });
      if (leaves === 'atOnce') client.rst();
      else {
        const over = () => client.ending !== 'open' || client.responses()[0]?.complete === true;
        await waitFor(() => over() || (leaves === 'atFirstByte' && client.text !== ''), {
          deadlineMs: 20_000,
        });
      }
      const status = String(client.responses()[0]?.status ?? 'none');
      outcomes.set(status, (outcomes.get(status) ?? 0) + 1);
      client.destroy();
      harness.clients.length = 0;
    };
    const worker = async () => {
      while (left-- > 0) {
        if (left % 2_000 === 0) gateway.revoke('key-4');
        if (left % 2_000 === 1_000) keys.push(renewed());
        await one();
      }
    };
    await Promise.all(Array.from({ length: 40 }, worker));
    await harness.settle();
    for (const { id, limiter } of [...ids.map((name) => gateway.known(name)), ...keys]) {
      expect([id, limiter.concurrent, limiter.reservedTokens]).toEqual([id, 0, 0]);
    }
    const { router } = harness;
    for (const { queue } of router.table.models()) expect(queue.depth).toBe(0);
    for (const { retryBudget } of router.profiles.all()) {
      expect([retryBudget.active, retryBudget.retrying]).toEqual([0, 0]);
    }
    expect(router.bodies.heldBytes).toBe(0);
    // The mix was one: each of these really happened.
    expect([...outcomes.keys()]).toEqual(
      expect.arrayContaining(['200', '400', '401', '403', '404', '413', '429', '500', '502', '504', 'none']),
    );
    for (const series of [
      'llmgw_attempts_total{model="m1",outcome="hedge_lost"}',
      'llmgw_fallbacks_total{model="poor",reason="attempts_failed"}',
      'llmgw_fallbacks_total{model="nothing",reason="nothing_ready"}',
    ]) {
      expect([series, (await harness.metric(series)) > 0]).toEqual([series, true]);
    }
  });
});
