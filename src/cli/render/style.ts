/** Colour, only where a person will see it. */

/** What is known of the place the text goes to. */
export interface Surface {
  readonly colour: boolean;
  /** Columns; undefined when it is no terminal and nothing needs to be cut. */
  readonly columns?: number;
  /** Wall time for ages, ms. */
  readonly nowMs: number;
}

export type Tone = 'good' | 'busy' | 'bad' | 'dim' | 'strong';

const CODES: Readonly<Record<Tone, readonly [number, number]>> = {
  good: [32, 39],
  busy: [33, 39],
  bad: [31, 39],
  dim: [2, 22],
  strong: [1, 22],
};

export function paint(text: string, tone: Tone | undefined, surface: Pick<Surface, 'colour'>): string {
  if (tone === undefined || !surface.colour || text === '') return text;
  const [on, off] = CODES[tone];
  return `\u001b[${on}m${text}\u001b[${off}m`;
}

const TONES: Readonly<Record<string, Tone>> = {
  ready: 'good',
  up: 'good',
  connected: 'good',
  healthy: 'good',
  ok: 'good',
  info: 'dim',
  schedulable: 'dim',
  pending: 'busy',
  starting: 'busy',
  loading: 'busy',
  coming: 'busy',
  draining: 'busy',
  drained: 'busy',
  cordoned: 'busy',
  stopping: 'busy',
  trial: 'busy',
  coolingDown: 'busy',
  suspect: 'busy',
  flapping: 'busy',
  warning: 'busy',
  unseen: 'busy',
  unknown: 'busy',
  backoff: 'bad',
  failed: 'bad',
  unhealthy: 'bad',
  unreachable: 'bad',
  lost: 'bad',
  ejected: 'bad',
  excluded: 'bad',
  none: 'bad',
  error: 'bad',
};

/** The tone of a state word, or none for a word that is not known. */
export const toneOf = (state: string): Tone | undefined => TONES[state];

/** Whether colour goes to a stream. `FORCE_COLOR` and friends are for pipes that end at a terminal. */
export function wantsColour(
  stream: { readonly isTTY?: boolean },
  env: Readonly<Record<string, string | undefined>>,
  forbidden: boolean,
): boolean {
  if (forbidden || (env['NO_COLOR'] ?? '') !== '') return false;
  if ((env['CLICOLOR_FORCE'] ?? '0') !== '0' || (env['FORCE_COLOR'] ?? '0') !== '0') return true;
  return stream.isTTY === true && env['TERM'] !== 'dumb';
}
