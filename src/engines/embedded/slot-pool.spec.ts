import { describe, expect, it } from 'vitest';
import { sharedPrefix, SlotAbortedError, SlotPool, SlotRefusedError } from './slot-pool.js';

class FakeSlot {
  contextTokens: number[] = [];
  constructor(readonly name: string) {}
}

function pool(names: string[], maxQueue = 10) {
  const slots = names.map((name) => new FakeSlot(name));
  return { slots, pool: new SlotPool(slots, maxQueue) };
}

const never = () => new AbortController().signal;

describe('SlotPool', () => {
  it('gives the free slot that remembers most, else the one unused for longest', async () => {
    const { slots, pool: p } = pool(['a', 'b', 'c']);
    (slots[1] as FakeSlot).contextTokens = [1, 2, 3];
    (slots[2] as FakeSlot).contextTokens = [1, 2];
    const first = await p.acquire([1, 2, 3, 4], never());
    expect(first.name).toBe('b');
    const second = await p.acquire([9], never());
    expect(second.name).toBe('a');
    p.release(first);
    expect((await p.acquire([9], never())).name).toBe('c');
  });

  it('serves waiters in order and refuses those beyond the queue', async () => {
    const { pool: p } = pool(['a'], 2);
    const slot = await p.acquire([], never());
    const order: number[] = [];
    const waits = [1, 2].map((number) => p.acquire([], never()).then((given) => (order.push(number), given)));
    await expect(p.acquire([], never())).rejects.toThrow(SlotRefusedError);
    expect([p.running, p.waiting]).toEqual([1, 2]);
    p.release(slot);
    p.release(await (waits[0] as Promise<FakeSlot>));
    p.release(await (waits[1] as Promise<FakeSlot>));
    expect(order).toEqual([1, 2]);
    expect([p.running, p.waiting]).toEqual([0, 0]);
  });

  it('lets a waiter leave without disturbing the others', async () => {
    const { pool: p } = pool(['a']);
    const slot = await p.acquire([], never());
    const leaving = new AbortController();
    const left = p.acquire([], leaving.signal);
    const patient = p.acquire([], never());
    leaving.abort();
    await expect(left).rejects.toThrow(SlotAbortedError);
    p.release(slot);
    p.release(await patient);
    expect([p.running, p.waiting]).toEqual([0, 0]);
    // An abort after the slot was given is the holder's affair: the pool must not count it twice.
    leaving.abort();
    await expect(p.acquire([], leaving.signal)).rejects.toThrow(SlotAbortedError);
  });

  it('refuses everybody once closed', async () => {
    const { pool: p } = pool(['a']);
    const slot = await p.acquire([], never());
    const waiting = p.acquire([], never());
    p.close();
    await expect(waiting).rejects.toThrow('shutting down');
    p.release(slot);
    await expect(p.acquire([], never())).rejects.toThrow(SlotRefusedError);
  });
});

it('sharedPrefix', () => {
  expect(sharedPrefix([1, 2, 3], [1, 2, 4])).toBe(2);
  expect(sharedPrefix([], [1])).toBe(0);
  expect(sharedPrefix([1, 2], [1, 2, 3])).toBe(2);
});
