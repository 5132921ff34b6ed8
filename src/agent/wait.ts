import type { Clock } from '../shared/clock.js';

/** Resolves after `delayMs`, or at once when the signal is or becomes aborted; never rejects. */
export function pause(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      timer.cancel();
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = clock.setTimer(delayMs, done);
    signal?.addEventListener('abort', done, { once: true });
  });
}

/** What `promise` gives, or `undefined` when the time is over first. The promise itself goes on. */
export async function within<T>(clock: Clock, limitMs: number, promise: Promise<T>): Promise<T | undefined> {
  const over = new AbortController();
  const limit = pause(clock, limitMs, over.signal).then(() => undefined);
  try {
    return await Promise.race([promise, limit]);
  } finally {
    over.abort();
  }
}

/** Settles with `value` once the signal is aborted. */
export function aborted<T>(signal: AbortSignal, value: T): Promise<T> {
  return new Promise((resolve) => {
    const done = (): void => resolve(value);
    if (signal.aborted) done();
    else signal.addEventListener('abort', done, { once: true });
  });
}
