import { afterEach, describe, expect, it } from 'vitest';
import type { RequestHandler } from '../../test/support/fake-engine/fake-engine.js';
import type { RawClient } from '../../test/support/raw-client.js';
import { delta, DONE, finish, RouterHarness } from '../../test/support/router-harness.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const answer =
  (word: string): RequestHandler =>
  async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(delta(word) + finish() + DONE);
    await wire.lastChunk();
  };
const silent: RequestHandler = (_request, wire) => wire.waitClosed().then(() => undefined);
const asked = () => harness.engines.reduce((sum, engine) => sum + engine.requests.length, 0);
const bothAsked: RequestHandler = (_request, wire) => wire.until(() => asked() === 2).then(() => undefined);

/** The first request sent anywhere is handled by the first of `acts`, and so on. */
async function hedged(acts: RequestHandler[], engines = 2): Promise<RawClient> {
  harness = await RouterHarness.start({ engines, profile: { hedging: { after: 40, budget: 1 } } });
  for (const engine of harness.engines) engine.onRequest((request, wire) => acts.shift()?.(request, wire));
  return harness.chat({ stream: true }, { 'x-request-id': 'h' });
}

const attempts = () =>
  harness.router.explainRequest('h')?.attempts.map(({ kind, outcome }) => `${kind} ${outcome}`);

async function bodyOf(client: RawClient): Promise<string> {
  const { status, body } = await client.response();
  await harness.settle();
  expect(await harness.metric('llmgw_attempts_total{model="m1",outcome="ok"}')).toBe(status === 200 ? 1 : 0);
  return `${status} ${body.toString()}`;
}

describe('a hedged request', () => {
  it('gets one answer when both begin at once', async () => {
    let ready = 0;
    const together =
      (word: string): RequestHandler =>
      async (request, wire) => {
        await bothAsked(request, wire);
        ready += 1;
        await wire.until(() => ready === 2);
        await answer(word)(request, wire);
      };
    const text = await bodyOf(await hedged([together('one'), together('two')]));
    const [, word] = /"content":"(\w+)"/.exec(text) ?? [];
    expect(text).toBe(`200 ${delta(word ?? '')}${finish()}${DONE}`);
    // The loser may have been cancelled before its bytes were read, never relayed.
    expect(attempts()?.sort()).toEqual(expect.arrayContaining([expect.stringMatching(/ ok$/)]));
    expect(attempts()).toHaveLength(2);
  });

  it('has the loser’s connection closed while the answer still runs', async () => {
    const client = await hedged([
      silent,
      async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(delta('a'));
        await wire.until(() => harness.engines.some((engine) => engine.openSockets === 0));
        await wire.chunk(finish() + DONE);
        await wire.lastChunk();
      },
    ]);
    expect(await bodyOf(client)).toBe(`200 ${delta('a')}${finish()}${DONE}`);
    expect(attempts()).toEqual(['first hedge_lost', 'hedge ok']);
    expect(harness.router.endpoints().every(({ failuresTotal }) => failuresTotal === 0)).toBe(true);
  });

  it('keeps to the other one when either fails', async () => {
    for (const order of ['first', 'second']) {
      const failing: RequestHandler = async (request, wire) => {
        await bothAsked(request, wire);
        wire.rst();
      };
      const slow: RequestHandler = async (request, wire) => {
        await wire.until(() => harness.router.endpoints().some(({ failuresTotal }) => failuresTotal === 1));
        await answer('slow')(request, wire);
      };
      const client = await hedged(order === 'first' ? [failing, slow] : [slow, failing]);
      expect(await bodyOf(client)).toContain('200 data: ');
      expect(asked()).toBe(2);
      await harness.stop();
    }
    harness = await RouterHarness.start();
  });

  it('goes to a third when both fail', async () => {
    const failing: RequestHandler = async (_request, wire) => {
      await wire.until(() => asked() >= 2);
      await wire.respond(503, '{"error":{"message":"full"}}');
    };
    expect(await bodyOf(await hedged([failing, failing, answer('third')], 3))).toContain('third');
    expect(asked()).toBe(3);
  });

  it('is told at once what is wrong with itself', async () => {
    // The refusal waited for the other engine, which had the same to say, some time.
    const client = await hedged([
      silent,
      (_request, wire) => wire.respond(400, '{"error":{"message":"no such field","code":400}}'),
    ]);
    expect(await bodyOf(client)).toContain('400 {"error":{"message":"no such field"');
    await harness.engine().waitFor(() => harness.engines.some((engine) => engine.openSockets === 0));
    expect(attempts()).toEqual(['first hedge_lost', 'hedge status_400']);
  });

  it.each(['rst', 'destroy', 'halfClose'] as const)('whose client leaves (%s) ends at both', async (way) => {
    const client = await hedged([silent, silent]);
    await harness.engine(0).waitFor(() => asked() === 2);
    client[way]();
    for (const engine of harness.engines) await engine.waitIdle();
    await harness.settle();
    expect(harness.accessLog()).toMatchObject([{ outcome: 'client_closed', attempts: 2 }]);
    expect(await harness.metric('llmgw_attempts_total{model="m1",outcome="client_closed"}')).toBe(2);
  });

  it('leaves engines alone when nobody else is there to be asked', async () => {
    const client = await hedged(
      [
        async (request, wire) => {
          await harness.passed(120);
          await answer('late')(request, wire);
        },
      ],
      1,
    );
    expect(await bodyOf(client)).toContain('late');
    expect(asked()).toBe(1);
  });
});
