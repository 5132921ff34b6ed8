import { PassThrough } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { describe, expect, it } from 'vitest';
import type { Clock, Timer } from '../shared/clock.js';
import { LongAnswer } from './event-stream.js';

/** Timers that fire when the test says so. */
class HandClock implements Clock {
  readonly timers: { delayMs: number; fn: () => void; cancelled: boolean }[] = [];
  monotonicMs = (): number => 0;
  wallMs = (): number => 0;
  setTimer(delayMs: number, fn: () => void): Timer {
    const timer = { delayMs, fn, cancelled: false };
    this.timers.push(timer);
    return { cancel: () => (timer.cancelled = true) };
  }
}

function answer() {
  const clock = new HandClock();
  const wire = Object.assign(new PassThrough(), {
    writeHead: () => undefined,
    flushHeaders: () => undefined,
  });
  const reply = { hijack: () => undefined, raw: wire } as unknown as FastifyReply;
  let ends = 0;
  const long = new LongAnswer(reply, 'text/event-stream', clock, () => (ends += 1));
  return { clock, wire, long, ends: () => ends, text: () => String(wire.read() ?? '') };
}

describe('a long answer', () => {
  it('gives each event its id, so that a reader can resume after it', () => {
    const { long, text } = answer();
    long.event(7, { type: 'NodeConnected' });
    expect(text()).toBe('id: 7\ndata: {"type":"NodeConnected"}\n\n');
  });

  // A proxy closed quiet streams after a minute.
  it('is never quiet for longer than ten seconds, until it ends', () => {
    const { long, clock, text } = answer();
    long.keepAlive();
    clock.timers[0]!.fn();
    expect(text()).toBe(': still here\n\n');
    expect(clock.timers.map(({ delayMs }) => delayMs)).toEqual([10_000, 10_000]);
    long.end();
    expect(clock.timers[1]!.cancelled).toBe(true);
  });

  it('lets go of a reader that falls too far behind, once', () => {
    const { long, wire, ends } = answer();
    for (let sent = 0; sent < 400; sent += 1) long.write('x'.repeat(1_024));
    expect(wire.destroyed).toBe(true);
    long.end();
    expect(ends()).toBe(1);
  });
});
