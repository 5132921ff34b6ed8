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
});
