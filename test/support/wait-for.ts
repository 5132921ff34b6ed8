import { inspect } from 'node:util';

export interface WaitOptions {
  /** How long to wait before giving up, milliseconds. */
  readonly deadlineMs?: number;
  /** What is waited for, in words; stands in the error. */
  readonly what?: string;
}

/** Generous on purpose: it only decides how long a failing test takes, never how long a passing one does. */
const DEFAULT_DEADLINE_MS = 10_000;

/** How often the condition is looked at, milliseconds. */
const POLL_MS = 2;

/** Thrown by a condition whose wait is over: what it waits for can never come, or something went wrong on the way there. */
export class GivenUp extends Error {
  override readonly name = 'GivenUp';
}

/**
 * For what must hold at every look of a wait and not only at its end: a plain throw counts as "not yet", and what was
 * wrong for a moment would be forgotten the next.
 */
export async function mustHold(check: () => unknown): Promise<void> {
  try {
    await check();
  } catch (error) {
    throw new GivenUp(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

/**
 * Waits until `condition` gives something truthy and returns that. A condition that throws counts as "not yet", except
 * for {@link GivenUp}. After the deadline it throws, showing the last value or error seen, so that a failure tells more
 * than "timed out".
 */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  { deadlineMs = DEFAULT_DEADLINE_MS, what = 'condition' }: WaitOptions = {},
): Promise<Exclude<T, undefined | null | false | 0 | ''>> {
  const startMs = performance.now();
  let last: unknown;
  let failure: unknown;
  for (;;) {
    try {
      const value = await condition();
      if (value) return value as Exclude<T, undefined | null | false | 0 | ''>;
      last = value;
      failure = undefined;
    } catch (error) {
      if (error instanceof GivenUp) throw error;
      failure = error;
    }
    if (performance.now() - startMs > deadlineMs) {
      const seen =
        failure === undefined
          ? `last value: ${inspect(last, { depth: 4 })}`
          : `last error: ${inspect(failure)}`;
      throw new Error(`waited ${deadlineMs} ms for ${what}; ${seen}`, { cause: failure });
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Lets everything that is ready now run first: timers due, sockets readable, promises settled. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
