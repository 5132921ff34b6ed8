import { afterEach, describe, expect, it } from 'vitest';
import { eventData } from '../../test/support/http-responses.js';
import { delta, DONE, finish, RouterHarness, sse } from '../../test/support/router-harness.js';

const named = (type: string, delta = ''): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, delta })}\n\n`;

let harness: RouterHarness | undefined;
afterEach(async () => {
  await harness?.stop();
  harness = undefined;
});

describe('relaying', () => {
  it('gives a JSON answer with its bytes, status and length', async () => {
    harness = await RouterHarness.start();
    const body =
      '{"id":"x", "choices":[{"message":{"content":"h\u00e9"}}] ,"usage":{"prompt_tokens":3,"completion_tokens":2}}';
    harness.engine().onRequest((_request, wire) => wire.respond(200, body));
    const client = await harness.chat();
    const response = await client.response();
    expect(response.status).toBe(200);
    expect(response.body.toString()).toBe(body);
    expect(response.headers.get('content-length')).toBe(String(Buffer.byteLength(body)));
    expect(response.headers.get('x-accel-buffering')).toBeUndefined();
  });

  it('gives each event as it comes and ends with [DONE]', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
      await wire.until(() => client.text.includes('"content":"a"'));
      await wire.chunk(delta('b'));
      await wire.until(() => client.text.includes('"content":"b"'));
      await wire.chunk(finish() + DONE);
      await wire.lastChunk();
    });
    const client = await harness.chat({ stream: true });
    const response = await client.response();
    expect(response.body.toString()).toBe(delta('a') + delta('b') + finish() + DONE);
    expect(eventData(response.body).at(-1)).toBe('[DONE]');
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    expect(response.headers.get('cache-control')).toBe('no-cache');
    expect(response.headers.get('x-accel-buffering')).toBe('no');
    expect(response.headers.get('content-length')).toBeUndefined();
  });

  // Somebody in between who collects, compresses or parses hands out all events at the end: the first token after the
  // last. So each must be with the client before the engine writes the next.
  it.each([
    ['/v1/chat/completions', delta, finish() + DONE],
    ['/v1/completions', (text: string) => sse({ choices: [{ text }] }), finish() + DONE],
    [
      '/v1/responses',
      (text: string) => named('response.output_text.delta', text),
      named('response.completed'),
    ],
    ['/v1/messages', (text: string) => named('content_block_delta', text), named('message_stop')],
    ['/v1/audio/speech', (text: string) => sse({ type: 'speech.audio.delta', audio: text }), DONE],
  ])('of %s holds no event back, in whatever pieces it was written', async (path, event, end) => {
    const events = ['1', '2', '3', '4', '5'].map((digit) => event(`token ${digit}`));
    for (const pieces of [
      (text: string) => [text],
      (text: string) =>
        text
          .split('')
          .slice(0, 40)
          .concat(text.slice(40) || []),
    ]) {
      harness = await RouterHarness.start();
      harness.engine().onRequest(async (request, wire) => {
        expect(request.headers.get('accept-encoding')).toBe('identity');
        await wire.startStream();
        for (const [index, text] of events.entries()) {
          for (const piece of pieces(text)) await wire.chunk(piece);
          await wire.until(() => client.text.includes(`token ${index + 1}`));
        }
        await wire.chunk(end);
        await wire.lastChunk();
      });
      const client = await harness.post(
        path,
        { model: 'm1', stream: true, messages: [], prompt: 'x', input: 'x' },
        { 'accept-encoding': 'br, gzip' },
      );
      const response = await client.response();
      expect(response.body.toString()).toBe(events.join('') + end);
      expect(response.headers.has('content-encoding')).toBe(false);
      expect(harness.engine().failures).toEqual([]);
      await harness.stop();
    }
    harness = undefined;
  });

  it('serves one request after the other on a connection, also those sent ahead', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((request, wire) => wire.respond(200, `{"n":${request.index}}`));
    const client = await harness.connect();
    for (let i = 0; i < 5; i++) await client.post('/v1/embeddings', { model: 'm1' });
    for (let i = 0; i < 5; i++) expect((await client.response(i)).status).toBe(200);
    await client.post('/v1/embeddings', { model: 'm1' });
    expect((await client.response(5)).headers.get('connection')).toBe('keep-alive');
  });

  it('asks for a body whose client waits to be asked, and only when it will be read', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{"ok":1}'));
    const head = 'POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n';
    const client = await harness.connect();
    await client.send(`${head}content-length: 14\r\n\r\n`);
    await client.waitForText('100 Continue');
    await client.send('{"model":"m1"}');
    expect((await client.response()).status).toBe(200);
    const large = await harness.connect();
    await large.send(`${head}content-length: 999999999\r\n\r\n`);
    expect((await large.response()).status).toBe(413);
    expect(large.text).not.toContain('100 Continue');
  });

  it('speaks HTTP/1.0 to those who do', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a') + finish() + DONE);
      await wire.lastChunk();
    });
    const body = '{"model":"m1","stream":true}';
    const client = await harness.connect();
    await client.send(
      `POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    await client.waitClosed();
    expect(client.text.split('\r\n\r\n')[1]).toBe(delta('a') + finish() + DONE);
    expect(client.text).not.toContain('transfer-encoding');
  });
});
