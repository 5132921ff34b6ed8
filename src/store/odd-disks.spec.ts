/** What disks and kills leave behind: torn logs, journals of programs that were killed, no space, no permission to write. */
import Database from 'better-sqlite3';
import { spawnSync } from 'node:child_process';
import {
  closeSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { storeRefusal } from '../../test/support/store-refusal.js';
import { systemClock } from '../shared/clock.js';
import { seededRandom } from '../shared/random.js';
import { createBackup, verifyBackup } from './backup.js';
import { openStateCopy } from './online-backup.js';
import type { StateStore, StoreOp } from './ports.js';
import { restoreBackup } from './restore.js';
import { SqliteStore } from './sqlite-store.js';

const STAMP = { madeAt: '2030-01-01T00:00:00.000Z', build: '1.2.3' };

let dir: string;
let opened: StateStore[];
let mounts: string[];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'llmgw-disks-'));
  opened = [];
  mounts = [];
});
afterEach(() => {
  for (const store of opened) store.close();
  for (const mount of mounts) spawnSync('umount', ['-l', mount]);
  rmSync(dir, { recursive: true, force: true });
});

function open(stateDir: string): SqliteStore {
  const store = SqliteStore.open({ stateDir, clock: systemClock });
  opened.push(store);
  return store;
}

const put = (key: string, value: unknown): StoreOp => ({ op: 'put', collection: 'replicas', key, value });

describe('a write-ahead log', () => {
  /** A state whose writes all lie in the log still, as SIGKILL leaves it; each of them wrote two records. */
  function killed(): { readonly database: string; readonly log: string } {
    const state = join(dir, 'running');
    const store = open(state);
    const term = store.nextTerm();
    for (let n = 0; n < 40; n += 1) {
      const key = String(n).padStart(2, '0');
      store.txn({ term }, [put(`a${key}`, { n, pad: 'x'.repeat(300) }), put(`b${key}`, { n })]);
    }
    const at = (name: string): string => join(dir, name);
    copyFileSync(join(state, 'state.db'), at('killed.db'));
    copyFileSync(join(state, 'state.db-wal'), at('killed.db-wal'));
    copyFileSync(join(state, 'state.initialised'), at('killed.initialised'));
    return { database: at('killed.db'), log: at('killed.db-wal') };
  }

  let cases = 0;
  /** What a server finds that is started on it, with the log changed; undefined when it refuses with what to do. */
  function found(
    from: ReturnType<typeof killed>,
    spoil: (log: string) => void,
  ): readonly string[] | undefined {
    const state = join(dir, `case-${++cases}`);
    mkdirSync(state);
    copyFileSync(from.database, join(state, 'state.db'));
    copyFileSync(from.log, join(state, 'state.db-wal'));
    copyFileSync(join(dir, 'killed.initialised'), join(state, 'state.initialised'));
    spoil(join(state, 'state.db-wal'));
    try {
      const store = open(state);
      const keys = store.list('replicas').map(({ key }) => key);
      store.close();
      return keys;
    } catch (error) {
      expect(error).toMatchObject({
        code: 'corrupt',
        message: expect.stringContaining('ctl backup restore') as string,
      });
      return undefined;
    }
  }

  /** Both records of each write or none, and no write without those before it. */
  function isPrefix(keys: readonly string[]): boolean {
    const count = keys.length / 2;
    const wanted = ['a', 'b'].flatMap((letter) =>
      Array.from({ length: count }, (_, n) => `${letter}${String(n).padStart(2, '0')}`),
    );
    return Number.isInteger(count) && keys.join() === wanted.join();
  }

  it('that is whole is all there, and one that was torn anywhere is whole writes up to there', () => {
    const from = killed();
    expect(found(from, () => undefined)).toHaveLength(80);
    const bytes = statSync(from.log).size;
    const random = seededRandom(5);
    const counts = new Set<number>();
    for (let round = 0; round < 40; round += 1) {
      const keys = found(from, (log) => truncateSync(log, Math.floor(random() * bytes)));
      if (keys === undefined) continue;
      expect(isPrefix(keys)).toBe(true);
      counts.add(keys.length);
    }
    expect(counts.size).toBeGreaterThan(10);
  });

  it('with bytes of something else in it is taken up to there, or refused with what to do; never believed', () => {
    const from = killed();
    const bytes = statSync(from.log).size;
    const random = seededRandom(6);
    for (let round = 0; round < 40; round += 1) {
      const keys = found(from, (log) => {
        const handle = openSync(log, 'r+');
        writeSync(handle, Buffer.alloc(64, 0xa5), 0, 64, Math.floor(random() * (bytes - 64)));
        closeSync(handle);
      });
      expect(keys === undefined || isPrefix(keys)).toBe(true);
    }
  });
});

describe('the journal of a program that was killed while it wrote a copy', () => {
  /** Of a database whose every page was being changed: rolled back into another, it replaces that one's content. */
  function hotJournal(): Buffer {
    const path = join(dir, 'other.db');
    const other = new Database(path);
    other.pragma('cache_size = 2');
    other.exec('CREATE TABLE t (v TEXT)');
    const insert = other.prepare('INSERT INTO t VALUES (?)');
    for (let row = 0; row < 200; row += 1) insert.run('x'.repeat(1_000));
    other.exec(`BEGIN; UPDATE t SET v = '${'y'.repeat(1_000)}'`);
    const journal = readFileSync(`${path}-journal`);
    other.exec('ROLLBACK');
    other.close();
    // What SQLite takes for a journal that must be rolled back.
    expect(journal.subarray(0, 4).toString('hex')).toBe('d9d505f9');
    return journal;
  }

  it('is no part of the next backup, by file or from a running server, nor of a restore', async () => {
    const journal = hotJournal();
    const state = join(dir, 'state');
    const store = open(state);
    const rows = Array.from({ length: 300 }, (_, n) => put(`r${n}`, { n, pad: 'z'.repeat(500) }));
    store.txn({ term: store.nextTerm() }, rows);

    const file = join(dir, 'backup.db');
    writeFileSync(`${file}.partial-journal`, journal);
    expect((await createBackup(state, file, STAMP)).records).toEqual({ replicas: 300 });

    writeFileSync(join(state, 'state.db.backup-journal'), journal);
    const copy = await openStateCopy(state, STAMP);
    const pieces: Buffer[] = [];
    for await (const piece of copy.stream) pieces.push(piece as Buffer);
    const fetched = join(dir, 'fetched.db');
    writeFileSync(fetched, Buffer.concat(pieces));
    expect(verifyBackup(fetched).records).toEqual({ replicas: 300 });
    store.close();

    writeFileSync(join(state, 'state.db.restoring-journal'), journal);
    restoreBackup(file, state, { nowText: '2030-01-02T00:00:00.000Z', replace: true });
    expect(open(state).list('replicas')).toHaveLength(300);
  });
});

const isRoot = process.getuid?.() === 0;
const tmpfs = (at: string, options: string): boolean => {
  mkdirSync(at, { recursive: true });
  const done = spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', at]).status === 0;
  if (done) mounts.push(at);
  return done;
};

describe('a start', () => {
  it('where nothing may be written says so, and holds nothing', (context) => {
    const state = join(dir, 'state');
    if (!isRoot || !tmpfs(state, 'size=4m')) return context.skip();
    open(state).close();
    spawnSync('mount', ['-o', 'remount,ro', state]);
    const error = storeRefusal(() => open(state));
    expect(error).toMatchObject({
      code: 'io_error',
      message: `the state directory ${state} cannot be written`,
    });
    expect(String(error.cause)).toContain('EROFS');
    spawnSync('mount', ['-o', 'remount,rw', state]);
    expect(open(state).health()).toEqual({ ok: true });
  });

  it('on a full disk says so, whatever was there, holds nothing, and works when there is room', (context) => {
    const state = join(dir, 'state');
    if (!isRoot || !tmpfs(state, 'size=512k')) return context.skip();
    const full = (): void => {
      const handle = openSync(join(state, 'filler'), 'a');
      try {
        for (const size of [4_096, 1])
          for (let written = size; written === size;) written = writeSync(handle, Buffer.alloc(size));
      } catch (error) {
        expect(error).toMatchObject({ code: 'ENOSPC' });
      } finally {
        closeSync(handle);
      }
    };
    full();
    expect(storeRefusal(() => open(state)).code).toBe('disk_full');
    rmSync(join(state, 'filler'));
    const store = open(state);
    store.txn({ term: store.nextTerm() }, [put('a', { n: 1 })]);
    store.close();
    full();
    expect(storeRefusal(() => open(state).nextTerm())).toMatchObject({
      code: 'disk_full',
      message: `no space is left for the state in ${state}`,
    });
    for (const one of opened) one.close();
    rmSync(join(state, 'filler'));
    expect(open(state).get('replicas', 'a')).toEqual({ n: 1 });
  });
});
