import { createHash, randomBytes } from 'node:crypto';
import net from 'node:net';
import tls from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

import { FakeEngine } from '../../../test/support/fake-engine/fake-engine.js';
import { encodeChunk, renderHead } from '../../../test/support/fake-engine/wire.js';
import { TEST_TLS } from '../../../test/support/test-tls.js';
import { nextTurn, waitFor } from '../../../test/support/wait-for.js';
import type { Clock } from '../../shared/clock.js';
import type { UpstreamHead } from './response-head.js';
import type { UpstreamError } from './upstream-error.js';
import { UpstreamPool, type UpstreamPoolOptions } from './upstream-pool.js';
import type { UpstreamExchange, UpstreamRequest, UpstreamSink } from './upstream-sink.js';

/** Keeps everything a sink is told, in order. */
class Recorder implements UpstreamSink {
  readonly calls: string[] = [];
  readonly data: Buffer[] = [];
  head: UpstreamHead | undefined;
  error: UpstreamError | undefined;
  ended = false;
  onDataCalled: () => boolean = () => true;

  onConnected(reused: boolean): void {
    this.calls.push(reused ? 'connected again' : 'connected');
  }
  onHead(head: UpstreamHead): void {
    this.calls.push('head');
    this.head = head;
  }
  onData(slab: Buffer, from: number, to: number): boolean {
    this.calls.push('data');
    this.data.push(Buffer.from(slab.subarray(from, to)));
    return this.onDataCalled();
  }
  onEnd(): void {
    this.calls.push('end');
    this.ended = true;
  }
  onError(error: UpstreamError): void {
    this.calls.push('error');
    this.error = error;
  }
  get bytes(): Buffer {
    return Buffer.concat(this.data);
  }
  get text(): string {
    return this.bytes.toString();
  }
  async end(): Promise<this> {
    await waitFor(() => this.ended || this.error, { what: 'the end of the exchange' });
    expect(this.error).toBeUndefined();
    return this;
  }
  async failure(): Promise<UpstreamError> {
    return await waitFor(() => this.error, { what: 'an upstream error' });
  }
}

/** Time that moves only when told. */
class ManualClock implements Clock {
  #now = 0;
  #timers: { at: number; fn: () => void }[] = [];
  monotonicMs = () => this.#now;
  wallMs = () => this.#now;
  setTimer(delayMs: number, fn: () => void) {
    const timer = { at: this.#now + delayMs, fn };
    this.#timers.push(timer);
    return { cancel: () => void (this.#timers = this.#timers.filter((other) => other !== timer)) };
  }
  advance(ms: number): void {
    this.#now += ms;
    const due = this.#timers.filter((timer) => timer.at <= this.#now);
    this.#timers = this.#timers.filter((timer) => timer.at > this.#now);
    for (const timer of due) timer.fn();
  }
}

const GET: UpstreamRequest = { head: 'GET /v1/x HTTP/1.1\r\nhost: e\r\n\r\n', body: [] };

function post(...body: Buffer[]): UpstreamRequest {
  const length = body.reduce((sum, part) => sum + part.length, 0);
  return { head: `POST /v1/x HTTP/1.1\r\nhost: e\r\ncontent-length: ${length}\r\n\r\n`, body };
}

let engine: FakeEngine;
let pool: UpstreamPool;

function newPool(options: Partial<UpstreamPoolOptions> = {}): UpstreamPool {
  pool = new UpstreamPool({ host: '127.0.0.1', port: engine.port, ...options });
  return pool;
}

function send(request: UpstreamRequest = GET): Recorder & { exchange: UpstreamExchange } {
  const recorder = new Recorder();
  return Object.assign(recorder, { exchange: pool.send(request, recorder) });
}

beforeEach(async () => {
  engine = await FakeEngine.listen();
  newPool();
});

afterEach(async () => {
  pool.destroy();
  expect(pool.counts).toEqual({ open: 0, idle: 0, active: 0 });
  await engine.close();
});

describe('a request and its response', () => {
  it('arrive whole, and the connection serves the next one', async () => {
    engine.onRequest((request, wire) =>
      wire.respond(200, `got ${request.body.toString()}`, { 'x-engine': 'E1' }),
    );
    const first = await send(post(Buffer.from('he'), Buffer.from('llo'))).end();
    expect(first.text).toBe('got hello');
    expect(first.head).toMatchObject({ status: 200, contentLength: 9, framing: 'length', keepAlive: true });
    expect(first.head?.get('x-engine')).toBe('E1');
    expect(first.calls).toEqual(['connected', 'head', 'data', 'end']);
    expect(pool.counts).toEqual({ open: 1, idle: 1, active: 0 });

    const second = send(GET);
    expect(second.calls).toEqual(['connected again']);
    expect(second.exchange).toMatchObject({ reusedSocket: true, connected: true, active: true });
    expect(pool.counts).toEqual({ open: 1, idle: 0, active: 1 });
    await second.end();
    expect(second.exchange.active).toBe(false);
    expect(engine.connections).toHaveLength(1);
  });

  it('come without chunk framing, one call per read', async () => {
    const events = ['data: {"a":1}\n\n', 'data: {"b":2}\n\n', 'data: [DONE]\n\n'];
    engine.onRequest((_request, wire) =>
      wire.write(
        Buffer.concat([
          Buffer.from(renderHead(200, { 'transfer-encoding': 'chunked' })),
          ...events.map(encodeChunk),
          Buffer.from('0\r\n\r\n'),
        ]),
      ),
    );
    const answer = await send().end();
    expect(answer.text).toBe(events.join(''));
    expect(answer.calls).toEqual(['connected', 'head', 'data', 'end']);
    expect(pool.counts.idle).toBe(1);
  });

  it('survive one byte per packet', async () => {
    engine.onRequest(async (_request, wire) => {
      await wire.writeEach(renderHead(200, { 'transfer-encoding': 'chunked' }));
      await wire.writeEach(Buffer.concat([encodeChunk('data: ü\n\n'), encodeChunk('data: 日本\n\n')]));
      await wire.writeEach('0\r\n\r\n');
    });
    const answer = await send().end();
    expect(answer.text).toBe('data: ü\n\ndata: 日本\n\n');
  });

  it('skip interim heads', async () => {
    engine.onRequest((_request, wire) =>
      wire.write(
        'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}',
      ),
    );
    const answer = await send().end();
    expect(answer.calls.filter((call) => call === 'head')).toHaveLength(1);
    expect(answer.text).toBe('{}');
  });

  it.each([
    ['HEAD', { ...GET, noResponseBody: true }, 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n', 1],
    ['304', GET, 'HTTP/1.1 304 X\r\ncontent-length: 10\r\n\r\n', 1],
    ['204', GET, 'HTTP/1.1 204 X\r\n\r\n', 1],
    ['a 204 that promises a body', GET, 'HTTP/1.1 204 X\r\ncontent-length: 10\r\n\r\n', 0],
  ])('has no payload: %s', async (_name, request, bytes, idle) => {
    engine.onRequest((_request, wire) => wire.write(bytes));
    const answer = await send(request).end();
    expect(answer.data).toEqual([]);
    expect(pool.counts.idle).toBe(idle);
  });

  it('may end with the connection', async () => {
    engine.onRequest(async (_request, wire) => {
      await wire.write('HTTP/1.0 200 OK\r\n\r\nall of ');
      await wire.write('it');
      wire.end();
    });
    const answer = await send().end();
    expect(answer.text).toBe('all of it');
    expect(pool.counts.open).toBe(0);
  });
});

describe('large bodies', () => {
  it('leave whole and in order, in pieces or one', async () => {
    const parts = [randomBytes(3), randomBytes(5_000_000), randomBytes(70_000)];
    const answer = send(post(...parts));
    await answer.end();
    const sha256 = createHash('sha256').update(Buffer.concat(parts)).digest('hex');
    expect(engine.lastRequest.bodySha256).toBe(sha256);
    expect(answer.exchange.requestBytesSent).toBe(engine.lastRequest.headBytes.length + 5_070_003);
    expect(pool.counts.idle).toBe(1);
  });

  it('stop where the engine stops reading', async () => {
    engine.onConnection((wire) => {
      wire.pause();
      return false;
    });
    const body = Buffer.alloc(64 * 1024 * 1024);
    const { exchange } = send(post(body));
    let before = -1;
    await waitFor(() => {
      const stopped = exchange.requestBytesSent > 0 && exchange.requestBytesSent === before;
      before = exchange.requestBytesSent;
      return stopped;
    });
    expect(exchange.requestBytesSent).toBeLessThan(body.length);
    exchange.abort();
  });

  it('are cut short by an early answer, which is still read', async () => {
    // The story: an engine refuses a body by its length, answers and closes; the write that then fails must not hide the answer.
    const server = net.createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () =>
        socket.end('HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig'),
      );
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    newPool({ port: (server.address() as net.AddressInfo).port });
    const answer = await send(post(Buffer.alloc(32 * 1024 * 1024))).end();
    expect(answer.head?.status).toBe(413);
    expect(answer.text).toBe('big');
    expect(pool.counts.open).toBe(0);
    server.close();
  });

  // It closes with most of the body unread, which resets the connection: the next write fails, and the answer that had
  // come was thrown away with it. Engines were called broken, and taken out, for bodies they had refused.
  it('are cut short by an answer and a reset right behind it', async () => {
    const server = net.createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => {
        socket.pause();
        socket.write('HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig', () => socket.destroy());
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    newPool({ port: (server.address() as net.AddressInfo).port });
    for (const size of [100_000, 300_000, 1_000_000, 4_000_000, 16_000_000]) {
      const answer = await send(post(Buffer.alloc(size))).end();
      expect([size, answer.head?.status, answer.text]).toEqual([size, 413, 'big']);
      expect(pool.counts.open).toBe(0);
    }
    server.close();
  });

  it('that meet a reset without an answer are told so', async () => {
    const server = net.createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.pause().destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    newPool({ port: (server.address() as net.AddressInfo).port });
    for (const size of [100_000, 1_000_000, 16_000_000]) {
      const error = await send(post(Buffer.alloc(size))).failure();
      expect([size, error.kind]).toEqual([size, 'reset_before_response']);
      expect(pool.counts.open).toBe(0);
    }
    server.close();
  });
});

describe('back-pressure', () => {
  it('stops reading when the sink says so, and goes on later', async () => {
    const body = randomBytes(24 * 1024 * 1024);
    engine.onRequest((_request, wire) => wire.respond(200, body));
    const answer = send();
    answer.onDataCalled = () => false;
    await waitFor(() => answer.data.length > 0);
    for (let i = 0; i < 20; i++) await nextTurn();
    expect(answer.data).toHaveLength(1);
    answer.onDataCalled = () => true;
    answer.exchange.resume();
    await answer.end();
    expect(answer.bytes.equals(body)).toBe(true);
  });

  it('can be asked for at any time', async () => {
    engine.onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk('one');
      await wire.until(() => paused);
      await wire.chunk('two');
      await wire.lastChunk();
    });
    let paused = false;
    const answer = send();
    await waitFor(() => answer.text === 'one');
    answer.exchange.pause();
    paused = true;
    for (let i = 0; i < 20; i++) await nextTurn();
    expect(answer.text).toBe('one');
    answer.exchange.resume();
    await answer.end();
    expect(answer.text).toBe('onetwo');
  });

  it('does not stick to a connection that ended its answer while paused', async () => {
    const answer = send();
    answer.onDataCalled = () => false;
    await answer.end();
    await send().end();
    expect(engine.connections).toHaveLength(1);
  });
});

describe('abort', () => {
  it('closes the engine connection at once and is the last word', async () => {
    engine.onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk('data: 1\n\n');
    });
    const answer = send();
    await waitFor(() => answer.data.length === 1);
    const calls = [...answer.calls];
    answer.exchange.abort();
    expect(pool.counts.open).toBe(0);
    await engine.waitIdle();
    expect(answer.calls).toEqual(calls);
  });

  it('works while connecting, while the engine thinks, and from inside a callback', async () => {
    send().exchange.abort();
    engine.onRequest(() => {});
    const waiting = send();
    await engine.request(0);
    waiting.exchange.abort();
    engine.onRequest((_request, wire) => wire.respond(200, 'hello'));
    const inside = send();
    inside.onDataCalled = () => {
      inside.exchange.abort();
      return true;
    };
    await waitFor(() => inside.data.length > 0);
    await engine.waitIdle();
    expect([waiting.calls, inside.calls]).toEqual([['connected'], ['connected', 'head', 'data']]);
  });

  it('does nothing to the next request when it comes late', async () => {
    const first = await send().end();
    const second = send();
    first.exchange.abort();
    first.exchange.pause();
    await second.end();
    expect(engine.connections).toHaveLength(1);
  });

  it('is what destroy() does to all, with a last call', async () => {
    engine.onRequest(() => {});
    const answer = send();
    await engine.request(0);
    pool.destroy();
    expect(answer.error?.kind).toBe('aborted');
    expect(() => send()).toThrow('destroyed');
  });
});

describe('failures', () => {
  it('connect refused', async () => {
    await engine.close();
    const error = await send(post(Buffer.from('x'))).failure();
    expect(error).toMatchObject({
      kind: 'connect_refused',
      reusedSocket: false,
      requestBytesSent: 0,
      bytesReceived: 0,
    });
    expect(error.message).not.toContain('127.0.0.1');
    expect(pool.counts.open).toBe(0);
  });

  it('connect failed', async () => {
    newPool({ host: 'no-such-host.invalid', port: 1 });
    expect((await send().failure()).kind).toBe('connect_failed');
  });

  it.each(['rst', 'end'] as const)('closed before the answer (%s)', async (how) => {
    engine.onRequest((_request, wire) => wire[how]());
    const error = await send(post(Buffer.alloc(100))).failure();
    expect(error).toMatchObject({ kind: 'reset_before_response', reusedSocket: false, bytesReceived: 0 });
    expect(error.requestBytesSent).toBeGreaterThan(100);
  });

  it('closed on a reused connection is told apart, and a fresh one can be asked for', async () => {
    await send().end();
    engine.onRequest((request, wire) => (request.reusedSocket ? wire.rst() : wire.respond(200, 'fresh')));
    const stale = await send().failure();
    expect(stale).toMatchObject({ kind: 'reset_before_response', reusedSocket: true });
    await send().end();
    expect(pool.counts.idle).toBe(1);
    const fresh = await send({ ...GET, fresh: true }).end();
    expect(fresh.text).toBe('fresh');
    expect(fresh.exchange.reusedSocket).toBe(false);
  });

  it.each(['rst', 'end'] as const)('cut in the middle (%s)', async (how) => {
    engine.onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk('data: 1\n\n');
      await wire.until(() => answer.data.length > 0);
      wire[how]();
    });
    const answer = send();
    const error = await answer.failure();
    expect(error).toMatchObject({ kind: 'reset', reusedSocket: false });
    expect(error.bytesReceived).toBeGreaterThan(answer.text.length);
    expect(answer.calls).toEqual(['connected', 'head', 'data', 'error']);
  });

  it('a reset is no end, where the end is the close', async () => {
    engine.onRequest(async (_request, wire) => {
      await wire.write('HTTP/1.1 200 OK\r\n\r\nhalf');
      await wire.until(() => answer.data.length > 0);
      wire.rst();
    });
    const answer = send();
    expect((await answer.failure()).kind).toBe('reset');
  });

  it('malformed answers, after what was good of them', async () => {
    engine.onRequest((_request, wire) =>
      wire.write(`${renderHead(200, { 'transfer-encoding': 'chunked' })}5\r\nhello\r\nXX`),
    );
    const answer = send();
    const error = await answer.failure();
    expect(error).toMatchObject({ kind: 'protocol_error', problem: 'bad_chunk_size' });
    expect(answer.text).toBe('hello');
    await engine.waitIdle();
  });
});

describe('what is never used again', () => {
  it.each([
    ['asked to close', 'HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}'],
    ['asked to close among others', 'HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 2\r\n\r\n{}'],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}'],
    ['bytes after the answer', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n'],
    [
      'an announced limit too short to trust',
      'HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\n{}',
    ],
  ])('%s', async (_name, bytes) => {
    engine.onRequest((_request, wire) => wire.write(bytes));
    const answer = await send().end();
    expect(answer.text).toBe('{}');
    expect(pool.counts).toEqual({ open: 0, idle: 0, active: 0 });
  });

  it('HTTP/1.0 that promises to stay is', async () => {
    engine.onRequest((_request, wire) =>
      wire.write('HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}'),
    );
    await send().end();
    expect(pool.counts.idle).toBe(1);
  });

  it('a connection that spoke, ended or was reset while idle', async () => {
    engine.onRequest(async (request, wire) => {
      await wire.respond(200, '{}');
      await wire.until(() => pool.counts.idle === 1);
      if (request.index === 0) await wire.write('HTTP/1.1 408 Timeout\r\n\r\n');
      else if (request.index === 1) wire.end();
      else wire.rst();
    });
    for (let i = 0; i < 3; i++) {
      await send().end();
      await waitFor(() => pool.counts.open === 0);
    }
    expect(engine.connections).toHaveLength(3);
  });
});

describe('idle connections', () => {
  it('are let go before the engine would', async () => {
    const clock = new ManualClock();
    newPool({ clock });
    await send().end();
    clock.advance(3_999);
    expect(pool.counts.idle).toBe(1);
    await send().end();
    expect(engine.connections).toHaveLength(1);
    clock.advance(1);
    clock.advance(3_998);
    expect(pool.counts.idle).toBe(1);
    clock.advance(1);
    expect(pool.counts.open).toBe(0);
  });

  it('are not used after their time even if the timer is late', async () => {
    const clock = new ManualClock();
    clock.setTimer = () => ({ cancel: () => {} });
    newPool({ clock });
    await send().end();
    clock.advance(4_000);
    await send().end();
    expect(engine.connections).toHaveLength(2);
  });

  it('follow a shorter limit that the engine announced', async () => {
    const clock = new ManualClock();
    newPool({ clock });
    engine.onRequest((_request, wire) => wire.respond(200, '{}', { 'keep-alive': 'timeout=3, max=100' }));
    await send().end();
    clock.advance(1_999);
    expect(pool.counts.idle).toBe(1);
    clock.advance(1);
    expect(pool.counts.idle).toBe(0);
  });

  it('are bounded in number and can be closed', async () => {
    newPool({ maxIdle: 2 });
    engine.onRequest(async (_request, wire) => {
      await wire.until(() => engine.requests.length >= 4);
      await wire.respond(200, '{}');
    });
    const answers = [send(), send(), send(), send()];
    expect(pool.counts).toEqual({ open: 4, idle: 0, active: 4 });
    await Promise.all(answers.map((answer) => answer.end()));
    expect(pool.counts).toEqual({ open: 2, idle: 2, active: 0 });
    pool.closeIdle();
    expect(pool.counts.open).toBe(0);
    await engine.waitIdle();
  });
});

describe('https', () => {
  const sockets = new Set<net.Socket>();
  let server: tls.Server;

  async function serve(script: (socket: tls.TLSSocket) => void): Promise<number> {
    server = tls.createServer({ ...TEST_TLS }, (socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      script(socket);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return (server.address() as net.AddressInfo).port;
  }

  afterEach(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });

  it('works the same, large answers and pauses included', async () => {
    const body = randomBytes(3_000_000);
    const port = await serve((socket) => {
      let received = 0;
      socket.on('data', (data) => {
        received += data.length;
        if (received < 300_000) return;
        received = 0;
        socket.write(renderHead(200, { 'content-length': String(body.length) }));
        socket.write(body);
      });
    });
    newPool({ port, tls: { ca: TEST_TLS.cert } });
    for (const call of ['connected', 'connected again']) {
      const answer = send(post(Buffer.alloc(300_000)));
      answer.onDataCalled = () => {
        setImmediate(() => answer.exchange.resume());
        return false;
      };
      await answer.end();
      expect(answer.bytes.equals(body)).toBe(true);
      expect(answer.calls[0]).toBe(call);
    }
    expect(sockets.size).toBe(1);
  });

  it('refuses a certificate it does not know', async () => {
    newPool({ port: await serve(() => {}), tls: {} });
    const error = await send().failure();
    expect(error.kind).toBe('connect_failed');
    expect((error.cause as NodeJS.ErrnoException).code).toBe('DEPTH_ZERO_SELF_SIGNED_CERT');
  });
});
