/** Something that generates for one request at a time and remembers the tokens it has seen. */
export interface Slot {
  /** Tokens whose state is in memory. */
  readonly contextTokens: readonly number[];
}

/** The caller gave up while it waited for a slot. */
export class SlotAbortedError extends Error {
  constructor() {
    super('aborted while waiting for a slot');
    this.name = 'SlotAbortedError';
  }
}

/** The queue is full or closed. */
export class SlotRefusedError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'SlotRefusedError';
  }
}

interface Waiter<S> {
  readonly give: (slot: S) => void;
  readonly refuse: (error: Error) => void;
}

/**
 * A fixed number of slots with a first-in first-out queue. A request gets the free slot that remembers most of its prompt;
 * between equals the one unused for longest, so that what others remember lives on.
 */
export class SlotPool<S extends Slot> {
  /** Free slots, the one unused for longest first. */
  private readonly free: S[];
  private readonly waiters = new Set<Waiter<S>>();
  private closed = false;

  constructor(
    private readonly slots: readonly S[],
    /** Most requests that may wait. */
    private readonly maxQueue: number,
  ) {
    this.free = [...slots];
  }

  get running(): number {
    return this.slots.length - this.free.length;
  }

  get waiting(): number {
    return this.waiters.size;
  }

  /** Waits for a slot. Rejects with `SlotAbortedError` or `SlotRefusedError`; the slot has to come back by `release`. */
  acquire(tokens: readonly number[], signal: AbortSignal): Promise<S> {
    if (signal.aborted) return Promise.reject(new SlotAbortedError());
    if (this.closed) return Promise.reject(new SlotRefusedError('the engine is shutting down'));
    const slot = this.takeBest(tokens);
    if (slot !== undefined) return Promise.resolve(slot);
    if (this.waiters.size >= this.maxQueue) {
      return Promise.reject(new SlotRefusedError('the engine has too many queued requests'));
    }
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.waiters.delete(waiter);
        reject(new SlotAbortedError());
      };
      const waiter: Waiter<S> = {
        give: (given) => {
          signal.removeEventListener('abort', leave);
          resolve(given);
        },
        refuse: (error) => {
          signal.removeEventListener('abort', leave);
          reject(error);
        },
      };
      signal.addEventListener('abort', leave, { once: true });
      this.waiters.add(waiter);
    });
  }

  /** Gives a slot back; the next in the queue gets it. */
  release(slot: S): void {
    const [next] = this.waiters;
    if (next === undefined) {
      this.free.push(slot);
      return;
    }
    this.waiters.delete(next);
    next.give(slot);
  }

  /** Refuses everybody who waits and everybody to come; who runs may finish. */
  close(): void {
    this.closed = true;
    for (const waiter of this.waiters) waiter.refuse(new SlotRefusedError('the engine is shutting down'));
    this.waiters.clear();
  }

  private takeBest(tokens: readonly number[]): S | undefined {
    let bestIndex = 0;
    let bestShared = -1;
    for (const [index, slot] of this.free.entries()) {
      const shared = sharedPrefix(slot.contextTokens, tokens);
      if (shared > bestShared) {
        bestIndex = index;
        bestShared = shared;
      }
    }
    return this.free.splice(bestIndex, 1)[0];
  }
}

/** How many tokens two sequences have in common at their start. */
export function sharedPrefix(a: readonly number[], b: readonly number[]): number {
  const most = Math.min(a.length, b.length);
  let count = 0;
  while (count < most && a[count] === b[count]) count++;
  return count;
}
