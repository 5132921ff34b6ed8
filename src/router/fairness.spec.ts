import { afterEach, describe, expect, it } from 'vitest';
import { RouterHarness } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';
import { FREE } from './authoriser.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

/** A router with one place at its engine, which answers the first request only when told. */
async function start(priorityOf: (key: string) => number | undefined, queueMax = 100) {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  harness = await RouterHarness.start({
    endpoints: [{ maxConcurrency: 1 }],
    profile: { queue: { max: queueMax, priority: 100 } },
    authoriser: {
      authenticate: (key = 'none') => ({ id: key, priority: priorityOf(key), mayUse: () => true }),
      grant: () => FREE,
    },
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
    const { open, ask, waiting } = await start(() => undefined, 3);
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
});
