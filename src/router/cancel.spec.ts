import { afterEach, describe, expect, it } from 'vitest';
import { waitFor } from '../../test/support/wait-for.js';
import { delta, DONE, RouterHarness } from '../../test/support/router-harness.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const PATHS = ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages'] as const;
const BODY = { model: 'm1', stream: true, messages: [], prompt: 'x', input: 'x' };

describe('a client that leaves', () => {
  // A proxy that only pipes keeps reading after its client has gone, and the engine generates for nobody:
  // all GPUs busy, fewer and fewer answers. Often one route had the abort wired and the next had not.
  for (const path of PATHS) {
    for (const way of ['rst', 'destroy'] as const) {
      it(`in the middle of a stream of ${path} (${way}) closes the engine's connection`, async () => {
        harness = await RouterHarness.start({ engines: 2 });
        for (const engine of harness.engines) {
          engine.onRequest(async (_request, wire) => {
            await wire.startStream();
            await wire.chunk(delta('a') + delta('b'));
          });
        }
        const client = await harness.post(path, BODY);
        await client.waitForText('"content":"b"');
        client[way]();
        await waitFor(() => harness.engines.every((engine) => engine.openSockets === 0));
        await harness.settle();
        const requests = harness.engines.reduce((sum, engine) => sum + engine.requests.length, 0);
        expect(requests).toBe(1);
        expect(harness.accessLog()).toMatchObject([{ status: 499, outcome: 'client_closed', attempts: 1 }]);
      });
    }
  }

  // Requests whose clients had long gone were still sent to the engine when their turn came: work for nobody, which
  // made the queue of the others longer still.
  it('in the queue is never sent to an engine, and leaves its place at once', async () => {
    harness = await RouterHarness.start({ endpoints: [{ maxConcurrency: 1 }] });
    harness.engine().onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
    const running = await harness.chat();
    await harness.engine().request();
    const waiting = await Promise.all(Array.from({ length: 9 }, () => harness.chat()));
    await waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === 9);
    for (const client of waiting) client.destroy();
    await waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === 0);
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{"late":true}'));
    const last = await harness.chat();
    await waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === 1);
    running.rst();
    expect((await last.response()).body.toString()).toBe('{"late":true}');
    expect(harness.engine().requests).toHaveLength(2);
  });

  // Clients with short patience were logged as 502 and counted against the engine, until it was taken out of service.
  it('blames nobody', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
    const impatient = await Promise.all(Array.from({ length: 20 }, () => harness.chat()));
    await harness.engine().waitFor((engine) => engine.requests.length === 20);
    for (const client of impatient) client.destroy();
    await harness.engine().waitIdle();
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{"ok":1}'));
    expect((await (await harness.chat()).response()).status).toBe(200);
    expect(harness.router.endpoints()[0]).toMatchObject({ state: 'up', failuresTotal: 0 });
    expect(
      await harness.metric('llmgw_requests_total{model="m1",route="/v1/chat/completions",code="499"}'),
    ).toBe(20);
  });

  it('after [DONE] has what it came for: that is success', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      // The engine holds its end back; the client must not wait for it.
      await wire.chunk(delta('a') + DONE);
    });
    const client = await harness.chat({ stream: true });
    expect((await client.response()).complete).toBe(true);
    client.destroy();
    await harness.settle();
    expect(harness.accessLog()).toMatchObject([{ status: 200, outcome: 'ok' }]);
  });

  // Builds of one engine forget a request as soon as its connection closes and then do not find it to stop it:
  // hundreds generated to the end for nobody.
  it('is told to an engine that needs it by id, before its connection closes', async () => {
    harness = await RouterHarness.start({ endpoints: [{ engine: 'sglang' }] });
    const order: string[] = [];
    harness.engine().onRequest(async (request, wire) => {
      if (request.target === '/abort_request') {
        order.push(`abort ${request.body.toString()}`);
        return wire.respond(200, '');
      }
      await wire.startStream();
      await wire.chunk(delta('a'));
      await wire.waitClosed();
      order.push('closed');
    });
    const client = await harness.chat({ stream: true }, { 'x-request-id': 'abc' });
    await client.waitForText('"a"');
    expect(harness.engine().requests[0]?.body.toString()).toContain(`"rid":"abc-1","model":"m1"`);
    client.rst();
    await waitFor(() => order.length === 2);
    expect(order).toEqual(['abort {"rid":"abc-1"}', 'closed']);
  });
});
