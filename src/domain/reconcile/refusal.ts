/**
 * What an agent's "no" to a command says about the start it was about. A "no" to the *sender* (another server's term is obeyed
 * there) says nothing about the engine: counted as a failure it would make a healthy model wait, and after some repetitions crawl.
 */
import type { Verdict } from '../cluster.js';
import type { CommandRefusal } from '../snapshot.js';

export const REFUSAL_CAUSES = ['staleTerm', 'oldGeneration'] as const;
/** Why an agent did not obey, when that is no matter of the engine. */
export type RefusalCause = (typeof REFUSAL_CAUSES)[number];

/** The parts of an agent's answer that decide. */
export interface RefusedAnswer {
  readonly cause?: RefusalCause;
  readonly verdict?: Verdict;
  readonly message?: string;
}

/**
 * The refusal as the start's own failure; undefined when it is none. One without any reason, from an agent older than the
 * reasons, is none either: a start that really does not come is noticed by its absence.
 */
export function startRefusal(answer: RefusedAnswer): CommandRefusal | undefined {
  const { cause, verdict, message } = answer;
  if (cause === 'staleTerm') return undefined;
  if (cause === undefined && verdict === undefined) return undefined;
  return { verdict: verdict ?? 'unknown', ...(message === undefined ? {} : { message }) };
}
