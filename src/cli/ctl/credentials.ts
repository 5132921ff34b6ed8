/** What `ctl keys` and `ctl tokens` share. */
import { parseExpiry } from '../../config/expiry.js';
import { systemClock } from '../../shared/clock.js';
import { OperatorError } from '../../shared/errors.js';
import { usageError } from '../llmgw-command.js';
import { plain } from '../render/values.js';
import { unknownObject, type Answer } from './ctl-base.js';

export function wholeNumber(flag: string, value: string, least: number): number {
  if (!/^\d{1,10}$/.test(value) || Number(value) < least) {
    throw usageError(`${flag}: expected a whole number from ${least}, got '${value}'`);
  }
  return Number(value);
}

/** The text as it was given: a duration counts from the server's clock. */
export function checkExpiry(value: string): string {
  const parsed = parseExpiry(value, systemClock.wallMs());
  if (!parsed.ok) throw usageError(`--expires: ${parsed.problem}`);
  return value;
}

export function nameGiven(name: string | undefined): string {
  if (name !== undefined && name !== '') return name;
  throw usageError('--name is missing', 'give it the name of who or what uses it: --name ci');
}

interface Listed {
  readonly id: string;
  readonly name: string;
  readonly state: string;
}

export const notRevoked =
  (all: boolean | undefined) =>
  ({ state }: Listed): boolean =>
    all === true || state !== 'revoked';

/** The one meant by an id, the beginning of one, or a name that only one bears which is not revoked. */
export function byIdOrUnique<T extends Listed>(noun: string, given: string, items: readonly T[]): T {
  const exact = items.find(({ id }) => id === given);
  if (exact !== undefined) return exact;
  const living = items.filter(notRevoked(false));
  const named = living.filter(({ name }) => name === given);
  const begun = given === '' ? [] : living.filter(({ id }) => id.startsWith(given));
  const found = named.length > 0 ? named : begun;
  const [only, ...others] = found;
  if (only === undefined) {
    throw unknownObject(
      noun,
      given,
      living.map(({ id }) => id),
    );
  }
  if (others.length === 0) return only;
  const ids = found.slice(0, 8).map(({ id }) => id);
  throw new OperatorError('conflict', `${noun} '${given}' is not unique: ${ids.join(', ')}`, {
    hint: 'give the id',
  });
}

export function sayNotes(notes: readonly string[]): void {
  for (const note of notes) process.stderr.write(`${plain(note)}\n`);
}

interface Created {
  readonly id: string;
  readonly name: string;
  readonly secret: string;
  readonly notes: readonly string[];
}

/** Standard output gets the secret alone, so that it can go where it is needed; what is to be said goes past it. */
export function createdAnswer(created: Created, noun: string): Answer {
  return {
    data: created,
    names: [created.id],
    lines: () => {
      const { id, name, notes } = created;
      process.stderr.write(
        `${noun} ${id} (${plain(name)}) made; this is the only time its secret is shown:\n`,
      );
      sayNotes(notes);
      return [created.secret];
    },
  };
}
