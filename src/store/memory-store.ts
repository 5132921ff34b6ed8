import { StoreError, type Collection, type Guard, type StateStore, type StoreOp } from './ports.js';
import { Tables, TERM_KEY, type Entry } from './tables.js';

/** The store of tests and simulations: the same rules, no disk. Can be told to fail like a full or broken disk. */
export class MemoryStore implements StateStore {
  private readonly tables = new Tables();
  private failure: StoreError['code'] | undefined;

  /** Every write fails with `code` until told otherwise with undefined. */
  failWith(code: StoreError['code'] | undefined): void {
    this.failure = code;
  }

  get<T>(collection: Collection, key: string): T | undefined {
    return this.tables.get(collection, key) as T | undefined;
  }

  list<T>(collection: Collection): readonly Entry<T>[] {
    return this.tables.list(collection) as readonly Entry<T>[];
  }

  txn(guard: Guard, ops: readonly StoreOp[]): void {
    this.mayFail();
    const term = this.get<number>('meta', TERM_KEY) ?? 0;
    if (term > guard.term) throw staleTerm(guard.term, term);
    // Through JSON first, as on a disk: nothing is applied when one value cannot be written.
    const written = ops.map((op) => (op.op === 'put' ? JSON.stringify(op.value) : ''));
    ops.forEach((op, index) => {
      if (op.op === 'put') this.tables.put(op.collection, op.key, JSON.parse(written[index] ?? 'null'));
      else this.tables.delete(op.collection, op.key);
    });
  }

  nextTerm(above = 0): number {
    this.mayFail();
    const term = Math.max(this.get<number>('meta', TERM_KEY) ?? 0, above) + 1;
    this.tables.put('meta', TERM_KEY, term);
    return term;
  }

  health(): { readonly ok: boolean; readonly reason?: string } {
    return this.failure === undefined ? { ok: true } : { ok: false, reason: this.failure };
  }

  close(): void {
    this.failure = 'closed';
  }

  private mayFail(): void {
    if (this.failure !== undefined) throw new StoreError(this.failure, `the store fails: ${this.failure}`);
  }
}

/** The refusal of a writer whose term was overtaken. */
export function staleTerm(term: number, stored: number): StoreError {
  return new StoreError(
    'stale_term',
    `a server of term ${stored} has taken over; this one, of term ${term}, writes no more`,
  );
}
