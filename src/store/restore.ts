import Database from 'better-sqlite3';
import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { ReplicaRecord } from '../domain/cluster.js';
import type { StateLoss } from '../domain/snapshot.js';
import { OperatorError } from '../shared/errors.js';
import { syncFile, verifyBackup, type BackupSummary } from './backup.js';
import { migrate } from './migrations.js';
import type { Collection } from './ports.js';
import { encodeRow } from './row-codec.js';
import { checkIntegrity, PUT_ROW, readRows } from './sqlite-database.js';
import {
  clearDatabase,
  databaseFiles,
  makePrivate,
  makeStateDir,
  stateFiles,
  syncDir,
  writeMarker,
} from './state-files.js';
import { StateLock } from './state-lock.js';
import { STATE_LOST_KEY, TERM_KEY } from './tables.js';

/**
 * How far the term is raised above every one that is known. Servers that ran after the backup took terms that it does
 * not know; a command of theirs that is still on its way must be older than the first of ours. Agents that obeyed an
 * even higher one say so when they connect.
 */
export const RESTORE_TERM_MARGIN = 1_000;

/** What a restore did. */
export interface RestoreResult extends BackupSummary {
  readonly stateDir: string;
  /** Where the state that was there lies now; undefined when there was none. */
  readonly movedAside?: string;
  /** Terms of the next server are above this one. */
  readonly raisedTerm: number;
}

/**
 * Puts a backup in place of the state. The server must be stopped. What was there is moved aside, never deleted; a state
 * that is there and sound is replaced only with `replace`. Throws {@link OperatorError}, or StoreError `locked`.
 */
export function restoreBackup(
  file: string,
  stateDir: string,
  options: { readonly replace?: boolean; readonly nowText: string },
): RestoreResult {
  const summary = verifyBackup(file);
  const files = stateFiles(stateDir);
  makeStateDir(stateDir);
  const lock = StateLock.take(files, options.nowText);
  try {
    const present = soundTerm(files.database);
    if (present !== undefined && options.replace !== true) {
      throw new OperatorError('conflict', `${stateDir} holds a sound state`, {
        hint: 'repeat with --replace to put the backup in its place; the present state is moved aside',
      });
    }
    const raisedTerm = Math.max(summary.term, present ?? 0) + RESTORE_TERM_MARGIN;
    const temporary = `${files.database}.restoring`;
    clearDatabase(temporary);
    copyFileSync(file, temporary);
    makePrivate(temporary);
    prepare(temporary, raisedTerm);
    syncFile(temporary);
    const movedAside = moveAside(stateDir, options.nowText);
    renameSync(temporary, files.database);
    syncDir(stateDir);
    writeMarker(files, summary.schema);
    return {
      ...summary,
      stateDir,
      raisedTerm,
      ...(movedAside === undefined ? {} : { movedAside }),
    };
  } finally {
    lock.release();
  }
}

/**
 * Takes out of an old state what is believed without being asked and may be untrue by now. Who was Ready then may be
 * somebody else's engine on the same port today, and the router would serve from it until an agent says otherwise.
 */
function prepare(path: string, raisedTerm: number): void {
  const database = new Database(path, { fileMustExist: true });
  try {
    database.transaction(() => {
      migrate(database);
      const put = database.prepare(PUT_ROW);
      const write = (collection: Collection, key: string, value: unknown) =>
        put.run(encodeRow(collection, key, value));
      for (const { row, value } of readRows(database)) {
        if (row.collection !== 'replicas') continue;
        const { readyWallMs: _ready, ...rest } = value as ReplicaRecord;
        write('replicas', row.key, rest);
      }
      write('meta', TERM_KEY, raisedTerm);
      // What has happened since, only the agents know; also those of machines that joined since.
      write('meta', STATE_LOST_KEY, 'restored' satisfies StateLoss);
    })();
  } finally {
    database.close();
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

/** The term of the state that is there; undefined when there is none, or it is damaged. */
function soundTerm(path: string): number | undefined {
  if (!existsSync(path)) return undefined;
  let database: Database.Database | undefined;
  try {
    database = new Database(path, { fileMustExist: true });
    checkIntegrity(database, (what) => new Error(what));
    const term = readRows(database).find(({ row }) => row.collection === 'meta' && row.key === TERM_KEY);
    return Number(term?.value ?? 0);
  } catch {
    return undefined;
  } finally {
    database?.close();
  }
}
