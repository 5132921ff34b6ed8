import Database from 'better-sqlite3';

/**
 * A lock of the kernel on a file of its own (SQLite takes it for us, Node cannot). It ends with its process however that
 * dies, and holds between containers, which do not see each other's processes. A lock *file* would outlive a SIGKILL.
 */
export class KernelLock {
  private constructor(private readonly connection: Database.Database) {}

  /** Undefined when somebody else holds it. Throws where the file cannot be made or the file system knows no locks. */
  static take(path: string): KernelLock | undefined {
    let connection: Database.Database | undefined;
    try {
      connection = new Database(path, { timeout: 0 });
      connection.pragma('locking_mode = EXCLUSIVE');
      connection.exec('BEGIN EXCLUSIVE');
      return new KernelLock(connection);
    } catch (error) {
      connection?.close();
      if (isBusy(error)) return undefined;
      throw error;
    }
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
