import { afterEach, describe, expect, it } from 'vitest';
import { systemClock, type Clock } from '../shared/clock.js';
import { eventData } from '../../test/support/http-responses.js';
import type { RawClient } from '../../test/support/raw-client.js';
import { delta, fastClock, RouterHarness, type HarnessOptions } from '../../test/support/router-harness.js';
import { nextTurn, waitFor } from '../../test/support/wait-for.js';
import { AHEAD_ANSWERS_MAX_BYTES } from './node-front.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const POST = 'POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n';
const request = (input: string) => {
  const body = `{"model":"m1","input":"${input}"}`;
  return `${POST}content-length: ${body.length}\r\n\r\n${body}`;
};

// Both ways of reading requests have to notice, and tell, the same.
const READERS = [
  ['canonical reader', true],
  ["Node's parser", false],
] as const;

async function start(fastPath: boolean, options: HarnessOptions = {}): Promise<void> {
  harness = await RouterHarness.start({
    ...options,
    configure: (config) => (config.router.fastPath = fastPath),
  });
}

const atRest = () =>
  waitFor(() => harness.router.exchanges.size === 0, { what: 'no exchange to be left', deadlineMs: 4_000 });

describe.each(READERS)('a client that leaves (%s)', (_name, fastPath) => {
  it.each(['rst', 'destroy', 'halfClose'] as const)(
    'a stream whose head says that the connection ends (%s)',
    async (way) => {
      await start(fastPath);
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(delta('x'));
        await wire.waitClosed({ deadlineMs: 30_000 });
      });
      const client = await harness.chat({ stream: true }, { connection: 'close' });
      await client.waitForText('"x"');
      client[way]();
      await atRest();
      await harness.engine().waitIdle();
      expect(harness.accessLog()).toMatchObject([{ outcome: 'client_closed', status: 499 }]);
    },
  );

  // The first is the size of an ordinary pipeline, the second more than is kept: then the connection is not read.
  it.each([2, 40])('with %d requests sent ahead', async (ahead) => {
    await start(fastPath);
    harness
      .engine()
      .onRequest(async (_request, wire) => void (await wire.waitClosed({ deadlineMs: 30_000 })));
    const client = await harness.connect();
    await client.send(request('first'));
    await harness.engine().request(0);
    void client.send(request('x'.repeat(20_000)).repeat(ahead)).catch(() => undefined);
    for (let turn = 0; turn < 100; turn++) await nextTurn();
    client.rst();
    await atRest();
    await harness.engine().waitIdle();
    expect(harness.accessLog().map(({ outcome }) => outcome)).not.toContain('ok');
  });
});

// From 16 KiB of answers that wait behind another one on, Node reads no further on a connection.
describe("a client on Node's parser with answers that wait behind one that is still computed", () => {
  const LONG = 'y'.repeat(12_000);

  /** The first request is never answered, the others at once; all of them are read. */
  async function startAhead(ahead: number): Promise<RawClient> {
    await start(false);
    harness.engine().onRequest(async ({ body }, wire) => {
      if (body.includes('first')) await wire.waitClosed({ deadlineMs: 30_000 });
      else await wire.respond(200, `"${LONG}"`);
    });
    const client = await harness.connect();
    await client.send(request('first'));
    await harness.engine().request(0);
    for (let i = 1; i <= ahead; i++) {
      // It may be cut off on the way.
      await client.send(request(`${i}`)).catch(() => undefined);
      await waitFor(() => harness.accessLog().length === i || client.ending !== 'open');
    }
    return client;
  }

  it.each(['rst', 'destroy', 'halfClose'] as const)('is missed at once (%s)', async (way) => {
    const client = await startAhead(6);
    client[way]();
    await atRest();
    await waitFor(() => harness.engine().requests[0]?.connection.closed);
    expect(harness.accessLog().at(-1)).toMatchObject({ outcome: 'client_closed' });
  });

  it('gets them all, in order, behind that one', async () => {
    await start(false);
    let go = false;
    harness.engine().onRequest(async ({ body }, wire) => {
      if (body.includes('"0"')) await wire.until(() => go);
      await wire.respond(200, `${body.toString()} "${LONG}"`);
    });
    const client = await harness.connect();
    for (let i = 0; i < 20; i++) {
      await client.send(request(`${i}`));
      await waitFor(() => harness.accessLog().length === i);
    }
    go = true;
    await client.response(19);
    const inputs = client.responses().map(({ body }) => /"input":"(\d+)"/.exec(body.toString())?.[1]);
    expect(inputs).toEqual(Array.from({ length: 20 }, (_, i) => `${i}`));
  });

  it('is cut off when too much waits', async () => {
    const client = await startAhead(1 + AHEAD_ANSWERS_MAX_BYTES / LONG.length);
    await client.waitClosed();
    await atRest();
  });
});

describe.each(READERS)('a client that does not fetch the last of its answer (%s)', (_name, fastPath) => {
  /** A stream that stands because its client reads nothing, and is ended by its deadline. */
  async function ended(headers: Record<string, string>): Promise<RawClient> {
    await start(fastPath, { clock: fastClock(20), deadlines: { total: 20_000 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      while (!wire.peerGone) await wire.chunk(delta('y'.repeat(10_000)));
    });
    const client = await harness.chat({ stream: true }, headers);
    client.pause();
    await waitFor(() => harness.accessLog()[0]?.['outcome'] === 'total_timeout');
    return client;
  }

  it('has time for it, on a connection that ends and on one that goes on', async () => {
    for (const connection of ['close', 'keep-alive']) {
      const client = await ended({ connection });
      await harness.passed(10_000);
      client.resume();
      const events = eventData((await client.response()).body);
      expect(events.at(-1)).toContain('"total_timeout"');
      if (connection === 'close') {
        await client.waitClosed();
        await harness.stop();
      }
    }
  });

  it('holds a stop up no longer than its grace, and is asked to go once', async () => {
    const warnings: Error[] = [];
    const warn = (warning: Error) => warnings.push(warning);
    process.on('warning', warn);
    await ended({});
    await harness.router.close(5_000);
    process.off('warning', warn);
    expect(warnings).toEqual([]);
  });
});

describe.each(READERS)(
  'a client that was refused before all of its body was there (%s)',
  (_name, fastPath) => {
    it('and ends its side then is not answered a second time', async () => {
      await start(fastPath);
      const client = await harness.connect();
      await client.send(`${POST}content-encoding: gzip\r\ncontent-length: 14\r\n\r\n{"mo`);
      await client.response();
      client.halfClose();
      await client.waitClosed();
      expect(client.responses().map(({ status }) => status)).toEqual([415]);
    });

    it('has a time to send the rest, however often a byte of it comes', async () => {
      await start(fastPath, { clock: fastClock(200) });
      const client = await harness.connect();
      await client.send(`${POST}content-encoding: gzip\r\ncontent-length: 1000000\r\n\r\n{"mo`);
      await client.response();
      await waitFor(async () => {
        if (client.ending === 'open') await client.send('x').catch(() => undefined);
        return client.ending !== 'open';
      });
      expect(client.responses()).toHaveLength(1);
    });

    it('and sends it goes on as if nothing had been', async () => {
      await start(fastPath);
      harness.engine().onRequest((_request, wire) => wire.respond(200, '{}'));
      const client = await harness.connect();
      for (let i = 0; i < 20; i++) {
        await client.send(`${POST}content-encoding: gzip\r\ncontent-length: 14\r\n\r\n{"mo`);
        expect((await client.response(i)).status).toBe(415);
        await client.send('del":"m1"}');
      }
      await client.send(request('x'));
      expect((await client.response(20)).status).toBe(200);
    });
  },
);

describe.each(READERS)('the end of the grace (%s)', (_name, fastPath) => {
  // Those that have their last words may linger; nobody waits for them any more.
  it.each([
    ['a tunnel', 'CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n'],
    ['what is no request', '\x16\x03\x01\r\n\r\n'],
  ])('ends also the connection that was refused %s', async (_what, bytes) => {
    const lingerMs = 5_000;
    const clock: Clock = {
      ...systemClock,
      setTimer: (delayMs, fn) =>
        delayMs === lingerMs ? { cancel: () => undefined } : systemClock.setTimer(delayMs, fn),
    };
    await start(fastPath, { clock });
    const client = await harness.connect();
    await client.send(bytes);
    await client.response();
    await harness.router.close(50);
    expect(await client.waitClosed()).toBe('fin');
  });
});
