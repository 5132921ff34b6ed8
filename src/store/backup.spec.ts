import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../shared/clock.js';
import { createBackup, fillBackup, verifyBackup } from './backup.js';
import { openStateCopy } from './online-backup.js';
import type { StoreOp } from './ports.js';
import { restoreBackup, RESTORE_TERM_MARGIN } from './restore.js';
import { SqliteStore } from './sqlite-store.js';
import { STATE_LOST_KEY } from './tables.js';

const STAMP = { madeAt: '2030-01-01T00:00:00.000Z', build: '1.2.3' };
const NOW = { nowText: '2030-01-02T00:00:00.000Z' };

let dir: string;
let state: string;
let file: string;
let opened: SqliteStore[];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'llmgw-backup-'));
  state = join(dir, 'state');
  file = join(dir, 'backup.db');
  opened = [];
});

afterEach(() => {
  for (const store of opened) store.close();
  rmSync(dir, { recursive: true, force: true });
});

function open(stateDir = state): SqliteStore {
  const store = SqliteStore.open({ stateDir, clock: systemClock });
  opened.push(store);
  return store;
}

const put = (key: string, value: unknown): StoreOp => ({ op: 'put', collection: 'replicas', key, value });
/** What fills a backup with these bytes and tells their digest, or claims another. */
const filledWith = (bytes: Buffer | string, digest?: string) => async (partial: string) => {
  writeFileSync(partial, bytes);
  return digest;
};
const keys = (store: SqliteStore) => store.list('replicas').map((entry) => entry.key);

describe('a backup', () => {
  it('is made while the store is open, says what is in it, and is restored', async () => {
    const store = open();
    const term = store.nextTerm();
    store.txn({ term }, [put('a', 1), put('b', 2)]);
    const summary = await createBackup(state, file, STAMP);
    expect(summary).toMatchObject({ ...STAMP, term, schema: 1, records: { replicas: 2 } });
    store.txn({ term }, [put('c', 3)]);
    expect(verifyBackup(file)).toEqual(summary);
    const target = join(dir, 'restored');
    expect(restoreBackup(file, target, NOW)).not.toHaveProperty('movedAside');
    expect(keys(open(target))).toEqual(['a', 'b']);
  });

  it('is one file and its checksum, readable by their owner only', async () => {
    open().nextTerm();
    await createBackup(state, file, STAMP);
    expect(readdirSync(dir).toSorted()).toEqual(['backup.db', 'backup.db.sha256', 'state']);
    expect(statSync(file).mode & 0o077).toBe(0);
    expect(readFileSync(`${file}.sha256`, 'utf8')).toMatch(/^[0-9a-f]{64} {2}backup\.db\n$/);
  });

  it('copied from a running store is the same, and leaves nothing in its directory', async () => {
    const store = open();
    const term = store.nextTerm();
    const large = 'x'.repeat(3_000_000);
    store.txn({ term }, [put('a', large)]);
    const before = readdirSync(state).toSorted();
    const copy = await openStateCopy(state, STAMP);
    store.txn({ term }, [put('b', 2)]);
    const chunks: Buffer[] = [];
    for await (const chunk of copy.stream) chunks.push(chunk as Buffer);
    const bytes = Buffer.concat(chunks);
    expect(bytes.length).toBe(copy.bytes);
    const summary = await fillBackup(file, filledWith(bytes));
    const changed = fillBackup(join(dir, 'other.db'), filledWith(bytes, '00'));
    await expect(changed).rejects.toThrow(/damaged on its way/);
    expect(Buffer.from(summary.sha256, 'hex').toString('base64')).toBe(copy.sha256);
    expect(summary).toMatchObject({ ...STAMP, term, records: { replicas: 1 } });
    expect(readdirSync(state).toSorted()).toEqual(before);
  });

  it('holds nothing of what was deleted before it was made', async () => {
    const store = open();
    const term = store.nextTerm();
    store.txn({ term }, [put('a', 'a-hash-that-was-revoked')]);
    store.txn({ term }, [{ op: 'delete', collection: 'replicas', key: 'a' }]);
    await createBackup(state, file, STAMP);
    expect(readFileSync(file).includes('a-hash-that-was-revoked')).toBe(false);
  });

  it('is refused when a byte changed, with and without its checksum file', async () => {
    const store = open();
    store.txn({ term: store.nextTerm() }, [put('a', { port: 20_123 })]);
    await createBackup(state, file, STAMP);
    const bytes = readFileSync(file);
    bytes[bytes.indexOf('20123')] = 0x39;
    writeFileSync(file, bytes);
    expect(() => verifyBackup(file)).toThrow(/does not match its \.sha256/);
    rmSync(`${file}.sha256`);
    expect(() => verifyBackup(file)).toThrow(/does not match its checksum/);
    expect(() => restoreBackup(file, join(dir, 'r'), NOW)).toThrow(/damaged/);
    expect(existsSync(join(dir, 'r'))).toBe(false);
  });

  it('never overwrites one that is there, and a failed one leaves nothing', async () => {
    open().nextTerm();
    writeFileSync(file, 'mine');
    await expect(createBackup(state, file, STAMP)).rejects.toThrow(/never overwrites/);
    expect(readFileSync(file, 'utf8')).toBe('mine');
    const other = join(dir, 'other.db');
    await expect(fillBackup(other, filledWith('half'))).rejects.toThrow(/damaged/);
    expect(readdirSync(dir).filter((name) => name.startsWith('other'))).toEqual([]);
  });

  it('is not the file of a state directory, whose last writes lie beside it', () => {
    const store = open();
    store.nextTerm();
    expect(() => verifyBackup(join(state, 'state.db'))).toThrow(/no backup/);
  });
});

describe('a restore', () => {
  it('replaces a damaged state, which is moved aside, but a sound one only when told to', async () => {
    const store = open();
    store.txn({ term: store.nextTerm() }, [put('a', 1)]);
    await createBackup(state, file, STAMP);
    expect(() => restoreBackup(file, state, NOW)).toThrow(/another server uses/);
    store.txn({ term: store.nextTerm() }, [put('b', 1)]);
    store.close();
    expect(() => restoreBackup(file, state, NOW)).toThrow(/holds a sound state/);
    const replaced = restoreBackup(file, state, { ...NOW, replace: true });
    expect(existsSync(join(replaced.movedAside ?? '', 'state.db'))).toBe(true);
    expect(keys(open(replaced.movedAside ?? ''))).toEqual(['a', 'b']);
    truncateSync(join(state, 'state.db'), 5_000);
    const result = restoreBackup(file, state, NOW);
    expect(result.movedAside).not.toBe(replaced.movedAside);
    expect(keys(open())).toEqual(['a']);
  });

  it('raises the term above every one that was taken, also after the backup', async () => {
    const store = open();
    const before = store.nextTerm();
    await createBackup(state, file, STAMP);
    const after = store.nextTerm(before + 40);
    store.close();
    const result = restoreBackup(file, state, { ...NOW, replace: true });
    expect(result.raisedTerm).toBe(after + RESTORE_TERM_MARGIN);
    expect(open().nextTerm()).toBe(result.raisedTerm + 1);
  });

  it('takes back what would be believed without asking: that replicas are Ready', async () => {
    const store = open();
    const record = { id: 'a', generation: 3, startedWallMs: 5 };
    store.txn({ term: store.nextTerm() }, [put('a', { ...record, readyWallMs: 7 })]);
    store.close();
    await createBackup(state, file, STAMP);
    const target = join(dir, 'restored');
    restoreBackup(file, target, NOW);
    const restored = open(target);
    expect(restored.get('replicas', 'a')).toEqual(record);
    // And says to whoever starts on it that the agents know more.
    expect(restored.get('meta', STATE_LOST_KEY)).toBe('restored');
  });
});
