import type { Collection } from './ports.js';

/** One record of a collection. */
export interface Entry<T> {
  readonly key: string;
  readonly value: T;
}

/**
 * All records in memory, lists in key order. There is one writer, so what is here equals what is on the disk, and
 * reading costs neither I/O nor parsing: the reconcile pass reads everything every two seconds.
 */
export class Tables {
  private readonly collections = new Map<Collection, Map<string, unknown>>();
  /** Sorted lists, dropped when their collection changes. */
  private readonly sorted = new Map<Collection, readonly Entry<unknown>[]>();

  get(collection: Collection, key: string): unknown {
    return this.collections.get(collection)?.get(key);
  }

  list(collection: Collection): readonly Entry<unknown>[] {
    const known = this.sorted.get(collection);
    if (known !== undefined) return known;
    const entries = [...(this.collections.get(collection) ?? [])]
      .map(([key, value]) => ({ key, value }))
      .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    this.sorted.set(collection, entries);
    return entries;
  }

  put(collection: Collection, key: string, value: unknown): void {
    let records = this.collections.get(collection);
    if (records === undefined) this.collections.set(collection, (records = new Map()));
    records.set(key, value);
    this.sorted.delete(collection);
  }

  delete(collection: Collection, key: string): void {
    this.collections.get(collection)?.delete(key);
    this.sorted.delete(collection);
  }

  clear(): void {
    this.collections.clear();
    this.sorted.clear();
  }
}

/** Key of the present term in the `meta` collection. */
export const TERM_KEY = 'term';
/** Key in the `meta` collection of what shows that state was lost; absent once all agents have been waited for. */
export const STATE_LOST_KEY = 'stateLost';
