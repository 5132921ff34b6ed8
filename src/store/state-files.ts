import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { StoreError } from './ports.js';

/** Names of the files of a server's state directory. */
export interface StateFiles {
  readonly dir: string;
  readonly database: string;
  /** Says that a database was once made here, so that a missing or empty one is a loss and not a first start. */
  readonly marker: string;
  readonly lock: string;
  /** Who holds the lock, for the message of the one who does not get it. */
  readonly owner: string;
}

export function stateFiles(dir: string): StateFiles {
  return {
    dir,
    database: join(dir, 'state.db'),
    marker: join(dir, 'state.initialised'),
    lock: join(dir, 'state.lock'),
    owner: join(dir, 'state.owner.json'),
  };
}

/** The files SQLite keeps for one database. */
export function databaseFiles(database: string): readonly string[] {
  return [database, `${database}-wal`, `${database}-shm`, `${database}-journal`];
}

/**
 * Makes room for a new database at `path`. The journal of one that was being written when its program was killed would be
 * taken for the new one's, and rolled back into it.
 */
export function clearDatabase(path: string): void {
  for (const file of databaseFiles(path)) rmSync(file, { force: true });
}

/** The command that puts a backup in place of this state. */
export const restoreCommand = (files: StateFiles): string =>
  `llmgw ctl backup restore FILE --state-dir ${files.dir}`;

/** Where a database of an older schema is kept when it is brought up to the present one. */
export const olderSchemaFile = (files: StateFiles, schema: number): string =>
  join(files.dir, `state.schema-${schema}.db`);

/** Makes the directory, readable by its owner only: hashes of keys and tokens lie in it. */
export function makeStateDir(dir: string): void {
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new StoreError('io_error', `the state directory ${dir} cannot be made`, { cause: error });
  }
  try {
    accessSync(dir, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new StoreError('io_error', `the state directory ${dir} cannot be written`, { cause: error });
  }
}

/** Throws when the database is gone or empty although one was made here before: SQLite would start a new, empty one. */
export function checkNotLost(files: StateFiles): void {
  if (!existsSync(files.marker)) return;
  const size = existsSync(files.database) ? statSync(files.database).size : undefined;
  if (size === undefined) throw corrupt(files, 'the database file is missing');
  if (size === 0) throw corrupt(files, 'the database file is empty');
}

/** Leaves the marker, durably. */
export function writeMarker(files: StateFiles, schema: number): void {
  if (existsSync(files.marker)) return;
  writeDurably(files.marker, `${JSON.stringify({ schema })}\n`);
}

/** Writes a whole file so that it is either the old or the new one after a crash. */
export function writeDurably(path: string, content: string): void {
  const temporary = `${path}.new`;
  writeFileSync(temporary, content, { mode: 0o600, flush: true });
  renameSync(temporary, path);
  syncDir(dirname(path));
}

/** Makes a rename in `dir` durable. */
export function syncDir(dir: string): void {
  const handle = openSync(dir, 'r');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

export function makePrivate(path: string): void {
  if (existsSync(path)) chmodSync(path, 0o600);
}

/** The refusal to start on a damaged state, with what to do about it. */
export function corrupt(files: StateFiles, what: string, cause?: unknown): StoreError {
  return new StoreError(
    'corrupt',
    `the state in ${files.dir} is damaged: ${what}. ` +
      `Restore a backup: ${restoreCommand(files)} ` +
      `(without one, start anew and let the running engines be adopted: mv ${files.dir} ${files.dir}.damaged)`,
    cause === undefined ? undefined : { cause },
  );
}

/** What the lock's owner left about itself; empty when unreadable. */
export function describeOwner(files: StateFiles): string {
  try {
    const owner = JSON.parse(readFileSync(files.owner, 'utf8')) as { pid?: unknown; since?: unknown };
    return ` (process ${String(owner.pid)}, since ${String(owner.since)})`;
  } catch {
    return '';
  }
}
