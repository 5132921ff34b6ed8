import type { Clock, Timer } from '../shared/clock.js';

/** Who has deadlines. */
export interface Watcher {
  /** Acts on what is due and returns when to look again, monotonic; Infinity for never. */
  look(nowMs: number): number;
}

/** A timer that is later than this was kept from running by this process itself, not by whoever is waited for. */
const LATE_MS = 200;
/** The longest time that is given back for it; more and a process that stands still would wait for ever. */
const GRACE_MAX_MS = 1_000;

/**
 * The one timer of a request. It is armed for the earliest thing that may become due and asks again when it fires, so
 * that progress (an event, every few milliseconds) costs a store and no timer.
 *
 * A loop that was busy runs its timers before it reads what has arrived meanwhile, and would find everybody else too
 * slow. So what has arrived is read first, and after a longer pause of ours whoever is waited for gets as much time
 * again: a connection may need a name and a handshake.
 */
export class DeadlineWatch {
  private timer: Timer | undefined;
  private armedForMs = NEVER;
  private graceGiven = false;
  private stopped = false;

  constructor(
    private readonly clock: Clock,
    private readonly watcher: Watcher,
  ) {}

  /** Something becomes due at `atMs`; later than what is armed already costs nothing. */
  by(atMs: number): void {
    if (atMs >= this.armedForMs) return;
    this.timer?.cancel();
    const now = this.clock.monotonicMs();
    // What is due already is due now: its timer is not late by what passed before.
    this.armedForMs = Math.max(atMs, now);
    this.timer = this.clock.setTimer(this.armedForMs - now, this.fire);
  }

  stop(): void {
    this.timer?.cancel();
    this.timer = undefined;
    // Nothing may be armed after the end.
    this.armedForMs = -NEVER;
    this.stopped = true;
  }

  private readonly fire = (): void => {
    const lateMs = this.clock.monotonicMs() - this.armedForMs;
    if (lateMs > LATE_MS && !this.graceGiven) {
      this.graceGiven = true;
      this.timer = this.clock.setTimer(Math.min(lateMs, GRACE_MAX_MS), this.fire);
      return;
    }
    this.graceGiven = false;
    this.timer = undefined;
    // What becomes due until then is looked at with the rest.
    this.armedForMs = -NEVER;
    setImmediate(this.judge);
  };

  private readonly judge = (): void => {
    if (this.stopped) return;
    this.armedForMs = NEVER;
    const next = this.watcher.look(this.clock.monotonicMs());
    if (next !== NEVER) this.by(next);
  };
}

const NEVER = Number.POSITIVE_INFINITY;
