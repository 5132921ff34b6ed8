import { createInterface } from 'node:readline/promises';
import { EXIT } from '../../shared/errors.js';
import { QuietExit } from '../failure.js';

/** Asks on a terminal before something that hurts; scripts are not asked, their author has decided. */
export async function confirm(question: string, yes: boolean): Promise<void> {
  if (yes || process.stdin.isTTY !== true || process.stderr.isTTY !== true) return;
  const answer = await ask(`${question} [y/N] `);
  if (/^y(es)?$/i.test(answer?.trim() ?? '')) return;
  // Ctrl-C and Ctrl-D leave the cursor behind the question.
  process.stderr.write(`${answer === undefined ? '\n' : ''}nothing was done\n`);
  throw new QuietExit(answer === undefined ? EXIT.interrupted : EXIT.failed);
}

/** The line that is typed; undefined when the terminal is closed or interrupted instead, which settles no question by itself. */
async function ask(question: string): Promise<string | undefined> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return await new Promise<string | undefined>((resolve, reject) => {
      terminal.once('SIGINT', () => resolve(undefined));
      terminal.once('close', () => resolve(undefined));
      terminal.question(question).then(resolve, reject);
    });
  } finally {
    terminal.close();
  }
}
