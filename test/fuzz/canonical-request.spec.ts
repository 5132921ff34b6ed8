import http from 'node:http';
import { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { HEAD_MAX_BYTES } from '../../src/router/broken-request.js';
import {
  CANONICAL_BODY_MAX_BYTES,
  CANONICAL_HEAD_MAX_BYTES,
  CanonicalReader,
} from '../../src/router/bytes/canonical-request.js';
import {
  canonicalRequestHead,
  HEADERS_READ,
  readRequestHead,
  REQUEST_HEADERS_MAX,
} from '../../src/router/request-head.js';
import { ENGINE_ROUTES } from '../../src/router/routes.js';
import type { Random } from '../../src/shared/random.js';
import { RawClient } from '../support/raw-client.js';
import { RouterHarness } from '../support/router-harness.js';
import { nextTurn, waitFor } from '../support/wait-for.js';
import {
  between,
  corpusOf,
  fuzz,
  fuzzTimeoutMs,
  inStrangeMemory,
  mutate,
  pick,
  randomSplit,
} from './fuzz.js';

const PATHS = ENGINE_ROUTES.map((route) => route.path);
const makeId = () => 'made';

/** One request as some reader understood it. */
interface Reading {
  /** What the pipeline makes of its head. */
  readonly head: unknown;
  readonly target: string;
  /** Names in lower case and values, those left out that say how the request is to be read. */
  readonly lines: readonly string[];
  readonly keepAlive: boolean;
  readonly body: Buffer;
  /** All of the body came. */
  readonly complete: boolean;
}

interface NodesReading {
  readonly requests: Reading[];
  /** The parser gave up. */
  broken: boolean;
}

const FRAMING: ReadonlySet<string> = new Set(['host', 'content-length', 'connection']);

/** Node's own server on the same pieces. It answers each request at once. */
function readNodes(pieces: readonly Buffer[]): Promise<NodesReading> {
  return new Promise((resolve) => {
    const reading: NodesReading = { requests: [], broken: false };
    const server = http.createServer({ maxHeaderSize: HEAD_MAX_BYTES, requireHostHeader: false });
    server.maxHeadersCount = REQUEST_HEADERS_MAX + 8;
    const take = (request: http.IncomingMessage, response: http.ServerResponse) => {
      const lines: string[] = [];
      for (let i = 0; i < request.rawHeaders.length; i += 2) {
        const name = (request.rawHeaders[i] ?? '').toLowerCase();
        if (!FRAMING.has(name)) lines.push(name, request.rawHeaders[i + 1] ?? '');
      }
      const body: Buffer[] = [];
      const one = {
        head: Object.assign({}, readRequestHead(request, makeId)),
        target: request.url ?? '',
        lines,
        keepAlive: response.shouldKeepAlive,
        get body() {
          return Buffer.concat(body);
        },
        get complete() {
          return request.complete;
        },
      };
      reading.requests.push(one);
      request.on('data', (piece: Buffer) => body.push(piece));
      request.on('error', () => undefined);
      request.on('end', () => response.end());
    };
    server.on('request', take).on('checkContinue', take).on('checkExpectation', take);
    server.on('connect', (_request, socket) => socket.destroy());
    server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
      // Its end in the middle is the test's doing.
      if (error.code !== 'HPE_INVALID_EOF_STATE' && error.code !== 'ECONNRESET') reading.broken = true;
      socket.destroy();
    });
    const socket = new PiecesSocket(pieces);
    socket.on('close', () => setImmediate(() => resolve(reading)));
    server.emit('connection', socket);
  });
}

/** A connection that says its pieces one by one, then ends. */
class PiecesSocket extends Duplex {
  #next = 0;
  constructor(private readonly pieces: readonly Buffer[]) {
    super();
  }
  setTimeout(): this {
    return this;
  }
  override _read(): void {
    const piece = this.pieces[this.#next++];
    if (piece !== undefined) setImmediate(() => this.push(piece));
    else void this.#endWhenRead();
  }
  /** An end at once would overtake what the server has read and not passed on. */
  async #endWhenRead(): Promise<void> {
    for (let turn = 0; turn < 4; turn++) await nextTurn();
    this.push(null);
  }
  override _write(_chunk: Buffer, _encoding: string, callback: () => void): void {
    callback();
  }
}

/** Ours: the canonical requests at the beginning, and what is left for others. */
function readOurs(bytes: Buffer, names: readonly string[]): { requests: Reading[]; rest: Buffer } {
  const reader = new CanonicalReader(PATHS, HEADERS_READ, REQUEST_HEADERS_MAX);
  const everything = new CanonicalReader(PATHS, names, REQUEST_HEADERS_MAX);
  const requests: Reading[] = [];
  let at = 0;
  while (at < bytes.length && reader.read(bytes, at, bytes.length) === 'canonical') {
    expect(everything.read(bytes, at, bytes.length)).toBe('canonical');
    const lines: string[] = [];
    for (let i = 0; i < everything.count; i++) lines.push(everything.name(i), everything.value(i));
    const { bodyFrom, contentLength, keepAlive, path, query } = reader;
    const end = Math.min(bytes.length, bodyFrom + contentLength);
    requests.push({
      head: Object.assign({}, canonicalRequestHead(reader, '', makeId)),
      target: path + query,
      lines,
      keepAlive,
      body: bytes.subarray(bodyFrom, end),
      complete: end === bodyFrom + contentLength,
    });
    at = end;
    if (!keepAlive) break;
  }
  return { requests, rest: bytes.subarray(at) };
}

const plain = ({ head, target, lines, keepAlive, body, complete }: Reading) => ({
  head,
  target,
  lines,
  keepAlive,
  complete,
  body: body.toString('latin1'),
});

/** Whatever we call canonical node accepts, and reads it the same; what we leave it reads as it would have anyway. */
async function check(random: Random, bytes: Buffer): Promise<number> {
  const nodes = await readNodes(random() < 0.5 ? [bytes] : randomSplit(random, bytes));
  const names = [...new Set(nodes.requests.flatMap(({ lines }) => lines.filter((_, i) => i % 2 === 0)))];
  const { requests, rest } = readOurs(inStrangeMemory(random, bytes, 'POST / HTTP/1.1\r\n'), names);
  expect(nodes.requests.slice(0, requests.length).map(plain)).toEqual(requests.map(plain));
  const last = requests.at(-1);
  if (last === undefined || !last.keepAlive || !last.complete) {
    if (last !== undefined) expect(nodes.requests).toHaveLength(requests.length);
    return requests.length;
  }
  const left = await readNodes(rest.length === 0 ? [] : [rest]);
  expect(nodes.requests.slice(requests.length).map(plain)).toEqual(left.requests.map(plain));
  expect(nodes.broken).toBe(left.broken);
  return requests.length;
}

/** A verdict is never taken back by what follows, and a canonical head is `more` until its last byte. */
function checkPrefixes(bytes: Buffer): void {
  const reader = new CanonicalReader(PATHS, HEADERS_READ, REQUEST_HEADERS_MAX);
  const verdict = reader.read(bytes, 0, bytes.length);
  const headEnd = verdict === 'canonical' ? reader.bodyFrom : bytes.length;
  for (let to = 0; to < headEnd; to++) {
    const early = reader.read(bytes, 0, to);
    if (verdict === 'canonical') expect([to, early]).toEqual([to, 'more']);
    else if (early !== 'more') expect([to, early]).toEqual([to, verdict]);
  }
}

const TOKENS = [
  '\r\n', '\r', '\n', '\r\n\r\n', '\n\n', ' ', '  ', '\t', ':', ': ', '\0', '\x0b', '\x7f', '\x80', 'é', '#', '?', '/', '//', '+', '-', '0', '00', ',', ';', '"', '\\', '%00', '%2f',
  'POST', 'GET ', 'post ', 'POSTX ', 'CONNECT a:1 ', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'http://a/v1/chat/completions', '*', ' HTTP/1.0', ' HTTP/1.1', ' HTTP/2.0', ' HTTP/1.1\r\n', 'HTTP/0.9',
  'host: b\r\n', 'Host:\r\n', 'content-length: 5\r\n', 'Content-Length: 05\r\n', 'content-length: +5\r\n', 'content-length: 5, 5\r\n', 'content-length: 0\r\n', 'content-length: 5 5\r\n', 'content-length:\r\n',
  'content-length: 0x5\r\n', 'content-length: 99999999999999999999\r\n', 'content-length : 5\r\n', 'Content_Length: 5\r\n', 'transfer-encoding: chunked\r\n', 'Transfer-Encoding: identity\r\n', 'transfer-encoding:\tchunked\r\n',
  'transfer-encoding : chunked\r\n', 'transfer_encoding: chunked\r\n', ' transfer-encoding: chunked\r\n', 'x: y\r\n transfer-encoding: chunked\r\n', 'expect: 100-continue\r\n', 'expect: x\r\n', 'upgrade: h2c\r\n',
  'connection: upgrade\r\n', 'connection: close\r\n', 'Connection: Keep-Alive\r\n', 'connection: keep-alive, close\r\n', 'connection: x\r\n', 'connection:\r\n', 'proxy-connection: close\r\n', 'te: trailers\r\n', 'trailer: x\r\n',
  ': empty\r\n', 'x\r\n', 'x : y\r\n', 'x: a\rb\r\n', 'x: a\nb\r\n', 'x: a\0b\r\n', 'x: \tb\t\r\n', 'x: bé\r\n', 'x:\r\n', 'x:   \r\n', '\r\nx: y\r\n', '0\r\n\r\n', '5\r\nhello\r\n0\r\n\r\n',
]; // prettier-ignore

const EXTRAS = [
  'User-Agent: OpenAI/Python 1.0',
  'Accept: application/json',
  'accept: */*',
  'Accept-Encoding: gzip, deflate',
  'Authorization: Bearer sk-abc',
  'authorization:   bearer x y ',
  'x-api-key: k',
  'Content-Type: application/json',
  'content-type: text/plain; charset=utf-8',
  'content-encoding: identity',
  'X-Request-Id: abc-1',
  'x-request-id: not this one: it has blanks',
  'X-Stainless-Retry-Count: 2',
  'X-Stainless-Lang: js',
  'x-llmgw-explain: 1',
  'x-llmgw-session: s',
  'X-Forwarded-For: 1.2.3.4',
  'Cookie: a=b; c=d',
  'Keep-Alive: timeout=5',
  'Origin: https://a',
  'traceparent: 00-1-2-01',
  'Empty:',
  "!#$%&'*+-.^_`|~: token",
];

function randomRequest(random: Random): Buffer {
  const body = Buffer.alloc(between(random, 1, 120), pick(random, ['{"model":"m1"} ', '\r\n', 'POST / HTTP/1.1\r\n\r\n']));
  const path = random() < 0.9 ? pick(random, PATHS) : pick(random, ['/', '/v1/models', '/v1/chat', '*', 'http://a/v1/messages']);
  const query = random() < 0.2 ? pick(random, ['?', '?a=b', '?a=%20&b=/?', '?x#y']) : '';
  const method = random() < 0.95 ? 'POST' : pick(random, ['GET', 'PUT', 'OPTIONS']);
  const lines = [pick(random, ['Host: a', 'host: 127.0.0.1:8080', 'HOST:b']), `${pick(random, ['Content-Length', 'content-length'])}: ${body.length}`];
  for (let left = between(random, 0, 8); left > 0; left--) lines.push(pick(random, EXTRAS));
  if (random() < 0.2) lines.push(pick(random, ['Connection: keep-alive', 'connection: Keep-Alive', 'Connection: close']));
  lines.sort(() => random() - 0.5);
  return Buffer.concat([Buffer.from(`${method} ${path}${query} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`, 'latin1'), body]);
} // prettier-ignore

function randomRequests(random: Random): Buffer {
  return Buffer.concat(Array.from({ length: between(random, 1, 3) }, () => randomRequest(random)));
}

const text = (lines: string, body = '{}') =>
  Buffer.from(`POST /v1/embeddings HTTP/1.1\r\n${lines}\r\n\r\n${body}`, 'latin1');

describe("the canonical reader against Node's server", () => {
  it.each(corpusOf('canonical-request').map(({ name, bytes }) => [name, bytes] as const))(
    'corpus: %s',
    async (name, bytes) => {
      let canonical = 0;
      await fuzz(5, async (random) => {
        canonical = await check(random, bytes);
      })();
      checkPrefixes(bytes);
      // The name says what must become of it.
      expect(canonical > 0).toBe(name.startsWith('ok-'));
    },
  );

  it(
    'agrees on requests as clients send them, and takes most of them',
    async () => {
      const seen = { runs: 0, canonical: 0 };
      await fuzz(400, async (random) => {
        const bytes = randomRequests(random);
        seen.runs++;
        if ((await check(random, bytes)) > 0) seen.canonical++;
        checkPrefixes(bytes);
      })();
      expect(seen.canonical / seen.runs).toBeGreaterThan(0.5);
    },
    fuzzTimeoutMs(),
  );

  it(
    'never takes what Node refuses, and never reads it otherwise',
    async () => {
      const seen = { runs: 0, canonical: 0 };
      await fuzz(2_500, async (random) => {
        const bytes = mutate(random, randomRequests(random), TOKENS);
        seen.runs++;
        if ((await check(random, bytes)) > 0) seen.canonical++;
      })();
      // Wounds that are seen in every request would compare nothing.
      expect(seen.canonical / seen.runs).toBeGreaterThan(0.1);
    },
    fuzzTimeoutMs(),
  );

  it('leaves heads and bodies beyond its limits', () => {
    const reader = new CanonicalReader(PATHS, HEADERS_READ, REQUEST_HEADERS_MAX);
    const verdict = (bytes: Buffer) => reader.read(bytes, 0, bytes.length);
    const line = (length: number) => `host: a\r\ncontent-length: 2\r\nx: ${'y'.repeat(length)}`;
    expect(verdict(text(line(CANONICAL_HEAD_MAX_BYTES - 200)))).toBe('canonical');
    expect(verdict(text(line(CANONICAL_HEAD_MAX_BYTES)))).toBe('other');
    expect(verdict(Buffer.alloc(CANONICAL_HEAD_MAX_BYTES + 1, text(line(9_000))))).toBe('other');
    const lines = (count: number) => `host: a\r\ncontent-length: 2${'\r\nx: y'.repeat(count - 2)}`;
    expect(verdict(text(lines(REQUEST_HEADERS_MAX)))).toBe('canonical');
    expect(verdict(text(lines(REQUEST_HEADERS_MAX + 1)))).toBe('other');
    expect(verdict(text(`host: a\r\ncontent-length: ${CANONICAL_BODY_MAX_BYTES}`))).toBe('canonical');
    expect(verdict(text(`host: a\r\ncontent-length: ${CANONICAL_BODY_MAX_BYTES + 1}`))).toBe('other');
  });
});

describe('both ways of reading', () => {
  let fast: RouterHarness;
  let slow: RouterHarness;
  beforeAll(async () => {
    const start = async (fastPath: boolean) => {
      const harness = await RouterHarness.start({
        configure: (config) => (config.router.fastPath = fastPath),
      });
      harness.engine().onRequest((request, wire) => wire.respond(200, request.body));
      return harness;
    };
    [fast, slow] = await Promise.all([start(true), start(false)]);
  });
  afterAll(() => Promise.all([fast.stop(), slow.stop()]));

  /** What a client gets for `pieces`, as soon as `answers` have come. */
  async function answersOf(harness: RouterHarness, pieces: readonly Buffer[], answers: number): Promise<string> {
    const client = await RawClient.connect(harness.port);
    for (const piece of pieces) {
      // The answer may end the connection before all is sent.
      await client.send(piece).catch(() => undefined);
      await nextTurn();
    }
    const enough = () => client.responses().filter(({ complete }) => complete).length >= answers;
    await waitFor(() => client.ending !== 'open' || enough());
    const got = client.text;
    client.destroy();
    return got
      .replaceAll(/^date: .*$/gim, 'date')
      .replaceAll(/^x-request-id: req-.*$/gm, 'x-request-id: made')
      .replaceAll(/\(byte \d+\)/g, '(byte)');
  } // prettier-ignore

  it(
    'give the same answers, byte for byte, in the same order, however the bytes come',
    async () => {
      await fuzz(60, async (random) => {
        const whole = randomRequests(random);
        const bytes = random() < 0.5 ? whole : mutate(random, whole, TOKENS);
        const { requests } = await readNodes([bytes]);
        const complete = requests.findIndex((request) => !request.complete || !request.keepAlive);
        // Behind an end that was asked for, and behind what is no request, the order of events is the network's.
        const certain = complete < 0 ? requests.length : complete + (requests[complete]?.complete === true ? 1 : 0);
        const pieces = randomSplit(random, bytes);
        const [ours, nodes] = await Promise.all([
          answersOf(fast, pieces, certain),
          answersOf(slow, pieces, certain),
        ]);
        const shortest = Math.min(ours.length, nodes.length);
        expect(ours.slice(0, shortest)).toBe(nodes.slice(0, shortest));
      })();
    },
    fuzzTimeoutMs(),
  ); // prettier-ignore
});
