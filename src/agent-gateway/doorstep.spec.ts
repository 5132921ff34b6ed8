import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import type { Clock } from '../shared/clock.js';
import { Doorstep, IN_HAND_LIMIT_MS, IN_HAND_MAX, WAITING_MAX, type Visitor } from './doorstep.js';

/** Timers that fire when told. */
class HandClock implements Clock {
  nowMs = 0;
  private readonly timers = new Set<{ atMs: number; fn: () => void }>();

  monotonicMs(): number {
    return this.nowMs;
  }
  wallMs(): number {
    return this.nowMs;
  }
  setTimer(delayMs: number, fn: () => void) {
    const timer = { atMs: this.nowMs + delayMs, fn };
    this.timers.add(timer);
    return { cancel: () => void this.timers.delete(timer) };
  }
  advance(ms: number): void {
    this.nowMs += ms;
    for (const timer of [...this.timers]) {
      if (timer.atMs > this.nowMs || !this.timers.delete(timer)) continue;
      timer.fn();
    }
  }
  get pending(): number {
    return this.timers.size;
  }
}

class Socket extends EventEmitter implements Visitor {
  readonly remoteAddress = '10.0.0.1';
  destroyed = false;
  constructor(readonly remotePort: number) {
    super();
  }
  destroy(): void {
    this.destroyed = true;
  }
}

function set() {
  const clock = new HandClock();
  const inside: number[] = [];
  const doorstep = new Doorstep<Socket>(clock, ({ remotePort }) => inside.push(remotePort));
  const arrive = (count: number): Socket[] =>
    Array.from({ length: count }, (_, port) => {
      const socket = new Socket(port);
      doorstep.arrived(socket);
      return socket;
    });
  return { clock, inside, doorstep, arrive };
}

describe('the doorstep', () => {
  it('lets a few in, and the next, in order, whenever one had its answer', () => {
    const { inside, doorstep, arrive } = set();
    arrive(IN_HAND_MAX + 3);
    expect(inside).toHaveLength(IN_HAND_MAX);
    doorstep.answered('10.0.0.1:5');
    doorstep.answered('10.0.0.1:5');
    doorstep.answered('10.9.9.9:1');
    expect(inside.slice(IN_HAND_MAX)).toEqual([IN_HAND_MAX]);
    doorstep.answered('10.0.0.1:6');
    expect(inside.slice(IN_HAND_MAX)).toEqual([IN_HAND_MAX, IN_HAND_MAX + 1]);
  });

  it('is not held up by those that say nothing', () => {
    const { clock, inside, arrive } = set();
    arrive(3 * IN_HAND_MAX);
    clock.advance(IN_HAND_LIMIT_MS - 1);
    expect(inside).toHaveLength(IN_HAND_MAX);
    clock.advance(1);
    expect(inside).toHaveLength(2 * IN_HAND_MAX);
    clock.advance(IN_HAND_LIMIT_MS);
    expect(inside).toHaveLength(3 * IN_HAND_MAX);
    clock.advance(IN_HAND_LIMIT_MS);
    expect(clock.pending).toBe(0);
  });

  it('does not wait for those that are gone, and forgets whoever had its answer', () => {
    const { inside, doorstep, arrive } = set();
    const all = arrive(IN_HAND_MAX + 1);
    doorstep.answered('10.0.0.1:0');
    expect(all[0]?.listenerCount('close')).toBe(0);
    all[1]?.emit('close');
    arrive(1);
    expect(inside).toHaveLength(IN_HAND_MAX + 2);
  });

  it('turns away those that would wait too far back', () => {
    const { arrive } = set();
    const all = arrive(IN_HAND_MAX + WAITING_MAX + 2);
    expect(all.filter(({ destroyed }) => destroyed)).toEqual(all.slice(-2));
  });

  it('closes on everybody who waits, and on whoever comes later', () => {
    const { clock, inside, doorstep, arrive } = set();
    const all = arrive(IN_HAND_MAX + 2);
    doorstep.close();
    const late = arrive(1);
    doorstep.answered('10.0.0.1:0');
    expect(inside).toHaveLength(IN_HAND_MAX);
    expect([...all.slice(IN_HAND_MAX), ...late].every(({ destroyed }) => destroyed)).toBe(true);
    expect(all.slice(0, IN_HAND_MAX).some(({ destroyed }) => destroyed)).toBe(false);
    expect(clock.pending).toBe(0);
  });
});
