import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IndexedHeap, type HeapItem } from './indexed-heap.js';

interface Item extends HeapItem {
  key: number;
}

describe('IndexedHeap', () => {
  it('behaves as a sorted list under any mix of pushes, pops, removals and changes', () => {
    const step = fc.record({
      what: fc.constantFrom('push', 'push', 'pop', 'remove', 'update'),
      key: fc.nat(50),
      pick: fc.nat(100),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const heap = new IndexedHeap<Item>((a, b) => a.key < b.key);
        const list: Item[] = [];
        for (const { what, key, pick } of steps) {
          const chosen = list[pick % Math.max(1, list.length)];
          if (what === 'push') {
            const item = { key, heapPlace: -1 };
            heap.push(item);
            list.push(item);
          } else if (what === 'pop') {
            const popped = heap.pop();
            expect(popped?.key).toBe(list.length === 0 ? undefined : Math.min(...list.map((i) => i.key)));
            if (popped !== undefined) list.splice(list.indexOf(popped), 1);
          } else if (chosen !== undefined && what === 'remove') {
            expect(heap.remove(chosen)).toBe(true);
            expect(heap.remove(chosen)).toBe(false);
            list.splice(list.indexOf(chosen), 1);
          } else if (chosen !== undefined) {
            chosen.key = key;
            heap.update(chosen);
          }
          expect(heap.size).toBe(list.length);
          expect(heap.peek()?.key).toBe(list.length === 0 ? undefined : Math.min(...list.map((i) => i.key)));
        }
        const rest: number[] = [];
        for (let item = heap.pop(); item !== undefined; item = heap.pop()) rest.push(item.key);
        expect(rest).toEqual(list.map((item) => item.key).sort((a, b) => a - b));
      }),
    );
  });

  it('refuses an item that is already in', () => {
    const heap = new IndexedHeap<Item>((a, b) => a.key < b.key);
    const item = { key: 1, heapPlace: -1 };
    heap.push(item);
    expect(() => heap.push(item)).toThrow(RangeError);
  });
});
