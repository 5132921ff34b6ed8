import { OperatorError } from '../shared/errors.js';
import { nearNames } from '../shared/near-names.js';

/** Ids named when a beginning fits several. */
const AMBIGUOUS_SHOWN_MAX = 5;

/** The item with this id, or the only one whose id begins so. Throws `not_found`, or `invalid_argument` when several do. */
export function findByPrefix<T>(
  noun: string,
  given: string,
  items: readonly T[],
  id: (item: T) => string,
): T {
  const exact = items.find((item) => id(item) === given);
  if (exact !== undefined) return exact;
  const beginning = given === '' ? [] : items.filter((item) => id(item).startsWith(given));
  const [only, ...others] = beginning;
  if (only !== undefined && others.length === 0) return only;
  if (only !== undefined) {
    const ids = beginning.slice(0, AMBIGUOUS_SHOWN_MAX).map(id).join(', ');
    const rest =
      beginning.length > AMBIGUOUS_SHOWN_MAX ? ` and ${beginning.length - AMBIGUOUS_SHOWN_MAX} more` : '';
    throw new OperatorError('invalid_argument', `${noun} "${given}" could be ${ids}${rest}`, { field: 'id' });
  }
  throw notFound(noun, given, items.map(id));
}

/** The item one of whose names is exactly this. Throws `not_found`. */
export function findNamed<T>(
  noun: string,
  given: string,
  items: readonly T[],
  names: (item: T) => readonly string[],
): T {
  const found = items.find((item) => names(item).includes(given));
  if (found !== undefined) return found;
  throw notFound(noun, given, items.flatMap(names));
}

export function notFound(noun: string, given: string, names: readonly string[]): OperatorError {
  const near = nearNames(given, names);
  const message = `there is no ${noun} "${given}"`;
  if (near.length > 0)
    return new OperatorError('not_found', `${message}; did you mean ${near.join(' or ')}?`);
  if (names.length === 0) return new OperatorError('not_found', `${message}; there are no ${noun}s at all`);
  return new OperatorError('not_found', message, { hint: whereListed(noun) });
}

/** Shards have no list of their own: a node and a replica show theirs. */
const whereListed = (noun: string): string =>
  noun === 'shard'
    ? 'llmgw ctl node NODE and llmgw ctl replica ID show shards'
    : `llmgw ctl ${noun}s lists them`;
