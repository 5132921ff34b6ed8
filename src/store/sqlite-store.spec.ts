import Database from 'better-sqlite3';
import {
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
  closeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { storeRefusal } from '../../test/support/store-refusal.js';
import { killWriters } from '../../test/crash/kill-writer.js';
import { compileSources } from '../../test/support/compiled.js';
import { systemClock } from '../shared/clock.js';
import { createBackup } from './backup.js';
import { MIGRATIONS, type Migration } from './migrations.js';
import { MemoryStore } from './memory-store.js';
import type { StateStore, StoreOp } from './ports.js';
import { encodeRow } from './row-codec.js';
import { PUT_ROW } from './sqlite-database.js';
import { SqliteStore } from './sqlite-store.js';
import { TERM_KEY } from './tables.js';

let dir: string;
let opened: StateStore[];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'llmgw-store-'));
  opened = [];
});

afterEach(() => {
  for (const store of opened) store.close();
  rmSync(dir, { recursive: true, force: true });
});

function open(stateDir = dir): SqliteStore {
  const store = SqliteStore.open({ stateDir, clock: systemClock });
  opened.push(store);
  return store;
}

const put = (key: string, value: unknown): StoreOp => ({ op: 'put', collection: 'replicas', key, value });
const database = () => join(dir, 'state.db');

describe.each([
  ['sqlite', () => open()],
  ['memory', () => new MemoryStore()],
])('%s store', (_, make) => {
  it('keeps what was written, lists it in key order, and deletes', () => {
    const store = make();
    const term = store.nextTerm();
    store.txn({ term }, [put('b', { n: 2 }), put('a', { n: 1 })]);
    expect(store.list('replicas')).toEqual([
      { key: 'a', value: { n: 1 } },
      { key: 'b', value: { n: 2 } },
    ]);
    store.txn({ term }, [{ op: 'delete', collection: 'replicas', key: 'a' }, put('b', { n: 3 })]);
    expect(store.get('replicas', 'a')).toBeUndefined();
    expect(store.list('replicas')).toEqual([{ key: 'b', value: { n: 3 } }]);
  });

  it('is not changed by what the caller does to its object afterwards', () => {
    const store = make();
    const value = { n: 1 };
    store.txn({ term: store.nextTerm() }, [put('a', value)]);
    value.n = 2;
    expect(store.get('replicas', 'a')).toEqual({ n: 1 });
  });

  it('refuses a writer of an overtaken term, and nothing of its transaction is there', () => {
    const store = make();
    const old = store.nextTerm();
    store.nextTerm();
    expect(storeRefusal(() => store.txn({ term: old }, [put('a', 1)])).code).toBe('stale_term');
    expect(store.get('replicas', 'a')).toBeUndefined();
  });

  it('never hands out a term twice, nor one an agent already obeyed', () => {
    const store = make();
    expect([store.nextTerm(), store.nextTerm(), store.nextTerm(40), store.nextTerm(3)]).toEqual([
      1, 2, 41, 42,
    ]);
  });

  it('applies nothing when one value of a transaction cannot be written', () => {
    const store = make();
    const term = store.nextTerm();
    const circular: { self?: unknown } = {};
    circular.self = circular;
    expect(() => store.txn({ term }, [put('a', 1), put('b', circular)])).toThrow(TypeError);
    expect(store.list('replicas')).toEqual([]);
  });
});

describe('state on disk', () => {
  it('is there after closing and opening again, in files only their owner can read', () => {
    const store = open();
    const term = store.nextTerm();
    store.txn({ term }, [put('a', { text: 'ü' })]);
    store.close();
    const again = open();
    expect(again.get('replicas', 'a')).toEqual({ text: 'ü' });
    expect(again.nextTerm()).toBe(term + 1);
    expect(statSync(database()).mode & 0o077).toBe(0);
  });

  it('is written ahead and synced with every write, also on a connection that was opened anew', () => {
    const store = open();
    const term = store.nextTerm();
    const modes = () => {
      const { connection } = store as unknown as { connection: { database: Database.Database } };
      return ['journal_mode', 'synchronous'].map((name) =>
        connection.database.pragma(name, { simple: true }),
      );
    };
    const FULL = 2;
    expect(modes()).toEqual(['wal', FULL]);
    renameSync(database(), `${database()}.away`);
    storeRefusal(() => store.txn({ term }, [put('a', 1)]));
    renameSync(`${database()}.away`, database());
    store.txn({ term }, [put('a', 1)]);
    expect(modes()).toEqual(['wal', FULL]);
  });

  it('takes no write of a server that was overtaken on the same file, whatever this one remembers', () => {
    const store = open();
    const term = store.nextTerm();
    store.txn({ term }, [put('a', 1)]);
    // The lock keeps a second server of this machine out; a shared disk may not.
    const other = new Database(database());
    other.prepare(PUT_ROW).run(encodeRow('meta', TERM_KEY, term + 1));
    other.close();
    expect(storeRefusal(() => store.txn({ term }, [put('a', 2), put('b', 2)])).code).toBe('stale_term');
    expect(store.list('replicas')).toEqual([{ key: 'a', value: 1 }]);
    // It is no fault of the disk.
    expect(store.health()).toEqual({ ok: true });
    expect(store.nextTerm()).toBe(term + 2);
  });

  it('has one writer; the second is told who holds it', () => {
    open();
    const error = storeRefusal(() => open());
    expect(error.code).toBe('locked');
    expect(error.message).toContain(`process ${process.pid}`);
    expect(error.message).toContain(dir);
  });

  it('does not lose its lock when a backup is made or a second opener fails', async () => {
    open();
    storeRefusal(() => open());
    await createBackup(dir, join(dir, 'b.db'), { madeAt: 'now', build: '1' });
    expect(storeRefusal(() => open()).code).toBe('locked');
  });
});

describe('a damaged state is refused with the command that helps', () => {
  beforeEach(() => {
    const store = open();
    const term = store.nextTerm();
    store.txn(
      { term },
      Array.from({ length: 200 }, (_, index) =>
        put(`r${index}`, { port: 20_000 + index, pad: 'x'.repeat(200) }),
      ),
    );
    store.close();
  });

  const recovery = () => `llmgw ctl backup restore FILE --state-dir ${dir}`;
  const overwrite = (at: number, bytes: Uint8Array) => {
    const file = openSync(database(), 'r+');
    writeSync(file, bytes, 0, bytes.length, at);
    closeSync(file);
  };

  it.each([
    ['missing', () => rmSync(database())],
    ['empty, which SQLite would take for a new one', () => writeFileSync(database(), '')],
    ['cut in half', () => truncateSync(database(), Math.floor(statSync(database()).size / 2))],
    ['without its header', () => overwrite(0, new Uint8Array(100))],
    ['overwritten in a page', () => overwrite(8_192, Buffer.alloc(4_096, 0xa5))],
    [
      'changed by one digit, which SQLite does not notice',
      () => {
        const at = readFileSync(database()).indexOf('"port":20123');
        expect(at).toBeGreaterThan(0);
        overwrite(at + 8, Buffer.from('9'));
      },
    ],
    [
      'somebody else’s database',
      () => {
        rmSync(database());
        const other = new Database(database());
        other.exec('CREATE TABLE x (y)');
        other.close();
      },
    ],
  ])('%s', (_, damage) => {
    damage();
    const error = storeRefusal(() => open());
    expect(error.code).toBe('corrupt');
    expect(error.message).toContain(recovery());
    // A refusal must not hold the lock: the restore needs it.
    expect(storeRefusal(() => open()).code).toBe('corrupt');
  });
});

describe('schemas', () => {
  /** A later layout: collections are called by another name. */
  const NEXT: readonly Migration[] = [
    ...MIGRATIONS,
    {
      what: 'a table of what moved',
      apply: (raw) => raw.exec('CREATE TABLE moved AS SELECT key FROM records'),
    },
  ];
  const openAs = (migrations: readonly Migration[]): SqliteStore => {
    const store = SqliteStore.open({ stateDir: dir, clock: systemClock, migrations });
    opened.push(store);
    return store;
  };
  const raw = <T>(look: (database: Database.Database) => T, file = database()): T => {
    const connection = new Database(file);
    try {
      return look(connection);
    } finally {
      connection.close();
    }
  };
  const schemaIn = (file?: string) => raw((one) => one.pragma('user_version', { simple: true }), file);

  beforeEach(() => {
    const store = open();
    store.txn({ term: store.nextTerm() }, [put('a', { n: 1 })]);
    store.close();
  });

  it('an older one is copied aside and brought up to the present one', () => {
    const store = openAs(NEXT);
    expect(store.get('replicas', 'a')).toEqual({ n: 1 });
    store.close();
    expect(schemaIn()).toBe(MIGRATIONS.length + 1);
    expect(raw((one) => one.prepare('SELECT count(*) AS n FROM moved').get())).toEqual({ n: 2 });
    const aside = join(dir, `state.schema-${MIGRATIONS.length}.db`);
    expect(schemaIn(aside)).toBe(MIGRATIONS.length);
    expect(statSync(aside).mode & 0o077).toBe(0);
    // A second start has nothing left to do.
    expect(openAs(NEXT).get('replicas', 'a')).toEqual({ n: 1 });
  });

  it('a step that fails leaves everything as it was', () => {
    const failing: readonly Migration[] = [
      ...NEXT,
      {
        what: 'a step with a fault',
        apply: () => {
          throw new Error('no such thing');
        },
      },
    ];
    expect(storeRefusal(() => openAs(failing)).code).toBe('io_error');
    expect(schemaIn()).toBe(MIGRATIONS.length);
    expect(
      raw((one) => one.prepare("SELECT count(*) AS n FROM sqlite_master WHERE name = 'moved'").get()),
    ).toEqual({ n: 0 });
    expect(open().get('replicas', 'a')).toEqual({ n: 1 });
  });

  it('a damaged record is refused, not migrated', () => {
    raw((one) => one.exec(`UPDATE records SET value = '{"n":2}' WHERE key = 'a'`));
    expect(storeRefusal(() => openAs(NEXT)).code).toBe('corrupt');
    expect(schemaIn()).toBe(MIGRATIONS.length);
  });

  it('a newer one is refused and left as it is', () => {
    openAs(NEXT).close();
    const before = readFileSync(database());
    const error = storeRefusal(() => open());
    expect(error.code).toBe('newer_schema');
    expect(error.message).toBe(
      `the state in ${dir} was written by a newer llmgw (schema ${MIGRATIONS.length + 1}, this one knows up to ` +
        `${MIGRATIONS.length}); run the newer version, or restore a backup made before the upgrade: ` +
        `llmgw ctl backup restore FILE --state-dir ${dir}`,
    );
    expect(readFileSync(database()).equals(before)).toBe(true);
  });
});

describe('writing that fails', () => {
  it('is refused while the disk is full, reading goes on, and works again without a restart', () => {
    const store = open();
    const term = store.nextTerm();
    store.txn({ term }, [put('a', 1)]);
    // The same error from SQLite as a full disk, without needing a small file system.
    const raw = (store as unknown as { connection: { database: Database.Database } }).connection.database;
    raw.pragma(`max_page_count = ${String(raw.pragma('page_count', { simple: true }))}`);
    const large = put('b', 'x'.repeat(100_000));
    expect(storeRefusal(() => store.txn({ term }, [large])).code).toBe('disk_full');
    expect(store.get('replicas', 'a')).toBe(1);
    expect(store.get('replicas', 'b')).toBeUndefined();
    expect(store.health()).toEqual({ ok: true });
    expect(storeRefusal(() => store.txn({ term }, [large])).code).toBe('disk_full');
    raw.pragma('max_page_count = 1000000');
    store.txn({ term }, [large]);
    expect(store.health()).toEqual({ ok: true });
  });

  it('notices that the database was deleted under it: such writes would go nowhere', () => {
    const store = open();
    const term = store.nextTerm();
    store.txn({ term }, [put('a', 1)]);
    rmSync(database());
    const error = storeRefusal(() => store.txn({ term }, [put('b', 1)]));
    expect(error.code).toBe('io_error');
    expect(store.health().reason).toMatch(/missing/);
    expect(store.get('replicas', 'a')).toBe(1);
  });

  it('goes on by itself once the database is back, with what is in it', () => {
    const store = open();
    const term = store.nextTerm();
    store.txn({ term }, [put('a', 1)]);
    renameSync(database(), `${database()}.away`);
    expect(storeRefusal(() => store.txn({ term }, [put('b', 1)])).code).toBe('io_error');
    renameSync(`${database()}.away`, database());
    expect(store.health()).toEqual({ ok: true });
    store.txn({ term }, [put('c', 1)]);
    expect(store.list('replicas').map(({ key }) => key)).toEqual(['a', 'c']);
  });

  it('after closing says so', () => {
    const store = open();
    store.close();
    expect(storeRefusal(() => store.txn({ term: 9 }, [put('a', 1)])).code).toBe('closed');
  });
});

describe('SIGKILL', () => {
  // A few in every test run; the thousand are `npm run crash`.
  it(
    'loses no write that was acknowledged, and the lock goes with the process',
    { timeout: 60_000 },
    async () => {
      const compiled = compileSources(['src/store', 'src/shared', 'test/crash']);
      try {
        const entry = compiled.path('test/crash/main.js');
        const result = await killWriters({ entry, stateDir: dir, kills: 8, seed: 7 });
        expect(result).toMatchObject({ kills: 8 });
        expect(result.fault).toBeUndefined();
        expect(result.acknowledged).toBeGreaterThan(8);
      } finally {
        compiled.remove();
      }
    },
  );
});
