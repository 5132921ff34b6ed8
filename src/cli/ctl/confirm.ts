import { createInterface } from 'node:readline/promises';
import { EXIT } from '../../shared/errors.js';
import { QuietExit } from '../failure.js';

/** Asks on a terminal before something that hurts; scripts are not asked, their author has decided. */
export async function confirm(question: string, yes: boolean): Promise<void> {
  if (yes || process.stdin.isTTY !== true || process.stderr.isTTY !== true) return;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await terminal.question(`${question} [y/N] `);
    if (/^y(es)?$/i.test(answer.trim())) return;
  } finally {
    terminal.close();
  }
  process.stderr.write('nothing was done\n');
  throw new QuietExit(EXIT.failed);
}
