import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../shared/clock.js';
import { LateStore } from './late-store.js';
import type { StoreOp } from './ports.js';
import { SqliteStore } from './sqlite-store.js';
import { Term } from './term.js';

const cleanups: (() => void)[] = [];
afterEach(() => cleanups.splice(0).forEach((cleanup) => cleanup()));

function setUp() {
  const dir = mkdtempSync(join(tmpdir(), 'llmgw-late-'));
  cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
  const stateDir = join(dir, 'state');
  const open = () => SqliteStore.open({ stateDir, clock: systemClock });
  const store = new LateStore(open);
  cleanups.push(() => store.close());
  return { store, stateDir, open, guard: { term: new Term(store).current() } };
}

const put = (collection: 'events' | 'keys', key: string): StoreOp => ({
  op: 'put',
  collection,
  key,
  value: key,
});

describe('a store that may never be needed', () => {
  it('leaves no file behind until a key is stored; then everything it held is on disk', () => {
    const { store, stateDir, open, guard } = setUp();
    store.txn(guard, [put('events', 'e1')]);
    expect(existsSync(stateDir)).toBe(false);
    expect(store.stateDir).toBeUndefined();
    store.txn(guard, [put('keys', 'k1'), put('events', 'e2')]);
    expect(store.stateDir).toBe(stateDir);
    store.txn(guard, [put('events', 'e3')]);
    store.close();
    const again = open();
    cleanups.push(() => again.close());
    expect(again.list('events').map(({ key }) => key)).toEqual(['e1', 'e2', 'e3']);
    expect(again.get('keys', 'k1')).toBe('k1');
    expect(again.nextTerm()).toBe(guard.term + 1);
  });

  it('refuses where another server is or was meanwhile, and goes on in memory', () => {
    const { store, open, guard } = setUp();
    const other = open();
    cleanups.push(() => other.close());
    const locked = /another server/;
    expect(() => store.txn(guard, [put('keys', 'k1')])).toThrow(locked);
    new Term(other);
    other.close();
    expect(() => store.txn(guard, [put('keys', 'k1')])).toThrow(locked);
    expect(store.list('keys')).toEqual([]);
    store.txn(guard, [put('events', 'e1')]);
    expect(store.get('events', 'e1')).toBe('e1');
  });
});
