import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { waitFor } from '../../support/wait-for.js';
import type { ClientKind } from './adapters/client-kind.js';
import { CLIENT_KINDS } from './client-kinds.js';
import { ASK, faulty, Fleet, NUMBERED_KINDS } from './fleet.js';
import { EngineProcess, Gateway } from './gateway.js';
import { describeClients } from './installed.js';
import { errorOf, TryLog } from './try-log.js';

vi.setConfig({ maxConcurrency: NUMBERED_KINDS.length });

/** More events than any dialect sends before its first token. */
const EVENTS = 9;

/** Ends of a stream that is not whole. */
const BROKEN_STREAMS = [
  `reset-after-events=${EVENTS}`,
  `clean-cut-after-events=${EVENTS}`,
  `half-event-then-reset=${EVENTS}`,
  `error-mid=${EVENTS}`,
  `stall=${EVENTS},60000`,
] as const;

/** Ends of an answer in one piece that is not whole. */
const BROKEN_WHOLES = [
  'wrong-content-length',
  'reset-after-events=1',
  'clean-cut-after-events=1',
  'headers-then-reset',
] as const;

describeClients('an engine that breaks off', () => {
  const fleet = new Fleet();
  let gateway: Gateway;

  beforeAll(async () => {
    for (const { index } of NUMBERED_KINDS) await fleet.add(`m${index}`, 'only', { tpotMs: 2 });
    gateway = await Gateway.start(fleet.endpoints(), { deadlines: { idle: '1s' } });
  });
  afterAll(async () => {
    await gateway?.stop();
    await fleet.stop();
  });

  describe.each(BROKEN_STREAMS)('stream, %s', (fault) => {
    it.concurrent.each(NUMBERED_KINDS)(
      '$name: throws, and takes no part for the whole',
      async ({ kind, index }) => {
        const model = `m${index}`;
        const log = new TryLog();
        // With the library's own retries: none of them may repeat what has begun.
        const client = await kind.open({ gateway: gateway.url, model, fetch: log.fetch });
        const { text } = await client.whole(ASK);
        let seen = '';
        await errorOf(client.stream(faulty(fault), (more) => (seen += more)));
        expect(text.startsWith(seen)).toBe(true);
        expect(seen.length).toBeLessThan(text.length);
        expect(log.statuses).toEqual([200, 200]);
      },
    );
  });

  describe.each(BROKEN_WHOLES)('whole, %s', (fault) => {
    it.each(NUMBERED_KINDS)('$name: throws', async ({ kind, index }) => {
      const client = await kind.open({ gateway: gateway.url, model: `m${index}`, retries: 0 });
      await errorOf(client.whole(faulty(fault)));
    });
  });
});

/** Streams of every kind at once, each of which has begun to speak. */
async function speaking(gateway: string, model: string) {
  const streams = CLIENT_KINDS.map((kind: ClientKind) => {
    const state = { name: kind.name, began: false, outcome: undefined as string | undefined };
    const run = async () => {
      const client = await kind.open({ gateway, model, retries: 0 });
      return client.stream({ ...ASK, maxTokens: 2_000 }, () => (state.began = true));
    };
    const over = run().then(
      ({ text }) => (state.outcome = `took ${text.length} characters for the whole`),
      () => (state.outcome = 'threw'),
    );
    return { state, over };
  });
  await waitFor(() => streams.every(({ state }) => state.began || state.outcome !== undefined), {
    what: 'every stream to have begun',
    deadlineMs: 20_000,
  });
  return async () => {
    await Promise.all(streams.map(({ over }) => over));
    return streams.map(({ state }) => `${state.name}: ${state.outcome}`);
  };
}

const ALL_THREW = CLIENT_KINDS.map(({ name }) => `${name}: threw`);

describeClients('a process that ends in the middle of streams', () => {
  let engine: EngineProcess;
  let gateway: Gateway;

  beforeAll(async () => {
    let url: string;
    const flags = ['--model', 'm1', '--tpot-ms', '20', '--slots', '16'];
    [engine, url] = await EngineProcess.start('sim', flags);
    gateway = await Gateway.start([{ id: 'e1', url, models: ['m1'] }]);
  });
  afterAll(async () => {
    await gateway?.stop();
    await engine?.kill();
  });

  it('throws in every client when the engine is killed', async () => {
    const outcomes = await speaking(gateway.url, 'm1');
    await engine.kill();
    expect(await outcomes()).toEqual(ALL_THREW);
    await gateway.settled();
  });
});

describeClients('a gateway that ends in the middle of streams', () => {
  const fleet = new Fleet();

  beforeAll(() => fleet.add('m1', 'only', { tpotMs: 20, slots: 16 }));
  afterAll(() => fleet.stop());

  it.each(['SIGTERM', 'SIGKILL'] as const)('throws in every client after %s', async (signal) => {
    const gateway = await Gateway.start(fleet.endpoints());
    try {
      const outcomes = await speaking(gateway.url, 'm1');
      gateway.process.signal(signal);
      expect(await outcomes()).toEqual(ALL_THREW);
      await gateway.process.ended();
      await waitFor(() => fleet.get('m1').stats().running === 0, { what: 'no request left at the engine' });
    } finally {
      await gateway.stop();
    }
  });
});
