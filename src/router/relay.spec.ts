import { afterEach, describe, expect, it } from 'vitest';
import { eventData } from '../../test/support/http-responses.js';
import { delta, DONE, finish, RouterHarness } from '../../test/support/router-harness.js';

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

  it('cancels the engine when the client leaves', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      while (!wire.peerGone) await wire.chunk(delta('x'));
    });
    const client = await harness.chat({ stream: true });
    await client.waitForText('content');
    client.rst();
    await harness.engine().waitIdle();
    await harness.settle();
    expect(harness.accessLog().at(-1)).toMatchObject({ status: 499, outcome: 'client_closed' });
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
