/** Virtual time: what happens next, and in which order. Equal times run in the order they were asked for. */

interface Entry {
  readonly atMs: number;
  readonly sequence: number;
  readonly run: () => void;
}

export class EventQueue {
  nowMs = 0;
  #sequence = 0;
  readonly #heap: Entry[] = [];

  get size(): number {
    return this.#heap.length;
  }

  /** Runs `run` after `delayMs` of virtual time. */
  after(delayMs: number, run: () => void): void {
    this.#push({ atMs: this.nowMs + Math.max(0, delayMs), sequence: (this.#sequence += 1), run });
  }

  /** Takes the clock to the next event and runs it; false when there is none. */
  step(): boolean {
    const next = this.#pop();
    if (next === undefined) return false;
    this.nowMs = next.atMs;
    next.run();
    return true;
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let index = heap.length;
    heap.push(entry);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || !before(entry, above)) break;
      heap[index] = above;
      index = parent;
    }
    heap[index] = entry;
  }

  #pop(): Entry | undefined {
    const heap = this.#heap;
    const top = heap[0];
    const last = heap.pop();
    if (top === undefined || last === undefined || heap.length === 0) return top;
    let index = 0;
    for (;;) {
      let child = index * 2 + 1;
      const right = heap[child + 1];
      const left = heap[child];
      if (left === undefined) break;
      if (right !== undefined && before(right, left)) child += 1;
      const smaller = heap[child];
      if (smaller === undefined || !before(smaller, last)) break;
      heap[index] = smaller;
      index = child;
    }
    heap[index] = last;
    return top;
  }
}

function before(a: Entry, b: Entry): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.sequence < b.sequence);
}
