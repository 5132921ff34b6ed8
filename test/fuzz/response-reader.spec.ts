import http from 'node:http';
import { Duplex } from 'node:stream';
import { describe, expect, it } from 'vitest';

import { ResponseReader, type ReadState } from '../../src/router/upstream/response-reader.js';
import type { Random } from '../../src/shared/random.js';
import { between, corpusOf, fuzz, fuzzTimeoutMs, mutate, pick, randomSplit } from './fuzz.js';

/** What a reader made of a response. */
interface Reading {
  /** Complete and well-formed, by that reader. */
  readonly accepted: boolean;
  readonly status: number;
  readonly payload: Buffer;
  readonly headers: readonly string[];
  readonly state?: ReadState;
}

/** Our reader, fed in pieces and then told that the peer has ended. */
function readOurs(pieces: readonly Buffer[], noBody = false): Reading {
  const reader = new ResponseReader();
  const payload: Buffer[] = [];
  let status = 0;
  let headers: readonly string[] = [];
  let state: ReadState = 'more';
  reader.reset(noBody);
  for (const piece of pieces) {
    if (state === 'done') state = 'done_with_extra';
    if (state !== 'more') break;
    // The reader works in place, as on its slab: it gets its own copy.
    const slab = Buffer.concat([Buffer.from('??'), piece, Buffer.from('??')]);
    state = reader.push(slab, 2, 2 + piece.length);
    if (reader.headReady) {
      expect(status, 'one head').toBe(0);
      status = reader.head.status;
      headers = reader.head.headers;
    }
    payload.push(Buffer.from(reader.payload.subarray(reader.payloadFrom, reader.payloadTo)));
  }
  if (state === 'more') state = reader.finish();
  const accepted = state === 'done' || state === 'done_with_extra';
  return { accepted, status, payload: Buffer.concat(payload), headers, state };
}

/** Node's own client on the same pieces. */
function readNodes(pieces: readonly Buffer[], method = 'GET'): Promise<Reading> {
  return new Promise((resolve) => {
    let status = 0;
    let headers: string[] = [];
    const payload: Buffer[] = [];
    const finish = (accepted: boolean) =>
      resolve({ accepted, status, payload: Buffer.concat(payload), headers });
    const socket = new PiecesSocket(pieces);
    const request = http.request({ method, createConnection: () => socket as never });
    request.on('response', (response) => {
      status = response.statusCode ?? 0;
      headers = response.rawHeaders.map((text, i) => (i % 2 === 0 ? text.toLowerCase() : text));
      response.on('data', (data: Buffer) => payload.push(data));
      response.on('error', () => finish(false));
      response.on('end', () => finish(response.complete));
    });
    request.on('upgrade', () => finish(false));
    request.on('error', () => finish(false));
    request.on('close', () => finish(false));
    request.end();
  });
}

/** A connection that says its pieces one by one, then ends. */
class PiecesSocket extends Duplex {
  #next = 0;
  constructor(private readonly pieces: readonly Buffer[]) {
    super();
  }
  override _read(): void {
    const piece = this.pieces[this.#next++];
    setImmediate(() => this.push(piece ?? null));
  }
  override _write(_chunk: Buffer, _encoding: string, callback: () => void): void {
    callback();
  }
}

const TOKENS = [
  '\r\n', '\r', '\n', '\r\n\r\n', ' ', '\t', ':', '\0', '0', '1', 'a', 'F', ';', ';x=y', ';\n', '0\r\n', '0\r\n\r\n', '5\r\nhello\r\n',
  'HTTP/1.1 200 OK\r\n', 'HTTP/1.0 ', 'HTTP/1.1 100 Continue\r\n\r\n', 'HTTP/1.1 101 X\r\n\r\n', 'content-length: 5\r\n', 'Content-Length:3\r\n',
  'content-length: 5, 5\r\n', 'content-length: +5\r\n', 'Transfer-Encoding: chunked\r\n', 'transfer-encoding: gzip, chunked\r\n', 'transfer-encoding: xchunked\r\n',
  'transfer-encoding:\tchunked \r\n', 'connection: close\r\n', 'keep-alive: timeout=3\r\n', ' folded\r\n', 'x y: z\r\n', 'x : y\r\n', ': empty\r\n', 'trailer: x\r\n',
]; // prettier-ignore

function randomResponse(random: Random): Buffer {
  const status = pick(random, [
    '200 OK',
    '200',
    '200 ',
    '404 Not Found',
    '503 Ünavailable',
    '204 No Content',
    '304 Not Modified',
    '429 X',
  ]);
  const interim =
    random() < 0.15 ? 'HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n' : '';
  const version = random() < 0.1 ? '1.0' : '1.1';
  const body = Buffer.alloc(
    between(random, 0, 200),
    pick(random, ['hello ', '\r\n', '0\r\n\r\n', 'HTTP/1.1 200 OK\r\n\r\n']),
  );
  const headers = ['Content-Type: text/event-stream', 'x-a:  b\tc  ', 'X-Empty:', 'date: now'].filter(
    () => random() < 0.5,
  );
  const framing = between(random, 0, 3);
  if (framing === 0) headers.push(`Content-Length: ${body.length}`);
  else if (framing === 1) headers.push('Transfer-Encoding: chunked');
  else if (framing === 2) headers.push('Connection: close');
  if (random() < 0.1)
    headers.push(
      pick(random, [
        'Connection: keep-alive',
        'Keep-Alive: timeout=5, max=100',
        'transfer-encoding: identity',
      ]),
    );
  const head = `${interim}HTTP/${version} ${status}\r\n${headers.map((line) => `${line}\r\n`).join('')}\r\n`;
  const sent = framing === 1 ? chunked(random, body) : body;
  return Buffer.concat([Buffer.from(head, 'latin1'), sent]);
}

function chunked(random: Random, body: Buffer): Buffer {
  const out: Buffer[] = [];
  for (const piece of randomSplit(random, body)) {
    const size = piece.length.toString(16);
    const written = pick(random, [size, size.toUpperCase(), `00${size}`, `${size};name=value`]);
    out.push(Buffer.from(`${written}\r\n`), piece, Buffer.from('\r\n'));
  }
  out.push(
    Buffer.from(pick(random, ['0\r\n\r\n', '0\r\n\r\n', '000\r\nx-trailer: yes\r\n\r\n', '0;x\r\n\r\n'])),
  );
  return Buffer.concat(out);
}

/** Whatever both accept must mean the same, and our own reading must not depend on where the bytes were cut. */
async function check(random: Random, bytes: Buffer): Promise<boolean> {
  const ours = readOurs(randomSplit(random, bytes));
  const whole = readOurs([bytes]);
  expect(ours.accepted).toBe(whole.accepted);
  expect(ours.status).toBe(whole.status);
  expect(ours.payload.equals(whole.payload), 'payload in pieces and whole').toBe(true);
  const nodes = await readNodes(random() < 0.5 ? [bytes] : randomSplit(random, bytes));
  if (!ours.accepted || !nodes.accepted) return false;
  expect(ours.status).toBe(nodes.status);
  expect(ours.payload.toString('latin1')).toBe(nodes.payload.toString('latin1'));
  expect(ours.headers).toEqual(nodes.headers);
  return true;
}

describe("response reader against Node's client", () => {
  it.each(corpusOf('response-reader').map(({ name, bytes }) => [name, bytes] as const))(
    'corpus: %s',
    async (name, bytes) => {
      await fuzz(bytes.length > 4096 ? 2 : 20, async (random) => {
        await check(random, bytes);
      })();
      // The name says what must become of it.
      const { state } = readOurs([bytes]);
      if (name.startsWith('ok-')) expect(['done', 'done_with_extra']).toContain(state);
      else expect(state).toBe(name.startsWith('cut-') ? 'more' : 'failed');
    },
  );

  it(
    'agrees on well-formed responses, and both accept most of them',
    async () => {
      const seen = { responses: 0, acceptedByBoth: 0 };
      await fuzz(400, async (random) => {
        seen.responses++;
        if (await check(random, randomResponse(random))) seen.acceptedByBoth++;
      })();
      expect(seen.acceptedByBoth / seen.responses).toBeGreaterThan(0.6);
    },
    fuzzTimeoutMs(),
  );

  it(
    'never reads a wounded response differently',
    async () => {
      const seen = { responses: 0, acceptedByBoth: 0 };
      await fuzz(1500, async (random) => {
        seen.responses++;
        if (await check(random, mutate(random, randomResponse(random), TOKENS))) seen.acceptedByBoth++;
      })();
      // Wounds that kill every response would compare nothing.
      expect(seen.acceptedByBoth / seen.responses).toBeGreaterThan(0.1);
    },
    fuzzTimeoutMs(),
  );

  it('accepts what real servers send', async () => {
    const plain = Buffer.from('HTTP/1.1 200 OK\r\ndate: x\r\nserver: uvicorn\r\ncontent-length: 2\r\n\r\n{}');
    for (const read of [readOurs([plain]), await readNodes([plain])]) {
      expect(read).toMatchObject({ accepted: true, status: 200, payload: Buffer.from('{}') });
    }
  });
});
