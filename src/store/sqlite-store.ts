import type Database from 'better-sqlite3';
import { statSync } from 'node:fs';
import type { Clock } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import { staleTerm } from './memory-store.js';
import { StoreError, type Collection, type Guard, type StateStore, type StoreOp } from './ports.js';
import { encodeRow } from './row-codec.js';
import { MIGRATIONS, type Migration } from './migrations.js';
import { openDatabase, PUT_ROW, readRows, storeError } from './sqlite-database.js';
import { checkNotLost, makeStateDir, stateFiles, writeMarker, type StateFiles } from './state-files.js';
import { StateLock } from './state-lock.js';
import { Tables, TERM_KEY, type Entry } from './tables.js';

const DELETE = 'DELETE FROM records WHERE collection = ? AND key = ?';
const TERM = `SELECT value FROM records WHERE collection = 'meta' AND key = '${TERM_KEY}'`;

/** An open connection with its statements. */
interface Connection {
  readonly database: Database.Database;
  readonly put: Database.Statement;
  readonly remove: Database.Statement;
  readonly term: Database.Statement;
  /** Identity of the file the connection writes to. */
  readonly inode: number;
}

export interface SqliteStoreOptions {
  readonly stateDir: string;
  readonly clock: Clock;
  /** Steps of the layout; tests bring a later one. */
  readonly migrations?: readonly Migration[];
  /** Told of every write's duration, ms. */
  readonly onWrite?: (durationMs: number) => void;
}

/**
 * The store on disk: SQLite, one writer, everything also in memory. A write is durable when `txn` returns. After a
 * failed write memory still equals the last good state, so reading and routing go on; the next write tries again.
 */
export class SqliteStore implements StateStore {
  private readonly tables = new Tables();
  private connection: Connection | undefined;
  private failure: StoreError | undefined;
  private closed = false;

  private constructor(
    private readonly options: SqliteStoreOptions,
    private readonly files: StateFiles,
    private readonly lock: StateLock,
  ) {}

  /** Opens or makes the state in `stateDir`. Throws {@link StoreError} with what to do, and leaves nothing held. */
  static open(options: SqliteStoreOptions): SqliteStore {
    const files = stateFiles(options.stateDir);
    makeStateDir(files.dir);
    const lock = StateLock.take(files, new Date(options.clock.wallMs()).toISOString());
    try {
      const store = new SqliteStore(options, files, lock);
      store.connect();
      return store;
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  get stateDir(): string {
    return this.files.dir;
  }

  get<T>(collection: Collection, key: string): T | undefined {
    return this.tables.get(collection, key) as T | undefined;
  }

  list<T>(collection: Collection): readonly Entry<T>[] {
    return this.tables.list(collection) as readonly Entry<T>[];
  }

  txn(guard: Guard, ops: readonly StoreOp[]): void {
    if (ops.length === 0) return;
    const encoded = ops.map((op) =>
      op.op === 'put' ? { op, row: encodeRow(op.collection, op.key, op.value) } : { op, row: undefined },
    );
    this.write((connection) => {
      // Read in the same transaction: a server that took over in between is seen here and nowhere else.
      const term = storedTerm(connection);
      if (term > guard.term) throw staleTerm(guard.term, term);
      for (const { op, row } of encoded) {
        if (row === undefined) connection.remove.run(op.collection, op.key);
        else connection.put.run(row);
      }
    });
    for (const { op, row } of encoded) {
      // From JSON, not the caller's object: what the caller changes later is not what was written.
      if (row === undefined) this.tables.delete(op.collection, op.key);
      else this.tables.put(op.collection, op.key, JSON.parse(row.value));
    }
  }

  nextTerm(above = 0): number {
    const term = this.write((connection) => {
      const next = Math.max(storedTerm(connection), above) + 1;
      connection.put.run(encodeRow('meta', TERM_KEY, next));
      return next;
    });
    this.tables.put('meta', TERM_KEY, term);
    return term;
  }

  health(): { readonly ok: boolean; readonly reason?: string } {
    if (this.closed) return { ok: false, reason: 'closed' };
    if (this.failure !== undefined) this.probe();
    return this.failure === undefined
      ? { ok: true }
      : { ok: false, reason: errorChain(this.failure).join(': ') };
  }

  close(): void {
    this.closed = true;
    this.disconnect();
    this.lock.release();
  }

  /** One transaction, with the bookkeeping of failures. */
  private write<T>(work: (connection: Connection) => T): T {
    if (this.closed) throw new StoreError('closed', 'the store is closed');
    const startedMs = this.options.clock.monotonicMs();
    try {
      const connection = this.connection ?? this.connect();
      this.checkStillThere(connection);
      const result = connection.database.transaction(work).immediate(connection);
      this.failure = undefined;
      return result;
    } catch (error) {
      const failure = storeError(error, this.files);
      if (failure.code !== 'stale_term') this.failed(failure);
      throw failure;
    } finally {
      this.options.onWrite?.(this.options.clock.monotonicMs() - startedMs);
    }
  }

  /**
   * After a failed sync the kernel may have dropped the dirty pages and call the next sync a success, so an I/O error
   * costs the connection: the next write opens anew and reads back what is really there.
   */
  private failed(failure: StoreError): void {
    this.failure = failure;
    if (failure.code !== 'disk_full') this.disconnect();
  }

  private connect(): Connection {
    checkNotLost(this.files);
    const migrations = this.options.migrations ?? MIGRATIONS;
    const database = openDatabase(this.files, migrations);
    try {
      const rows = readRows(database);
      writeMarker(this.files, migrations.length);
      this.tables.clear();
      for (const { row, value } of rows) this.tables.put(row.collection, row.key, value);
      this.connection = {
        database,
        put: database.prepare(PUT_ROW),
        remove: database.prepare(DELETE),
        term: database.prepare(TERM),
        inode: statSync(this.files.database).ino,
      };
      return this.connection;
    } catch (error) {
      database.close();
      throw storeError(error, this.files);
    }
  }

  private disconnect(): void {
    const database = this.connection?.database;
    this.connection = undefined;
    try {
      database?.close();
    } catch {
      // A close that fails has nothing left to lose: the failure that led here is already on record.
    }
  }

  /** A deleted database goes on taking writes, into a file nobody will ever open again. */
  private checkStillThere(connection: Connection): void {
    const found = statSync(this.files.database, { throwIfNoEntry: false });
    if (found?.ino === connection.inode) return;
    throw new StoreError('io_error', `${this.files.database} was removed or replaced while in use`);
  }

  /** Whether writes work again: takes the smallest write there is. */
  private probe(): void {
    try {
      this.write((connection) => connection.put.run(encodeRow('meta', 'probe', 0)));
    } catch {
      // Still failing; `write` recorded why.
    }
  }
}

function storedTerm(connection: Connection): number {
  const row = connection.term.get() as { value: string } | undefined;
  return row === undefined ? 0 : Number(JSON.parse(row.value));
}
