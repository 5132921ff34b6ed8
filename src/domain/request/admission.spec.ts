import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ModelQueue, decideHold } from './admission.js';
import type { Arrival, Ticket } from './admission.js';

function arrival(key: string, changes: Partial<Arrival<string>> = {}): Arrival<string> {
  return { fairnessKey: key, priority: 100, tokens: 10, deadlineMs: undefined, payload: key, ...changes };
}

function enqueue(queue: ModelQueue<string>, key: string, changes: Partial<Arrival<string>> = {}) {
  const { ticket } = queue.enqueue(arrival(key, changes), 0);
  if (ticket === undefined) throw new Error('refused');
  return ticket;
}

function order(queue: ModelQueue<string>, n = 100): string {
  const served: string[] = [];
  for (let i = 0; i < n; i++) {
    const ticket = queue.next(0);
    if (ticket === undefined) break;
    served.push(ticket.arrival.payload);
  }
  return served.join('');
}

describe('order', () => {
  it('is first come first served for one key', () => {
    const queue = new ModelQueue<string>(10);
    for (const payload of 'abcd') enqueue(queue, 'k', { payload });
    expect(order(queue)).toBe('abcd');
  });

  it('higher priority first, always', () => {
    const queue = new ModelQueue<string>(10);
    enqueue(queue, 'k', { payload: 'l', priority: 1 });
    enqueue(queue, 'k', { payload: 'm', priority: 100 });
    enqueue(queue, 'k', { payload: 'h', priority: 200 });
    expect(order(queue)).toBe('hml');
  });

  it('one key with a long line does not delay another', () => {
    const queue = new ModelQueue<string>(100);
    for (let i = 0; i < 20; i++) enqueue(queue, 'A');
    for (let i = 0; i < 3; i++) enqueue(queue, 'b');
    expect(order(queue, 8)).toBe('AbAbAbAA');
  });

  it('shares by tokens, not by requests', () => {
    const queue = new ModelQueue<string>(100);
    for (let i = 0; i < 10; i++) enqueue(queue, 'A', { tokens: 40 });
    for (let i = 0; i < 30; i++) enqueue(queue, 'b', { tokens: 10 });
    const served = order(queue, 20);
    expect(served.replaceAll('A', '').length).toBe(16);
  });

  it('what a key got without waiting counts, what it really used corrects', () => {
    const queue = new ModelQueue<string>(100);
    queue.admitDirect(arrival('A', { tokens: 10 }));
    queue.admitDirect(arrival('b', { tokens: 10 }));
    queue.correct('A', 100, 30);
    for (let i = 0; i < 5; i++) {
      enqueue(queue, 'A');
      enqueue(queue, 'b');
    }
    expect(order(queue, 6)).toBe('bbbAbA');
  });

  it('a key that comes back owns no saved-up share', () => {
    const queue = new ModelQueue<string>(1000);
    for (let i = 0; i < 50; i++) enqueue(queue, 'A');
    order(queue, 40);
    for (let i = 0; i < 10; i++) enqueue(queue, 'b');
    const served = order(queue, 8);
    expect(served.replaceAll('A', '').length).toBeLessThanOrEqual(5);
  });
});

describe('leaving', () => {
  /** Requests of clients long gone were still sent to the engine; work for nobody grew the queue. */
  it('a client that left is never served, wherever it stood', () => {
    const queue = new ModelQueue<string>(10);
    const tickets = ['a', 'b', 'c', 'd', 'e'].map((payload) => enqueue(queue, 'k', { payload }));
    for (const at of [0, 2, 4]) expect(queue.leave(tickets[at]!)).toBe(true);
    expect(queue.leave(tickets[0]!)).toBe(false);
    expect(queue.depth).toBe(2);
    expect(order(queue)).toBe('bd');
    expect(queue.leave(tickets[1]!)).toBe(false);
  });

  it('deadlines end the wait, in whatever order they come, and are not served late', () => {
    const queue = new ModelQueue<string>(10);
    enqueue(queue, 'k', { payload: 'a', deadlineMs: 300 });
    enqueue(queue, 'k', { payload: 'b', deadlineMs: 100 });
    enqueue(queue, 'k', { payload: 'c' });
    expect(queue.nextDeadlineMs).toBe(100);
    expect(queue.expire(99)).toEqual([]);
    expect(queue.expire(100).map((t) => t.arrival.payload)).toEqual(['b']);
    expect(queue.next(500)?.arrival.payload).toBe('c');
    expect(queue.depth).toBe(0);
    expect(queue.nextDeadlineMs).toBe(300);
    expect(queue.expire(500).map((t) => [t.arrival.payload, t.state])).toEqual([['a', 'timed_out']]);
    expect(queue.nextDeadlineMs).toBeUndefined();
  });

  it('clear hands out everybody', () => {
    const queue = new ModelQueue<string>(10);
    for (const key of 'abc') enqueue(queue, key, { deadlineMs: 5 });
    expect(queue.clear()).toHaveLength(3);
    expect([queue.depth, queue.nextDeadlineMs, queue.next(0)]).toEqual([0, undefined, undefined]);
  });
});

describe('full', () => {
  it('refuses at once with a wait from the measured drain rate', () => {
    const queue = new ModelQueue<string>(4);
    for (let i = 0; i < 4; i++) enqueue(queue, 'A');
    const guess = queue.enqueue(arrival('A'), 0);
    expect(guess).toMatchObject({
      ticket: undefined,
      refusal: { refused: 'queue_full', retryAfterSeconds: 5 },
    });
    for (let i = 0; i <= 20; i++) queue.departed(i * 2_000);
    const measured = queue.enqueue(arrival('A'), 40_000);
    // Half a request a second, five to go.
    expect(measured).toMatchObject({ refusal: { refused: 'queue_full', retryAfterSeconds: 10 } });
  });

  it('the longest line gives its newest place to a shorter one', () => {
    const queue = new ModelQueue<string>(4);
    const tickets = [0, 1, 2, 3].map(() => enqueue(queue, 'A'));
    const result = queue.enqueue(arrival('b'), 0);
    expect(result.ticket?.state).toBe('waiting');
    expect('displaced' in result && result.displaced).toBe(tickets[3]);
    expect(tickets[3]!.state).toBe('displaced');
    expect(queue.depth).toBe(4);
    expect(queue.enqueue(arrival('b'), 0).ticket).toBeDefined();
    expect(queue.enqueue(arrival('b'), 0).ticket).toBeUndefined();
    expect(order(queue)).toBe('AbAb');
  });

  it('higher priority displaces lower, never the other way round', () => {
    const queue = new ModelQueue<string>(2);
    const low = [enqueue(queue, 'A', { priority: 1 }), enqueue(queue, 'A', { priority: 1 })];
    expect(queue.enqueue(arrival('A', { priority: 2 }), 0).ticket).toBeDefined();
    expect(low[1]!.state).toBe('displaced');
    expect(queue.enqueue(arrival('b', { priority: 0 }), 0).ticket).toBeUndefined();
  });
});

describe('properties', () => {
  const step = fc.record({
    what: fc.constantFrom('enqueue', 'enqueue', 'enqueue', 'next', 'leave', 'expire', 'correct'),
    key: fc.nat(4),
    priority: fc.nat(1),
    tokens: fc.nat(500),
    pick: fc.nat(1_000),
  });

  it('counts right, keeps its bound, and every ticket ends exactly once', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const queue = new ModelQueue<number>(12);
        const tickets: Ticket<number>[] = [];
        const ended = new Set<Ticket<number>>();
        const end = (ticket: Ticket<number> | undefined) => {
          if (ticket === undefined) return;
          expect(ended.has(ticket)).toBe(false);
          ended.add(ticket);
        };
        steps.forEach(({ what, key, priority, tokens, pick }, nowMs) => {
          if (what === 'enqueue') {
            const deadlineMs = pick % 2 === 0 ? undefined : nowMs + (pick % 50);
            const result = queue.enqueue(
              { fairnessKey: `k${key}`, priority, tokens, deadlineMs, payload: nowMs },
              nowMs,
            );
            if (result.ticket !== undefined) {
              tickets.push(result.ticket);
              end(result.displaced);
            }
          } else if (what === 'next') {
            const ticket = queue.next(nowMs);
            end(ticket);
            if (ticket?.arrival.deadlineMs !== undefined) {
              expect(ticket.arrival.deadlineMs).toBeGreaterThan(nowMs);
            }
          } else if (what === 'leave') {
            const ticket = tickets[pick % Math.max(1, tickets.length)];
            if (ticket !== undefined && queue.leave(ticket)) end(ticket);
          } else if (what === 'expire') {
            for (const ticket of queue.expire(nowMs)) end(ticket);
          } else queue.correct(`k${key}`, priority, tokens - 250);
          expect(queue.depth).toBe(tickets.filter((t) => t.state === 'waiting').length);
          expect(queue.depth).toBeLessThanOrEqual(12);
        });
        for (const ticket of queue.expire(Number.POSITIVE_INFINITY)) end(ticket);
        for (let ticket = queue.next(0); ticket !== undefined; ticket = queue.next(0)) end(ticket);
        expect(ended.size).toBe(tickets.length);
        expect(queue.depth).toBe(0);
      }),
    );
  });

  it('two backlogged keys of one priority never differ by more than the largest requests of both', () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 1_000 }), { minLength: 40, maxLength: 80 });
    fc.assert(
      fc.property(sizes, sizes, (a, b) => {
        const queue = new ModelQueue<string>(1_000);
        for (const tokens of a) enqueue(queue, 'a', { tokens });
        for (const tokens of b) enqueue(queue, 'b', { tokens });
        const got = { a: 0, b: 0 };
        const bound = Math.max(...a) + Math.max(...b);
        for (let i = 0; i < Math.min(a.length, b.length); i++) {
          const ticket = queue.next(0)!;
          got[ticket.arrival.fairnessKey as 'a' | 'b'] += ticket.arrival.tokens;
          expect(Math.abs(got.a - got.b)).toBeLessThanOrEqual(bound);
        }
      }),
    );
  });
});

describe('decideHold', () => {
  const none = { readyEndpoints: 0, replicasOnTheWay: 0, expectedReadyInMs: undefined };
  it.each([
    ['something is ready', { ...none, readyEndpoints: 1 }, { hold: true }],
    [
      'nothing ready, nothing coming',
      none,
      { hold: false, refusal: { refused: 'no_ready_replica', retryAfterSeconds: 60 } },
    ],
    ['one is coming, nobody knows when', { ...none, replicasOnTheWay: 1 }, { hold: true }],
    [
      'one is coming in time',
      { ...none, replicasOnTheWay: 1, expectedReadyInMs: 20_000 },
      { hold: true, expectedReadyInMs: 20_000 },
    ],
    [
      'one is coming too late',
      { ...none, replicasOnTheWay: 1, expectedReadyInMs: 45_000 },
      { hold: false, refusal: { refused: 'no_ready_replica', retryAfterSeconds: 45 } },
    ],
  ])('%s', (_, outlook, expected) => {
    expect(decideHold(outlook, 30_000)).toMatchObject(expected);
  });
});
