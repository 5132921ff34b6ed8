import { createRequire } from 'node:module';
import { Worker } from 'node:worker_threads';
import { encodeRow } from './row-codec.js';
import { PUT_ROW } from './sqlite-database.js';

/** Key in the `meta` collection of what a backup says about itself. */
export const BACKUP_KEY = 'backup';

/** What a backup says about itself. */
export interface BackupStamp {
  /** When the copy was made, RFC 3339. */
  readonly madeAt: string;
  /** Version of the llmgw that made it. */
  readonly build: string;
}

/**
 * Runs in a thread of its own: copying and syncing a large state takes longer than the router of the same process may
 * stand still. It is text because a thread starts from a file, and there is one only after a build. VACUUM INTO writes
 * one consistent moment, without the pages that deleted keys and tokens were on.
 */
const COPY_PROGRAM = `
  const { workerData } = require('node:worker_threads');
  const Database = require(workerData.driver);
  const source = new Database(workerData.from, { readonly: true, fileMustExist: true });
  try {
    source.prepare('VACUUM INTO ?').run(workerData.to);
  } finally {
    source.close();
  }
  const copy = new Database(workerData.to, { fileMustExist: true });
  try {
    copy.prepare(workerData.put).run(workerData.row);
  } finally {
    copy.close();
  }`;

/**
 * Copies the database file `from`, which may be in use, into the new or empty file `to`, stamped. Writers of `from` are
 * not held up. Rejects with SQLite's error.
 */
export async function copyState(from: string, to: string, stamp: BackupStamp): Promise<void> {
  const driver = createRequire(import.meta.url).resolve('better-sqlite3');
  const row = encodeRow('meta', BACKUP_KEY, stamp);
  const worker = new Worker(COPY_PROGRAM, {
    eval: true,
    workerData: { driver, from, to, put: PUT_ROW, row },
  });
  await new Promise<void>((resolve, reject) => {
    worker.once('error', reject);
    worker.once('exit', (code) => {
      // After an error this changes nothing any more: a promise settles once.
      if (code === 0) resolve();
      else reject(new Error(`the thread that copies the state ended with ${code}`));
    });
  });
}
