/**
 * Where decisions are kept. Only what was decided or wanted is stored; what is seen comes back from the agents.
 * Every write carries a guard, so that a store shared by several servers can fence out an old one in one transaction.
 */

/** Collections of records, each a map from key to JSON value. */
export const COLLECTIONS = [
  'meta',
  'nodes',
  'intents',
  'replicas',
  'backoffs',
  'learned',
  'scales',
  'events',
  'keys',
  'tokens',
  'audit',
] as const;
export type Collection = (typeof COLLECTIONS)[number];

export type StoreOp =
  | { readonly op: 'put'; readonly collection: Collection; readonly key: string; readonly value: unknown }
  | { readonly op: 'delete'; readonly collection: Collection; readonly key: string };

/** A write happens only while its guard holds. */
export interface Guard {
  /** The term of the writer; a store that has seen a higher one refuses. */
  readonly term: number;
}

/** Why a write was refused. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  constructor(
    readonly code: 'stale_term' | 'disk_full' | 'io_error' | 'corrupt' | 'locked' | 'newer_schema' | 'closed',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

export interface StateStore {
  /** Directory the state lies in; undefined for one that lies in memory only. */
  readonly stateDir?: string | undefined;
  /** The value, or undefined. */
  get<T>(collection: Collection, key: string): T | undefined;
  /** All records of a collection in key order. */
  list<T>(collection: Collection): readonly { readonly key: string; readonly value: T }[];
  /** All or nothing, durable when it returns. Throws {@link StoreError}. */
  txn(guard: Guard, ops: readonly StoreOp[]): void;
  /**
   * Takes the next term, above `above` too when given: stored before it is returned, so no two servers ever share one.
   * `above` is the highest term an agent obeyed; it exceeds the stored one after a restore from an old backup.
   */
  nextTerm(above?: number): number;
  /** Whether writes work now, and why not. */
  health(): { readonly ok: boolean; readonly reason?: string };
  close(): void;
}

export const STATE_STORE = Symbol('StateStore');
