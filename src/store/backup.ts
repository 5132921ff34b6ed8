import Database from 'better-sqlite3';
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  statSync,
} from 'node:fs';
import { basename, dirname } from 'node:path';
import { OperatorError } from '../shared/errors.js';
import { BACKUP_KEY, copyState, type BackupStamp } from './copy-state.js';
import { SCHEMA_VERSION, schemaOf } from './migrations.js';
import type { Collection } from './ports.js';
import { checkIntegrity, readRows } from './sqlite-database.js';
import { clearDatabase, stateFiles, syncDir, writeDurably } from './state-files.js';
import { TERM_KEY } from './tables.js';

/** Where SQLite's header says how the file is written, and what it says for write-ahead logging. */
const WRITE_VERSION_OFFSET = 18;
const WAL_VERSION = 2;

/** What a backup holds. */
export interface BackupSummary {
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly schema: number;
  /** When it was made, RFC 3339; undefined for a copy of a state directory's own file. */
  readonly madeAt?: string;
  /** Version of the llmgw that made it. */
  readonly build?: string;
  readonly term: number;
  /** Number of records of each collection that has any. */
  readonly records: Partial<Record<Collection, number>>;
}

/**
 * Copies the state of a directory into one file with its checksum in `FILE.sha256` (the form `sha256sum -c` reads). A
 * server may be running on it: SQLite gives the copy one consistent moment. Rejects with {@link OperatorError}.
 */
export async function createBackup(
  stateDir: string,
  file: string,
  stamp: BackupStamp,
): Promise<BackupSummary> {
  const files = stateFiles(stateDir);
  if (!existsSync(files.database)) {
    throw new OperatorError('not_found', `there is no state in ${stateDir}`, { field: 'state-dir' });
  }
  return fillBackup(file, async (partial) => {
    try {
      await copyState(files.database, partial, stamp);
      return undefined;
    } catch (error) {
      throw new OperatorError('refused', `the state in ${stateDir} cannot be copied`, { cause: error });
    }
  });
}

/**
 * Makes the backup `file` from what `fill` writes into the empty file it is given, and whose SHA-256 (hex) it may tell:
 * checked before it gets its name, and nothing is left when anything fails. Rejects with {@link OperatorError} or what
 * `fill` rejects with.
 */
export async function fillBackup(
  file: string,
  fill: (partial: string) => Promise<string | undefined>,
): Promise<BackupSummary> {
  if (existsSync(file)) {
    throw new OperatorError('conflict', `${file} exists; a backup never overwrites one`, { field: 'file' });
  }
  const partial = `${file}.partial`;
  makeEmpty(partial);
  try {
    const expected = await fill(partial);
    syncFile(partial);
    const summary = verifyBackup(partial);
    if (expected !== undefined && expected !== summary.sha256) {
      throw new OperatorError('unreachable', 'the copy was damaged on its way here', { hint: 'try again' });
    }
    writeDurably(checksumFile(file), `${summary.sha256}  ${basename(file)}\n`);
    renameSync(partial, file);
    syncDir(dirname(file));
    return { ...summary, file };
  } catch (error) {
    clearDatabase(partial);
    throw error;
  }
}

/** Readable by its owner only from the first byte on: hashes of keys and tokens will lie in it. */
function makeEmpty(path: string): void {
  try {
    clearDatabase(path);
    closeSync(openSync(path, 'wx', 0o600));
  } catch (error) {
    throw new OperatorError('invalid_argument', `${path} cannot be written`, { field: 'file', cause: error });
  }
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
  // From memory: SQLite must not leave files of its own beside somebody's backup.
  const database = openReadOnly(file);
  try {
    const schema = schemaOf(database);
    if (schema > SCHEMA_VERSION) {
      throw new OperatorError(
        'refused',
        `${file} was made by a newer llmgw (schema ${schema}, this one knows up to ${SCHEMA_VERSION})`,
        { hint: 'use the version that made it' },
      );
    }
    checkIntegrity(database, (what) => damaged(file, what));
    return { file, bytes: statSync(file).size, sha256, schema, ...contents(database) };
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw damaged(file, error instanceof Error ? error.message : 'it cannot be read', error);
  } finally {
    database.close();
  }
}

function contents(database: Database.Database): Pick<BackupSummary, 'term' | 'records' | 'madeAt' | 'build'> {
  const records: Partial<Record<Collection, number>> = {};
  let term = 0;
  let stamp: Partial<BackupStamp> = {};
  for (const { row, value } of readRows(database)) {
    if (row.collection !== 'meta') records[row.collection] = (records[row.collection] ?? 0) + 1;
    else if (row.key === TERM_KEY) term = Number(value);
    else if (row.key === BACKUP_KEY) stamp = value as BackupStamp;
  }
  const { madeAt, build } = stamp;
  return {
    ...(madeAt === undefined ? {} : { madeAt }),
    ...(build === undefined ? {} : { build }),
    term,
    records,
  };
}

function openReadOnly(file: string): Database.Database {
  const bytes = readFileSync(file);
  // Its latest writes may lie in the -wal file beside it, so that alone it would be an older state that looks whole.
  if (bytes.length > WRITE_VERSION_OFFSET && bytes[WRITE_VERSION_OFFSET] === WAL_VERSION) {
    throw new OperatorError('refused', `${file} is the file of a state directory and no backup`, {
      field: 'file',
      hint: `make one of it: llmgw ctl backup create FILE --state-dir ${dirname(file)}`,
    });
  }
  try {
    return new Database(bytes);
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

/** Waits until the file is on the disk. */
export function syncFile(path: string): void {
  const handle = openSync(path, 'r+');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}
