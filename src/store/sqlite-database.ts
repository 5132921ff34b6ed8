import Database from 'better-sqlite3';
import { closeSync, openSync } from 'node:fs';
import { migrate, schemaOf, type Migration } from './migrations.js';
import { StoreError } from './ports.js';
import { decodeRow, type Row } from './row-codec.js';
import {
  clearDatabase,
  corrupt,
  makePrivate,
  type StateFiles,
  olderSchemaFile,
  restoreCommand,
} from './state-files.js';

/** "LGW1": says that a SQLite file is ours. */
export const APPLICATION_ID = 0x4c475731;

/** Writes one {@link Row}, named parameters. */
export const PUT_ROW = `
  INSERT INTO records (collection, key, value, checksum) VALUES (@collection, @key, @value, @checksum)
  ON CONFLICT (collection, key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum`;

/**
 * Opens the database for writing, makes the layout on a first start, and checks all of it. One of an older schema is
 * copied aside and brought up to the present one. Throws {@link StoreError}.
 */
export function openDatabase(files: StateFiles, migrations: readonly Migration[]): Database.Database {
  let database: Database.Database | undefined;
  try {
    database = new Database(files.database, { timeout: 1_000 });
    // FULL: a write is on the disk when it is acknowledged; WAL alone would lose the last ones with the power.
    database.pragma('journal_mode = WAL');
    database.pragma('synchronous = FULL');
    database.pragma('journal_size_limit = 16777216');
    checkSchema(database, files, migrations);
    makePrivate(files.database);
    return database;
  } catch (error) {
    database?.close();
    throw storeError(error, files);
  }
}

function checkSchema(database: Database.Database, files: StateFiles, migrations: readonly Migration[]): void {
  const version = schemaOf(database);
  const known = migrations.length;
  if (version > known) {
    throw new StoreError(
      'newer_schema',
      `the state in ${files.dir} was written by a newer llmgw (schema ${version}, this one knows up to ${known}); ` +
        `run the newer version, or restore a backup made before the upgrade: ${restoreCommand(files)}`,
    );
  }
  if (version === 0) {
    const tables = database.prepare('SELECT count(*) AS n FROM sqlite_master').get() as { n: number };
    if (tables.n > 0) throw corrupt(files, 'state.db is a database of something else');
    database.transaction(() => {
      database.pragma(`application_id = ${APPLICATION_ID}`);
      migrate(database, migrations);
    })();
    return;
  }
  checkIntegrity(database, (what) => corrupt(files, what));
  if (version === known) return;
  // Before anything is changed: a damaged record must not be rewritten into one whose checksum is right.
  readRows(database);
  copyAside(database, olderSchemaFile(files, version));
  database.transaction(() => migrate(database, migrations)).immediate();
}

/** The way back from a migration that turns out badly, or to the older program. */
function copyAside(database: Database.Database, file: string): void {
  // One that is there is of an attempt that did not get further.
  clearDatabase(file);
  closeSync(openSync(file, 'wx', 0o600));
  database.prepare('VACUUM INTO ?').run(file);
}

/** Throws `fail(what)` when SQLite or a row's checksum says that the content is not what was written. */
export function checkIntegrity(database: Database.Database, fail: (what: string) => Error): void {
  if (Number(database.pragma('application_id', { simple: true })) !== APPLICATION_ID) {
    throw fail('it is a database of something else');
  }
  const verdict = String(database.pragma('integrity_check(1)', { simple: true }));
  if (verdict !== 'ok') throw fail(verdict);
}

/** Every row with its value; throws `corrupt` on a row whose checksum is wrong. */
export function readRows(database: Database.Database): { readonly row: Row; readonly value: unknown }[] {
  const rows = database.prepare('SELECT collection, key, value, checksum FROM records').all() as Row[];
  return rows.map((row) => ({ row, value: decodeRow(row) }));
}

/** A failure of SQLite in our words. Unknown codes are I/O errors: whatever it was, the write is not to be trusted. */
export function storeError(error: unknown, files: StateFiles): StoreError {
  if (error instanceof StoreError) {
    // A row's checksum knows nothing of directories; the operator needs the recovery command all the same.
    return error.code === 'corrupt' && !error.message.includes(files.dir)
      ? corrupt(files, error.message)
      : error;
  }
  const code = error instanceof Database.SqliteError ? error.code : '';
  if (code.startsWith('SQLITE_CORRUPT') || code === 'SQLITE_NOTADB') {
    return corrupt(files, error instanceof Error ? error.message : 'SQLite refuses it', error);
  }
  if (code === 'SQLITE_FULL') {
    return new StoreError('disk_full', `no space is left for the state in ${files.dir}`, { cause: error });
  }
  if (code.startsWith('SQLITE_BUSY')) {
    return new StoreError('locked', `the database in ${files.dir} is locked by another program`, {
      cause: error,
    });
  }
  return new StoreError('io_error', `the state in ${files.dir} cannot be written or read`, { cause: error });
}
