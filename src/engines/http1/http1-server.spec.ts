import { afterEach, describe, expect, it } from 'vitest';
import { RawClient } from '../../../test/support/raw-client.js';
import { waitFor } from '../../../test/support/wait-for.js';
import { systemClock } from '../../shared/clock.js';
import { type Exchange, Http1Server } from './http1-server.js';

const cleanups: (() => unknown)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

async function serve(handler: (exchange: Exchange) => void, keepAliveMs = 0) {
  const server = new Http1Server({ clock: systemClock, keepAliveMs, maxBodyBytes: 1_000_000, handler });
  cleanups.push(() => server.close());
  const port = await server.listen(0, '127.0.0.1');
  const connect = async () => {
    const client = await RawClient.connect(port);
    cleanups.push(() => client.destroy());
    return client;
  };
  return { server, connect, client: await connect() };
}

const echo = (exchange: Exchange) => exchange.respond(200, '', exchange.request.body);

describe('Http1Server', () => {
  it('answers pipelined requests one after another, in order', async () => {
    const open: Exchange[] = [];
    const { client } = await serve((exchange) => open.push(exchange));
    const request = (body: string) => `POST / HTTP/1.1\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    await client.send(request('one') + request('two'));
    await waitFor(() => open.length === 1);
    await client.send(request('three'));
    for (const body of ['one', 'two', 'three']) {
      const exchange = await waitFor(() => open.shift());
      expect(exchange.request.body.toString()).toBe(body);
      echo(exchange);
    }
    await client.response(2);
    expect(client.responses().map((response) => response.body.toString())).toEqual(['one', 'two', 'three']);
  });

  it('survives thousands of pipelined requests in one go', async () => {
    const { client } = await serve(echo);
    await client.send('GET / HTTP/1.1\r\n\r\n'.repeat(5000));
    await waitFor(
      () => client.received.length >= 5000 * 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'.length,
    );
    expect(client.responses()).toHaveLength(5000);
  });

  it('frames a growing answer by chunks, and by the close for HTTP/1.0', async () => {
    const { client, connect } = await serve((exchange) => {
      exchange.begin(200, '');
      exchange.chunk('grüße ');
      exchange.end('world');
    });
    await client.get('/');
    expect((await client.response()).chunks.map(String)).toEqual(['grüße ', 'world']);
    const old = await connect();
    await old.send('GET / HTTP/1.0\r\n\r\n');
    await old.waitClosed();
    expect(old.responses()[0]).toMatchObject({ framing: 'close', complete: true });
    expect(old.responses()[0]?.body.toString()).toBe('grüße world');
  });

  it('sends no body to a HEAD', async () => {
    const { client } = await serve((exchange) => exchange.respond(200, '', 'body'));
    await client.send('HEAD / HTTP/1.1\r\n\r\n');
    const response = await client.response(0, { head: true });
    expect(response.headers.get('content-length')).toBe('4');
    await client.get('/');
    await waitFor(() => client.text.endsWith('body'));
  });

  it('closes when the client asks for it', async () => {
    const { client } = await serve(echo);
    await client.get('/', { connection: 'close' });
    expect(await client.waitClosed()).toBe('fin');
    expect(client.responses()[0]?.headers.get('connection')).toBe('close');
  });

  it('answers what is no HTTP with 400 and closes', async () => {
    const { client, server } = await serve(echo);
    await client.send('NONSENSE\r\n\r\n');
    expect((await client.response()).status).toBe(400);
    await client.waitClosed();
    client.destroy();
    await waitFor(() => server.openConnections === 0);
  });

  it.each(['rst', 'halfClose'] as const)(
    'tells the handler once when the client leaves: %s',
    async (leave) => {
      let gone = 0;
      const { client } = await serve((exchange) => {
        exchange.onGone = () => gone++;
      });
      await client.get('/');
      await client.waitForText('').catch(() => {});
      client[leave]();
      await waitFor(() => gone > 0);
      expect(gone).toBe(1);
    },
  );

  it('does not call a client gone that leaves after its answer', async () => {
    let gone = 0;
    const { client, server } = await serve((exchange) => {
      exchange.onGone = () => gone++;
      echo(exchange);
    });
    await client.get('/');
    await client.response();
    client.rst();
    await waitFor(() => server.openConnections === 0);
    expect(gone).toBe(0);
  });

  it('says when the client is too slow and when it has caught up', async () => {
    const open: Exchange[] = [];
    const { client } = await serve((exchange) => open.push(exchange));
    client.pause();
    await client.get('/');
    const exchange = await waitFor(() => open[0]);
    exchange.begin(200, '');
    const piece = 'x'.repeat(100_000);
    let drained = false;
    exchange.onDrain = () => (drained = true);
    let sent = 0;
    await waitFor(() => {
      if (!exchange.blocked) {
        exchange.chunk(piece);
        sent++;
      }
      drained = false;
      return sent > 10 && exchange.blocked;
    });
    client.resume();
    await waitFor(() => drained);
    exchange.end();
    expect((await client.response()).body.length).toBe(sent * piece.length);
  });
});
