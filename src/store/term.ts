import type { StateStore } from './ports.js';

/**
 * The number of this incarnation of the control plane. Every write is guarded by it and every command carries it, so
 * that a server which was overtaken can neither store a decision nor have one obeyed.
 */
export class Term {
  private value: number;
  private raised = false;

  /** Takes the next term from the store. Throws StoreError when it cannot be stored: then this server must not decide. */
  constructor(private readonly store: StateStore) {
    this.value = store.nextTerm();
  }

  current(): number {
    return this.value;
  }

  /** Whether an agent had obeyed somebody whom this server's state does not know. */
  get wasRaised(): boolean {
    return this.raised;
  }

  /**
   * Makes the term higher than one an agent obeyed for another server, be it a number of ours too: after a restore from
   * an old backup, or beside a server on a copy of this state. Returns whether it had to. Throws StoreError.
   */
  raiseAbove(obeyed: number): boolean {
    if (obeyed < this.value) return false;
    this.value = this.store.nextTerm(obeyed);
    this.raised = true;
    return true;
  }
}

/** Token under which the term is injected. */
export const TERM = Symbol('Term');
