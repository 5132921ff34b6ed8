/** Runs the commands that need Nest's container: everything but `ctl`. */
import { CommandFactory } from 'nest-commander';
import { CliModule } from './cli.module.js';

/** Runs `llmgw <argv>` through nest-commander; throws what the command throws. */
export async function runProgram(argv: readonly string[]): Promise<void> {
  // nest-commander reads process.argv and swallows what a command throws (it prints and exits 0): both are undone here.
  process.argv.splice(2, process.argv.length, ...argv);
  let failure: { readonly error: unknown } | undefined;
  await CommandFactory.run(CliModule, {
    logger: false,
    errorHandler: (error) => {
      throw error;
    },
    serviceErrorHandler: (error) => {
      failure = { error };
    },
  });
  if (failure !== undefined) throw failure.error;
}
