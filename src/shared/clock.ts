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

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  setTimer(delayMs, fn) {
    if (Number.isNaN(delayMs)) throw new RangeError('timer delay is not a number');
    // A delay beyond Node's limit is walked in steps: setTimeout(2**31) would fire after one millisecond.
    let left = Math.max(0, delayMs);
    let handle: NodeJS.Timeout;
    const arm = () => {
      const step = Math.min(left, MAX_TIMER_MS);
      left -= step;
      handle = setTimeout(() => (left > 0 ? arm() : fn()), step);
    };
    arm();
    return { cancel: () => clearTimeout(handle) };
  },
};

/** Token under which the clock is injected. */
export const CLOCK = Symbol('Clock');
