import { afterEach, describe, expect, it } from 'vitest';
import { delta, DONE, RouterHarness } from '../../test/support/router-harness.js';
import { nextTurn, waitFor } from '../../test/support/wait-for.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const MIB = 1024 * 1024;
/** Turns of the loop, engine, gateway and client in one, without a byte after which nothing moves any more. */
const STILL_TURNS = 2_000;

describe('a client that does not read', () => {
  // Writing without waiting grew memory by the whole answer; waiting without looking for the client's end hung for ever.
  for (const stream of [true, false]) {
    it(`makes the engine wait (${stream ? 'events' : 'bytes'}), and its leaving ends everything at once`, async () => {
      harness = await RouterHarness.start();
      const event = delta('x'.repeat(32 * 1024));
      harness.engine().onRequest(async (_request, wire) => {
        if (stream) await wire.startStream();
        else await wire.write('HTTP/1.1 200 OK\r\ncontent-type: x/y\r\ntransfer-encoding: chunked\r\n\r\n');
        for (let sent = 0; sent < 100 * MIB && !wire.peerGone; sent += event.length) {
          await wire.chunk(event);
          total += event.length;
        }
      });
      let total = 0;
      const clients = await Promise.all(Array.from({ length: 5 }, () => harness.chat({ stream })));
      for (const client of clients) {
        await client.waitForText('200 OK');
        client.pause();
      }
      // The engine has come to a stop: what it managed to send lies in the kernel's buffers.
      let last = -1;
      await waitFor(async () => {
        const stopped = total === last;
        last = total;
        for (let turn = 0; turn < STILL_TURNS; turn++) await nextTurn();
        return stopped;
      });
      // A few megabytes a stream are the kernel's; a proxy that does not wait takes the whole hundred.
      expect(total).toBeLessThan(5 * 20 * MIB);
      for (const client of clients) client.rst();
      await harness.engine().waitIdle();
      await harness.settle();
      for (const record of harness.accessLog()) expect(record).toMatchObject({ outcome: 'client_closed' });
    });
  }

  it('for too long is ended, and the engine is not blamed for its silence', async () => {
    harness = await RouterHarness.start({ deadlines: { idle: 100, clientStall: 400 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      while (!wire.peerGone) await wire.chunk(delta('x'.repeat(64 * 1024)));
    });
    const client = await harness.chat({ stream: true });
    await client.waitForText('200 OK');
    client.pause();
    await harness.engine().waitIdle();
    await harness.settle();
    expect(harness.accessLog()).toMatchObject([{ outcome: 'client_closed', status: 499 }]);
    expect(await harness.metric('llmgw_stream_aborted_total{reason="client_stalled"}')).toBe(1);
    expect(harness.router.endpoints()[0]).toMatchObject({ failuresTotal: 0, state: 'up' });
  });

  it('for a while gets every byte afterwards', async () => {
    harness = await RouterHarness.start({ deadlines: { idle: 200 } });
    const events = Array.from({ length: 400 }, (_, i) => delta(`${i}:${'y'.repeat(16 * 1024)}`));
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      for (const event of events) await wire.chunk(event);
      await wire.chunk(DONE);
      await wire.lastChunk();
    });
    const client = await harness.chat({ stream: true });
    await client.waitForText('200 OK');
    client.pause();
    await harness.passed(500);
    client.resume();
    await client.waitForText('[DONE]');
    expect((await client.response()).body.toString()).toBe(events.join('') + DONE);
  });

  // Less waits for such a client than the mark from which on Node says that a socket has drained.
  it('for a while gets every small event afterwards', async () => {
    harness = await RouterHarness.start();
    const event = delta('z'.repeat(100));
    let sent = 0;
    let still = 0;
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      while (still < 3 && !wire.peerGone) {
        await wire.chunk(event.repeat(10));
        sent += 10;
      }
      await wire.chunk(DONE);
      await wire.lastChunk();
    });
    const client = await harness.chat({ stream: true });
    await client.waitForText('200 OK');
    client.pause();
    let last = -1;
    await waitFor(async () => {
      still = sent === last ? still + 1 : 0;
      last = sent;
      for (let turn = 0; turn < STILL_TURNS; turn++) await nextTurn();
      return still >= 3;
    });
    client.resume();
    await client.waitForText('[DONE]');
    expect((await client.response()).body.toString() === event.repeat(sent) + DONE).toBe(true);
  });
});
