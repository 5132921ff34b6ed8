import { createHash } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { ModelConfig } from '../config/server-config.js';
import { delta, RouterHarness } from '../../test/support/router-harness.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const FILE = Buffer.concat(
  Array.from({ length: 4096 }, () => Buffer.from(Array.from({ length: 256 }, (_, i) => i))),
);
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

const part = (boundary: string, name: string, value: Buffer | string, file = ''): Buffer =>
  Buffer.concat([
    Buffer.from(`--${boundary}\r\ncontent-disposition: form-data; name="${name}"${file}\r\n\r\n`),
    Buffer.from(value as string),
    Buffer.from('\r\n'),
  ]);

function form(boundary: string, model: string | undefined, order: 'modelFirst' | 'fileFirst'): Buffer {
  const file = part(boundary, 'file', FILE, '; filename="a.wav"');
  const name = model === undefined ? Buffer.alloc(0) : part(boundary, 'model', model);
  const parts = order === 'modelFirst' ? [name, file] : [file, name];
  return Buffer.concat([...parts, Buffer.from(`--${boundary}--\r\n`)]);
}

async function upload(path: string, body: Buffer, contentType: string, chunked = false) {
  const client = await harness.connect();
  const length = chunked ? 'transfer-encoding: chunked' : `content-length: ${body.length}`;
  await client.send(`POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${contentType}\r\n${length}\r\n\r\n`);
  if (!chunked) await client.send(body);
  else {
    for (let at = 0; at < body.length; at += 50_000) {
      const piece = body.subarray(at, at + 50_000);
      await client.send(
        Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')]),
      );
    }
    await client.send('0\r\n\r\n');
  }
  return client.response();
}

describe('audio uploads', () => {
  // A reader for JSON alone answered 415; bodies rewritten as text broke; those without a length were cut.
  it('are routed by their model wherever it stands, and the file arrives whole', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{"text":"hi"}'));
    for (const order of ['modelFirst', 'fileFirst'] as const) {
      for (const chunked of [false, true]) {
        for (const type of [
          'multipart/form-data; boundary=xyz',
          'Multipart/Form-Data; charset=x; boundary="xyz"',
        ]) {
          const body = form('xyz', 'm1', order);
          const response = await upload('/v1/audio/transcriptions', body, type, chunked);
          expect(response.status).toBe(200);
          const seen = harness.engine().lastRequest;
          expect(sha256(seen.body)).toBe(sha256(body));
          expect(seen.headers.get('content-type')).toBe(type);
        }
      }
    }
  });

  it('keep every byte of the file when an alias is replaced', async () => {
    harness = await RouterHarness.start({
      configure: (config) =>
        config.models.push(Object.assign(new ModelConfig(), { name: 'm1', aliases: ['whisper-1'] })),
    });
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{}'));
    const response = await upload(
      '/v1/audio/translations',
      form('b', 'whisper-1', 'fileFirst'),
      'multipart/form-data; boundary=b',
    );
    expect(response.status).toBe(200);
    expect(harness.engine().lastRequest.body.equals(form('b', 'm1', 'fileFirst'))).toBe(true);
  });

  it('without a model or form are refused in our form', async () => {
    harness = await RouterHarness.start();
    const type = 'multipart/form-data; boundary=b';
    const missing = await upload('/v1/audio/transcriptions', form('b', undefined, 'fileFirst'), type);
    expect(missing.status).toBe(400);
    expect(JSON.parse(missing.body.toString())).toMatchObject({
      error: { code: 'missing_model', type: 'invalid_request_error', param: 'model' },
    });
    const broken = await upload('/v1/audio/transcriptions', Buffer.from('--b\r\nx'), type);
    expect(broken.status).toBe(400);
    const json = await harness.post('/v1/audio/transcriptions', { model: 'm1' });
    expect((await json.response()).status).toBe(415);
    expect(harness.engine().requests).toHaveLength(0);
  });

  it('may be answered with a stream', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('t'));
      await wire.lastChunk();
    });
    const body = form('b', 'm1', 'modelFirst');
    const response = await upload('/v1/audio/transcriptions', body, 'multipart/form-data; boundary=b');
    expect(response.body.toString()).toBe(delta('t'));
  });

  it('of images take either form', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{}'));
    const body = form('b', 'm1', 'modelFirst');
    expect((await upload('/v1/images/edits', body, 'multipart/form-data; boundary=b')).status).toBe(200);
    expect((await (await harness.post('/v1/images/edits', { model: 'm1' })).response()).status).toBe(200);
  });
});
