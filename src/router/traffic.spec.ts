import { afterEach, describe, expect, it } from 'vitest';
import { delta, DONE, finish, RouterHarness, sse } from '../../test/support/router-harness.js';
import { Traffic } from './traffic.js';

describe('Traffic', () => {
  it('has totals of everything, quantiles and shares of what was last', () => {
    const traffic = new Traffic();
    expect(traffic.view()).toEqual({ promptTokensTotal: 0, completionTokensTotal: 0, cachedTokensTotal: 0 });
    for (let i = 0; i < 500; i++) traffic.firstToken(90_000);
    for (let i = 1; i <= 128; i++) traffic.firstToken(i);
    for (let i = 0; i < 200; i++) traffic.used(100, 1, 100);
    for (let i = 0; i < 128; i++) traffic.used(100, 1, 25);
    // What does not say what was cached has no share in the share.
    for (let i = 0; i < 128; i++) traffic.used(100, undefined, undefined);
    expect(traffic.view()).toEqual({
      promptTokensTotal: 45_600,
      completionTokensTotal: 328,
      cachedTokensTotal: 23_200,
      firstTokenP50Ms: 64,
      firstTokenP90Ms: 116,
      cachedShare: 0.25,
    });
  });
});

describe('what passes', () => {
  let harness: RouterHarness;
  afterEach(() => harness.stop());

  it('is known for each model and each endpoint', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      endpoints: [{ models: ['m1'] }, { models: ['m2'] }],
    });
    const usage =
      '"usage":{"prompt_tokens":40,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":30}}';
    harness.engine(0).onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a') + finish() + sse(`{"choices":[],${usage}}`) + DONE);
      await wire.lastChunk();
    });
    harness.engine(1).onRequest((_request, wire) => wire.respond(500, '{"error":{"message":"no"}}'));
    for (let i = 0; i < 3; i++) await (await harness.chat({ model: 'm1', stream: true })).response();
    await (await harness.chat({ model: 'm2' })).response();
    await harness.settle();
    const traffic = harness.router.traffic();
    const counts = {
      promptTokensTotal: 120,
      completionTokensTotal: 9,
      cachedTokensTotal: 90,
      cachedShare: 0.75,
    };
    expect(traffic.get('m1')).toMatchObject({ requestsTotal: 3, failuresTotal: 0, queueDepth: 0, ...counts });
    expect(traffic.get('m1')?.firstTokenP90Ms).toBeGreaterThanOrEqual(
      traffic.get('m1')?.firstTokenP50Ms ?? 1,
    );
    expect(traffic.get('m2')).toMatchObject({ requestsTotal: 1, failuresTotal: 1, promptTokensTotal: 0 });
    const [first, second] = harness.router.endpoints();
    expect(first?.traffic).toMatchObject(counts);
    expect(second?.traffic.firstTokenP50Ms).toBeUndefined();
  });
});
