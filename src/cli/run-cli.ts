/**
 * The way into every command. Light on purpose: what a command needs is loaded when its first word is known,
 * so that `ctl` does not pay for the server's world.
 */
import { EXIT, type ExitCode } from '../shared/errors.js';
import { exitCodeOf, failureText, readFailureStyle } from './failure.js';
import { buildVersion } from '../shared/build-info.js';

/** Runs one command line (without `node` and the script) and gives the exit code. Never throws. */
export async function runCli(argv: readonly string[]): Promise<ExitCode> {
  if (isVersionQuestion(argv)) {
    process.stdout.write(`llmgw ${buildVersion()}\n`);
    return EXIT.ok;
  }
  try {
    if (firstWord(argv) === 'ctl') {
      const { runCtl } = await import('./lean-runner.js');
      await runCtl(argv);
    } else {
      const { runProgram } = await import('./program-runner.js');
      await runProgram(argv);
    }
    // A command that ends well may still have a result to tell by its code.
    return (process.exitCode as ExitCode | undefined) ?? EXIT.ok;
  } catch (error) {
    const text = failureText(error, readFailureStyle(argv, process.env));
    if (text !== '') process.stderr.write(text);
    return exitCodeOf(error);
  }
}

/** The word that chooses the command: flags before it do not count. */
export function firstWord(argv: readonly string[]): string | undefined {
  return argv.find((arg) => !arg.startsWith('-'));
}

function isVersionQuestion(argv: readonly string[]): boolean {
  return argv.length > 0 && (argv[0] === '--version' || argv[0] === '-V' || argv[0] === 'version');
}

/** `llmgw ctl nodes | head` closes the pipe early: that is the reader's choice and no failure. */
export function quietBrokenPipes(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') process.exit(EXIT.ok);
      // A full disk behind `> file`: what was written is not whole, and whoever reads it must not think so.
      if (stream === process.stdout) process.stderr.write(`the output cannot be written: ${error.message}\n`);
      process.exit(EXIT.failed);
    });
  }
}
