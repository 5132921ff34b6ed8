import { afterEach, describe, expect, it } from 'vitest';
import { eventData } from '../../test/support/http-responses.js';
import type { Wire } from '../../test/support/fake-engine/wire.js';
import { delta, RouterHarness, sse } from '../../test/support/router-harness.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const json = (body: Buffer | string): Record<string, unknown> =>
  JSON.parse(body.toString()) as Record<string, unknown>;

describe('an engine that breaks off', () => {
  // Clients stored half an answer as a whole one, or met an error object in the middle of a half-written line.
  it('in the middle of a line leaves whole events, then one error event, and no [DONE]', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('A') + delta('B'));
      await wire.chunk('data: {"id":"x","cho');
      await wire.until(() => client.text.includes('"content":"B"'));
      wire.rst();
    });
    const client = await harness.chat({ stream: true });
    const response = await client.response();
    expect(response.complete).toBe(true);
    const events = eventData(response.body);
    for (const event of events) expect(() => json(event)).not.toThrow();
    expect(events).toHaveLength(3);
    expect(json(events[2] ?? '')).toMatchObject({
      error: { code: 'upstream_aborted', type: 'upstream_error', message: expect.any(String) as string },
    });
    expect(response.body.toString()).not.toContain('[DONE]');
    expect(harness.accessLog()).toMatchObject([{ outcome: 'upstream_aborted', status: 502 }]);
  });

  const endings: readonly [string, (wire: Wire) => unknown][] = [
    ['ends', (wire) => wire.lastChunk()],
    ['breaks off', (wire) => wire.rst()],
    [
      'ends in half a line',
      async (wire) => {
        await wire.chunk('data: {"err');
        wire.rst();
      },
    ],
    ['says nothing more', (wire) => wire.until(() => wire.peerGone)],
  ];
  it.each(endings)(
    'with an error event of its own and then %s is relayed unchanged and is no success',
    async (_how, end) => {
      const error = sse({ error: { message: 'cuda oom', code: 500 } });
      harness = await RouterHarness.start({ deadlines: { idle: 300 } });
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(delta('A') + error);
        await wire.until(() => client.text.includes('cuda oom'));
        await end(wire);
      });
      const client = await harness.chat({ stream: true });
      const response = await client.response();
      expect(response.body.toString()).toBe(delta('A') + error);
      expect(harness.accessLog()).toMatchObject([{ outcome: 'engine_error' }]);
      expect(await harness.metric('llmgw_attempts_total{model="m1",outcome="engine_error"}')).toBe(1);
    },
  );

  it('in the middle of a whole answer cuts the connection, so that nothing short looks whole', async () => {
    for (const framing of ['length', 'chunked'] as const) {
      harness = await RouterHarness.start();
      harness.engine().onRequest(async (_request, wire) => {
        if (framing === 'length') {
          await wire.write(
            'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"half":',
          );
        } else {
          await wire.write(
            'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n',
          );
          await wire.chunk('{"half":');
        }
        await wire.until(() => client.text.includes('half'));
        wire.destroy();
      });
      const client = await harness.chat();
      await client.waitClosed();
      expect(client.responses()[0]).toMatchObject({ status: 200, complete: false });
      expect(harness.accessLog()).toMatchObject([{ outcome: 'upstream_aborted' }]);
      await harness.stop();
    }
    harness = await RouterHarness.start();
  });

  it('on an HTTP/1.0 client is a reset, the only sign there is', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.write(
        'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n',
      );
      await wire.chunk('{"half":');
      await wire.until(() => client.text.includes('half'));
      wire.rst();
    });
    const client = await harness.connect();
    const body = '{"model":"m1"}';
    await client.send(
      `POST /v1/embeddings HTTP/1.0\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    expect(await client.waitClosed()).toBe('rst');
    expect(client.text).not.toContain('chunked');
  });

  it('without a last chunk after the last event is no end either', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('A'));
      await wire.until(() => client.text.includes('"content":"A"'));
      wire.end();
    });
    const client = await harness.chat({ stream: true });
    const events = eventData((await client.response()).body);
    expect(json(events[1] ?? '')).toMatchObject({ error: { code: 'upstream_aborted' } });
  });
});

describe('errors of engines', () => {
  // An error before the stream began came to the client as HTTP 200 with event-stream headers.
  it('keep status, body and Retry-After, streamed or not', async () => {
    for (const status of [400, 429, 500, 503]) {
      for (const stream of [true, false]) {
        harness = await RouterHarness.start();
        const body = `{"error":{"message":"m ${status}","type":"T","code":${status}}}`;
        harness.engine().onRequest((_request, wire) => wire.respond(status, body, { 'retry-after': '7' }));
        const response = await (await harness.chat({ stream })).response();
        expect(response.status).toBe(status);
        expect(response.body.toString()).toBe(body);
        expect(response.headers.get('content-type')).toBe('application/json');
        expect(response.headers.get('retry-after')).toBe('7');
        expect(harness.accessLog()).toMatchObject([{ status, outcome: 'engine_error' }]);
        await harness.stop();
      }
    }
    harness = await RouterHarness.start();
  });

  it('have a Retry-After that makes sense, or none', async () => {
    const cases: [string, RegExp | undefined][] = [
      ['7', /^7$/],
      ['abc', /^[1-9]\d*$/],
      ['999999', /^60$/],
      [new Date(Date.now() + 20_000).toUTCString(), /^(1\d|20|21)$/],
    ];
    for (const [value, expected] of cases) {
      harness = await RouterHarness.start();
      harness
        .engine()
        .onRequest((_request, wire) => wire.respond(429, '{"error":{}}', { 'retry-after': value }));
      const response = await (await harness.chat()).response();
      expect(response.headers.get('retry-after')).toMatch(expected ?? /never/);
      await harness.stop();
    }
    harness = await RouterHarness.start();
  });

  it('that are not JSON are wrapped once and cut', async () => {
    harness = await RouterHarness.start();
    const page = `<html>${'x'.repeat(5_000)}</html>`;
    harness.engine().onRequest((_request, wire) => wire.respond(502, page, { 'content-type': 'text/html' }));
    const response = await (await harness.chat()).response();
    expect(response.status).toBe(502);
    expect(response.headers.get('content-type')).toBe('application/json');
    const { error } = json(response.body) as { error: { message: string } };
    expect(error.message.startsWith('<html>x')).toBe(true);
    expect(error.message.length).toBeLessThanOrEqual(1024);
  });

  it('without end are read only so far', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.write('HTTP/1.1 500 X\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n');
      while (!wire.peerGone) await wire.chunk('e'.repeat(8192));
    });
    const response = await (await harness.chat()).response();
    expect(response.status).toBe(500);
    await harness.engine().waitIdle();
  });

  it('that break off still say what they said', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.write(
        'HTTP/1.1 422 X\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"detail":1}',
      );
      wire.end();
    });
    const response = await (await harness.chat()).response();
    expect(response.status).toBe(422);
  });

  it('in a 200 with an error object are relayed and counted as what they are', async () => {
    harness = await RouterHarness.start();
    const body = '{"error":{"message":"context too long","code":400}}';
    harness.engine().onRequest((_request, wire) => wire.respond(200, body));
    for (const stream of [true, false]) {
      const response = await (await harness.chat({ stream })).response();
      expect(response.status).toBe(200);
      expect(response.headers.get('content-type')).toBe('application/json');
      expect(response.body.toString()).toBe(body);
    }
    expect(harness.accessLog()).toMatchObject([{ outcome: 'engine_error' }, { outcome: 'engine_error' }]);
  });

  // A client of the gateway followed the redirect: the POST became a GET, or the prompt went to another host.
  it('that redirect are refused and never followed', async () => {
    harness = await RouterHarness.start({ engines: 2 });
    const other = harness.engine(1);
    for (const [status, location] of [
      [307, `${other.url}/v1/chat/completions`],
      [302, '/login'],
      [308, '/v1/chat/completions'],
    ] as const) {
      harness.engine(0).onRequest((_request, wire) => wire.respond(status, '', { location }));
      other.onRequest((_request, wire) => wire.respond(status, '', { location: '/login' }));
      const before = harness.engine(0).requests.length + other.requests.length;
      const response = await (await harness.chat()).response();
      expect(response.status).toBe(502);
      expect(json(response.body)).toMatchObject({ error: { code: 'bad_upstream_redirect' } });
      expect(response.headers.get('location')).toBeUndefined();
      expect(harness.engine(0).requests.length + other.requests.length).toBe(before + 1);
    }
  });

  it('that are no HTTP are told as such', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.write('\u0015\u0003\u0001\u0000\u0002\u0002\u0046'));
    const response = await (await harness.chat()).response();
    expect(response.status).toBe(502);
    expect(json(response.body)).toMatchObject({ error: { code: 'upstream_protocol_error' } });
  });
});

describe('dialects', () => {
  it('Anthropic routes get Anthropic errors', async () => {
    harness = await RouterHarness.start();
    const unknown = await (await harness.post('/v1/messages', { model: 'nope', messages: [] })).response();
    expect(unknown.status).toBe(404);
    expect(json(unknown.body)).toMatchObject({ type: 'error', error: { type: 'not_found_error' } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk('event: message_start\ndata: {"type":"message_start"}\n\n');
      await wire.until(() => client.text.includes('message_start'));
      wire.rst();
    });
    const client = await harness.post('/v1/messages?beta=true', { model: 'm1', stream: true });
    const text = (await client.response()).body.toString();
    expect(text).toMatch(/\n\nevent: error\ndata: \{"type":"error","error":\{"type":"api_error"/);
    expect(harness.engine().lastRequest.target).toBe('/v1/messages?beta=true');
  });

  it('Responses routes get an error event that names itself', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk('event: response.created\ndata: {"type":"response.created","sequence_number":0}\n\n');
      await wire.until(() => client.text.includes('response.created'));
      wire.rst();
    });
    const client = await harness.post('/v1/responses', { model: 'm1', stream: true, input: 'x' });
    const text = (await client.response()).body.toString();
    const last = eventData(text).at(-1) ?? '';
    expect(text).toContain('event: error\n');
    expect(json(last)).toMatchObject({ type: 'error', code: 'upstream_aborted', sequence_number: 1 });
  });

  it('a stream without [DONE] in its dialect ends with its own last event, at once', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(
        'event: message_start\ndata: {}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
      );
    });
    const response = await (await harness.post('/v1/messages', { model: 'm1', stream: true })).response();
    expect(response.complete).toBe(true);
  });
});
