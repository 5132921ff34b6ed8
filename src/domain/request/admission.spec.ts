import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ModelQueue, SERVED_LATE_MAX_MS, decideHold } from './admission.js';
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

describe('those that cannot go now', () => {
  const none = () => false;
  const not = (names: string) => (payload: string) => !names.includes(payload);

  it('are passed over, within their own line too, and keep their places', () => {
    const queue = new ModelQueue<string>(20);
    for (const payload of 'abc') enqueue(queue, 'A', { payload });
    for (const payload of 'xy') enqueue(queue, 'b', { payload });
    expect(queue.next(0, none)).toBeUndefined();
    expect(queue.depth).toBe(5);
    expect(queue.next(0, not('axy'))?.arrival.payload).toBe('b');
    // What b's request took of A's share does not put a behind for good.
    expect(order(queue)).toBe('xayc');
  });

  it('of a higher priority do not hold up a lower one', () => {
    const queue = new ModelQueue<string>(20);
    enqueue(queue, 'A', { payload: 'h', priority: 200 });
    enqueue(queue, 'A', { payload: 'l' });
    expect(queue.next(0, not('h'))?.arrival.payload).toBe('l');
    expect(order(queue)).toBe('h');
  });

  it('are looked at so often and not more: a release costs the same however many wait', () => {
    const queue = new ModelQueue<string>(10_000);
    for (let i = 0; i < 5_000; i++) enqueue(queue, `k${i % 50}`, { deadlineMs: 10 });
    let looked = 0;
    const look = () => {
      looked += 1;
      return false;
    };
    queue.next(0, look);
    expect(looked).toBeGreaterThan(10);
    expect(looked).toBeLessThan(200);
    expect(queue.depth).toBe(5_000);
    expect(queue.expire(10)).toHaveLength(5_000);
  });
});

describe('leaving', () => {
  /** Requests of clients long gone were still sent to the engine; work for nobody grew the queue. */
  it('a client that left is never served, wherever it stood', () => {
    const queue = new ModelQueue<string>(10);
    const tickets = ['a', 'b', 'c', 'd', 'e'].map((payload) => enqueue(queue, 'k', { payload }));
    for (const at of [0, 2, 4]) expect(queue.leave(tickets[at]!, 0)).toBe(true);
    expect(queue.leave(tickets[0]!, 0)).toBe(false);
    expect(queue.depth).toBe(2);
    expect(order(queue)).toBe('bd');
    expect(queue.leave(tickets[1]!, 0)).toBe(false);
  });

  it('deadlines end the wait, in whatever order they come, and are not served long after', () => {
    const queue = new ModelQueue<string>(10);
    enqueue(queue, 'k', { payload: 'a', deadlineMs: 300 });
    enqueue(queue, 'k', { payload: 'b', deadlineMs: 100 });
    enqueue(queue, 'k', { payload: 'c' });
    expect(queue.nextDeadlineMs).toBe(100);
    expect(queue.expire(99)).toEqual([]);
    expect(queue.expire(100).map((t) => t.arrival.payload)).toEqual(['b']);
    const lateMs = 300 + SERVED_LATE_MAX_MS;
    expect(queue.next(lateMs)?.arrival.payload).toBe('c');
    expect(queue.depth).toBe(0);
    expect(queue.nextDeadlineMs).toBe(300);
    expect(queue.expire(lateMs).map((t) => [t.arrival.payload, t.state])).toEqual([['a', 'timed_out']]);
    expect(queue.nextDeadlineMs).toBeUndefined();
  });

  // Room that came in time was given to nobody, since whoever looked at the clock was late.
  it('one that was not told yet that it is too late is served', () => {
    const queue = new ModelQueue<string>(10);
    enqueue(queue, 'k', { payload: 'a', deadlineMs: 300 });
    expect(queue.next(299 + SERVED_LATE_MAX_MS)?.arrival.payload).toBe('a');
    expect(queue.expire(2_000)).toEqual([]);
  });

  it('clear hands out everybody', () => {
    const queue = new ModelQueue<string>(10);
    for (const key of 'abc') enqueue(queue, key, { deadlineMs: 5 });
    expect(queue.clear(0)).toHaveLength(3);
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
    for (let i = 1; i <= 20; i++) queue.departed(i * 2_000);
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

  // By tokens the flood was the shorter line, and a key with long prompts was refused for as long as it lasted.
  it('a flood of tiny requests gives way to one large one, and not the other way round', () => {
    const queue = new ModelQueue<string>(20);
    for (let i = 0; i < 20; i++) enqueue(queue, 'A', { tokens: 1 });
    expect(queue.enqueue(arrival('B', { tokens: 50_000 }), 0).ticket).toBeDefined();
    const few = new ModelQueue<string>(20);
    for (let i = 0; i < 2; i++) enqueue(few, 'B', { tokens: 50_000 });
    const flood = Array.from({ length: 18 }, () => enqueue(few, 'A', { tokens: 1 }));
    expect(few.enqueue(arrival('c', { tokens: 1 }), 0).ticket).toBeDefined();
    expect(flood.at(-1)?.state).toBe('displaced');
  });

  it('higher priority displaces lower, never the other way round', () => {
    const queue = new ModelQueue<string>(2);
    const low = [enqueue(queue, 'A', { priority: 1 }), enqueue(queue, 'A', { priority: 1 })];
    expect(queue.enqueue(arrival('A', { priority: 2 }), 0).ticket).toBeDefined();
    expect(low[1]!.state).toBe('displaced');
    expect(queue.enqueue(arrival('b', { priority: 0 }), 0).ticket).toBeUndefined();
  });
});

describe('a request that would wait in vain', () => {
  /** Two departures a second for half a minute, while `waiting` wait. */
  function draining(waiting: Partial<Arrival<string>>[]) {
    const queue = new ModelQueue<string>(1_000);
    for (const one of waiting) enqueue(queue, one.fairnessKey ?? 'A', one);
    for (let i = 1; i <= 60; i++) queue.departed(i * 500);
    return queue;
  }
  const many = (n: number, one: Partial<Arrival<string>> = {}) => Array.from({ length: n }, () => one);
  const ask = (queue: ModelQueue<string>, changes: Partial<Arrival<string>>, waitMs = 10_000) =>
    queue.enqueue(arrival('A', { deadlineMs: 30_000 + waitMs, ...changes }), 30_000);

  it('is refused at once, with the wait that would help', () => {
    expect(ask(draining(many(40)), {})).toMatchObject({
      refusal: { refused: 'queue_timeout', retryAfterSeconds: 21 },
    });
    expect(ask(draining(many(15)), {}).ticket).toBeDefined();
    expect(ask(draining(many(40)), {}, 60_000).ticket).toBeDefined();
    expect(ask(draining(many(40)), { deadlineMs: undefined }).ticket).toBeDefined();
  });

  it('is judged by who really goes first: higher priorities, the own line, of others as much as their share', () => {
    expect(ask(draining(many(40)), { fairnessKey: 'b' }).ticket).toBeDefined();
    expect(ask(draining(many(40, { priority: 1 })), {}).ticket).toBeDefined();
    expect(ask(draining(many(40, { priority: 200 })), {}).ticket).toBeUndefined();
    const keys = Array.from({ length: 40 }, (_, i) => ({ fairnessKey: `k${i}` }));
    expect(ask(draining(keys), { fairnessKey: 'b' }).ticket).toBeUndefined();
  });

  it('is not while nothing certain is known: too few departures, other endpoints, nobody else waiting', () => {
    const queue = new ModelQueue<string>(1_000);
    for (let i = 0; i < 40; i++) enqueue(queue, 'A');
    for (let i = 1; i <= 5; i++) queue.departed(i * 6_000);
    expect(ask(queue, {}).ticket).toBeDefined();
    const changed = draining(many(40));
    changed.forgetRate(30_000);
    expect(ask(changed, {}).ticket).toBeDefined();
    const stalled = draining(many(1));
    expect(stalled.next(30_000)).toBeDefined();
    const late = arrival('A', { deadlineMs: 10_000_010 });
    expect(stalled.enqueue(late, 10_000_000).ticket).toBeDefined();
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
            const ticket = queue.next(nowMs, (payload) => (payload + pick) % 3 > 0);
            end(ticket);
            if (ticket?.arrival.deadlineMs !== undefined) {
              expect(ticket.arrival.deadlineMs + SERVED_LATE_MAX_MS).toBeGreaterThan(nowMs);
            }
          } else if (what === 'leave') {
            const ticket = tickets[pick % Math.max(1, tickets.length)];
            if (ticket !== undefined && queue.leave(ticket, 0)) end(ticket);
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
