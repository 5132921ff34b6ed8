/** What lies in at most one heap at a time. */
export interface HeapItem {
  /** Where in the heap it lies, kept by the heap; -1 while it lies in none. */
  heapPlace: number;
}

/**
 * A binary min-heap whose items know their place, so that one can leave from the middle in O(log n). They keep it themselves: a
 * `Map` of places that items enter and leave all day would carry those that left along (see `Roster`).
 */
export class IndexedHeap<T extends HeapItem> {
  private readonly items: T[] = [];

  /** @param before true when `a` must come out before `b` */
  constructor(private readonly before: (a: T, b: T) => boolean) {}

  get size(): number {
    return this.items.length;
  }

  /** The first item, left in place. */
  peek(): T | undefined {
    return this.items[0];
  }

  /** All items, in no order to rely on. */
  [Symbol.iterator](): Iterator<T> {
    return this.items[Symbol.iterator]();
  }

  push(item: T): void {
    if (item.heapPlace >= 0) throw new RangeError('the item is already in a heap');
    item.heapPlace = this.items.push(item) - 1;
    this.rise(item.heapPlace);
  }

  pop(): T | undefined {
    const first = this.items[0];
    if (first !== undefined) this.remove(first);
    return first;
  }

  /** Takes `item` out; false when it is not in. */
  remove(item: T): boolean {
    const at = item.heapPlace;
    if (this.items[at] !== item) return false;
    item.heapPlace = -1;
    const last = this.items.pop()!;
    if (last === item) return true;
    this.put(last, at);
    this.rise(at);
    this.sink(last.heapPlace);
    return true;
  }

  /** Restores the order after `item`'s key changed. */
  update(item: T): void {
    if (this.items[item.heapPlace] !== item) return;
    this.rise(item.heapPlace);
    this.sink(item.heapPlace);
  }

  private put(item: T, at: number): void {
    this.items[at] = item;
    item.heapPlace = at;
  }

  private rise(from: number): void {
    const item = this.items[from]!;
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = this.items[parent]!;
      if (!this.before(item, above)) break;
      this.put(above, at);
      at = parent;
    }
    this.put(item, at);
  }

  private sink(from: number): void {
    const item = this.items[from]!;
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.items.length) break;
      const right = child + 1;
      if (right < this.items.length && this.before(this.items[right]!, this.items[child]!)) child = right;
      const below = this.items[child]!;
      if (!this.before(below, item)) break;
      this.put(below, at);
      at = child;
    }
    this.put(item, at);
  }
}
