/** A binary min-heap whose items know their place, so that one can leave from the middle in O(log n). */
export class IndexedHeap<T extends object> {
  private readonly items: T[] = [];
  private readonly place = new Map<T, number>();

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
    if (this.place.has(item)) throw new RangeError('the item is already in the heap');
    this.items.push(item);
    this.place.set(item, this.items.length - 1);
    this.rise(this.items.length - 1);
  }

  pop(): T | undefined {
    const first = this.items[0];
    if (first !== undefined) this.remove(first);
    return first;
  }

  /** Takes `item` out; false when it is not in. */
  remove(item: T): boolean {
    const at = this.place.get(item);
    if (at === undefined) return false;
    this.place.delete(item);
    const last = this.items.pop()!;
    if (last === item) return true;
    this.put(last, at);
    this.rise(at);
    this.sink(this.place.get(last)!);
    return true;
  }

  /** Restores the order after `item`'s key changed. */
  update(item: T): void {
    const at = this.place.get(item);
    if (at === undefined) return;
    this.rise(at);
    this.sink(this.place.get(item)!);
  }

  private put(item: T, at: number): void {
    this.items[at] = item;
    this.place.set(item, at);
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
