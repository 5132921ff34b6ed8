import { afterEach, describe, expect, it } from 'vitest';
import { RoutingProfileConfig } from '../config/server-config.js';
import { eventData } from '../../test/support/http-responses.js';
import { delta, DONE, fastClock, finish, RouterHarness } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const errorCode = (body: Buffer): unknown =>
  (JSON.parse(body.toString()) as { error: { code: unknown } }).error.code;

describe('deadlines', () => {
  // One limit for everything cut long, healthy generations in the middle; which wait ran out could not be told.
  it('between events is not shortened by how long the answer takes in all', async () => {
    harness = await RouterHarness.start({ deadlines: { firstToken: 800, idle: 800, total: 0 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      for (let i = 0; i < 15; i++) {
        await wire.chunk(delta(`t${i}`));
        await wire.until(() => client.text.includes(`"t${i}"`));
        await harness.passed(80);
      }
      await wire.chunk(finish() + DONE);
      await wire.lastChunk();
    });
    const client = await harness.chat({ stream: true });
    expect(eventData((await client.response()).body)).toHaveLength(17);
  });

  it('for the first token ends the wait with its own code', async () => {
    harness = await RouterHarness.start({ deadlines: { firstToken: 100, firstTokenPer1kTokens: 0 } });
    harness.engine().onRequest((_request, wire) => wire.startStream());
    const response = await (await harness.chat({ stream: true })).response();
    expect(response.status).toBe(504);
    expect(errorCode(response.body)).toBe('first_token_timeout');
    await harness.engine().waitIdle();
  });

  it('for the first token is not met by comments', async () => {
    harness = await RouterHarness.start({ deadlines: { firstToken: 200, firstTokenPer1kTokens: 0 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      while (!wire.peerGone) {
        await wire.chunk(': ping\n\n');
        await harness.passed(20);
      }
    });
    const response = await (await harness.chat({ stream: true })).response();
    expect(errorCode(response.body)).toBe('first_token_timeout');
  });

  it('for the first token covers an answer that is not streamed, with time for its length', async () => {
    harness = await RouterHarness.start({ deadlines: { firstToken: 200, firstTokenPer1kTokens: 0 } });
    harness.engine().onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
    const short = await (await harness.chat({ max_tokens: 1 })).response();
    expect(errorCode(short.body)).toBe('first_token_timeout');
    harness.engine().onRequest(async (_request, wire) => {
      await harness.passed(400);
      await wire.respond(200, '{"long":1}');
    });
    const long = await (await harness.chat({ max_tokens: 2_000 })).response();
    expect(long.body.toString()).toBe('{"long":1}');
  });

  // The gateway gave up on an engine in the middle of a long prefill and made the next one start the same again.
  it('for the first token grows with the prompt, and the first engine is let go before a second is asked', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      deadlines: { firstToken: 50, firstTokenPer1kTokens: 40 },
    });
    for (const engine of harness.engines) {
      engine.onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
    }
    const long = 'word '.repeat(8_000);
    const startedMs = performance.now();
    const messages = [{ role: 'user', content: long }];
    const response = await (await harness.chat({ messages, max_tokens: 1 })).response();
    expect(errorCode(response.body)).toBe('first_token_timeout');
    // 10,000 tokens: 50 + 400 ms, twice.
    expect(performance.now() - startedMs).toBeGreaterThan(850);
    const [first, second] = harness.engines
      .flatMap((engine) => engine.requests)
      .toSorted((a, b) => a.atMs - b.atMs);
    expect(first?.connection.endedAtMs).toBeLessThan(second?.atMs ?? 0);
  });

  it('between events ends a stream that stands still with one event that names it', async () => {
    harness = await RouterHarness.start({ deadlines: { idle: 100 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
    });
    const response = await (await harness.chat({ stream: true })).response();
    const events = eventData(response.body);
    expect(events).toHaveLength(2);
    expect(JSON.parse(events[1] ?? '')).toMatchObject({
      error: { code: 'idle_timeout', type: 'timeout_error' },
    });
    await harness.engine().waitIdle();
    expect(harness.accessLog()).toMatchObject([{ status: 504, outcome: 'idle_timeout' }]);
  });

  // Where nothing else was to be looked at earlier, a pause was looked for only when the first token would have been due.
  it('between events holds from the first token on, whatever else is due later', async () => {
    harness = await RouterHarness.start({ deadlines: { idle: 100 }, profile: { holdHeaders: 600_000 } });
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{}'));
    // Its connection is used again, so that none is waited for.
    await (await harness.chat()).response();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
    });
    const events = eventData((await (await harness.chat({ stream: true })).response()).body);
    expect(events[1]).toContain('"idle_timeout"');
    expect(harness.engine().lastRequest.reusedSocket).toBe(true);
  });

  it('between events comes behind the comments that show that the stream lives', async () => {
    const deadlines = { idle: 30_000, firstToken: 600_000 };
    const profile = { holdHeaders: 600_000 };
    harness = await RouterHarness.start({ clock: fastClock(50), deadlines, profile });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
    });
    const text = (await (await harness.chat({ stream: true })).response()).body.toString();
    expect(text).toMatch(/"a".*\n\n(?:: keep-alive\n\n)+data: .*"idle_timeout"/);
  });

  it('between events is not met by comments', async () => {
    harness = await RouterHarness.start({ deadlines: { idle: 200 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
      while (!wire.peerGone) {
        await wire.chunk(': still here\n\n');
        await harness.passed(20);
      }
    });
    const response = await (await harness.chat({ stream: true })).response();
    expect(response.body.toString()).toContain('idle_timeout');
    expect(response.body.toString()).toContain(': still here\n\n');
  });

  it('for connecting is its own', async () => {
    harness = await RouterHarness.start({
      deadlines: { connect: 100 },
      configure: (config) => {
        for (const endpoint of config.endpoints) endpoint.url = endpoint.url.replace('http:', 'https:');
      },
    });
    harness.engine().onConnection(() => true);
    const response = await (await harness.chat()).response();
    expect(response.status).toBe(504);
    expect(errorCode(response.body)).toBe('connect_timeout');
    await harness.engine().waitIdle();
  });

  it('for the whole strikes in every phase', async () => {
    harness = await RouterHarness.start({
      deadlines: { total: 500 },
      endpoints: [{ maxConcurrency: 1 }],
      configure: (config) => {
        config.router.profiles['patient'] = new RoutingProfileConfig();
      },
    });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      while (!wire.peerGone) {
        await wire.chunk(delta('x'));
        await harness.passed(10);
      }
    });
    const streaming = await harness.chat({ stream: true });
    const events = eventData((await streaming.response()).body);
    expect(JSON.parse(events.at(-1) ?? '')).toMatchObject({ error: { code: 'total_timeout' } });
    const patient = await harness.chat({ stream: true }, { 'x-llmgw-profile': 'patient' });
    await patient.waitForText('content');
    const queued = await (await harness.chat()).response();
    expect(queued.status).toBe(504);
    expect(errorCode(queued.body)).toBe('total_timeout');
    expect(harness.engine().requests).toHaveLength(2);
    patient.destroy();
  });

  it('in the queue answers 503 with a time to come back', async () => {
    harness = await RouterHarness.start({
      deadlines: { queue: 100 },
      endpoints: [{ maxConcurrency: 1 }],
    });
    harness.engine().onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
    const running = await harness.chat();
    await harness.engine().request();
    const response = await (await harness.chat()).response();
    expect(response.status).toBe(503);
    expect(errorCode(response.body)).toBe('queue_timeout');
    expect(Number(response.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    expect(await harness.metric('llmgw_queue_depth{model="m1"}')).toBe(0);
    running.destroy();
  });

  it('a full queue answers at once, also with a time to come back', async () => {
    harness = await RouterHarness.start({
      profile: { queue: { max: 4, priority: 100 } },
      endpoints: [{ maxConcurrency: 1 }],
    });
    harness.engine().onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
    const clients = await Promise.all(Array.from({ length: 20 }, () => harness.chat()));
    await waitFor(() => clients.filter((client) => client.text !== '').length === 15);
    for (const client of clients.filter(({ text }) => text !== '')) {
      const response = await client.response();
      expect(response.status).toBe(429);
      expect(errorCode(response.body)).toBe('queue_full');
      expect(Number(response.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    }
    for (const client of clients) client.destroy();
    await harness.settle();
    expect(await harness.metric('llmgw_queue_depth{model="m1"}')).toBe(0);
  });
});

describe('a status that cannot be held back any longer', () => {
  it('goes out with keep-alive comments, and failing over stays possible', async () => {
    harness = await RouterHarness.start({ engines: 2, profile: { holdHeaders: 100 } });
    let asked = 0;
    for (const engine of harness.engines) {
      engine.onRequest(async (_request, wire) => {
        if (asked++ === 0) {
          await wire.until(() => client.text.includes(': keep-alive\n\n'));
          return wire.respond(503, '{"error":{"message":"loading"}}');
        }
        await wire.startStream();
        await wire.chunk(delta('good') + DONE);
        await wire.lastChunk();
      });
    }
    const client = await harness.chat({ stream: true });
    const response = await client.response();
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    expect(response.body.toString()).toBe(`: keep-alive\n\n${delta('good')}${DONE}`);
  });

  it('turns an engine’s error into one event', async () => {
    harness = await RouterHarness.start({ profile: { holdHeaders: 50 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.until(() => client.text.includes('keep-alive'));
      await wire.respond(400, '{"error":{"message":"too long","type":"BadRequestError","code":400}}');
    });
    const client = await harness.chat({ stream: true });
    const events = eventData((await client.response()).body);
    expect(events).toEqual(['{"error":{"message":"too long","type":"BadRequestError","code":400}}']);
    expect(harness.accessLog()).toMatchObject([{ status: 400 }]);
  });

  it('is held by a whole answer for as long as it takes', async () => {
    harness = await RouterHarness.start({ profile: { holdHeaders: 20 } });
    harness.engine().onRequest(async (_request, wire) => {
      await harness.passed(100);
      await wire.respond(400, '{"error":{}}');
    });
    expect((await (await harness.chat()).response()).status).toBe(400);
  });

  it('is followed by comments between events while the engine is silent, pings on Anthropic routes', async () => {
    harness = await RouterHarness.start({ clock: fastClock(100) });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(`event: message_start\ndata: {"type":"message_start"}\n\nevent: half\nda`);
      await wire.until(() => client.text.includes('event: ping\n'));
      await wire.chunk(`ta: {}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n`);
      await wire.lastChunk();
    });
    const client = await harness.post('/v1/messages', {
      model: 'm1',
      stream: true,
      max_tokens: 9,
      messages: [],
    });
    const text = (await client.response()).body.toString();
    expect(text).toMatch(
      /message_start"\}\n\n(event: ping\ndata: \{"type": "ping"\}\n\n)+event: half\ndata: \{\}\n\n/,
    );
  });
});
