/** The process that is killed: writes numbered changes as the admin API does, and says each number once it is acknowledged. */
import { writeSync } from 'node:fs';
import { systemClock } from '../../src/shared/clock.js';
import type { StateStore, StoreOp } from '../../src/store/ports.js';
import { SqliteStore } from '../../src/store/sqlite-store.js';

/** Changes kept, as the audit trail keeps its latest: the state stays small however long this goes on. */
export const KEPT = 200;

/** What one change consists of: the change itself, its record and its event, all or none. */
const COLLECTIONS = ['scales', 'audit', 'events'] as const;

const keyOf = (n: number): string => String(n).padStart(9, '0');

/** Opens the store in `stateDir` and writes until it is killed. Each acknowledged number goes to standard output, a line each. */
export function writeUntilKilled(stateDir: string): never {
  const store = SqliteStore.open({ stateDir, clock: systemClock });
  const term = store.nextTerm();
  for (let n = lastOf(store) + 1; ; n += 1) {
    store.txn({ term }, [...changeOps(n), ...(n >= KEPT ? removalOps(n - KEPT) : [])]);
    writeSync(1, `${n}\n`);
  }
}

function changeOps(n: number): StoreOp[] {
  // Sizes differ, so that some changes fit into a page and some do not.
  const pad = 'x'.repeat((n * 37) % 6_000);
  return COLLECTIONS.map((collection) => ({ op: 'put', collection, key: keyOf(n), value: { n, pad } }));
}

function removalOps(n: number): StoreOp[] {
  return COLLECTIONS.map((collection) => ({ op: 'delete', collection, key: keyOf(n) }));
}

/** The latest number in the store, -1 when there is none. */
function lastOf(store: StateStore): number {
  return Number(store.list('scales').at(-1)?.key ?? -1);
}

/**
 * Opens the store as the next server would and says what is wrong with it: a number at or below `acknowledged` that is
 * missing, a gap, half of a change. Gives the latest number.
 */
export function inspect(
  stateDir: string,
  acknowledged: number,
): { readonly last: number; readonly fault?: string } {
  const store = SqliteStore.open({ stateDir, clock: systemClock });
  try {
    const last = lastOf(store);
    if (last < acknowledged)
      return { last, fault: `${acknowledged} was acknowledged, ${last} is the last there` };
    for (const collection of COLLECTIONS) {
      const found = store.list<{ n: number }>(collection).map(({ value }) => value.n);
      const first = Math.max(0, last - KEPT + 1);
      const expected = Array.from({ length: last - first + 1 }, (_, index) => first + index);
      if (found.length !== expected.length || found.some((n, index) => n !== expected[index]))
        return {
          last,
          fault: `${collection} holds ${found.length} changes up to ${found.at(-1)}, not ${first} to ${last}`,
        };
    }
    return { last };
  } finally {
    store.close();
  }
}
