import { afterEach, describe, expect, it } from 'vitest';
import { RawClient } from '../raw-client.js';
import { nextTurn, waitFor } from '../wait-for.js';
import { FakeEngine } from './fake-engine.js';
import type { Wire } from './wire.js';

const cleanups: (() => void | Promise<void>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

async function open(): Promise<{ engine: FakeEngine; client: RawClient }> {
  const engine = await FakeEngine.listen();
  const client = await RawClient.connect(engine.port);
  cleanups.push(
    () => client.destroy(),
    () => engine.close(),
  );
  return { engine, client };
}

describe('FakeEngine', () => {
  it('records the head in order and case, the body and its hash', async () => {
    const { engine, client } = await open();
    await client.send(
      'POST /v1/x?q=1 HTTP/1.1\r\nHost: a\r\nX-Request-ID: r1\r\nContent-Length: 5\r\n\r\nhel',
    );
    await client.send('lo');
    const request = await engine.request();
    expect(request.target).toBe('/v1/x?q=1');
    expect(request.headerLines).toEqual([
      ['Host', 'a'],
      ['X-Request-ID', 'r1'],
      ['Content-Length', '5'],
    ]);
    expect(request.headBytes.toString()).toMatch(/^POST .*\r\n\r\n$/s);
    expect(request.body.toString()).toBe('hello');
    expect(request.bodySha256).toBe('2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824');
  });

  it('decodes a chunked body and tells a reused socket from a fresh one', async () => {
    const { engine, client } = await open();
    await client.send(
      'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n',
    );
    await client.response(0);
    await client.post('/', {});
    await client.response(1);
    expect(engine.requests.map((request) => [request.body.toString(), request.reusedSocket])).toEqual([
      ['abcde', false],
      ['{}', true],
    ]);
    expect(engine.openSockets).toBe(1);
  });

  it('writes exactly the bytes of the script, byte by byte when asked', async () => {
    const { engine, client } = await open();
    engine.onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.writeEach('5\r\nhello\r\n', async () => {
        await nextTurn();
      });
      await wire.lastChunk();
    });
    await client.get('/');
    const response = await client.response();
    expect(response.body.toString()).toBe('hello');
    expect(response.framing).toBe('chunked');
  });

  it('takes queued handlers in order before the standing one', async () => {
    const { engine, client } = await open();
    engine.onNextRequest((_request, wire) => wire.respond(503, '{}'));
    engine.onRequest((_request, wire) => wire.respond(201, '{}'));
    await client.get('/');
    await client.response(0);
    await client.get('/');
    await client.response(1);
    expect(client.responses().map((response) => response.status)).toEqual([503, 201]);
  });

  it('tells a FIN of the peer from a reset', async () => {
    const { engine, client } = await open();
    const other = await RawClient.connect(engine.port);
    engine.onRequest(() => {});
    await client.get('/');
    await engine.request(0);
    await other.get('/');
    await engine.request(1);
    client.rst();
    other.halfClose();
    await engine.waitIdle();
    expect(engine.connections.map((connection) => connection.ending)).toEqual(['peer-rst', 'peer-fin']);
    expect(engine.connections.every((connection) => connection.endedAtMs !== undefined)).toBe(true);
  });

  it('lets what was written arrive before its reset', async () => {
    const { engine, client } = await open();
    engine.onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk('data: 1\n\n');
      // A reset that arrives together with data is reported by libuv as a plain end; wait until the data was read.
      await wire.until(() => client.text.includes('data: 1\n\n'));
      wire.rst();
    });
    await client.get('/');
    expect(await client.waitClosed()).toBe('rst');
    expect(client.text).toContain('data: 1\n\n');
  });

  it('refuses connections and comes back on the same port', async () => {
    const engine = await FakeEngine.listen();
    cleanups.push(() => engine.close());
    const { port } = engine;
    const listenAgain = await engine.refuseConnections();
    await expect(RawClient.connect(port)).rejects.toThrow('ECONNREFUSED');
    await listenAgain();
    const client = await RawClient.connect(port);
    cleanups.push(() => client.destroy());
    expect(engine.port).toBe(port);
  });

  it('hands a connection over before any request', async () => {
    const engine = await FakeEngine.listen();
    cleanups.push(() => engine.close());
    let taken: Wire | undefined;
    engine.onConnection((wire) => {
      taken = wire;
      return true;
    });
    const client = await RawClient.connect(engine.port);
    cleanups.push(() => client.destroy());
    await client.get('/');
    (await waitFor(() => taken)).rst();
    expect(await client.waitClosed()).toBe('rst');
    expect(engine.requests).toEqual([]);
  });

  it('keeps the error of a failing handler and cuts the connection', async () => {
    const { engine, client } = await open();
    engine.onRequest(() => {
      throw new Error('script broke');
    });
    await client.get('/');
    await client.waitClosed();
    expect(engine.failures).toHaveLength(1);
  });

  it('shows back-pressure of a client that stops reading', async () => {
    const { engine, client } = await open();
    const big = Buffer.alloc(1024 * 1024, 'x');
    let unsent = 0;
    engine.onRequest((_request, wire) => {
      for (let i = 0; i < 16; i++) void wire.write(big);
      unsent = wire.unsentBytes;
    });
    client.pause();
    await client.get('/');
    await waitFor(() => unsent > big.length);
  });
});
