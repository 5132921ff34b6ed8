import type { Clock, Timer } from '../shared/clock.js';

/** Who has deadlines. */
export interface Watcher {
  /** Acts on what is due and returns when to look again, monotonic; Infinity for never. */
  look(nowMs: number): number;
}

/**
 * The one timer of a request. It is armed for the earliest thing that may become due and asks again when it fires, so
 * that progress (an event, every few milliseconds) costs a store and no timer.
 */
export class DeadlineWatch {
  private timer: Timer | undefined;
  private armedForMs = Number.POSITIVE_INFINITY;

  constructor(
    private readonly clock: Clock,
    private readonly watcher: Watcher,
  ) {}

  /** Something becomes due at `atMs`; later than what is armed already costs nothing. */
  by(atMs: number): void {
    if (atMs >= this.armedForMs) return;
    this.timer?.cancel();
    this.armedForMs = atMs;
    this.timer = this.clock.setTimer(Math.max(0, atMs - this.clock.monotonicMs()), this.fire);
  }

  stop(): void {
    this.timer?.cancel();
    this.timer = undefined;
    // Nothing may be armed after the end.
    this.armedForMs = Number.NEGATIVE_INFINITY;
  }

  private readonly fire = (): void => {
    this.timer = undefined;
    this.armedForMs = Number.POSITIVE_INFINITY;
    const next = this.watcher.look(this.clock.monotonicMs());
    if (next !== Number.POSITIVE_INFINITY) this.by(next);
  };
}
