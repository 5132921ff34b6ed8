import { gzipSync } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import type { RequestHandler } from '../../test/support/fake-engine/fake-engine.js';
import type { ParsedResponse } from '../../test/support/http-responses.js';
import { delta, DONE, finish, RouterHarness, sse } from '../../test/support/router-harness.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

type Piece = string | Buffer;

/** A chunked event stream in these pieces, each of them read before the next leaves. */
const streamOf =
  (...pieces: Piece[]): RequestHandler =>
  async (_request, wire) => {
    await wire.startStream();
    await wire.writeEach(pieces.map((piece) => chunkOf(piece)));
    await wire.lastChunk();
  };

const chunkOf = (piece: Piece): Buffer =>
  Buffer.concat([
    Buffer.from(`${Buffer.byteLength(piece).toString(16)}\r\n`),
    Buffer.from(piece),
    Buffer.from('\r\n'),
  ]);

const raw =
  (bytes: Piece, end: 'ends' | 'stays' = 'stays'): RequestHandler =>
  async (_request, wire) => {
    await wire.write(bytes);
    if (end === 'ends') wire.end();
  };

const ANSWER = delta('a') + finish() + DONE;
const FULL = sse({ error: { message: 'full', code: 503 } });
const event = (name: string, data: object = {}): string =>
  `event: ${name}\ndata: ${JSON.stringify({ type: name, ...data })}\n\n`;
const EVENTS = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n';

interface Asked {
  readonly path?: string;
  readonly stream?: boolean;
}

async function ask(handler: RequestHandler, { path, stream = true }: Asked = {}): Promise<ParsedResponse> {
  harness = await RouterHarness.start();
  harness.engine().onRequest(handler);
  const body = { model: 'm1', stream, messages: [], input: 'x' };
  const client = await harness.post(path ?? '/v1/chat/completions', body);
  const response = await client.response();
  await harness.settle();
  return response;
}

describe('a stream in an unusual form', () => {
  const cr = `${delta('a')}${DONE}`.replaceAll('\n', '\r');
  const cases: [what: string, pieces: Piece[]][] = [
    ['with CR for line ends', [cr]],
    ['with CRLF cut between the two', ['data: {"choices":[{}]}\r', '\n\r', '\n', 'data: [DONE]\r\n\r\n']],
    ['with a byte order mark', [`\ufeff${ANSWER}`]],
    ['with data over several lines', [`data: {"choices":\ndata: [{"finish_reason":"stop"}]}\n\n${DONE}`]],
    ['with comments before, between and after', [': x\n\n', delta('a'), ':\n\n', finish(), ': y\n\n', DONE]],
    ['with fields nobody needs', [`id: 1\nretry: 5\n\n${ANSWER}`]],
    ['with an empty event', [`data:\n\n${ANSWER}`]],
    ['without blanks behind the colons', [ANSWER.replaceAll('data: ', 'data:')]],
    ['with a named [DONE]', [`${delta('a')}event: done\n${DONE}`]],
    ['with a last line that nothing ends', [`${delta('a')}${finish()}data: [DONE]`]],
    ['with a last event that nothing ends', [`${delta('a')}${finish().trimEnd()}`]],
    ['with one event only, that nothing ends', [finish().trimEnd()]],
    ['with nothing but [DONE]', [DONE]],
    ['with bytes that are no UTF-8', [Buffer.from(ANSWER.replace('"a"', '"\xff\xc3"'), 'latin1')]],
    ['with an event of ten mebibytes', [delta('x'.repeat(10 * 1024 * 1024)), finish() + DONE]],
  ];
  it.each(cases)('%s is relayed as it is', async (_what, pieces) => {
    const response = await ask(streamOf(...pieces));
    expect(response.status).toBe(200);
    expect(response.body.equals(Buffer.concat(pieces.map((piece) => Buffer.from(piece))))).toBe(true);
    expect(harness.accessLog()).toMatchObject([{ outcome: 'ok', attempts: 1 }]);
  });

  const length = Buffer.byteLength(ANSWER);
  const framings: [what: string, handler: RequestHandler][] = [
    ['with a length', raw(`${EVENTS}content-length: ${length}\r\n\r\n${ANSWER}`)],
    ['that ends with its connection', raw(`${EVENTS}\r\n${ANSWER}`, 'ends')],
    [
      'with interim answers before it',
      raw(`HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nlink: x\r\n\r\n${EVENTS}\r\n${ANSWER}`, 'ends'),
    ],
    [
      'with chunk extensions and trailers',
      raw(
        `${EVENTS}transfer-encoding: chunked\r\n\r\n${length.toString(16)};a="b"\r\n${ANSWER}\r\n0;c\r\nx-t: 1\r\n\r\n`,
      ),
    ],
    [
      'with its type said twice',
      raw(`${EVENTS}content-type: text/event-stream\r\ncontent-length: ${length}\r\n\r\n${ANSWER}`),
    ],
    [
      'with its type in capitals',
      raw(`HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n\r\n${ANSWER}`, 'ends'),
    ],
  ];
  it.each(framings)('%s has the usual frame for the client', async (_what, handler) => {
    const response = await ask(handler);
    expect(response.body.toString()).toBe(ANSWER);
    expect(response.framing).toBe('chunked');
    expect(response.headers.get('content-length')).toBeUndefined();
    expect(response.headers.get('link') ?? response.headers.get('x-t')).toBeUndefined();
    expect(response.headers.get('cache-control')).toBe('no-cache');
  });

  // What stood behind the end reached clients when it came in the same read, and did not when it came in the next.
  it.each([
    ['together', [`${ANSWER}${DONE}${delta('ghost')}`]],
    ['apart', [ANSWER, DONE, delta('ghost')]],
    ['half behind it', [`${ANSWER}data: {"gho`, 'st":1}\n\n']],
    ['behind one that is spelled oddly', [ANSWER.replace('[DONE]', '\t[DONE] \t'), delta('ghost')]],
    ['on its line', [ANSWER.replace('[DONE]', '[DONE].'), delta('ghost')]],
  ])('ends at its [DONE], whatever follows %s', async (_how, pieces) => {
    const wanted = pieces.join('').split('\n\n').slice(0, 3).map((one) => `${one}\n\n`).join(''); // prettier-ignore
    expect((await ask(streamOf(...pieces))).body.toString()).toBe(wanted);
    expect(harness.accessLog()).toMatchObject([{ outcome: 'ok' }]);
  });

  // Some engines write the reason of the end into every chunk, and leave it empty until there is one.
  it('that ends before its reason does is no whole answer, also where the reason is there and empty', async () => {
    const chunk = (reason: string) => sse({ choices: [{ delta: { content: 'a' }, finish_reason: reason }] });
    const broken = await ask(streamOf(chunk('')));
    expect(broken.body.toString()).toContain('upstream_aborted');
    await harness.stop();
    const whole = await ask(streamOf(chunk(''), chunk('stop')));
    expect(whole.body.toString()).toBe(chunk('') + chunk('stop'));
  });

  it('is over for the client when nothing but [DONE] came, though the engine holds its end back', async () => {
    const response = await ask(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(DONE);
      await wire.waitClosed();
    });
    expect(response.body.toString()).toBe(DONE);
  });

  it('packed although nobody asked for it passes with what tells how', async () => {
    const packed = gzipSync(ANSWER);
    const response = await ask((_request, wire) =>
      wire.respond(200, packed, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' }),
    );
    expect(response.body.equals(packed)).toBe(true);
    expect(response.headers.get('content-encoding')).toBe('gzip');
  });
});

describe('streams of other dialects', () => {
  // The types stand in the data, too, and engines leave the names out: whole answers got an error at their end.
  it.each([
    ['/v1/responses', ['response.created', 'response.completed']],
    ['/v1/responses', ['response.created', 'response.incomplete']],
    ['/v1/responses', ['response.created', 'response.cancelled']],
    ['/v1/messages', ['message_start', 'message_stop']],
  ])('%s: %j, named or not, is a whole answer', async (path, types) => {
    for (const named of [true, false]) {
      const text = types.map((type) => (named ? event(type) : sse({ type }))).join('');
      const response = await ask(streamOf(text), { path });
      expect(response.body.toString()).toBe(text);
      expect(harness.accessLog()).toMatchObject([{ outcome: 'ok' }]);
      await harness.stop();
    }
    harness = await RouterHarness.start();
  });

  it('a last event too large to be read is no reason to call the answer broken', async () => {
    const last = event('response.completed', { text: 'x'.repeat(400_000) });
    const text = event('response.created') + last;
    const response = await ask(streamOf(text.slice(0, 200_000), text.slice(200_000)), {
      path: '/v1/responses',
    });
    expect(response.body.toString()).toBe(text);
    expect(harness.accessLog()).toMatchObject([{ outcome: 'ok' }]);
  });

  it('a failure event of the engine is its end, and no success', async () => {
    const failed = event('response.failed', { response: { error: { code: 'server_error', message: 'm' } } });
    for (const end of [failed, sse({ type: 'response.failed', response: { error: { message: 'm' } } })]) {
      const response = await ask(
        async (_request, wire) => {
          await wire.startStream();
          await wire.chunk(event('response.created') + end);
          await wire.waitClosed();
        },
        { path: '/v1/responses' },
      );
      expect(response.body.toString()).toBe(event('response.created') + end);
      expect(harness.accessLog()).toMatchObject([{ outcome: 'engine_error' }]);
      await harness.stop();
    }
    harness = await RouterHarness.start();
  });

  // Its clients go by names, and dropped an error without one in silence: half an answer was taken for a whole one.
  it('an error without a name gets one where clients go by names', async () => {
    const begin = event('message_start');
    const error = sse({ error: { message: 'oom', code: 500 } });
    for (const pieces of [[begin + error], [begin, error], [begin, error.slice(0, 9), error.slice(9)]]) {
      const response = await ask(streamOf(...pieces), { path: '/v1/messages' });
      expect(response.body.toString()).toBe(`${begin}event: error\n${error}`);
      expect(harness.accessLog()).toMatchObject([{ outcome: 'engine_error' }]);
      await harness.stop();
    }
    const named = begin + event('error', { error: { type: 'api_error', message: 'oom' } });
    expect((await ask(streamOf(named), { path: '/v1/messages' })).body.toString()).toBe(named);
  });

  it('as the first event it becomes a real status, with its own words', async () => {
    const error = { code: 'rate_limit_exceeded', message: 'slow down' };
    const response = await ask(streamOf(event('response.failed', { response: { error } })), {
      path: '/v1/responses',
    });
    expect(response.status).toBe(429);
    expect(JSON.parse(response.body.toString())).toMatchObject({ error });
    expect(response.headers.get('retry-after')).toMatch(/^[1-9]/);
  });

  // A ping is a sign of life, as comments are elsewhere. It was taken for the answer: no failing over after it.
  it('pings do not commit the answer, and an overload behind them is a real one', async () => {
    const overloaded = event('error', { error: { type: 'overloaded_error', message: 'o' } });
    const response = await ask(streamOf(event('ping'), event('ping'), overloaded), { path: '/v1/messages' });
    expect(response.status).toBe(529);
    expect(response.headers.get('retry-after')).toMatch(/^[1-9]/);
    expect(JSON.parse(response.body.toString())).toMatchObject({ error: { type: 'overloaded_error' } });
    expect(harness.router.endpoints()[0]).toMatchObject({ failuresTotal: 0 });
  });

  it('pings before the answer leave with it, and are no progress of a stream that stands still', async () => {
    harness = await RouterHarness.start({ deadlines: { idle: 150 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(event('ping'));
      await wire.chunk(event('message_start'));
      await wire.chunk(event('content_block_delta', { delta: { text: 'x' } }));
      while (!wire.peerGone) {
        await wire.chunk(event('ping'));
        await harness.passed(10);
      }
    });
    const client = await harness.post('/v1/messages', { model: 'm1', stream: true });
    const text = (await client.response()).body.toString();
    expect(text.startsWith(event('ping') + event('message_start'))).toBe(true);
    expect(text).toContain('idle_timeout');
  });
});

describe('a failure before the first whole event', () => {
  it.each<[string, RequestHandler, number]>([
    ['an error that nothing ends', streamOf(FULL.trimEnd()), 503],
    ['an error after comments', streamOf(': a\n\n', ': b\n\n', FULL), 503],
    ['a head and the end', raw(`${EVENTS}transfer-encoding: chunked\r\n\r\n`, 'ends'), 502],
    ['a stream of no bytes', raw(`${EVENTS}content-length: 0\r\n\r\n`), 502],
    ['half an event', raw(`${EVENTS}\r\n${delta('a').slice(0, 20)}`, 'ends'), 502],
    [
      'a page for browsers',
      raw('HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>'),
      502,
    ],
    ['another protocol', raw('HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n'), 502],
    ['a head whose lines end in LF alone', raw('HTTP/1.1 200 OK\ncontent-type: text/event-stream\n\n'), 502],
    ['the beginning of one', raw('HTTP/1.1 200 OK\n'), 502],
    ['a status that is none', raw('HTTP/1.1 600 X\r\ncontent-length: 0\r\n\r\n'), 502],
  ])('%s goes elsewhere, and is told as what it is when there is nobody', async (_what, handler, status) => {
    const alone = await ask(handler);
    expect(alone.status).toBe(status);
    expect(alone.headers.get('content-type')).toBe('application/json');
    await harness.stop();
    harness = await RouterHarness.start({ engines: 2 });
    let asked = 0;
    for (const engine of harness.engines) {
      engine.onRequest((request, wire) => (asked++ === 0 ? handler : streamOf(ANSWER))(request, wire));
    }
    const response = await (await harness.chat({ stream: true })).response();
    expect(response.body.toString()).toBe(ANSWER);
    expect(asked).toBe(2);
  });

  // The first event is relayed, and from there on there is no other answer: clients act on it, if only on the role.
  it('is none once the role was relayed', async () => {
    const role = sse({ choices: [{ index: 0, delta: { role: 'assistant', content: '' } }] });
    harness = await RouterHarness.start({ engines: 2 });
    for (const engine of harness.engines) {
      engine.onRequest(async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(role);
        await wire.until(() => client.text.includes('assistant'));
        wire.rst();
      });
    }
    const client = await harness.chat({ stream: true });
    const text = (await client.response()).body.toString();
    expect(text.startsWith(role)).toBe(true);
    expect(text).toContain('upstream_aborted');
    expect(harness.engines.reduce((sum, engine) => sum + engine.requests.length, 0)).toBe(1);
  });
});

describe('an answer of another kind than was asked for', () => {
  it.each<[string, string, boolean]>([
    ['JSON to a stream', 'application/json', true],
    ['an error in JSON to a stream', 'application/json', true],
    ['lines of JSON', 'application/x-ndjson', true],
    ['events to a plain request', 'text/event-stream', false],
    ['plain text', 'text/plain', false],
  ])('(%s) is relayed with its own type', async (what, type, stream) => {
    const body =
      type === 'text/event-stream' ? ANSWER : what.includes('error') ? '{"error":{}}' : '{"a":1}\n{"b":2}';
    const response = await ask((_request, wire) => wire.respond(200, body, { 'content-type': type }), {
      stream,
    });
    expect(response.status).toBe(200);
    expect(response.body.toString()).toBe(body);
    expect(response.headers.get('content-type')).toBe(type);
    expect(harness.accessLog()).toMatchObject([{ outcome: what.includes('error') ? 'engine_error' : 'ok' }]);
  });

  it.each([204, 304])('(%i) has neither body nor length nor type', async (status) => {
    const response = await ask(raw(`HTTP/1.1 ${status} X\r\ncontent-length: 5\r\n\r\n`));
    expect(response.status).toBe(status);
    expect(response.headers.has('content-length') || response.headers.has('content-type')).toBe(false);
    // The connection is good for the next one: nothing was announced that does not come.
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{}'));
    const [client] = harness.clients;
    await client?.post('/v1/embeddings', { model: 'm1' });
    expect((await client?.response(1))?.status).toBe(200);
  });

  // The end of such a body is the end of its connection, and that of a crash looks the same.
  it.each([
    ['{"a":{"b":1}', false],
    ['{"a":"}', false],
    [`{"a":"${'x'.repeat(20_000)}", `, false],
    ['', false],
    ['{"a":1}', true],
    ['[1]\n ', true],
    [`["${'x'.repeat(20_000)}"]\n`, true],
  ])('a body without length (%.20s…) is whole: %s', async (body, whole) => {
    harness = await RouterHarness.start();
    harness
      .engine()
      .onRequest(raw(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n${body}`, 'ends'));
    const client = await harness.chat();
    if (whole) expect((await client.response()).body.toString()).toBe(body);
    else if (body === '') expect((await client.response()).status).toBe(502);
    else {
      await client.waitClosed();
      expect(client.responses()[0]?.complete ?? false).toBe(false);
      expect(harness.accessLog()).toMatchObject([{ outcome: 'upstream_aborted' }]);
    }
  });
});

describe('an engine that answers before it has read the request', () => {
  const REFUSAL = '{"error":{"message":"too large for me","code":413}}';
  const HEAD = `HTTP/1.1 413 X\r\ncontent-type: application/json\r\ncontent-length: ${REFUSAL.length}\r\n`;

  it.each(['stays', 'ends'] as const)('and then %s is heard, and neither side waits', async (then) => {
    harness = await RouterHarness.start();
    harness.engine().onConnection((wire) => {
      wire.pause();
      void wire.write(`${HEAD}\r\n${REFUSAL}`).then(() => {
        if (then === 'ends') wire.end();
        wire.resume();
      });
      return true;
    });
    const client = await harness.chat({ messages: ['x'.repeat(8 * 1024 * 1024)] });
    const response = await client.response();
    expect(response.status).toBe(413);
    expect(response.body.toString()).toBe(REFUSAL);
  });
});

describe('attempts', () => {
  // One that broke off or was left counted twice: as what it was, and as a success.
  it('are counted once each, whatever became of them', async () => {
    harness = await RouterHarness.start({ engines: 2 });
    const acts: RequestHandler[] = [
      streamOf(ANSWER),
      async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(delta('a'));
        await wire.until(() => harness.clients.at(-1)?.text.includes('"a"'));
        wire.rst();
      },
      async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(delta('a'));
        await wire.waitClosed();
      },
      (_request, wire) => wire.respond(400, '{"error":{}}'),
      (_request, wire) => wire.respond(503, '{"error":{}}'),
      streamOf(ANSWER),
    ];
    for (const engine of harness.engines) engine.onRequest((request, wire) => acts.shift()?.(request, wire));
    for (const leaves of [false, false, true, false, false]) {
      const client = await harness.chat({ stream: true });
      if (!leaves) await client.response();
      else {
        await client.waitForText('"a"');
        client.rst();
      }
      await harness.settle();
    }
    const counted = [
      ...(await harness.metrics()).matchAll(/^llmgw_attempts_total\{.*outcome="(\w+)"\} (\d+)$/gm),
    ];
    expect(Object.fromEntries(counted.map(([, outcome, value]) => [outcome, Number(value)]))).toEqual({
      ok: 2,
      reset_in_response: 1,
      client_closed: 1,
      status_400: 1,
      status_503: 1,
    });
  });
});
