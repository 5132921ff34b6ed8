import Database from 'better-sqlite3';
import { writeFileSync } from 'node:fs';
import { StoreError } from './ports.js';
import { describeOwner, type StateFiles } from './state-files.js';

/**
 * Holds the state directory for one process. It is a lock of the kernel on a file of its own (SQLite takes it for us),
 * so it ends with the process however that dies; a lock *file* would outlive a SIGKILL, and a lock on the database
 * itself would be dropped by any other close of that file in this process, as POSIX has it.
 */
export class StateLock {
  private constructor(private readonly connection: Database.Database) {}

  /** Takes the lock or throws `locked`. `sinceText` is shown to whoever is refused. */
  static take(files: StateFiles, sinceText: string): StateLock {
    let connection: Database.Database | undefined;
    try {
      connection = new Database(files.lock, { timeout: 0 });
      connection.pragma('locking_mode = EXCLUSIVE');
      connection.exec('BEGIN EXCLUSIVE');
    } catch (error) {
      connection?.close();
      if (isBusy(error)) {
        throw new StoreError(
          'locked',
          `another server uses the state directory ${files.dir}${describeOwner(files)}; ` +
            'stop it, or give this one its own stateDir',
        );
      }
      throw new StoreError('io_error', `the lock in ${files.dir} cannot be taken`, { cause: error });
    }
    // Only for people; who holds the lock is the kernel's word.
    writeFileSync(files.owner, `${JSON.stringify({ pid: process.pid, since: sinceText })}\n`, {
      mode: 0o600,
    });
    return new StateLock(connection);
  }

  release(): void {
    if (!this.connection.open) return;
    this.connection.exec('ROLLBACK');
    this.connection.close();
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof Database.SqliteError && error.code.startsWith('SQLITE_BUSY');
}
