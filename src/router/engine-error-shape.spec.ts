import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import { eventData } from '../../test/support/http-responses.js';
import { RouterHarness, sse } from '../../test/support/router-harness.js';
import { errorMembers, isShapedFor } from './engine-error-shape.js';
import type { DialectName } from './routes.js';

const WORDS = '{"error":{"message":"too long"}}';

describe('errorMembers', () => {
  it.each<[string, unknown, object | undefined]>([
    ['OpenAI', { error: { message: 'm', code: 1 } }, { message: 'm', code: 1 }],
    ['SGLang', { object: 'error', message: 'm', type: 'T', param: null, code: 400 }, { message: 'm', type: 'T', param: null, code: 400 }],
    ['TGI', { error: 'm', error_type: 'validation' }, { message: 'm', type: 'validation' }],
    ['vLLM without a key', { error: 'Unauthorized' }, { message: 'Unauthorized' }],
    ['FastAPI', { detail: 'Not Found' }, { message: 'Not Found' }],
    ['FastAPI with an object', { detail: { error: { message: 'm' } } }, { message: 'm' }],
    ['a proxy', { message: 'no Route matched' }, { message: 'no Route matched' }],
    ['problem+json', { title: 'Busy', status: 503 }, { message: 'Busy', title: 'Busy', status: 503 }],
    ['no error', { id: 'x' }, undefined],
    ['a list', [{ message: 'm' }], undefined],
    ['null', null, undefined],
  ])('%s', (_name, json, expected) => {
    expect(errorMembers(JSON.stringify(json))).toEqual(expected);
  }); // prettier-ignore

  it('makes one line of what a validator complains about', () => {
    const detail = [{ loc: ['body', 'messages'], msg: 'Field required' }, { msg: 'odd' }, 'bad', 7];
    expect(errorMembers(JSON.stringify({ detail }))).toMatchObject({
      message: 'body.messages: Field required; odd; bad; 7',
      detail,
    });
  });

  it('leaves alone what a client of the dialect can read', () => {
    expect(isShapedFor('openai', '{"error":{"message":"m"}}')).toBe(true);
    expect(isShapedFor('openai', '{"type":"error","error":{"message":"m"}}')).toBe(true);
    expect(isShapedFor('anthropic', '{"type":"error","error":{"message":"m"}}')).toBe(true);
    expect(isShapedFor('anthropic', '{"error":{"message":"m"}}')).toBe(false);
    expect(isShapedFor('openai', '{"error":"m"}')).toBe(false);
    expect(isShapedFor('openai', 'no json')).toBe(false);
  });
});

describe('an error answer in a shape of the engine’s own', () => {
  let harness: RouterHarness;
  afterEach(() => harness.stop());

  const shapes: [string, body: string, message: string][] = [
    ['SGLang', '{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":STATUS}', 'too long'],
    ['TGI', '{"error":"too long","error_type":"validation"}', 'too long'],
    ['FastAPI', '{"detail":"too long"}', 'too long'],
    ['OpenAI', '{"error":{"message":"too long","type":"BadRequestError","param":null,"code":STATUS}}', 'too long'],
    ['a list', '["too long"]', '["too long"]'],
    ['no words', '{"status":"fail"}', '{"status":"fail"}'],
    ['text', 'too long', 'too long'],
    ['an event', 'data: {"error":"too long","error_type":"overloaded"}\n\n', 'too long'],
  ]; // prettier-ignore
  const routes: [DialectName, path: string][] = [
    ['openai', '/v1/chat/completions'],
    ['responses', '/v1/responses'],
    ['anthropic', '/v1/messages'],
  ];

  // SDKs look for `error.message`; what has it elsewhere was shown as "400 status code (no body)".
  it('comes to clients with the message where they look for it', async () => {
    harness = await RouterHarness.start();
    for (const [dialect, path] of routes) {
      for (const [shape, template, message] of shapes) {
        for (const status of [400, 401, 429, 500, 503]) {
          const body = template.replace('STATUS', String(status));
          const headers = { 'content-type': shape === 'an event' ? 'text/event-stream' : 'application/json' };
          harness.engine().onRequest((_request, wire) => wire.respond(status, body, headers));
          const response = await (
            await harness.post(path, { model: 'm1', stream: status === 429 })
          ).response();
          const what = `${dialect} ${shape} ${status}`;
          expect(response.status, what).toBe(status);
          expect(response.headers.get('content-type'), what).toBe('application/json');
          const json = JSON.parse(response.body.toString()) as {
            type?: string;
            error: { message: string; type: string };
          };
          expect(json.error.message, what).toBe(message);
          expect(typeof json.error.type, what).toBe('string');
          if (dialect === 'anthropic') {
            expect(json.type, what).toBe('error');
            expect(json.error.type, what).toMatch(/^[a-z_]+_error$/);
          } else if (shape === 'OpenAI') {
            expect(response.body.toString(), what).toBe(body);
          }
        }
      }
    }
  });

  it('says the same as the one event of a stream that has begun', async () => {
    harness = await RouterHarness.start({ profile: { holdHeaders: 1 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.until(() => harness.clients.at(-1)?.text.includes('\n\n'));
      await wire.respond(400, '{"object":"error","message":"too long","code":400}');
    });
    for (const [dialect, path] of routes) {
      const client = await harness.post(path, { model: 'm1', stream: true });
      const data = eventData((await client.response()).body);
      expect(JSON.parse(data.at(-1) ?? ''), dialect).toMatchObject({ error: { message: 'too long' } });
    }
  });

  // Nobody asks for packed answers; the bytes of one were shown as if they were words.
  it.each<[string, Buffer, string]>([
    ['gzip', gzipSync(WORDS), 'too long'],
    ['X-Gzip', gzipSync(WORDS), 'too long'],
    ['deflate', deflateSync(WORDS), 'too long'],
    ['br', brotliCompressSync(WORDS), 'too long'],
    ['identity', Buffer.from(WORDS), 'too long'],
    ['gzip', gzipSync('x'.repeat(10_000_000)), 'the engine answered with status 400'],
    ['gzip', Buffer.from(WORDS), 'the engine answered with status 400'],
    ['zstd', Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), 'the engine answered with status 400'],
  ])('packed as %s is read, or said in our words', async (encoding, body, message) => {
    harness = await RouterHarness.start();
    const headers = { 'content-encoding': encoding };
    harness.engine().onRequest((_request, wire) => wire.respond(400, body, headers));
    const response = await (await harness.chat()).response();
    expect(response.headers.has('content-encoding')).toBe(false);
    expect(JSON.parse(response.body.toString())).toMatchObject({ error: { message } });
  });

  // The status was known, and after a minute the client was told of a timeout.
  it('whose words do not come in time is told with what came', async () => {
    harness = await RouterHarness.start({ deadlines: { firstToken: 100, firstTokenPer1kTokens: 0 } });
    const head = 'HTTP/1.1 500 X\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n';
    harness.engine().onRequest(async (_request, wire) => {
      await wire.write(`${head}out of `);
      await wire.waitClosed();
    });
    const response = await (await harness.chat({ stream: true })).response();
    expect(response.status).toBe(500);
    expect(JSON.parse(response.body.toString())).toMatchObject({ error: { message: 'out of' } });
    expect(harness.accessLog()).toMatchObject([{ outcome: 'engine_error', status: 500 }]);
  });

  it('under a 200 counts as the error it is, wherever the word stands', async () => {
    harness = await RouterHarness.start();
    const bodies = [
      '{"message":"too long","object":"error"}',
      '{"\\u0065rror" : {"message":"too long"}}',
      '{"id":"r","status":"failed","error":{"message":"too long"}}',
    ];
    for (const body of bodies) {
      harness.engine().onRequest((_request, wire) => wire.respond(200, body));
      const response = await (await harness.chat()).response();
      expect(response.body.toString()).toBe(body);
    }
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{"id":"r","error":null,"x":"error"}'));
    await (await harness.chat()).response();
    const outcomes = harness.accessLog().map((record) => record['outcome']);
    expect(outcomes).toEqual(['engine_error', 'engine_error', 'engine_error', 'ok']);
  });

  it('as first event is one in any spelling, and becomes a real status', async () => {
    harness = await RouterHarness.start();
    const events = [
      sse('{"\\u0065rror":{"message":"full","code":503}}'),
      sse('{ "object" :\t"error", "message":"full","code":503}'),
      'event: error\ndata: {"error":"full","status":503}\n\n',
      'event: error\ndata: full\n\n',
      'data: {"error":\ndata: {"message":"full","code":503}}\n\n',
    ];
    for (const event of events) {
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(event);
      });
      const response = await (await harness.chat({ stream: true })).response();
      expect(response.status, event).toBe(event.includes('503') ? 503 : 500);
      expect(JSON.parse(response.body.toString()), event).toMatchObject({ error: { message: 'full' } });
    }
  });
});
