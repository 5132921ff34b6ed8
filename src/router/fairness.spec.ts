import { afterEach, describe, expect, it } from 'vitest';
import { RawClient } from '../../test/support/raw-client.js';
import { RouterHarness } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';
import { FREE } from './authoriser.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

/** A router with one place at its engine, which answers the first request only when told. */
async function start(
  priorityOf: (key: string) => number | undefined,
  { queueMax = 100, keys = true }: { queueMax?: number; keys?: boolean } = {},
) {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  harness = await RouterHarness.start({
    endpoints: [{ maxConcurrency: 1 }],
    profile: { queue: { max: queueMax, priority: 100 } },
    ...(keys && {
      authoriser: {
        authenticate: (key = 'none') => ({ id: key, priority: priorityOf(key), mayUse: () => true }),
        grant: () => FREE,
      },
    }),
  });
  const order: string[] = [];
  harness.engine().onRequest(async (request, wire) => {
    order.push(/"user":"(\w+)"/.exec(request.body.toString())?.[1] ?? '');
    await opened;
    await wire.respond(200, '{"ok":1}');
  });
  const ask = (key: string) => harness.chat({ user: key }, { authorization: `Bearer ${key}` });
  const waiting = (count: number) =>
    waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === count);
  return { open, order, ask, waiting };
}

describe('the queue of a model', () => {
  it('serves the quiet key at once while another floods', async () => {
    const { open, order, ask, waiting } = await start(() => undefined);
    for (let i = 0; i < 12; i++) await ask('flood');
    await waiting(11);
    const quiet = await ask('quiet');
    await waiting(12);
    open();
    expect((await quiet.response()).status).toBe(200);
    await waitFor(() => order.length === 13);
    expect(order.indexOf('quiet')).toBeLessThanOrEqual(2);
  });

  // Whatever the flood writes into its requests: without keys only the address tells who it is.
  it('serves the quiet address at once while another floods, where there are no keys', async () => {
    const { open, order, ask, waiting } = await start(() => undefined, { keys: false });
    for (let i = 0; i < 12; i++) await ask(`flood${i}`);
    await waiting(11);
    const quiet = await RawClient.connect(harness.port, undefined, '127.0.0.2');
    harness.clients.push(quiet);
    await quiet.post('/v1/chat/completions', JSON.stringify({ model: 'm1', messages: [], user: 'quiet' }));
    await waiting(12);
    open();
    expect((await quiet.response()).status).toBe(200);
    await waitFor(() => order.length === 13);
    expect(order.indexOf('quiet')).toBeLessThanOrEqual(2);
  });

  it('serves a higher priority first', async () => {
    const { open, order, ask, waiting } = await start((key) => (key === 'high' ? 200 : undefined));
    for (let i = 0; i < 4; i++) await ask('low');
    await waiting(3);
    await ask('high');
    await waiting(4);
    open();
    await waitFor(() => order.length === 5);
    expect(order).toEqual(['low', 'high', 'low', 'low', 'low']);
  });

  it('that is full refuses the flood, not the one who comes with little', async () => {
    const { open, ask, waiting } = await start(() => undefined, { queueMax: 3 });
    const flood = [];
    for (let i = 0; i < 4; i++) flood.push(await ask('flood'));
    await waiting(3);
    const refused = await (await ask('flood')).response();
    expect(refused.status).toBe(429);
    expect(JSON.parse(refused.body.toString())).toMatchObject({ error: { code: 'queue_full' } });
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    const quiet = await ask('quiet');
    expect((await flood[3]!.response()).status).toBe(429);
    open();
    expect((await quiet.response()).status).toBe(200);
  });

  // Each was charged twice, once in line and once when it was sent, and the second time moved everybody's clock: whoever
  // sent large requests got twice the tokens of the others.
  it('shares by tokens between large and small requests', async () => {
    const { open, order, waiting } = await start(() => undefined, { queueMax: 200 });
    const send = (key: string, bytes: number) =>
      harness.chat(
        { user: key, max_tokens: 1, messages: [{ role: 'user', content: 'word '.repeat(bytes / 5) }] },
        { authorization: `Bearer ${key}` },
      );
    await send('first', 5);
    await harness.engine().request(0);
    for (let i = 0; i < 8; i++) await send('large', 4_000);
    for (let i = 0; i < 80; i++) await send('small', 400);
    await waiting(88);
    open();
    await waitFor(() => order.length === 89);
    const large = order.flatMap((key, at) => (key === 'large' ? [at] : []));
    // Between the first large one and the fifth lie four times 1,000 tokens of the others.
    const small = order.slice(large[0], large[4]).filter((key) => key === 'small').length;
    expect(small).toBeGreaterThanOrEqual(30);
    expect(small).toBeLessThanOrEqual(45);
  });
});

describe('models that share an engine', () => {
  // Each place went to the model that the endpoint lists first, for as long as anybody waited for that one.
  it('take turns, and a higher priority still goes first', async () => {
    const order: string[] = [];
    let open: () => void = () => undefined;
    const opened = new Promise<void>((resolve) => (open = resolve));
    harness = await RouterHarness.start({
      endpoints: [{ models: ['base', 'adapter'], maxConcurrency: 1 }],
      authoriser: {
        authenticate: (key = 'none') => ({
          id: key,
          priority: key === 'high' ? 200 : undefined,
          mayUse: () => true,
        }),
        grant: () => FREE,
      },
    });
    harness.engine().onRequest(async (request, wire) => {
      order.push(/"user":"(\w+)"/.exec(request.body.toString())?.[1] ?? '');
      await opened;
      await wire.respond(200, '{"ok":1}');
    });
    const ask = (model: string, user: string, key = 'k') =>
      harness.chat({ model, user }, { authorization: `Bearer ${key}` });
    const depth = (model: string) => harness.metric(`llmgw_queue_depth{model="${model}"}`);
    await ask('base', 'first');
    await harness.engine().request(0);
    for (let i = 0; i < 12; i++) await ask('base', 'b');
    for (let i = 0; i < 3; i++) await ask('adapter', 'a');
    await ask('base', 'h', 'high');
    await waitFor(async () => (await depth('base')) === 13 && (await depth('adapter')) === 3);
    open();
    await waitFor(() => order.length === 17);
    expect(order.slice(0, 2)).toEqual(['first', 'h']);
    expect(order.slice(2, 8).filter((user) => user === 'a')).toHaveLength(3);
  });
});
