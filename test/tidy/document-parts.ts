import type { EXIT } from '../../src/shared/errors.js';

/** Head of every written document. */
export const WRITTEN = '<!-- Written by `npm run docs`; change the code instead. -->';

/** Rows of Markdown. */
export const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');

/** What a user reads of an exit code. */
export const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  ok: 'It worked.',
  failed: 'It did not work; the message says why.',
  usage: 'The command line or the configuration is wrong.',
  notFound: 'There is no such thing.',
  notAuthorised: 'A token is missing, unknown or not enough.',
  unreachable: 'The server cannot be reached.',
  timedOut: 'What was waited for did not happen in time.',
  conflict: 'It contradicts the present state, or was refused to keep a promise.',
  interrupted: 'Interrupted by a signal.',
};
