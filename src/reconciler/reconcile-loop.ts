import type { Clock, Timer } from '../shared/clock.js';

/** Events that come together are looked at together, ms. */
const DEBOUNCE_MS = 20;
/** Shortest time from the end of one pass to the next, ms... */
const GAP_MIN_MS = 100;
/** ...and at least this many times what a pass takes: however many agents talk, most of the loop stays for requests. */
const GAP_OF_DURATION = 4;

/** Calls `tick` on an interval, and earlier after a wake; never twice at once, never more often than is bearable. */
export class ReconcileLoop {
  private timer: Timer | undefined;
  private dueMs = Infinity;
  private earliestMs = 0;
  private running = false;

  constructor(
    private readonly clock: Clock,
    private readonly intervalMs: () => number,
    private readonly tick: () => void,
  ) {}

  start(): void {
    this.running = true;
    this.runAt(this.clock.monotonicMs());
  }

  stop(): void {
    this.running = false;
    this.timer?.cancel();
    this.dueMs = Infinity;
  }

  /** Something changed: look soon. */
  wake(): void {
    if (this.running) this.runAt(this.clock.monotonicMs() + DEBOUNCE_MS);
  }

  private runAt(wishedMs: number): void {
    const atMs = Math.max(wishedMs, this.earliestMs);
    if (atMs >= this.dueMs) return;
    this.timer?.cancel();
    this.dueMs = atMs;
    this.timer = this.clock.setTimer(atMs - this.clock.monotonicMs(), () => this.run());
  }

  private run(): void {
    this.dueMs = Infinity;
    if (!this.running) return;
    const startMs = this.clock.monotonicMs();
    try {
      this.tick();
    } finally {
      const endMs = this.clock.monotonicMs();
      this.earliestMs = endMs + Math.max(GAP_MIN_MS, GAP_OF_DURATION * (endMs - startMs));
      if (this.running) this.runAt(startMs + this.intervalMs());
    }
  }
}
