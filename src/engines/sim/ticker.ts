import type { Clock, Timer } from '../../shared/clock.js';

/** Something that is due at a moment; belongs to one ticker at a time. */
export interface Due {
  /** Monotonic milliseconds. */
  dueMs: number;
  /** Place in the ticker's heap, -1 when not in it. Kept by the ticker. */
  heapIndex: number;
  /** Runs once per time it was scheduled. */
  onDue(nowMs: number): void;
}

/** Timers have whole milliseconds: what is due within this fraction runs now instead of a millisecond late. */
export const SLACK_MS = 0.5;

/**
 * One timer for any number of waiting streams. Due times are absolute, so a late turn of the event loop does not push
 * all later tokens back: they catch up, as a real engine's batch does.
 */
export class Ticker {
  private readonly heap: Due[] = [];
  private timer: Timer | undefined;
  private armedForMs = Infinity;

  constructor(private readonly clock: Clock) {}

  /** How many are waiting. */
  get size(): number {
    return this.heap.length;
  }

  /** Schedules `item` (again) for `dueMs`. */
  schedule(item: Due, dueMs: number): void {
    this.cancel(item);
    item.dueMs = dueMs;
    this.heap.push(item);
    this.up(this.heap.length - 1);
    this.arm();
  }

  /** Takes `item` out; harmless when it is not in. */
  cancel(item: Due): void {
    const index = item.heapIndex;
    if (index < 0) return;
    item.heapIndex = -1;
    const last = this.heap.pop();
    if (last === undefined || last === item) return;
    this.put(index, last);
    this.up(index);
    this.down(last.heapIndex);
  }

  /** Forgets everything that waits. */
  clear(): void {
    for (const item of this.heap) item.heapIndex = -1;
    this.heap.length = 0;
    this.timer?.cancel();
    this.timer = undefined;
    this.armedForMs = Infinity;
  }

  private arm(): void {
    const next = this.heap[0];
    // A timer that is armed too early costs one empty turn; arming again for each token would cost one timer each.
    if (next === undefined || next.dueMs >= this.armedForMs) return;
    this.timer?.cancel();
    this.armedForMs = next.dueMs;
    const delayMs = Math.max(0, Math.ceil(next.dueMs - this.clock.monotonicMs() - SLACK_MS));
    this.timer = this.clock.setTimer(delayMs, () => this.fire());
  }

  private fire(): void {
    this.timer = undefined;
    this.armedForMs = Infinity;
    const nowMs = this.clock.monotonicMs();
    for (let next = this.heap[0]; next !== undefined && next.dueMs <= nowMs + SLACK_MS; next = this.heap[0]) {
      this.cancel(next);
      next.onDue(nowMs);
    }
    this.arm();
  }

  private put(index: number, item: Due): void {
    this.heap[index] = item;
    item.heapIndex = index;
  }

  private up(start: number): void {
    const item = this.heap[start];
    if (item === undefined) return;
    let index = start;
    while (index > 0) {
      const parentIndex = (index - 1) >> 1;
      const parent = this.heap[parentIndex];
      if (parent === undefined || parent.dueMs <= item.dueMs) break;
      this.put(index, parent);
      index = parentIndex;
    }
    this.put(index, item);
  }

  private down(start: number): void {
    const item = this.heap[start];
    if (item === undefined) return;
    let index = start;
    for (;;) {
      let childIndex = 2 * index + 1;
      let child = this.heap[childIndex];
      const right = this.heap[childIndex + 1];
      if (child === undefined) break;
      if (right !== undefined && right.dueMs < child.dueMs) {
        childIndex++;
        child = right;
      }
      if (child.dueMs >= item.dueMs) break;
      this.put(index, child);
      index = childIndex;
    }
    this.put(index, item);
  }
}
