import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { DIALECTS } from '../../../src/engines/sim/options.js';
import { waitFor } from '../../support/wait-for.js';
import type { ClientKind, TextClient } from './adapters/client-kind.js';
import { ASK, faulty, Fleet, NUMBERED_KINDS } from './fleet.js';
import { Gateway } from './gateway.js';
import { describeClients } from './installed.js';
import { errorOf, statusOf, TryLog } from './try-log.js';

vi.setConfig({ maxConcurrency: NUMBERED_KINDS.length });

describeClients('errors before the answer', () => {
  const fleet = new Fleet();
  let gateway: Gateway;

  beforeAll(async () => {
    for (const dialect of DIALECTS) await fleet.add(dialect, 'only', { dialect });
    for (const { index } of NUMBERED_KINDS) {
      await fleet.add(`busy${index}`, 'only');
      await fleet.add(`narrow${index}`, 'only', { tpotMs: 5, maxConcurrency: 1 });
    }
    gateway = await Gateway.start(fleet.endpoints(), {
      queue: { max: 0 },
      // Every request here is a retry by design.
      retries: { budget: '100%' },
    });
  });
  afterAll(async () => {
    await gateway?.stop();
    await fleet.stop();
  });

  const open = (kind: ClientKind, model: string, retries?: number, log?: TryLog): Promise<TextClient> =>
    kind.open({
      gateway: gateway.url,
      model,
      ...(retries === undefined ? {} : { retries }),
      ...(log === undefined ? {} : { fetch: log.fetch }),
    });

  describe.each(['whole', 'stream'] as const)('%s', (way) => {
    it.each(NUMBERED_KINDS)('$name: an unknown model is 404, at once and in words', async ({ kind }) => {
      const log = new TryLog();
      const error = await errorOf((await open(kind, 'no-such-model', undefined, log))[way](ASK));
      expect(statusOf(error)).toBe(404);
      expect(error.message).toContain('the model `no-such-model` does not exist');
      expect(log.statuses).toEqual([404]);
    });

    describe.each(DIALECTS)('%s', (dialect) => {
      it.each(NUMBERED_KINDS)(
        '$name: a refusal of the engine is relayed and not repeated',
        async ({ kind }) => {
          const engine = fleet.get(dialect);
          const before = engine.stats().requests;
          const log = new TryLog();
          const client = await open(kind, dialect, undefined, log);
          const error = await errorOf(client[way](faulty('status=400,that is too much')));
          expect(statusOf(error)).toBe(400);
          // The libraries look for `error.message`; SGLang's flat errors have none, with and without a gateway.
          if (dialect !== 'sglang' || kind.api === 'messages') {
            expect(error.message).toContain('that is too much');
          }
          expect(log.statuses).toEqual([400]);
          expect(engine.stats().requests).toBe(before + 1);
        },
      );
    });

    it.concurrent.each(NUMBERED_KINDS)(
      '$name: comes back as late as a busy engine asks',
      async ({ kind, index }) => {
        const engine = fleet.get(`busy${index}`);
        engine.setFault('retry-after=2', { count: 1 });
        const log = new TryLog();
        const client = await open(kind, `busy${index}`, undefined, log);
        expect((await client[way](ASK)).text).not.toBe('');
        expect(log.statuses).toEqual([429, 200]);
        expect(log.header('retry-after')).toBe('2');
        expect(log.header('x-should-retry')).toBeNull();
        const [first, second] = log.tries;
        expect((second?.startedMs ?? 0) - (first?.startedMs ?? 0)).toBeGreaterThan(1_900);
      },
    );
  });

  it.concurrent.each(NUMBERED_KINDS)('$name: waits for a full gateway', async ({ kind, index }) => {
    const model = `narrow${index}`;
    const log = new TryLog();
    const leaving = new AbortController();
    const occupant = (await open(kind, model, 0))
      .stream({ ...ASK, maxTokens: 20_000, signal: leaving.signal })
      .catch(() => {});
    await waitFor(() => fleet.get(model).stats().running === 1);
    const answer = (await open(kind, model, undefined, log)).stream(ASK);
    await waitFor(() => log.tries[0]?.status, { what: 'the first answer' });
    leaving.abort();
    expect((await answer).text).not.toBe('');
    expect(log.statuses[0]).toBe(429);
    expect(Number(log.header('retry-after'))).toBeGreaterThanOrEqual(1);
    expect(log.statuses.at(-1)).toBe(200);
    await occupant;
  });
});
