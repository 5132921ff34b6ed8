import { afterEach, describe, expect, it } from 'vitest';
import { CanaryConfig, ModelConfig } from '../config/server-config.js';
import { RouterHarness } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';
import { FREE } from './authoriser.js';
import type { RouteModel } from './ports.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const OK = '{"ok":1}';

function declare(name: string, settings: Partial<ModelConfig>): ModelConfig {
  return Object.assign(new ModelConfig(), { name, replicas: 0 }, settings);
}

const canary = (settings: Partial<CanaryConfig>): CanaryConfig => Object.assign(new CanaryConfig(), settings);

const ask = async (model: string, id: string, headers: Record<string, string> = {}) =>
  (await harness.chat({ model }, { 'x-request-id': id, ...headers })).response();

describe('fallbacks', () => {
  it('answer for a model that has nothing, in their own name, and say so', async () => {
    harness = await RouterHarness.start({
      endpoints: [{ models: ['small'] }],
      configure: (config) =>
        config.models.push(declare('large', { fallback: ['gone', 'small'], aliases: ['best'] })),
    });
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const response = await ask('best', 'f1');
    expect(response.status).toBe(200);
    expect(response.headers.get('x-llmgw-fallback')).toBe('small');
    expect(harness.engine().lastRequest.body.toString()).toContain('"model":"small"');
    expect(harness.router.explainRequest('f1')).toMatchObject({
      ...{ model: 'small', alias: 'best', insteadOf: 'large', insteadBecause: 'nothing_ready' },
    });
    expect(await harness.metric('llmgw_fallbacks_total{model="large",reason="nothing_ready"}')).toBe(1);
    expect((await ask('small', 'f2')).headers.has('x-llmgw-fallback')).toBe(false);
    await harness.settle();
    expect(harness.accessLog().map(({ model, insteadOf }) => [model, insteadOf])).toEqual([
      ['small', 'large'],
      ['small', undefined],
    ]);
  });

  it('are followed from model to model', async () => {
    harness = await RouterHarness.start({
      endpoints: [{ models: ['small'] }],
      configure: (config) =>
        config.models.push(
          declare('large', { fallback: ['medium'] }),
          declare('medium', { fallback: ['small'] }),
        ),
    });
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    expect((await ask('large', 'c1')).headers.get('x-llmgw-fallback')).toBe('small');
  });

  it('take over when every attempt failed before the answer began', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      endpoints: [{ models: ['large'] }, { models: ['small'] }],
      configure: (config) => config.models.push(declare('large', { fallback: ['small'] })),
    });
    harness.engine(0).onRequest((_request, wire) => wire.respond(500, '{"error":{"message":"no"}}'));
    harness.engine(1).onRequest((_request, wire) => wire.respond(200, OK));
    const response = await ask('large', 'a1');
    expect(response.status).toBe(200);
    expect(response.headers.get('x-llmgw-fallback')).toBe('small');
    expect(harness.engine(1).lastRequest.body.toString()).toContain('"model":"small"');
    const told = harness.router.explainRequest('a1');
    expect(told).toMatchObject({ model: 'small', insteadOf: 'large', insteadBecause: 'attempts_failed' });
    expect(told?.attempts.map(({ kind, status }) => [kind, status])).toEqual([
      ['first', 500],
      ['fallback', 200],
    ]);
    expect(told?.choices).toHaveLength(2);
  });

  it('do not take what the request itself is at fault for', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      endpoints: [{ models: ['large'] }, { models: ['small'] }],
      configure: (config) => config.models.push(declare('large', { fallback: ['small'] })),
    });
    harness.engine(0).onRequest((_request, wire) => wire.respond(400, '{"error":{"message":"too long"}}'));
    expect((await ask('large', 'b1')).status).toBe(400);
    expect(harness.engine(1).requests).toHaveLength(0);
  });

  it('give the last failure when they fail as well', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      endpoints: [{ models: ['large'] }, { models: ['small'] }],
      configure: (config) => config.models.push(declare('large', { fallback: ['small'] })),
    });
    for (const engine of harness.engines) {
      engine.onRequest((_request, wire) => wire.respond(500, '{"error":{"message":"no"}}'));
    }
    const response = await ask('large', 'l1');
    expect(response.status).toBe(500);
    expect(harness.engines.map((engine) => engine.requests.length)).toEqual([1, 1]);
  });

  it('are closed to a key that may not use them', async () => {
    harness = await RouterHarness.start({
      endpoints: [{ models: ['small'] }],
      configure: (config) => config.models.push(declare('large', { fallback: ['small'] })),
      authoriser: {
        authenticate: () => ({ id: 'k1', priority: undefined, mayUse: ({ name }) => name === 'large' }),
        grant: () => FREE,
      },
    });
    const response = await ask('large', 'k1');
    expect(response.status).toBe(503);
    expect(harness.engine().requests).toHaveLength(0);
    expect(harness.router.explainRequest('k1')).toMatchObject({ model: 'large', key: 'k1' });
  });
});

describe('canaries', () => {
  const twoPools = (weight: number) => ({
    engines: 2,
    endpoints: [
      { models: ['m1'], pool: 'blue' },
      { models: ['m1'], pool: 'green' },
    ],
    configure: (config: { models: ModelConfig[] }) =>
      void config.models.push(declare('m1', { canary: [canary({ pool: 'green', weight })] })),
  });
  const answering = () => {
    for (const engine of harness.engines) engine.onRequest((_request, wire) => wire.respond(200, OK));
  };
  const counts = () => harness.engines.map((engine) => engine.requests.length);

  it('get their share between pools, and the choice shows it', async () => {
    harness = await RouterHarness.start(twoPools(0.2));
    answering();
    for (let i = 0; i < 300; i++) await ask('m1', `r${i}`);
    const [blue = 0, green = 0] = counts();
    expect(blue + green).toBe(300);
    expect(green).toBeGreaterThan(30);
    expect(green).toBeLessThan(95);
    const stable = harness.router.explainRequest('r0');
    expect(stable?.split === 'stable' || stable?.split === 'green').toBe(true);
    expect(stable?.choices[0]?.candidates.filter(({ rejected }) => rejected === 'wrong_pool')).toHaveLength(
      1,
    );
  });

  it('keep a session on its side', async () => {
    harness = await RouterHarness.start(twoPools(0.5));
    answering();
    for (let i = 0; i < 20; i++) await ask('m1', `s${i}`, { 'x-llmgw-session': 'alice' });
    expect(counts().toSorted((a, b) => a - b)).toEqual([0, 20]);
  });

  it('of weight 0 get nothing, not even when nothing else is there', async () => {
    harness = await RouterHarness.start(twoPools(0));
    harness.engine(0).onRequest((_request, wire) => wire.respond(500, '{"error":{"message":"no"}}'));
    expect((await ask('m1', 'z1')).status).toBe(500);
    expect(counts()).toEqual([1, 0]);
    const verdicts = harness.router.explainRequest('z1')?.choices[0]?.candidates;
    expect(verdicts?.find(({ endpoint }) => endpoint === 'e2')?.rejected).toBe('zero_weight');
  });

  it('serve the others when the stable side cannot', async () => {
    harness = await RouterHarness.start(twoPools(0.000001));
    answering();
    harness.engine(0).onRequest((_request, wire) => wire.respond(500, '{"error":{"message":"no"}}'));
    expect((await ask('m1', 'o1')).status).toBe(200);
    expect(counts()).toEqual([1, 1]);
  });

  it('may be another model, whose failures come back to the one asked for', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      endpoints: [{ models: ['m1'] }, { models: ['m2'] }],
      configure: (config) =>
        config.models.push(declare('m1', { canary: [canary({ model: 'm2', weight: 1 })] })),
    });
    answering();
    const response = await ask('m1', 'n1', { 'x-llmgw-explain': '1' });
    expect(counts()).toEqual([0, 1]);
    expect(response.headers.get('x-llmgw-split')).toBe('m2');
    expect(response.headers.has('x-llmgw-fallback')).toBe(false);
    expect(harness.router.explainRequest('n1')).toMatchObject({
      ...{ model: 'm2', insteadOf: 'm1', insteadBecause: 'canary', split: 'm2' },
    });
    harness.engine(1).onRequest((_request, wire) => wire.respond(500, '{"error":{"message":"no"}}'));
    const second = await ask('m1', 'n2');
    expect(second.status).toBe(200);
    expect(second.headers.has('x-llmgw-fallback')).toBe(false);
    expect(harness.router.explainRequest('n2')).toMatchObject({ model: 'm1' });
    expect(harness.router.explainRequest('n2')?.insteadOf).toBeUndefined();
  });
});

describe('a model that stands in for another one', () => {
  // Launch profiles of two models are often called alike: a pool closed to one model's requests closed the other's.
  it.each([
    ['as a canary', { canary: [canary({ pool: 'h100', weight: 0 }), canary({ model: 'm2', weight: 1 })] }],
    ['as a fallback', { canary: [canary({ pool: 'h100', weight: 0 })], fallback: ['m2'] }],
  ])('%s uses its own pools, whatever those of the other are for', async (as, settings) => {
    harness = await RouterHarness.start({
      engines: 3,
      endpoints: [
        { models: as === 'as a canary' ? ['m1'] : ['other'], pool: 'h100' },
        { models: ['m2'], pool: 'h100' },
        { models: ['m2'], pool: 'closed' },
      ],
      configure: (config) =>
        config.models.push(
          declare('m1', settings),
          declare('m2', { canary: [canary({ pool: 'closed', weight: 0 })] }),
        ),
    });
    for (const engine of harness.engines) engine.onRequest((_request, wire) => wire.respond(200, OK));
    for (let i = 0; i < 10; i++) expect((await ask('m1', `p${i}`)).status).toBe(200);
    expect(harness.engines.map((engine) => engine.requests.length)).toEqual([0, 10, 0]);
  });
});

describe('a model without a replica', () => {
  const coming = (expectedReadyMs: number | undefined, outlook: RouteModel['outlook'] = 'coming') => ({
    endpoints: [],
    models: [
      {
        ...{ name: 'm1', aliases: [], routingProfile: 'interactive', fallback: [], desired: 1, outlook },
        ...(expectedReadyMs === undefined ? {} : { expectedReadyMs }),
      },
    ],
  });

  it('that is expected later than the queue lasts refuses at once and says when', async () => {
    harness = await RouterHarness.start({ configure: (config) => (config.endpoints = []) });
    harness.router.applyTable({ version: 1, ...coming(42_000) });
    const response = await (await harness.chat()).response();
    expect(response.status).toBe(503);
    expect(response.headers.get('retry-after')).toBe('42');
    expect(JSON.parse(response.body.toString())).toMatchObject({
      error: { code: 'no_ready_replica', message: expect.stringContaining('about 42 s') as string },
    });
  });

  it('that nothing is on its way to refuses at once', async () => {
    harness = await RouterHarness.start({ configure: (config) => (config.endpoints = []) });
    harness.router.applyTable({ version: 1, ...coming(undefined, 'none') });
    const response = await (await harness.chat()).response();
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '60']);
    const client = await harness.connect();
    await client.get('/v1/models/m1');
    expect((await client.response()).headers.get('retry-after')).toBe('60');
  });

  it('lets go of those who wait when what was on its way is not any more', async () => {
    harness = await RouterHarness.start({ configure: (config) => (config.endpoints = []) });
    harness.router.applyTable({ version: 1, ...coming(undefined) });
    const waiting = await harness.chat();
    await waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === 1);
    harness.router.applyTable({ version: 2, ...coming(undefined, 'none') });
    expect((await waiting.response()).status).toBe(503);
  });
});
