import { afterEach, describe, expect, it } from 'vitest';
import { delta, DONE, finish, RouterHarness } from '../../test/support/router-harness.js';
import type { RawClient } from '../../test/support/raw-client.js';
import { nextTurn, waitFor } from '../../test/support/wait-for.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const BODY = '{"model":"m1"}';
const POST = 'POST /v1/embeddings HTTP/1.1\r\n';
const WHOLE = `${POST}host: a\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n${BODY}`;
const OK = '{"data":[]}';

interface ErrorBody {
  readonly error: { readonly code: string; readonly message: string; readonly type: string };
}

/** Sends bytes on a connection of its own; gives the one answer, after which the connection must end. */
async function refusal(bytes: string): Promise<{ client: RawClient; status: number; error: ErrorBody['error']; allow: string | undefined }> {
  const client = await harness.connect();
  await client.send(bytes);
  const response = await client.response();
  const what = JSON.stringify(bytes.slice(0, 120));
  expect(await client.waitClosed(), what).toBe('fin');
  expect(client.responses(), what).toHaveLength(1);
  expect(response.headers.get('content-type'), what).toBe('application/json');
  expect(response.headers.get('connection'), what).toBe('close');
  // Whoever asks about it later has something to name it by.
  const requestId = response.headers.get('x-request-id');
  expect(requestId, what).toMatch(/^req-/);
  expect(harness.accessLog().filter((record) => record['requestId'] === requestId)).toMatchObject([{ status: response.status }]);
  const { error } = JSON.parse(response.body.toString()) as ErrorBody;
  expect(error, what).toMatchObject({ code: expect.any(String) as string, message: expect.any(String) as string });
  client.destroy();
  return { client, status: response.status, error, allow: response.headers.get('allow') };
} // prettier-ignore

describe('bytes that are no request', () => {
  // Node's parser answers some of these itself, with a head and no body, or closes without a word.
  it.each<[string, string, number, string]>([
    ['no Host', `${POST}content-length: 14\r\n\r\n${BODY}`, 400, 'bad_request'],
    ['no Host on a path of ours', 'GET /v1/models HTTP/1.1\r\n\r\n', 400, 'bad_request'],
    ['length and chunks', `${POST}host: a\r\ncontent-length: 14\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`, 400, 'bad_request'],
    ['chunks and length', `${POST}host: a\r\ntransfer-encoding: chunked\r\ncontent-length: 14\r\n\r\n0\r\n\r\n`, 400, 'bad_request'],
    ['two lengths', `${POST}host: a\r\ncontent-length: 14\r\ncontent-length: 15\r\n\r\n${BODY}`, 400, 'bad_request'],
    ['a list of lengths', `${POST}host: a\r\ncontent-length: 14, 14\r\n\r\n${BODY}`, 400, 'bad_request'],
    ['a signed length', `${POST}host: a\r\ncontent-length: -1\r\n\r\n${BODY}`, 400, 'bad_request'],
    ['an endless length', `${POST}host: a\r\ncontent-length: 99999999999999999999999\r\n\r\n${BODY}`, 400, 'bad_request'],
    ['a coding that is none', `${POST}host: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n`, 400, 'bad_request'],
    ['a coding before chunks', `${POST}host: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`, 400, 'bad_request'],
    ['chunks twice', `${POST}host: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`, 400, 'bad_request'],
    ['a folded line', `${POST}host: a\r\nx: y\r\n z\r\n\r\n`, 400, 'bad_request'],
    ['a blank before the colon', `${POST}host: a\r\nx : y\r\n\r\n`, 400, 'bad_request'],
    ['a line without a colon', `${POST}host: a\r\nxy\r\n\r\n`, 400, 'bad_request'],
    ['a NUL', `${POST}host: a\r\nx: y\0z\r\n\r\n`, 400, 'bad_request'],
    ['a lone CR', `${POST}host: a\r\nx: y\rz\r\n\r\n`, 400, 'bad_request'],
    ['a large head', `${POST}host: a\r\nx: ${'y'.repeat(17_000)}\r\n\r\n`, 431, 'header_fields_too_large'],
    ['a large target', `GET /${'y'.repeat(17_000)} HTTP/1.1\r\nhost: a\r\n\r\n`, 431, 'header_fields_too_large'],
    ['another version', 'GET /v1/models HTTP/2.0\r\nhost: a\r\n\r\n', 400, 'bad_request'],
    ['no version', 'GET /v1/models\r\n\r\n', 400, 'bad_request'],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'bad_request'],
    ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400, 'bad_request'],
    ['an absolute target', `GET http://a/v1/models HTTP/1.1\r\nhost: a\r\n\r\n`, 400, 'bad_request'],
    ['a fragment', 'GET /v1/models#x HTTP/1.1\r\nhost: a\r\n\r\n', 400, 'bad_request'],
    ['a fragment behind a query', `${POST.replace(' HTTP', '?a=b#c HTTP')}host: a\r\ncontent-length: 14\r\n\r\n${BODY}`, 400, 'bad_request'],
    ['a star that is no OPTIONS', 'GET * HTTP/1.1\r\nhost: a\r\n\r\n', 400, 'bad_request'],
    ['a chunk that is none', `${POST}host: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n`, 400, 'bad_request'],
    ['a chunk with a wrong end', `${POST}host: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n`, 400, 'bad_request'],
  ])('%s', async (_name, bytes, status, code) => {
    harness = await RouterHarness.start();
    const answer = await refusal(bytes);
    expect([answer.status, answer.error.code]).toEqual([status, code]);
    expect(harness.engine().requests).toHaveLength(0);
  }); // prettier-ignore

  it.each<[string, string, number, string | undefined]>([
    ['FOO on a route', 'FOO /v1/chat/completions HTTP/1.1\r\nhost: a\r\n\r\n', 405, 'POST, OPTIONS'],
    ['a longer POST', 'POSTX /v1/messages?a=b HTTP/1.1\r\nhost: a\r\n\r\n', 405, 'POST, OPTIONS'],
    ['a small get', 'get /v1/models HTTP/1.1\r\nhost: a\r\n\r\n', 405, 'GET, HEAD, OPTIONS'],
    ['FOO elsewhere', 'FOO /nothing HTTP/1.1\r\nhost: a\r\n\r\n', 404, undefined],
    ['FOO in pieces', 'FOO', 405, 'GET, HEAD, POST, OPTIONS'],
    ['CONNECT', 'CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n', 405, 'GET, HEAD, POST, OPTIONS'],
    ['a word', 'garbage\r\n\r\n', 400, undefined],
  ])('a method nobody knows: %s', async (_name, bytes, status, allow) => {
    harness = await RouterHarness.start();
    const answer = await refusal(bytes);
    expect([answer.status, answer.allow]).toEqual([status, allow]);
    expect(
      await harness.metric(`llmgw_requests_total{model="_unknown",route="other",code="${status}"}`),
    ).toBe(1);
  });

  it('speak the route’s dialect where the route is known', async () => {
    harness = await RouterHarness.start();
    const client = await harness.connect();
    await client.send('FOO /v1/messages HTTP/1.1\r\nhost: a\r\n\r\n');
    expect(JSON.parse((await client.response()).body.toString())).toMatchObject({ type: 'error' });
    const headless = await harness.connect();
    await headless.send('POST /v1/messages?a=b HTTP/1.1\r\ncontent-length: 0\r\n\r\n');
    expect(JSON.parse((await headless.response()).body.toString())).toMatchObject({ type: 'error' });
    const broken = await harness.connect();
    await broken.send(
      'POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n',
    );
    const response = await broken.response();
    expect(response.status).toBe(400);
    expect(JSON.parse(response.body.toString())).toMatchObject({ type: 'error' });
    expect(harness.accessLog().at(-1)).toMatchObject({ route: '/v1/messages', outcome: 'bad_request' });
  });

  it('get no answer when there were none', async () => {
    harness = await RouterHarness.start();
    const client = await harness.connect();
    client.halfClose();
    await client.waitClosed();
    expect(client.text).toBe('');
  });
});

describe('a connection', () => {
  // A refusal written at once would have been read as the answer to the request before it.
  it('on which garbage follows a request answers the request first', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.until(() => go);
      await wire.respond(200, OK);
    });
    let go = false;
    for (const [garbage, status] of [
      ['\x00\x01garbage\r\n\r\n', 400],
      ['FOO /v1/models HTTP/1.1\r\nhost: a\r\n\r\n', 405],
      ['CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n', 405],
    ] as const) {
      go = false;
      const client = await harness.connect();
      const before = harness.engine().requests.length;
      await client.send(WHOLE + garbage);
      await harness.engine().request(before);
      expect(client.text).toBe('');
      go = true;
      expect((await client.response(0)).body.toString()).toBe(OK);
      const last = await client.response(1);
      expect(last.status).toBe(status);
      expect(await client.waitClosed()).toBe('fin');
      client.destroy();
    }
  });

  it('on which garbage follows a stream gives the whole stream first', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
      await wire.until(() => go);
      await wire.chunk(finish() + DONE);
      await wire.lastChunk();
    });
    let go = false;
    const client = await harness.chat({ stream: true });
    await client.waitForText('"content":"a"');
    await client.send('\x00garbage');
    await nextTurn();
    go = true;
    expect((await client.response(0)).body.toString()).toBe(delta('a') + finish() + DONE);
    expect((await client.response(1)).status).toBe(400);
  });

  it('takes requests sent ahead, whole or in single bytes, and answers in order', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((request, wire) => wire.respond(200, request.body));
    const client = await harness.connect();
    for (const byte of WHOLE + WHOLE) {
      await client.send(byte);
      await nextTurn();
    }
    await client.send(`GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n${WHOLE}`);
    expect((await client.response(0)).body.toString()).toBe(BODY);
    expect((await client.response(1)).body.toString()).toBe(BODY);
    expect((await client.response(2)).body.toString()).toContain('"list"');
    expect((await client.response(3)).body.toString()).toBe(BODY);
  });

  it('that asks for another protocol, or expects what nobody knows, is served as if it had not', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const extras = ['connection: upgrade\r\nupgrade: h2c\r\n', 'connection: upgrade\r\nupgrade: websocket\r\n', 'expect: 200-ok\r\n']; // prettier-ignore
    for (const extra of extras) {
      const client = await harness.connect();
      await client.send(WHOLE.replace('host: a\r\n', `host: a\r\n${extra}`));
      const response = await client.response();
      expect([extra, response.status, response.body.toString()]).toEqual([extra, 200, OK]);
      await client.send(WHOLE);
      expect((await client.response(1)).status).toBe(200);
    }
  });

  it('whose client waits to be asked for the body ends when it is refused unread', async () => {
    harness = await RouterHarness.start();
    const client = await harness.connect();
    await client.send(
      `${POST}host: a\r\ncontent-type: text/plain\r\ncontent-length: 14\r\nexpect: 100-continue\r\n\r\n`,
    );
    const response = await client.response();
    expect(response.status).toBe(415);
    expect(response.headers.get('connection')).toBe('close');
    expect(client.text).not.toContain('100 Continue');
  });

  // Closing one direction cannot be told from leaving, and whoever left must cost nothing.
  it('half closed is one whose client left', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.startStream());
    const client = await harness.chat({ stream: true });
    const request = await harness.engine().request();
    client.halfClose();
    await waitFor(() => request.connection.closed);
    expect(harness.accessLog()).toMatchObject([{ outcome: 'client_closed', status: 499 }]);
  });

  it('half closed in the middle of a body is told so', async () => {
    harness = await RouterHarness.start();
    const client = await harness.connect();
    await client.send(WHOLE.slice(0, -3));
    client.halfClose();
    await client.waitClosed();
    expect(harness.engine().requests).toHaveLength(0);
  });

  it('may ask what the server as a whole takes, and what a path takes', async () => {
    harness = await RouterHarness.start();
    for (const [target, allow] of [
      ['*', 'GET, HEAD, POST, OPTIONS'],
      ['/v1/models', 'GET, HEAD, OPTIONS'],
      ['/v1/messages', 'POST, OPTIONS'],
    ]) {
      const client = await harness.connect();
      await client.send(`OPTIONS ${target} HTTP/1.1\r\nhost: a\r\n\r\n`);
      const response = await client.response();
      expect([response.status, response.headers.get('allow')]).toEqual([204, allow]);
    }
  });
});
