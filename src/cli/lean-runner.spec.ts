import { CommandFactory } from 'nest-commander';
import { CommandRunnerService } from 'nest-commander/src/command-runner.service.js';
import { describe, expect, it } from 'vitest';
import { CliModule } from './cli.module.js';
import { OTHER_COMMANDS, commandWordsOf } from './ctl/completion-script.js';
import { buildCtlProgram } from './lean-runner.js';
import type { CommanderCommand } from './llmgw-command.js';

/** Everything a user can see of a command and what is below it. */
function shape(command: CommanderCommand): unknown {
  return {
    name: command.name(),
    description: command.description(),
    usage: command.usage(),
    options: command.options
      .map(({ flags, description, defaultValue, mandatory }) => ({
        flags,
        description,
        defaultValue: defaultValue as unknown,
        mandatory,
      }))
      .toSorted((a, b) => a.flags.localeCompare(b.flags)),
    commands: command.commands.map(shape),
  };
}

async function nestProgram(): Promise<CommanderCommand> {
  const app = await CommandFactory.createWithoutRunning(CliModule, { logger: false });
  const runner = app.get(CommandRunnerService) as unknown as { commander: CommanderCommand };
  return runner.commander;
}

const below = (command: CommanderCommand, name: string): CommanderCommand =>
  command.commands.find((sub) => sub.name() === name)!;

describe('the program of ctl, built without Nest', () => {
  it('is the one that nest-commander builds', async () => {
    const nest = await nestProgram();
    const lean = buildCtlProgram();
    expect(shape(below(lean, 'ctl'))).toEqual(shape(below(nest, 'ctl')));
    const options = (root: CommanderCommand) => root.options.map(({ flags }) => flags);
    expect(options(lean)).toEqual(options(nest));
  });

  it('knows the words and options of the other commands for completion', async () => {
    const nest = await nestProgram();
    const others = nest.commands.filter((command) => command.name() !== 'ctl');
    const sorted = (
      words: readonly { path: string; words: readonly string[]; options: readonly string[] }[],
    ) =>
      words
        .map((entry) => ({ path: entry.path, words: entry.words, options: entry.options.toSorted() }))
        .toSorted((a, b) => a.path.localeCompare(b.path));
    expect(sorted(OTHER_COMMANDS)).toEqual(
      sorted(others.flatMap((command) => commandWordsOf(command, command.name()))),
    );
  });
});
