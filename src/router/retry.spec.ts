import { afterEach, describe, expect, it } from 'vitest';
import { eventData } from '../../test/support/http-responses.js';
import { delta, DONE, finish, RouterHarness, sse } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const OK = '{"id":"ok","choices":[]}';

/** Two engines: the one asked first does `first`, the other answers well. */
async function pair(first: Parameters<RouterHarness['engines'][0]['onRequest']>[0]): Promise<void> {
  harness = await RouterHarness.start({ engines: 2 });
  let asked = 0;
  for (const engine of harness.engines) {
    engine.onRequest(async (request, wire) => {
      if (asked++ === 0) return first(request, wire);
      if (!request.body.toString().includes('"stream":true')) return wire.respond(200, OK);
      await wire.startStream();
      await wire.chunk(delta('good') + finish() + DONE);
      await wire.lastChunk();
    });
  }
}

const asked = (): number => harness.engines.reduce((sum, engine) => sum + engine.requests.length, 0);

describe('a failure before the answer', () => {
  // A retry after bytes had gone out gave clients the text twice; "no body byte was read" was taken as proof that
  // nothing had begun.
  it('after two events is final: one error event, and nobody else is asked', async () => {
    await pair(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('A') + delta('B'));
      await wire.until(() => client.text.includes('"content":"B"'));
      wire.rst();
    });
    const client = await harness.chat({ stream: true });
    const events = eventData((await client.response()).body);
    expect(events).toHaveLength(3);
    expect(events[0]).toContain('"content":"A"');
    expect(events[1]).toContain('"content":"B"');
    expect(JSON.parse(events[2] ?? '')).toMatchObject({ error: { code: 'upstream_aborted' } });
    expect(asked()).toBe(1);
    expect(await harness.metric('llmgw_stream_aborted_total{reason="upstream_aborted"}')).toBe(1);
  });

  it('after the head only is retried elsewhere, for the client has seen nothing', async () => {
    await pair(async (_request, wire) => {
      await wire.startStream();
      wire.rst();
    });
    const client = await harness.chat({ stream: true });
    const response = await client.response();
    expect(response.status).toBe(200);
    expect(eventData(response.body)[0]).toContain('good');
    expect(asked()).toBe(2);
    expect(await harness.metric('llmgw_retries_total{model="m1",reason="reset_before_answer"}')).toBe(1);
  });

  it('without any response is retried once', async () => {
    await pair((_request, wire) => wire.rst());
    const client = await harness.chat();
    expect((await client.response()).body.toString()).toBe(OK);
    expect(await harness.metric('llmgw_retries_total{model="m1",reason="reset_before_response"}')).toBe(1);
  });

  it('to connect is retried freely', async () => {
    harness = await RouterHarness.start({ engines: 4 });
    for (const engine of harness.engines.slice(0, 2)) await engine.refuseConnections();
    for (const engine of harness.engines.slice(2))
      engine.onRequest((_request, wire) => wire.respond(200, OK));
    for (let i = 0; i < 6; i++) expect((await (await harness.chat()).response()).status).toBe(200);
  });

  it('everywhere is told with the last failure, and the client need not try again', async () => {
    harness = await RouterHarness.start({ engines: 2 });
    for (const engine of harness.engines) await engine.refuseConnections();
    const response = await (await harness.chat({}, { 'x-llmgw-explain': '1' })).response();
    expect(response.status).toBe(502);
    expect(JSON.parse(response.body.toString())).toMatchObject({
      error: { code: 'upstream_connect_failed', type: 'upstream_error' },
    });
    expect(response.headers.get('x-should-retry')).toBe('false');
    expect(response.headers.get('x-llmgw-attempts')).toBe('2');
    expect(response.body.toString()).not.toMatch(/127\.0\.0\.1|:\d{4}/);
  });

  /** One that breaks every engine it meets is shown to two of them, and then no SDK of the client brings it back. */
  it('of work that two engines broke on is told as such, however many replicas are left', async () => {
    const breaks: [string, Parameters<RouterHarness['engines'][0]['onRequest']>[0], number][] = [
      ['500', (_request, wire) => wire.respond(500, '{"error":{"message":"poison"}}'), 500],
      ['reset', (_request, wire) => wire.rst(), 502],
      ['redirect', (_request, wire) => wire.respond(307, '', { location: '/x' }), 502],
      ['501', (_request, wire) => wire.respond(501, '{"error":{"message":"cannot"}}'), 501],
    ];
    for (const [what, broken, status] of breaks) {
      for (const stream of [true, false]) {
        harness = await RouterHarness.start({ engines: 4 });
        for (const engine of harness.engines) engine.onRequest(broken);
        const response = await (await harness.chat({ stream })).response();
        expect(response.status, what).toBe(status);
        expect(response.headers.get('x-should-retry'), what).toBe('false');
        expect(asked(), what).toBe(status === 501 || what === 'redirect' ? 1 : 2);
        await harness.stop();
      }
    }
    harness = await RouterHarness.start();
  });

  it('after the allowed attempts leaves the rest to the client, for others may answer', async () => {
    harness = await RouterHarness.start({ engines: 5 });
    for (const engine of harness.engines) await engine.refuseConnections();
    const response = await (await harness.chat()).response();
    expect(response.status).toBe(502);
    expect(response.headers.get('x-should-retry')).toBeUndefined();
  });

  it('leaves out an endpoint that takes no traffic when it counts who is left', async () => {
    harness = await RouterHarness.start({ engines: 2, endpoints: [{}, { weight: 0 }] });
    harness.engine(0).onRequest((_request, wire) => wire.rst());
    const response = await (await harness.chat()).response();
    expect(response.headers.get('x-should-retry')).toBe('false');
    expect(harness.engine(1).requests).toHaveLength(0);
  });

  it('never goes to the same endpoint twice', async () => {
    harness = await RouterHarness.start({ engines: 2, profile: { retries: { attempts: 5, budget: 1 } } });
    for (const engine of harness.engines)
      engine.onRequest((_request, wire) => wire.respond(503, '{"error":{}}'));
    expect((await (await harness.chat()).response()).status).toBe(503);
    expect(harness.engines.map((engine) => engine.requests.length)).toEqual([1, 1]);
  });

  it('of the request itself (4xx) is relayed and never retried', async () => {
    for (const status of [400, 401, 403, 404, 409, 422]) {
      await pair((_request, wire) => wire.respond(status, `{"error":{"code":${status}}}`));
      const response = await (await harness.chat({ stream: true })).response();
      expect(response.status).toBe(status);
      expect(response.body.toString()).toBe(`{"error":{"code":${status}}}`);
      expect(response.headers.get('content-type')).toBe('application/json');
      expect(asked()).toBe(1);
      await harness.stop();
    }
    await pair((_request, wire) => wire.respond(200, OK));
  });

  // The engine's "queue is full" may come as the first event of a 200, which no client retries.
  it('as first event on a 200 is retried like a real 503', async () => {
    await pair(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(': hello\n\n');
      await wire.chunk(sse({ error: { message: 'The request queue is full.', code: 503 } }));
    });
    const response = await (await harness.chat({ stream: true })).response();
    expect(eventData(response.body)[0]).toContain('good');
  });

  it('as first event on a 200 becomes a real status when nobody does better', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(sse({ error: { message: 'The request queue is full.', code: 503 } }));
    });
    const response = await (await harness.chat({ stream: true })).response();
    expect(response.status).toBe(503);
    expect(response.headers.get('content-type')).toBe('application/json');
    expect(Number(response.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    expect(JSON.parse(response.body.toString())).toMatchObject({ error: { code: 503 } });
  });

  it('is not retried beyond the budget', async () => {
    harness = await RouterHarness.start({ engines: 3, profile: { retries: { attempts: 3, budget: 0 } } });
    for (const engine of harness.engines) {
      engine.onRequest((_request, wire) =>
        wire.until(() => go).then(() => wire.respond(503, '{"error":{}}')),
      );
    }
    let go = false;
    const clients = await Promise.all(Array.from({ length: 30 }, () => harness.chat()));
    await waitFor(() => asked() === 30);
    go = true;
    for (const client of clients) expect((await client.response()).status).toBe(503);
    // A floor of three retries at once, each held until its request ends.
    expect(asked()).toBeLessThan(60);
    expect(await harness.metric('llmgw_retry_budget_exhausted_total')).toBeGreaterThan(0);
  });
});

describe('kept-alive connections to engines', () => {
  // Engines close idle connections without a word; a proxy that reuses one in that instant answers 502 for nothing.
  it('that turn out to be stale are replaced, and the engine is not blamed', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((request, wire) => {
      if (request.reusedSocket) wire.rst();
      else return wire.respond(200, OK);
    });
    for (let i = 0; i < 20; i++) expect((await (await harness.chat()).response()).status).toBe(200);
    expect(await harness.metric('llmgw_retries_total{model="m1",reason="stale_socket"}')).toBeGreaterThan(0);
    expect(harness.router.endpoints()[0]).toMatchObject({ failuresTotal: 0, state: 'up' });
  });

  it('that fail when fresh are the engine’s fault', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.rst());
    const response = await (await harness.chat()).response();
    expect(response.status).toBe(502);
    expect(JSON.parse(response.body.toString())).toMatchObject({ error: { code: 'upstream_reset' } });
    expect(harness.engine().requests).toHaveLength(1);
    expect(harness.router.endpoints()[0]).toMatchObject({ failuresTotal: 1 });
  });
});

describe('an endpoint that fails', () => {
  // What fails fast looks least loaded and swallows most of the traffic.
  it('fast is taken out, and clients notice nothing', async () => {
    harness = await RouterHarness.start({ engines: 3 });
    harness.engine(0).onRequest((_request, wire) => wire.respond(500, '{"error":{"message":"x"}}'));
    for (const engine of harness.engines.slice(1))
      engine.onRequest((_request, wire) => wire.respond(200, OK));
    for (let i = 0; i < 60; i++) expect((await (await harness.chat()).response()).status).toBe(200);
    expect(harness.engine(0).requests.length).toBeLessThan(10);
    expect(harness.router.endpoints()[0]).toMatchObject({ state: 'ejected', reason: 'faults' });
    expect(await harness.metric('llmgw_ejections_total{endpoint="e1"}')).toBe(1);
    expect(await harness.metric('llmgw_endpoint_up{endpoint="e1"}')).toBe(0);
  });

  it('is still asked when it is the last one', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(500, '{"error":{"message":"x"}}'));
    for (let i = 0; i < 12; i++) expect((await (await harness.chat()).response()).status).toBe(500);
    expect(harness.engine().requests).toHaveLength(12);
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    expect((await (await harness.chat()).response()).status).toBe(200);
  });
});
