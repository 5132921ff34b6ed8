import type Database from 'better-sqlite3';

/** One step from a schema to the next; the first makes the layout. */
export interface Migration {
  /** What it changes, for whoever reads the list. */
  readonly what: string;
  /** Runs inside the transaction of all steps. */
  readonly apply: (database: Database.Database) => void;
}

/**
 * Every step there ever was, oldest first; the schema's version is how many were taken. Steps are only added: what a
 * released step did lies on people's disks.
 */
export const MIGRATIONS: readonly Migration[] = [
  {
    what: 'records of all collections in one table, each with its checksum',
    apply: (database) =>
      database.exec(`
        CREATE TABLE records (
          collection TEXT NOT NULL,
          key TEXT NOT NULL,
          value TEXT NOT NULL,
          checksum TEXT NOT NULL,
          PRIMARY KEY (collection, key)
        ) STRICT, WITHOUT ROWID;
      `),
  },
];

/** Version of the present layout. */
export const SCHEMA_VERSION = MIGRATIONS.length;

/** Version of a database's layout; 0 for an empty one. */
export function schemaOf(database: Database.Database): number {
  return Number(database.pragma('user_version', { simple: true }));
}

/** Takes the steps that are missing. The caller holds the transaction: all of them or none. */
export function migrate(database: Database.Database, migrations: readonly Migration[] = MIGRATIONS): void {
  for (const { apply } of migrations.slice(schemaOf(database))) apply(database);
  database.pragma(`user_version = ${migrations.length}`);
}
