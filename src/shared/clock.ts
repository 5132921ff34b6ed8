/** A cancellable timer handle. */
export interface Timer {
  /** Stops the timer; harmless when it already fired. */
  cancel(): void;
}

/**
 * Where time comes from. Monotonic time decides; wall time is only shown to people,
 * because wall clocks step (NTP, suspend, an operator's hand) and a step must never move a replica.
 */
export interface Clock {
  /** Milliseconds since an arbitrary start; never goes back. */
  monotonicMs(): number;
  /** Milliseconds since the epoch, for records and people. */
  wallMs(): number;
  /** Calls `fn` once after `delayMs`. */
  setTimer(delayMs: number, fn: () => void): Timer;
}

/** Longest delay Node's timers take; a longer or unfit one fires at once instead of late. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Requests set one each, so it is one small object and no closure. */
class ShortTimer implements Timer {
  constructor(private readonly handle: NodeJS.Timeout) {}

  cancel(): void {
    clearTimeout(this.handle);
  }
}

/** Walks a delay beyond Node's limit in steps: setTimeout(2**31) would fire after one millisecond. */
class LongTimer implements Timer {
  private handle: NodeJS.Timeout | undefined;

  constructor(
    private leftMs: number,
    private readonly fn: () => void,
  ) {
    this.arm();
  }

  cancel(): void {
    clearTimeout(this.handle);
  }

  private arm(): void {
    const step = Math.min(this.leftMs, MAX_TIMER_MS);
    this.leftMs -= step;
    this.handle = setTimeout(() => (this.leftMs > 0 ? this.arm() : this.fn()), step);
  }
}

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  setTimer(delayMs, fn) {
    if (Number.isNaN(delayMs)) throw new RangeError('timer delay is not a number');
    if (delayMs > MAX_TIMER_MS) return new LongTimer(delayMs, fn);
    return new ShortTimer(setTimeout(fn, Math.max(0, delayMs)));
  },
};

/** Token under which the clock is injected. */
export const CLOCK = Symbol('Clock');
