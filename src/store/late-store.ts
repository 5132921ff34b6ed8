import { MemoryStore } from './memory-store.js';
import {
  COLLECTIONS,
  StoreError,
  type Collection,
  type Guard,
  type StateStore,
  type StoreOp,
} from './ports.js';
import { TERM_KEY, type Entry } from './tables.js';

/** Records that must outlive the process, whatever it is. */
const LASTING: ReadonlySet<Collection> = new Set(['keys', 'tokens']);

/**
 * The store of a server that may never have anything to remember: in memory until the first key or token is stored, on
 * disk from then on. So a router-only run leaves no files behind, and keys made on one are not lost with it.
 */
export class LateStore implements StateStore {
  private inner: StateStore = new MemoryStore();
  private onDisk = false;

  /** @param open opens the store on disk; throws StoreError */
  constructor(private readonly open: () => StateStore) {}

  get stateDir(): string | undefined {
    return this.inner.stateDir;
  }

  get<T>(collection: Collection, key: string): T | undefined {
    return this.inner.get<T>(collection, key);
  }

  list<T>(collection: Collection): readonly Entry<T>[] {
    return this.inner.list<T>(collection);
  }

  txn(guard: Guard, ops: readonly StoreOp[]): void {
    if (!this.onDisk && ops.some(({ collection }) => LASTING.has(collection))) this.moveToDisk(guard);
    this.inner.txn(guard, ops);
  }

  nextTerm(above?: number): number {
    return this.inner.nextTerm(above);
  }

  health(): { readonly ok: boolean; readonly reason?: string } {
    return this.inner.health();
  }

  close(): void {
    this.inner.close();
  }

  /** All or nothing: when it fails the memory is still what it was. */
  private moveToDisk(guard: Guard): void {
    const opened = this.open();
    try {
      // What another server has left there meanwhile must not be mixed with what this one holds.
      if (opened.get('meta', TERM_KEY) !== undefined) {
        throw new StoreError(
          'locked',
          'another server has used the state directory since this one started; restart it',
        );
      }
      opened.nextTerm(guard.term - 1);
      opened.txn(guard, this.held());
    } catch (error) {
      opened.close();
      throw error;
    }
    this.inner.close();
    this.inner = opened;
    this.onDisk = true;
  }

  private held(): StoreOp[] {
    return COLLECTIONS.filter((collection) => collection !== 'meta').flatMap((collection) =>
      this.inner.list(collection).map(({ key, value }): StoreOp => ({ op: 'put', collection, key, value })),
    );
  }
}
