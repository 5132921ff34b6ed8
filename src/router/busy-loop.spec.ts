import { afterEach, describe, expect, it } from 'vitest';
import { systemClock, type Clock, type Timer } from '../shared/clock.js';
import {
  delta,
  DONE,
  finish,
  RouterHarness,
  type HarnessOptions,
} from '../../test/support/router-harness.js';
import { nextTurn, waitFor } from '../../test/support/wait-for.js';
import { DeadlineWatch } from './deadline-watch.js';

const OK = '{"data":[]}';
const ANSWER = delta('a') + finish() + DONE;

/** Time that can be made to have passed between two turns of the loop, as for a process that got no CPU. */
class LeapingClock implements Clock {
  private leaptMs = 0;
  private readonly timers = new Set<{ readonly dueMs: number; readonly fire: () => void }>();

  monotonicMs(): number {
    return performance.now() + this.leaptMs;
  }

  wallMs(): number {
    return Date.now();
  }

  setTimer(delayMs: number, fn: () => void): Timer {
    const timer = {
      dueMs: this.monotonicMs() + delayMs,
      fire: () => {
        if (this.timers.delete(timer)) fn();
      },
    };
    this.timers.add(timer);
    const real = systemClock.setTimer(delayMs, timer.fire);
    return {
      cancel: () => {
        this.timers.delete(timer);
        real.cancel();
      },
    };
  }

  /** What has been written until now is in the kernel, and timers come first in the next turn. */
  leap(ms: number): void {
    this.leaptMs += ms;
    const now = this.monotonicMs();
    for (const timer of this.timers) if (timer.dueMs <= now) setTimeout(timer.fire, 1);
    const until = performance.now() + 3;
    while (performance.now() < until);
  }
}

let harness: RouterHarness;
let clock: LeapingClock;
afterEach(() => harness.stop());

async function start(options: HarnessOptions = {}): Promise<void> {
  clock = new LeapingClock();
  harness = await RouterHarness.start({ clock, ...options });
}

// A loop that was busy runs its timers before it reads what has arrived: engines that had answered in time were given
// up, and clients were told that they were too slow.
describe('a process that stood still past a deadline', () => {
  it('has not waited too long for a connection that stands', async () => {
    class ConnectingClock extends LeapingClock {
      override setTimer(delayMs: number, fn: () => void): Timer {
        const timer = super.setTimer(delayMs, fn);
        // The one for the connection, which is being made.
        if (delayMs > 1_900 && delayMs <= 2_000) this.leap(delayMs + 50);
        return timer;
      }
    }
    await start({ clock: new ConnectingClock() });
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const response = await (await harness.chat()).response();
    expect(response.body.toString()).toBe(OK);
    expect(harness.accessLog()).toMatchObject([{ outcome: 'ok', attempts: 1 }]);
  });

  it('has not waited too long for a first token that is there', async () => {
    await start({ deadlines: { firstTokenPer1kTokens: 0 } });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      void wire.chunk(ANSWER);
      clock.leap(60_050);
      await wire.lastChunk();
    });
    expect((await (await harness.chat({ stream: true })).response()).body.toString()).toBe(ANSWER);
  });

  it.each([{ idle: 60_000 }, { idle: 0, total: 60_000 }])(
    'has not waited too long for the rest, if it is there (%j)',
    async (deadlines) => {
      await start({ deadlines });
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(delta('a'));
        await wire.until(() => client.text.includes('"a"'));
        void wire.chunk(finish() + DONE);
        void wire.lastChunk();
        clock.leap(60_050);
      });
      const client = await harness.chat({ stream: true });
      expect((await client.response()).body.toString()).toBe(ANSWER);
      expect(harness.accessLog()).toMatchObject([{ outcome: 'ok' }]);
    },
  );

  it('does not give up the status of an answer for one that is there', async () => {
    await start({ profile: { holdHeaders: 10_000 } });
    harness.engine().onRequest((_request, wire) => {
      void wire.respond(400, '{"error":{"message":"no"}}');
      clock.leap(10_050);
    });
    expect((await (await harness.chat({ stream: true })).response()).status).toBe(400);
  });

  it('serves a request whose turn came while it waited', async () => {
    await start({ endpoints: [{ maxConcurrency: 1 }] });
    let go = false;
    harness.engine().onRequest(async (_request, wire) => {
      if (go) return wire.respond(200, OK);
      await wire.until(() => go);
      void wire.respond(200, OK);
      clock.leap(30_050);
    });
    const first = await harness.chat();
    await harness.engine().request();
    const queued = await harness.chat();
    await waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === 1);
    go = true;
    expect((await queued.response()).body.toString()).toBe(OK);
    expect((await first.response()).status).toBe(200);
  });

  it('reads the body that has come before it calls it late', async () => {
    await start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const client = await harness.connect();
    const head = 'POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n';
    await client.send(`${head}content-length: 14\r\n\r\n{"model"`);
    await waitFor(() => harness.router.exchanges.size === 1);
    void client.send(':"m1"}');
    clock.leap(60_050);
    expect((await client.response()).body.toString()).toBe(OK);
  });

  it('reads the request that has come before it ends an idle connection', async () => {
    await start({ configure: (config) => (config.router.fastPath = true) });
    harness.engine().onRequest((_request, wire) => wire.respond(200, OK));
    const client = await harness.chat();
    await client.response();
    void client.post('/v1/embeddings', { model: 'm1' });
    clock.leap(75_500);
    expect((await client.response(1)).body.toString()).toBe(OK);
  });
});

describe('a body', () => {
  /** Sends a byte whenever its client is about to be given up, until that is over. */
  async function trickle(length: number): Promise<number> {
    await start();
    const client = await harness.connect();
    const head = 'POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n';
    await client.send(`${head}content-length: ${length}\r\n\r\n{`);
    await waitFor(() => harness.router.exchanges.size === 1);
    let sent = 0;
    const startedMs = clock.monotonicMs();
    while (client.text === '' && sent < length) {
      clock.leap(50_000);
      await client.send(' ');
      sent += 1;
      for (let turn = 0; turn < 20; turn++) await nextTurn();
    }
    expect(await client.response()).toMatchObject({ status: 400 });
    expect(client.text).toContain('did not arrive in time');
    return clock.monotonicMs() - startedMs;
  }

  // One byte a minute kept a request for ever, and with it a place and memory.
  it('that never stands still and never comes to its end has a time for all of it', async () => {
    const tookMs = await trickle(100_000);
    expect(tookMs).toBeGreaterThanOrEqual(300_000);
    expect(tookMs).toBeLessThan(600_000);
  });
});

describe('a deadline', () => {
  /** A clock whose timers run when they are told to. */
  function handClock() {
    const timers: { delayMs: number; fire: () => void }[] = [];
    const time = { nowMs: 0 };
    const hand: Clock = {
      monotonicMs: () => time.nowMs,
      wallMs: () => 0,
      setTimer: (delayMs, fire) => (timers.push({ delayMs, fire }), { cancel: () => undefined }),
    };
    return { hand, timers, time };
  }
  const turns = async () => (await nextTurn(), nextTurn());

  it('is looked at behind what has arrived, and after a pause of our own later by as much, but not for ever', async () => {
    for (const [lateMs, graceMs] of [
      [50, undefined],
      [500, 500],
      [50_000, 1_000],
    ]) {
      const { hand, timers, time } = handClock();
      const looks: number[] = [];
      const watch = new DeadlineWatch(hand, { look: (now) => (looks.push(now), Number.POSITIVE_INFINITY) });
      watch.by(100);
      time.nowMs = 100 + (lateMs ?? 0);
      timers.shift()?.fire();
      expect(looks).toEqual([]);
      expect(timers[0]?.delayMs).toBe(graceMs);
      time.nowMs += 10_000;
      timers.shift()?.fire();
      await turns();
      expect(looks).toHaveLength(1);
      expect(timers).toEqual([]);
    }
  });

  it('that is due already when it is set is not late by what passed before', async () => {
    const { hand, timers, time } = handClock();
    let looks = 0;
    const watch = new DeadlineWatch(hand, { look: () => (looks++, Number.POSITIVE_INFINITY) });
    time.nowMs = 5_000;
    watch.by(0);
    timers.shift()?.fire();
    await turns();
    expect(looks).toBe(1);
  });

  it('is none after the end, also between its timer and the look', async () => {
    const { hand, timers } = handClock();
    let looks = 0;
    const watch = new DeadlineWatch(hand, { look: () => (looks++, Number.POSITIVE_INFINITY) });
    watch.by(0);
    timers.shift()?.fire();
    watch.stop();
    await turns();
    expect(looks).toBe(0);
  });
});
