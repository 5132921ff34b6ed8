import Database from 'better-sqlite3';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  closeSync,
  fsyncSync,
  readdirSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { OperatorError } from '../shared/errors.js';
import type { Collection } from './ports.js';
import { checkIntegrity, readRows, SCHEMA_VERSION } from './sqlite-database.js';
import {
  databaseFiles,
  makePrivate,
  makeStateDir,
  stateFiles,
  syncDir,
  writeDurably,
  writeMarker,
} from './state-files.js';
import { StateLock } from './state-lock.js';
import { TERM_KEY } from './tables.js';

/** What a backup holds. */
export interface BackupSummary {
  readonly file: string;
  readonly schema: number;
  readonly term: number;
  readonly records: Partial<Record<Collection, number>>;
  readonly sha256: string;
}

/**
 * Copies the state into one file with its checksum in `FILE.sha256` (the form `sha256sum -c` reads). The server may be
 * running: SQLite gives the copy one consistent moment. Throws {@link OperatorError}.
 */
export function createBackup(stateDir: string, file: string): BackupSummary {
  const files = stateFiles(stateDir);
  if (!existsSync(files.database)) {
    throw new OperatorError('not_found', `there is no state in ${stateDir}`, { field: 'state-dir' });
  }
  if (existsSync(file)) {
    throw new OperatorError('conflict', `${file} exists; a backup never overwrites one`, { field: 'file' });
  }
  const temporary = `${file}.partial`;
  rmSync(temporary, { force: true });
  const source = new Database(files.database, { readonly: true, fileMustExist: true });
  try {
    source.prepare('VACUUM INTO ?').run(temporary);
  } finally {
    source.close();
  }
  makePrivate(temporary);
  syncFile(temporary);
  const sha256 = fileSha256(temporary);
  writeDurably(checksumFile(file), `${sha256}  ${basename(file)}\n`);
  renameSync(temporary, file);
  syncDir(dirname(file));
  return verifyBackup(file);
}

/** Checks a backup as a restore would: checksum, SQLite's own check, every row. Throws {@link OperatorError}. */
export function verifyBackup(file: string): BackupSummary {
  if (!existsSync(file))
    throw new OperatorError('not_found', `there is no backup ${file}`, { field: 'file' });
  const sha256 = fileSha256(file);
  const expected = readChecksum(file);
  if (expected !== undefined && expected !== sha256) {
    throw damaged(file, 'its content does not match its .sha256');
  }
  // Immutable: SQLite must not leave -wal and -shm files beside somebody's backup.
  const database = openReadOnly(file);
  try {
    const schema = Number(database.pragma('user_version', { simple: true }));
    if (schema > SCHEMA_VERSION) {
      throw new OperatorError(
        'refused',
        `${file} was made by a newer llmgw (schema ${schema}, this one knows up to ${SCHEMA_VERSION})`,
        { hint: 'use the version that made it' },
      );
    }
    checkIntegrity(database, (what) => damaged(file, what));
    return { file, schema, sha256, ...contents(database) };
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw damaged(file, error instanceof Error ? error.message : 'it cannot be read', error);
  } finally {
    database.close();
  }
}

/**
 * Puts a backup in place of the state. The server must be stopped. What was there is moved aside, never deleted; a state
 * that is there and sound is replaced only with `replace`. Throws {@link OperatorError}, or StoreError `locked`.
 */
export function restoreBackup(
  file: string,
  stateDir: string,
  options: { readonly replace?: boolean; readonly nowText: string },
): BackupSummary & { readonly movedAside?: string } {
  const summary = verifyBackup(file);
  const files = stateFiles(stateDir);
  makeStateDir(stateDir);
  const lock = StateLock.take(files, options.nowText);
  try {
    if (existsSync(files.database) && options.replace !== true && isSound(files.database)) {
      throw new OperatorError('conflict', `${stateDir} holds a sound state`, {
        hint: 'repeat with --replace to put the backup in its place; the present state is moved aside',
      });
    }
    const movedAside = moveAside(stateDir, options.nowText);
    const temporary = `${files.database}.restoring`;
    copyFileSync(file, temporary);
    makePrivate(temporary);
    syncFile(temporary);
    renameSync(temporary, files.database);
    syncDir(stateDir);
    writeMarker(files, summary.schema);
    return movedAside === undefined ? summary : { ...summary, movedAside };
  } finally {
    lock.release();
  }
}

/** Moves the database files, if any, into a directory of their own. */
function moveAside(stateDir: string, nowText: string): string | undefined {
  const present = databaseFiles(stateFiles(stateDir).database).filter((path) => existsSync(path));
  if (present.length === 0) return undefined;
  const stem = `replaced-${nowText.replaceAll(':', '-')}`;
  const taken = new Set(readdirSync(stateDir));
  const name = taken.has(stem) ? `${stem}-${taken.size}` : stem;
  const folder = join(stateDir, name);
  mkdirSync(folder, { mode: 0o700 });
  for (const path of present) renameSync(path, join(folder, basename(path)));
  return folder;
}

function isSound(path: string): boolean {
  let database: Database.Database | undefined;
  try {
    database = new Database(path, { fileMustExist: true });
    checkIntegrity(database, (what) => new Error(what));
    readRows(database);
    return true;
  } catch {
    return false;
  } finally {
    database?.close();
  }
}

function contents(database: Database.Database): Pick<BackupSummary, 'term' | 'records'> {
  const records: Partial<Record<Collection, number>> = {};
  let term = 0;
  for (const { row, value } of readRows(database)) {
    records[row.collection] = (records[row.collection] ?? 0) + 1;
    if (row.collection === 'meta' && row.key === TERM_KEY) term = Number(value);
  }
  return { term, records };
}

function openReadOnly(file: string): Database.Database {
  try {
    return new Database(readFileSync(file));
  } catch (error) {
    throw damaged(file, 'SQLite cannot read it', error);
  }
}

function damaged(file: string, what: string, cause?: unknown): OperatorError {
  return new OperatorError('refused', `the backup ${file} is damaged: ${what}`, {
    field: 'file',
    hint: 'use an older backup',
    ...(cause === undefined ? {} : { cause }),
  });
}

const checksumFile = (file: string) => `${file}.sha256`;

function readChecksum(file: string): string | undefined {
  if (!existsSync(checksumFile(file))) return undefined;
  return readFileSync(checksumFile(file), 'utf8').trim().split(/\s+/)[0];
}

function fileSha256(file: string): string {
  const hash = createHash('sha256');
  const handle = openSync(file, 'r');
  try {
    const buffer = Buffer.alloc(1 << 20);
    for (let length = readSync(handle, buffer); length > 0; length = readSync(handle, buffer)) {
      hash.update(buffer.subarray(0, length));
    }
  } finally {
    closeSync(handle);
  }
  return hash.digest('hex');
}

function syncFile(path: string): void {
  const handle = openSync(path, 'r+');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}
