/** How long to wait before the next dial. Pure: two hundred agents that lost the same server must not come back as one. */
import type { Random } from '../shared/random.js';
import type { AgentTimings } from './limits.js';

export type DialEnd =
  /** Connected and welcomed, then lost after `livedMs`. */
  | { readonly kind: 'lost'; readonly livedMs: number }
  /** Nobody there, or no welcome. */
  | { readonly kind: 'failed' }
  /** The server said no; asking again soon changes nothing. */
  | { readonly kind: 'refused' }
  /** Another agent holds the node id: the place is free the moment that one is known to be gone. */
  | { readonly kind: 'taken' };

export interface DialMemory {
  readonly failures: number;
}

export const FIRST_DIAL: DialMemory = { failures: 0 };

export type DialLimits = Pick<
  AgentTimings,
  'reconnectBaseMs' | 'reconnectMaxMs' | 'sessionProvenMs' | 'refusedPauseMs' | 'takenPauseMs'
>;

export function nextDial(
  memory: DialMemory,
  end: DialEnd,
  random: Random,
  limits: DialLimits,
): { readonly memory: DialMemory; readonly pauseMs: number } {
  switch (end.kind) {
    case 'refused':
      // Never at once, and never all at the same moment.
      return { memory, pauseMs: limits.refusedPauseMs * (0.5 + random() / 2) };
    case 'taken':
      // Whoever replaces a broken machine waits for nothing else.
      return { memory, pauseMs: limits.takenPauseMs * (0.5 + random() / 2) };
    case 'lost':
      // A server that accepts and hangs up must not look like a healthy one.
      if (end.livedMs >= limits.sessionProvenMs)
        return { memory: FIRST_DIAL, pauseMs: random() * limits.reconnectBaseMs };
      return fullJitter(memory, random, limits);
    case 'failed':
      return fullJitter(memory, random, limits);
  }
}

function fullJitter(memory: DialMemory, random: Random, limits: DialLimits) {
  // Beyond 2^16 the ceiling holds anyway.
  const ceiling = Math.min(
    limits.reconnectMaxMs,
    limits.reconnectBaseMs * 2 ** Math.min(memory.failures, 16),
  );
  return { memory: { failures: memory.failures + 1 }, pauseMs: random() * ceiling };
}
