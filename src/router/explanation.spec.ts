import { afterEach, describe, expect, it } from 'vitest';
import { delta, DONE, finish, RouterHarness, sse } from '../../test/support/router-harness.js';
import { EXPLAIN_RING_MAX, ExplainRing } from './explain-ring.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

describe('the explanation of a request', () => {
  it('has every endpoint with its load and why not, each attempt with its phases, what was predicted and what came', async () => {
    harness = await RouterHarness.start({
      engines: 4,
      endpoints: [{}, {}, { weight: 0 }, { models: ['other'] }],
      profile: { policy: 'prefixAware' },
    });
    const usage =
      '"usage":{"prompt_tokens":500,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":490}}';
    let healthy = true;
    for (const engine of harness.engines) {
      engine.onRequest(async (_request, wire) => {
        if (!healthy) return wire.rst();
        await wire.startStream();
        await wire.chunk(delta('a'));
        await wire.chunk(delta('b') + finish() + sse(`{"choices":[],${usage}}`) + DONE);
        await wire.lastChunk();
      });
    }
    const messages = [{ role: 'user', content: 'a long beginning that is always the same '.repeat(50) }];
    const ask = async (id: string) => {
      await (await harness.chat({ stream: true, messages }, { 'x-request-id': id })).response();
      await harness.settle();
      return harness.router.explainRequest(id)!;
    };
    const first = await ask('r-1');
    const told = await ask('r-2');
    expect(told).toMatchObject({
      ...{ requestId: 'r-2', model: 'm1', routingProfile: 'interactive', stream: true, status: 200 },
      usage: { promptTokens: 500, completionTokens: 2, cachedTokens: 490 },
    });
    const [choice] = told.choices;
    expect(choice?.chosen).toBe(first.choices[0]?.chosen);
    expect(choice?.predictedCachedTokens).toBeGreaterThan(300);
    const reasons = Object.fromEntries(choice!.candidates.map((one) => [one.endpoint, one.rejected]));
    const other = choice?.chosen === 'e1' ? 'e2' : 'e1';
    // What does not serve the model was never considered.
    expect(reasons).toEqual({ [choice!.chosen!]: undefined, [other]: 'costlier', e3: 'zero_weight' });
    for (const { endpoint, costSeconds, outstandingTokens } of choice!.candidates) {
      expect(outstandingTokens).toBe(0);
      expect(costSeconds > 0).toBe(endpoint !== 'e3');
    }
    const [attempt] = told.attempts;
    const { startedMs, connectedMs = NaN, headMs = NaN, firstEventMs = NaN, endedMs = NaN } = attempt!;
    const times = [0, startedMs, connectedMs, headMs, firstEventMs, endedMs, told.endedMs!];
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect(told.phases.map(({ phase }) => phase)).toEqual(['attempting', 'relaying', 'ended']);

    healthy = false;
    const failed = await ask('r-3');
    expect(failed.error).toBe('upstream_reset');
    expect([...new Set(failed.attempts.map(({ endpoint }) => endpoint))].toSorted()).toEqual(['e1', 'e2']);
    const kinds = failed.attempts.map(({ kind, next }) => `${kind}, then ${next}`);
    expect(kinds.slice(0, 2)).toEqual([
      'first, then retry_fresh_socket',
      'fresh_socket, then retry_elsewhere',
    ]);
    const last = failed.choices.at(-1)?.candidates;
    expect(last?.find(({ endpoint }) => endpoint === choice!.chosen)?.rejected).toBe('excluded_by_retry');
  });

  it('is kept of the last requests only, and of those that run', () => {
    const ring = new ExplainRing();
    const running = ring.begin('running', 0, '/v1/chat/completions');
    for (let i = 1; i < EXPLAIN_RING_MAX; i++) ring.begin(`r-${i}`, 0, '/v1/chat/completions').endedMs = 1;
    expect(ring.get('running')).toMatchObject({ requestId: 'running' });
    ring.begin('one-more', 0, '/v1/chat/completions');
    running.entered('relaying', 5);
    expect(ring.get('running')).toBeUndefined();
    expect(ring.get('one-more')?.phases).toEqual([]);
    expect(ring.get('r-1')?.endedMs).toBe(1);
  });
});
