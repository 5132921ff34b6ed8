import { describe, expect, it } from 'vitest';
import { systemClock } from '../shared/clock.js';
import { MemoryStore } from '../store/memory-store.js';
import type { StoreOp } from '../store/ports.js';
import { Term } from '../store/term.js';
import { EVENTS_MAX, EventLog, type EventInput } from './event-log.js';

function setUp() {
  const store = new MemoryStore();
  const term = new Term(store);
  return { store, term, log: new EventLog(store, term, systemClock) };
}

const input = (id: string, change: Partial<EventInput> = {}): EventInput => ({
  type: 'Tested',
  subject: { kind: 'node', id },
  reason: { code: 'test', message: id },
  actor: 'test',
  ...change,
});
const decision: StoreOp = { op: 'put', collection: 'replicas', key: 'r1', value: 1 };

describe('the timeline', () => {
  it('stores a decision and its event together, and comes back after a restart with the next number', () => {
    const { store, term, log } = setUp();
    log.append(input('a'));
    log.commit([decision], [input('b')]);
    log.close();
    const again = new EventLog(store, term, systemClock);
    expect(again.list().map((event) => [event.sequence, event.subject.id])).toEqual([
      [1, 'a'],
      [2, 'b'],
    ]);
    expect(again.append(input('c')).sequence).toBe(3);
  });

  it('gives no number twice, though what was told last was never stored', () => {
    const { store, term, log } = setUp();
    const told: number[] = [];
    log.follow(({ sequence }) => told.push(sequence));
    log.append(input('stored'));
    log.commit([]);
    for (let n = 0; n < 400; n += 1) log.append(input('told'));
    // Killed here.
    const again = new EventLog(store, term, systemClock);
    expect(again.append(input('new')).sequence).toBeGreaterThan(Math.max(...told));
    expect(again.list().map((event) => event.subject.id)).toEqual(['stored', 'new']);
    // Many more than were set aside at once, and killed again.
    for (let n = 0; n < 3_000; n += 1) {
      again.append(input('told'));
      if (n % 100 === 0) again.commit([]);
    }
    const last = again.newest;
    expect(new EventLog(store, term, systemClock).append(input('newer')).sequence).toBeGreaterThan(last);
  });

  it('goes on for a follower from where that is, and from its own start for one that comes from another state', () => {
    const { store, term, log } = setUp();
    log.append(input('a'));
    log.append(input('b'));
    log.close();
    const again = new EventLog(store, term, systemClock);
    again.append(input('c'));
    const ids = (after: number) =>
      [...again.since(again.resumeAfter(after))].map(({ subject }) => subject.id);
    expect([ids(0), ids(1), ids(3), ids(77)]).toEqual([['a', 'b', 'c'], ['b', 'c'], [], ['c']]);
  });

  it('tells nothing of a decision that could not be stored, and keeps what happened by itself', () => {
    const { store, log } = setUp();
    const seen: string[] = [];
    log.follow((event) => seen.push(event.subject.id));
    log.append(input('happened'));
    store.failWith('disk_full');
    expect(() => log.commit([decision], [input('decided')])).toThrow(/disk_full/);
    expect(seen).toEqual(['happened']);
    store.failWith(undefined);
    log.commit([decision], [input('decided')]);
    expect(seen).toEqual(['happened', 'decided']);
    expect(store.list('events').map((entry) => entry.key)).toEqual(['000000000001', '000000000002']);
  });

  it('is bounded in memory and on disk, the oldest go', () => {
    const { store, log } = setUp();
    for (let round = 0; round < 3; round++) {
      for (let n = 0; n < EVENTS_MAX * 0.6; n++) log.append(input(`n${n}`));
      log.commit([]);
    }
    expect(log.list()).toHaveLength(EVENTS_MAX);
    expect(store.list('events')).toHaveLength(EVENTS_MAX);
    expect(Number(store.list('events')[0]?.key)).toBe(log.list()[0]?.sequence);
  });

  it('stays bounded while nothing can be stored', () => {
    const { store, log } = setUp();
    store.failWith('io_error');
    for (let n = 0; n < EVENTS_MAX + 100; n++) log.append(input('x'));
    store.failWith(undefined);
    log.commit([]);
    expect(store.list('events')).toHaveLength(EVENTS_MAX);
  });

  it('is filtered by subject, also as a related one, by type, by sequence, and by count from the newest', () => {
    const { log } = setUp();
    log.append(input('n1'));
    log.append(
      input('r1', { subject: { kind: 'replica', id: 'r1' }, related: [{ kind: 'node', id: 'n1' }] }),
    );
    log.append(input('n2', { type: 'Other' }));
    const ids = (filter: Parameters<EventLog['list']>[0]) => log.list(filter).map((event) => event.sequence);
    expect(ids({ kind: 'node', id: 'n1' })).toEqual([1, 2]);
    expect(ids({ id: 'r1' })).toEqual([2]);
    expect(ids({ type: 'Other' })).toEqual([3]);
    expect(ids({ after: 1 })).toEqual([2, 3]);
    expect(ids({ limit: 2 })).toEqual([2, 3]);
    expect(ids({ limit: 0 })).toEqual([]);
  });
});
