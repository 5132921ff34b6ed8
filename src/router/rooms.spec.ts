import { afterEach, describe, expect, it } from 'vitest';
import { CanaryConfig, ModelConfig, ServerConfig } from '../config/server-config.js';
import { fastClock, RouterHarness, type HarnessOptions } from '../../test/support/router-harness.js';
import type { RawClient } from '../../test/support/raw-client.js';
import { waitFor } from '../../test/support/wait-for.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const OK = '{"ok":1}';

/**
 * Two engines with one place each; the second is asked first, and holds on to a request until told. What the first answers is
 * the test's.
 */
async function start(options: HarnessOptions = {}) {
  harness = await RouterHarness.start({
    engines: 2,
    endpoints: [{ maxConcurrency: 1, weight: 1e-6 }, { maxConcurrency: 1 }],
    deadlines: { queue: 600_000, firstToken: 600_000 },
    ...options,
  });
  let open = false;
  harness.engine(1).onRequest(async (_request, wire) => {
    await wire.until(() => open);
    await wire.respond(200, OK);
  });
  return { open: () => void (open = true) };
}

const ask = (id: string): Promise<RawClient> => harness.chat({}, { 'x-request-id': id });
const depth = (): Promise<number> => harness.metric('llmgw_queue_depth{model="m1"}');
const waiting = (count: number) =>
  waitFor(async () => (await depth()) === count, { what: `${count} to wait` });

describe('a place that nobody is told of', () => {
  // The pause of an engine that had said "busy" ended in silence: those who waited waited on until another request of the
  // model ended, which may be minutes, while newcomers went past them to the free engine.
  it('is given to those who wait when the time out of an endpoint ends', async () => {
    const { open } = await start({ clock: fastClock(4) });
    harness
      .engine(0)
      .onNextRequest((_request, wire) => wire.respond(503, '{"error":{}}', { 'retry-after': '5' }));
    const held = await ask('h1');
    await harness.engine(1).request(0);
    const turnedAway = await ask('h2');
    // One is held by the second engine, the other was told "busy" by the first and waits for the second.
    await waiting(1);
    harness.engine(0).onRequest((_request, wire) => wire.respond(200, OK));
    const third = await ask('w1');
    const fourth = await ask('w2');
    expect(harness.router.explainRequest('h2')?.queuedBehind).toBe(0);
    await waitFor(() => harness.router.explainRequest('w2')?.queuedBehind !== undefined);
    for (const client of [third, fourth]) expect((await client.response()).status).toBe(200);
    // The one that tried the first engine waits for the second, and nobody behind it waited for that.
    expect(await depth()).toBe(1);
    open();
    for (const client of [held, turnedAway]) expect((await client.response()).status).toBe(200);
    expect(harness.engine(0).requests).toHaveLength(3);
  });

  it('goes to those who wait before it goes to newcomers', async () => {
    const { open } = await start({ clock: fastClock(4) });
    const order: string[] = [];
    harness.engine(0).onNextRequest((_request, wire) => wire.respond(503, '{"error":{}}'));
    const held = [await ask('h1')];
    await harness.engine(1).request(0);
    held.push(await ask('h2'));
    await waiting(1);
    harness.engine(0).onRequest(async (request, wire) => {
      order.push((request.headers.get('x-request-id') ?? '').slice(0, 2));
      await wire.respond(200, OK);
    });
    const clients = [];
    for (let i = 0; i < 6; i++) clients.push(await ask(`w${i}`));
    for (const client of clients) await client.response();
    expect(order).toEqual(['w0', 'w1', 'w2', 'w3', 'w4', 'w5']);
    open();
    for (const client of held) await client.response();
  });
});

describe('room that is of no use', () => {
  const clients: RawClient[] = [];
  afterEach(() => clients.splice(0));

  /** Sends twenty that wait for the second engine, lets them through one by one, and returns how often the last looked around. */
  async function choicesOfLast(open: () => void): Promise<number> {
    for (let i = 0; i < 20; i++) clients.push(await ask(`q${i}`));
    await waiting(20);
    open();
    for (const client of clients) expect((await client.response()).status).toBe(200);
    return harness.router.explainRequest('q19')?.choices.length ?? 0;
  }

  // An endpoint that is out has all its places free. Each time a request ended elsewhere, all that waited looked around, and
  // every one of these looks was kept: at a thousand waiting that was more work than all the answers.
  it('wakes nobody: a pool that is closed', async () => {
    const { open } = await start({
      endpoints: [{ pool: 'closed' }, { maxConcurrency: 1 }],
      configure: (config) =>
        config.models.push(
          Object.assign(new ModelConfig(), {
            name: 'm1',
            replicas: 0,
            canary: [Object.assign(new CanaryConfig(), { pool: 'closed', weight: 0 })],
          }),
        ),
    });
    const held = await ask('h1');
    await harness.engine(1).request(0);
    expect(await choicesOfLast(open)).toBeLessThanOrEqual(2);
    await held.response();
    expect(harness.engine(0).requests).toHaveLength(0);
  });

  it('wakes nobody: an endpoint that is out for faults', async () => {
    const { open } = await start({ profile: { retries: { attempts: 3, budget: 1 } } });
    harness.engine(0).onRequest((_request, wire) => wire.rst());
    const held = await ask('h1');
    await harness.engine(1).request(0);
    await waitFor(async () => {
      if (harness.router.endpoints()[0]?.state === 'ejected') return true;
      const client = await ask('x');
      clients.push(client);
      return false;
    });
    const before = clients.length;
    await waiting(before);
    for (let i = 0; i < 20; i++) clients.push(await ask(`q${i}`));
    await waiting(before + 20);
    open();
    for (const client of clients) expect((await client.response()).status).toBe(200);
    await held.response();
    expect(harness.router.explainRequest('q19')?.choices.length).toBeLessThanOrEqual(3);
  });

  it('keeps nobody waiting for what will never come', async () => {
    let config = new ServerConfig();
    await start({ configure: (given) => (config = given) });
    harness.engine(0).onRequest((_request, wire) => wire.respond(500, '{"error":{"message":"no"}}'));
    const held = await ask('h1');
    await harness.engine(1).request(0);
    const failed = await ask('h2');
    await waiting(1);
    harness.router.reconfigure(
      Object.assign(new ServerConfig(), config, { endpoints: config.endpoints.slice(0, 1) }),
    );
    expect((await failed.response()).status).toBe(500);
    held.destroy();
  });
});
