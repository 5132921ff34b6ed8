import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { waitFor } from '../../support/wait-for.js';
import { ASK, faulty, Fleet, NUMBERED_KINDS } from './fleet.js';
import { Gateway } from './gateway.js';
import { describeClients } from './installed.js';
import { errorOf, statusOf, TryLog } from './try-log.js';

vi.setConfig({ maxConcurrency: NUMBERED_KINDS.length });

/** Failures of a replica that its clients must not notice while another one can answer. */
const INVISIBLE_FAULTS = [
  'refuse=200',
  'reset-before-headers',
  'headers-then-reset',
  'status=500',
  'status=503',
  'retry-after=1',
  'error-first',
  'hang',
] as const;

describeClients('a replica that fails before its answer', () => {
  const fleet = new Fleet();
  let gateway: Gateway;

  beforeAll(async () => {
    for (const { index } of NUMBERED_KINDS) {
      for (const name of ['a', 'b']) {
        await fleet.add(`pair${index}`, name);
        await fleet.add(`sick${index}`, name);
      }
    }
    await fleet.add('half-dead', 'alive');
    const dead = { id: 'dead', url: 'http://127.0.0.1:1', models: ['half-dead'] };
    gateway = await Gateway.start([dead, ...fleet.endpoints()], {
      deadlines: { firstToken: '1s' },
      // Half of the requests here are meant to be retried.
      retries: { budget: '100%' },
    });
  });
  afterAll(async () => {
    await gateway?.stop();
    await fleet.stop();
  });

  /** A replica that had trouble before takes part again: it has answered since. */
  async function bothServe(model: string): Promise<void> {
    for (const name of ['a', 'b']) {
      const engine = fleet.get(model, name);
      const before = engine.stats().completed;
      await waitFor(
        async () => {
          const response = await fetch(`${gateway.url}/v1/completions`, {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify({ model, prompt: 'warm', max_tokens: 1 }),
          });
          await response.text();
          return engine.stats().completed > before;
        },
        { deadlineMs: 10_000, what: `an answer of ${model} ${name}` },
      );
    }
  }

  describe.each(INVISIBLE_FAULTS)('%s', (fault) => {
    it.concurrent.each(NUMBERED_KINDS)('$name: nobody notices', async ({ kind, index }) => {
      const model = `pair${index}`;
      await bothServe(model);
      const faulted = fleet.get(model, 'a').stats().faulted;
      const log = new TryLog();
      const client = await kind.open({ gateway: gateway.url, model, fetch: log.fetch });
      const text = (await client.whole(ASK)).text;
      // Two in a row visit both replicas.
      for (const request of [1, 2]) {
        expect((await client.stream(faulty(fault, 'a'))).text, `request ${request}`).toBe(text);
      }
      expect(fleet.get(model, 'a').stats().faulted).toBeGreaterThan(faulted);
      expect(log.statuses).toEqual([200, 200, 200]);
    });
  });

  it.each(NUMBERED_KINDS)('$name: a replica that was never there', async ({ kind }) => {
    const log = new TryLog();
    const client = await kind.open({ gateway: gateway.url, model: 'half-dead', fetch: log.fetch });
    const { text } = await client.whole(ASK);
    expect((await client.stream(ASK)).text).toBe(text);
    expect(log.statuses).toEqual([200, 200]);
  });

  describe.each(['whole', 'stream'] as const)('%s, all replicas broken', (way) => {
    it.concurrent.each(NUMBERED_KINDS)('$name: is told not to come back', async ({ kind, index }) => {
      const model = `sick${index}`;
      const log = new TryLog();
      const client = await kind.open({ gateway: gateway.url, model, retries: 1, fetch: log.fetch });
      const asked = () => ['a', 'b'].map((name) => fleet.get(model, name).stats().requests);
      const [a = 0, b = 0] = asked();
      const error = await errorOf(client[way](faulty('status=500,all is lost')));
      expect(statusOf(error)).toBe(500);
      expect(error.message).toContain('all is lost');
      const tries = kind.obeysShouldRetry ? 1 : 2;
      expect(log.statuses).toEqual(Array.from({ length: tries }, () => 500));
      expect(log.header('x-should-retry')).toBe('false');
      expect(asked()).toEqual([a + tries, b + tries]);
    });
  });
});

describeClients('a replica that fails when the status is given already', () => {
  const fleet = new Fleet();
  let gateway: Gateway;

  beforeAll(async () => {
    for (const { index } of NUMBERED_KINDS) {
      for (const name of ['a', 'b']) await fleet.add(`m${index}`, name);
    }
    gateway = await Gateway.start(fleet.endpoints(), {
      holdHeaders: '100ms',
      deadlines: { firstToken: '1s' },
      retries: { budget: '100%' },
    });
  });
  afterAll(async () => {
    await gateway?.stop();
    await fleet.stop();
  });

  it.concurrent.each(NUMBERED_KINDS)('$name: another one answers', async ({ kind, index }) => {
    const model = `m${index}`;
    const client = await kind.open({ gateway: gateway.url, model, retries: 0 });
    const { text } = await client.whole(ASK);
    for (const request of [1, 2]) {
      expect((await client.stream(faulty('hang', 'a'))).text, `request ${request}`).toBe(text);
    }
    expect(fleet.get(model, 'a').stats().faulted).toBeGreaterThan(0);
  });

  it.concurrent.each(NUMBERED_KINDS)('$name: throws when none answers', async ({ kind, index }) => {
    const log = new TryLog();
    const setup = { gateway: gateway.url, model: `m${index}`, retries: 1, fetch: log.fetch };
    await errorOf((await kind.open(setup)).stream(faulty('hang')));
    expect(log.statuses).toEqual(kind.repeatsErrorEvents ? [200, 200] : [200]);
  });
});
