import { afterEach, describe, expect, it } from 'vitest';
import { ServerConfig } from '../config/server-config.js';
import { delta, DONE, fastClock, finish, RouterHarness } from '../../test/support/router-harness.js';
import { nextTurn, waitFor } from '../../test/support/wait-for.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const OK = '{"data":[]}';
const BODY = '{"model":"m1"}';
const POST = 'POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n';
const WHOLE = `${POST}content-length: 14\r\n\r\n${BODY}`;

type Start = NonNullable<Parameters<typeof RouterHarness.start>[0]>;

async function start(options: Start = {}, fastPath = true): Promise<void> {
  harness = await RouterHarness.start({
    ...options,
    configure: (config) => {
      config.router.fastPath = fastPath;
      options.configure?.(config);
    },
  });
  harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
}

const connections = () => harness.router.clientConnections();

describe('a connection that sends canonical requests', () => {
  // A Node that makes sockets in another way would send everybody to its own parser, and nobody would see it.
  it('is read here, until it sends something else', async () => {
    await start();
    const client = await harness.connect();
    await client.send(WHOLE);
    await client.response();
    expect(connections()).toEqual({ fast: 1, node: 0 });
    expect(await harness.metric('llmgw_client_connections{reader="fast"}')).toBe(1);
    await client.get('/v1/models');
    expect((await client.response(1)).body.toString()).toContain('"list"');
    expect(connections()).toEqual({ fast: 0, node: 1 });
    await client.send(WHOLE);
    expect((await client.response(2)).body.toString()).toBe(OK);
    client.destroy();
    await waitFor(() => connections().node === 0);
  });

  it('is left to Node where the fast path is switched off, also while the server runs', async () => {
    await start({}, false);
    const before = await harness.chat();
    await before.response();
    expect(connections()).toEqual({ fast: 0, node: 1 });
    const config = new ServerConfig();
    config.router.fastPath = true;
    harness.router.reconfigure(config);
    const after = await harness.chat();
    expect((await after.response()).status).toBe(404);
    expect(connections()).toEqual({ fast: 1, node: 1 });
  });

  it('gets the same bytes as from Node, whole, streamed, bodiless and refused', async () => {
    const answers: string[] = [];
    for (const fastPath of [true, false]) {
      await start({}, fastPath);
      harness.engine().onRequest(async ({ body }, wire) => {
        if (body.includes('"empty"')) return wire.write('HTTP/1.1 204 No Content\r\n\r\n');
        if (!body.includes('"stream"')) return wire.respond(200, OK);
        await wire.startStream();
        await wire.chunk(delta('a'));
        await wire.chunk(finish() + DONE);
        await wire.lastChunk();
      });
      const client = await harness.connect();
      const bodies = ['{"model":"m1"}', '{"model":"m1","stream":true}', '{"model":"m1","x":"empty"}', '{"model":"m2"}', '{}', '{"model":"m1"}']; // prettier-ignore
      const ids = { 'x-request-id': 'abc' };
      for (const [i, body] of bodies.entries()) {
        const last = i === bodies.length - 1 ? { connection: 'close' } : {};
        await client.post('/v1/chat/completions', body, { ...ids, ...last });
        await client.response(i);
      }
      expect(await client.waitClosed()).toBe('fin');
      answers.push(client.text.replaceAll(/^Date: .*$/gm, 'Date'));
      if (fastPath) await harness.stop();
    }
    expect(answers[0]).toContain('Keep-Alive: timeout=75');
    expect(answers[0]).toBe(answers[1]);
  });

  it('is answered in order whatever it sends ahead', async () => {
    await start();
    harness.engine().onRequest((request, wire) => wire.respond(200, request.body));
    const client = await harness.connect();
    const bodies = Array.from({ length: 40 }, (_, i) => `{"model":"m1","input":"${i} ${'x'.repeat(20_000)}"}`);
    const requests = bodies.map((body) => `${POST}content-length: ${body.length}\r\n\r\n${body}`);
    const sending = client.send(requests.join(''));
    expect((await client.response(39, { deadlineMs: 15_000 })).body.toString()).toBe(bodies[39]);
    await sending;
    expect(client.responses().map(({ body }) => body.toString())).toEqual(bodies);
    expect(connections().fast).toBe(1);
  }); // prettier-ignore

  it('lives on when a request is refused before all of its body is there', async () => {
    await start();
    const client = await harness.connect();
    await client.send(`${POST}content-encoding: gzip\r\ncontent-length: 14\r\n\r\n${BODY.slice(0, 3)}`);
    expect((await client.response()).status).toBe(415);
    await client.send(BODY.slice(3) + WHOLE);
    expect((await client.response(1)).body.toString()).toBe(OK);
  });

  it('ends behind the answer where the client asks for that, and takes nothing more', async () => {
    await start();
    const client = await harness.connect();
    await client.send(`${POST}connection: close\r\ncontent-length: 14\r\n\r\n${BODY}${WHOLE}`);
    expect((await client.response()).headers.get('connection')).toBe('close');
    expect(await client.waitClosed()).not.toBe('local');
    expect(client.responses()).toHaveLength(1);
    expect(harness.engine().requests).toHaveLength(1);
  });
});

describe('time', () => {
  it('ends connections on which nothing comes, not even a head, and says so in the middle of one', async () => {
    await start({ clock: fastClock(100) });
    const silent = await harness.connect();
    const half = await harness.connect();
    await half.send(POST.slice(0, 60));
    expect(await silent.waitClosed()).toBe('fin');
    expect(silent.text).toBe('');
    const response = await half.response();
    expect([response.status, response.headers.get('connection')]).toEqual([400, 'close']);
    expect(response.body.toString()).toContain('did not arrive in time');
    await half.waitClosed();
  });

  it('ends a connection whose client was refused and never sends the rest', async () => {
    await start({ clock: fastClock(100) });
    const client = await harness.connect();
    await client.send(`${POST}content-encoding: gzip\r\ncontent-length: 14\r\n\r\n${BODY.slice(0, 3)}`);
    expect((await client.response()).status).toBe(415);
    await client.waitClosed();
  });

  it('ends an idle connection, and each request moves that', async () => {
    await start({ clock: fastClock(20), configure: (config) => (config.router.keepAliveTimeout = 10_000) });
    const client = await harness.connect();
    for (let i = 0; i < 3; i++) {
      await client.send(WHOLE);
      await client.response(i);
      await harness.passed(6_000);
      expect(client.ending).toBe('open');
    }
    expect(await client.waitClosed()).toBe('fin');
  });
});

describe('a listener that stops', () => {
  it('ends idle connections at once, and the others behind their answers, which say so', async () => {
    await start();
    let go = false;
    const idle = await harness.connect();
    await idle.send(WHOLE);
    await idle.response();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.until(() => go);
      await wire.respond(200, OK);
    });
    const busy = await harness.connect();
    await busy.send(WHOLE);
    await harness.engine().request(1);
    // Accepted, and asks only now.
    const late = await harness.connect();
    await waitFor(() => connections().fast === 3);
    const closed = harness.router.close(10_000);
    expect(await idle.waitClosed()).toBe('fin');
    await late.send(WHOLE);
    expect((await late.response()).status).toBe(503);
    go = true;
    for (const client of [busy, late]) {
      expect((await client.response()).headers.get('connection')).toBe('close');
      expect(await client.waitClosed()).toBe('fin');
    }
    await closed;
    expect(connections()).toEqual({ fast: 0, node: 0 });
  });
});

describe('a client that closes its side', () => {
  it('in the middle of a head is told what is wrong', async () => {
    await start();
    const client = await harness.connect();
    await client.send(POST);
    await waitFor(() => connections().fast === 1);
    client.halfClose();
    expect((await client.response()).status).toBe(400);
    await client.waitClosed();
    expect(await harness.metric('llmgw_requests_total{model="_unknown",route="other",code="400"}')).toBe(1);
  });

  it('after its request was answered gets all of the answer, however slowly it reads', async () => {
    await start();
    const big = JSON.stringify({ text: 'x'.repeat(4_000_000) });
    harness.engine().onRequest((_request, wire) => wire.respond(200, big));
    const client = await harness.connect();
    client.pause();
    await client.send(WHOLE);
    await waitFor(() => harness.accessLog().length === 1 || harness.engine().requests.length === 1);
    client.resume();
    expect((await client.response()).body.length).toBe(big.length);
    client.halfClose();
    await client.waitClosed();
  });
});

// Node's parser then sits on a socket that reads in a way of its own.
describe('a connection that was given to Node', () => {
  for (const way of ['rst', 'destroy', 'halfClose'] as const) {
    it(`is one whose client is missed at once (${way})`, async () => {
      await start();
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(delta('a'));
      });
      const client = await harness.chat({ stream: true }, { te: 'trailers' });
      await client.waitForText('"a"');
      expect(connections()).toEqual({ fast: 0, node: 1 });
      client[way]();
      await harness.engine().waitIdle();
      await harness.settle();
      expect(harness.accessLog()).toMatchObject([{ outcome: 'client_closed', status: 499 }]);
      if (way === 'halfClose') await client.waitClosed();
      await waitFor(() => connections().node === 0);
    });
  }

  it('takes what was sent ahead with it, and what comes later', async () => {
    await start();
    harness.engine().onRequest((request, wire) => wire.respond(200, request.body));
    const client = await harness.connect();
    const chunked = `${POST}transfer-encoding: chunked\r\n\r\ne\r\n${BODY}\r\n0\r\n\r\n`;
    const large = `{"model":"m1","input":"${'x'.repeat(3_000_000)}"}`;
    await client.send(WHOLE + WHOLE + chunked + WHOLE + chunked.slice(0, -9));
    await client.response(3);
    await client.send(chunked.slice(-9));
    await client.send(`${POST}content-length: ${large.length}\r\n\r\n${large}`);
    expect((await client.response(5)).body.length).toBe(large.length);
    expect(client.responses().map(({ body }) => body.length)).toEqual([14, 14, 14, 14, 14, large.length]);
  });
});

describe('a client that stops reading for a while', () => {
  // What waits for such a client is less than a socket's own mark, which would never say that it has drained.
  it('gets the rest of a stream of small events', async () => {
    await start();
    const event = delta('y'.repeat(1_500));
    let sent = 0;
    let stop = false;
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      while (!stop) {
        await wire.chunk(event);
        sent += 1;
        await nextTurn();
      }
      await wire.chunk(finish() + DONE);
      await wire.lastChunk();
    });
    const client = await harness.chat({ stream: true });
    await client.waitForText('200 OK');
    client.pause();
    let last = -1;
    await waitFor(
      async () => {
        const stopped = last === sent && sent > 0;
        last = sent;
        for (let turn = 0; turn < 500; turn++) await nextTurn();
        return stopped;
      },
      { deadlineMs: 15_000 },
    );
    stop = true;
    client.resume();
    expect((await client.response()).body.toString().endsWith(DONE)).toBe(true);
  });
});
