import type { StateStore } from './ports.js';

/**
 * The number of this incarnation of the control plane. Every write is guarded by it and every command carries it, so
 * that a server which was overtaken can neither store a decision nor have one obeyed.
 */
export class Term {
  private value: number;

  /** Takes the next term from the store. Throws StoreError when it cannot be stored: then this server must not decide. */
  constructor(private readonly store: StateStore) {
    this.value = store.nextTerm();
  }

  current(): number {
    return this.value;
  }

  /**
   * Makes the term higher than one an agent obeyed for another server, be it a number of ours too: after a restore from
   * an old backup, or beside a server on a copy of this state. Returns whether it had to. Throws StoreError.
   */
  raiseAbove(obeyed: number): boolean {
    if (obeyed < this.value) return false;
    this.value = this.store.nextTerm(obeyed);
    return true;
  }
}

/** Token under which the term is injected. */
export const TERM = Symbol('Term');
