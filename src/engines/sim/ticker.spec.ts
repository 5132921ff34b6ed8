import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Clock } from '../../shared/clock.js';
import { PrefillLane } from './prefill-lane.js';
import { type Due, Ticker } from './ticker.js';

/** A clock that moves only when told to. */
class ManualClock implements Clock {
  nowMs = 0;
  armed: { atMs: number; fn: () => void } | undefined;
  timersSet = 0;

  monotonicMs() {
    return this.nowMs;
  }

  wallMs() {
    return this.nowMs;
  }

  setTimer(delayMs: number, fn: () => void) {
    const timer = { atMs: this.nowMs + delayMs, fn };
    this.armed = timer;
    this.timersSet++;
    return { cancel: () => (this.armed = this.armed === timer ? undefined : this.armed) };
  }

  /** Runs timers until nothing is due before `untilMs`. */
  advance(untilMs: number) {
    while (this.armed !== undefined && this.armed.atMs <= untilMs) {
      const { atMs, fn } = this.armed;
      this.armed = undefined;
      this.nowMs = Math.max(this.nowMs, atMs);
      fn();
    }
    this.nowMs = Math.max(this.nowMs, untilMs);
  }
}

function item(log: number[], id: number): Due {
  return { dueMs: 0, heapIndex: -1, onDue: () => log.push(id) };
}

describe('Ticker', () => {
  it('runs everything once, in the order it is due, whatever was scheduled, moved and cancelled', () => {
    const operation = fc.record({ id: fc.nat(9), dueMs: fc.nat(50), cancel: fc.boolean() });
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 60 }), (operations) => {
        const clock = new ManualClock();
        const ticker = new Ticker(clock);
        const log: number[] = [];
        const items = Array.from({ length: 10 }, (_, id) => item(log, id));
        const expected = new Map<number, number>();
        for (const { id, dueMs, cancel } of operations) {
          if (cancel) ticker.cancel(items[id] as Due);
          else ticker.schedule(items[id] as Due, dueMs);
          if (cancel) expected.delete(id);
          else expected.set(id, dueMs);
        }
        expect(ticker.size).toBe(expected.size);
        clock.advance(100);
        expect(new Set(log)).toEqual(new Set(expected.keys()));
        expect(log).toHaveLength(expected.size);
        const times = log.map((id) => expected.get(id) ?? -1);
        expect(times).toEqual([...times].sort((a, b) => a - b));
        expect(ticker.size).toBe(0);
      }),
    );
  });

  it('uses one timer for many streams', () => {
    const clock = new ManualClock();
    const ticker = new Ticker(clock);
    const streams = Array.from({ length: 1000 }, (): Due => {
      const stream: Due = {
        dueMs: 0,
        heapIndex: -1,
        onDue: () => ticker.schedule(stream, stream.dueMs + 10),
      };
      ticker.schedule(stream, 10);
      return stream;
    });
    clock.advance(100);
    expect(streams.every((stream) => stream.dueMs === 110)).toBe(true);
    expect(clock.timersSet).toBeLessThan(30);
  });
});

describe('PrefillLane', () => {
  function lane() {
    const clock = new ManualClock();
    const done: [string, number][] = [];
    const lane = new PrefillLane(new Ticker(clock), () => clock.nowMs);
    const job = (name: string, costMs: number) => ({
      costMs,
      onPrefilled: (nowMs: number) => done.push([name, nowMs]),
    });
    return { clock, done, lane, job };
  }

  it('reads one prompt after another', () => {
    const { clock, done, lane: l, job } = lane();
    l.add(job('a', 10));
    l.add(job('b', 5));
    clock.advance(100);
    l.add(job('c', 1));
    clock.advance(200);
    expect(done).toEqual([
      ['a', 10],
      ['b', 15],
      ['c', 101],
    ]);
  });

  it('goes on with the next when one leaves, read or waiting', () => {
    const { clock, done, lane: l, job } = lane();
    const [a, b, c] = [job('a', 10), job('b', 10), job('c', 10)];
    for (const each of [a, b, c]) l.add(each);
    clock.advance(4);
    l.remove(b);
    l.remove(a);
    l.remove(a);
    clock.advance(100);
    expect(done).toEqual([['c', 14]]);
  });
});
