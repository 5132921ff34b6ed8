import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { RequestHandler } from '../../test/support/fake-engine/fake-engine.js';
import { delta, DONE, finish, RouterHarness, sse } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

/** What an engine may do to a request, by a code the request carries. */
const ENGINE_ACTS: Record<string, RequestHandler> = {
  ok: (_request, wire) => wire.respond(200, '{"ok":1,"usage":{"prompt_tokens":3,"completion_tokens":1}}'),
  stream: async (_request, wire) => {
    await wire.startStream();
    for (let i = 0; i < 5; i++) await wire.chunk(delta(String(i)));
    await wire.chunk(finish() + DONE);
    await wire.lastChunk();
  },
  status400: (_request, wire) => wire.respond(400, '{"error":{}}'),
  status500: (_request, wire) => wire.respond(500, '{"error":{}}'),
  status503: (_request, wire) => wire.respond(503, '{"error":{}}'),
  resetAtOnce: (_request, wire) => wire.rst(),
  resetAfterHead: async (_request, wire) => {
    await wire.startStream();
    wire.rst();
  },
  resetMidStream: async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(`${delta('a')}data: {"half`);
    wire.rst();
  },
  errorFirst: async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(sse({ error: { message: 'full', code: 503 } }));
    await wire.lastChunk();
  },
  garbage: (_request, wire) => wire.write('SSH-2.0-OpenSSH\r\n'),
  silent: (_request, wire) => wire.waitClosed().then(() => undefined),
  stallMidStream: async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(delta('a'));
    await wire.waitClosed();
  },
  shortBody: async (_request, wire) => {
    await wire.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"x"');
    wire.end();
  },
};
type Act = keyof typeof ENGINE_ACTS;

const request = fc.record({
  act: fc.constantFrom<Act>(...Object.keys(ENGINE_ACTS)),
  stream: fc.boolean(),
  /** When the client leaves: never, at once, or when it has the first byte. */
  leaves: fc.constantFrom('never', 'never', 'atOnce', 'atFirstByte'),
  bad: fc.constantFrom('no', 'no', 'no', 'model', 'json', 'large'),
});

async function actOn(engineHarness: RouterHarness): Promise<void> {
  for (const engine of engineHarness.engines) {
    engine.onRequest((received, wire) => {
      const act = /"act":"(\w+)"/.exec(received.body.toString())?.[1] ?? 'ok';
      return ENGINE_ACTS[act]?.(received, wire);
    });
  }
}

describe('counting', () => {
  // Counters leaked on some paths, hundreds a day, or went below zero; least-load then fed a single worker.
  it('adds up and comes back to zero whatever engines and clients do', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(request, { minLength: 1, maxLength: 25 }), async (requests) => {
        harness = await RouterHarness.start({
          engines: 2,
          endpoints: [{ maxConcurrency: 3 }, { maxConcurrency: 4 }],
          deadlines: { firstToken: 150, firstTokenPer1kTokens: 0, idle: 100, queue: 400 },
          configure: (config) => (config.router.bodyLimit = 10_000),
        });
        await actOn(harness);
        let negative = false;
        let beyondLimit = false;
        const sample = () => {
          for (const status of harness.router.endpoints()) {
            negative ||= status.inflight < 0 || status.outstandingTokens < 0;
            beyondLimit ||= status.inflight > (status.endpoint.maxConcurrency ?? Infinity);
          }
        };
        await Promise.all(
          requests.map(async ({ act, stream, leaves, bad }) => {
            const client = await harness.connect();
            const pad = bad === 'large' ? 'x'.repeat(20_000) : 'x';
            const model = bad === 'model' ? 'nope' : 'm1';
            const body = JSON.stringify({ model, stream, act, max_tokens: 1, messages: [pad] });
            await client.post('/v1/chat/completions', bad === 'json' ? body.slice(1) : body);
            sample();
            if (leaves === 'atOnce') client.rst();
            else if (leaves === 'atFirstByte') {
              await waitFor(() => client.text !== '' || client.ending !== 'open');
              client.destroy();
            } else {
              await waitFor(() => {
                sample();
                return client.ending !== 'open' || client.responses()[0]?.complete === true;
              });
            }
          }),
        );
        await harness.settle();
        expect(negative).toBe(false);
        expect(beyondLimit).toBe(false);
        const codes = [...(await harness.metrics()).matchAll(/^llmgw_requests_total\{.*\} (\d+)$/gm)];
        const counted = codes.reduce((sum, match) => sum + Number(match[1]), 0);
        // A client that was gone before its head was read is no request.
        const certain = requests.filter(({ leaves }) => leaves !== 'atOnce').length;
        expect(counted).toBeGreaterThanOrEqual(certain);
        expect(counted).toBeLessThanOrEqual(requests.length);
        expect(harness.accessLog()).toHaveLength(counted);
        await harness.stop();
      }),
      { numRuns: 15, seed: 7, endOnFailure: true },
    );
    harness = await RouterHarness.start();
  }, 120_000);

  it('never shows more in flight than are open at the engine, and a stream counts until its last byte', async () => {
    harness = await RouterHarness.start();
    let go = false;
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
      await wire.until(() => go);
      await wire.chunk(DONE);
      await wire.lastChunk();
    });
    const clients = await Promise.all(Array.from({ length: 10 }, () => harness.chat({ stream: true })));
    for (const client of clients) await client.waitForText('"a"');
    expect(harness.router.endpoints()[0]?.inflight).toBe(10);
    expect(await harness.metric('llmgw_inflight{endpoint="e1"}')).toBe(10);
    go = true;
    for (const client of clients) await client.response();
    await harness.settle();
  });
});
