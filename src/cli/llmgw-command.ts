import { OperatorError } from '../shared/errors.js';
import { didYouMean } from '../shared/nearest.js';
import { CommandRunner } from './nest-commander-lean.js';

/** Commander's command object, in the version that nest-commander brings. */
export type CommanderCommand = Parameters<CommandRunner['setCommand']>[0];

/** Base of every command: errors are thrown instead of ending the process, and help looks the same everywhere. */
export abstract class LlmgwCommand extends CommandRunner {
  /** Command lines shown under the help, each with what it does. */
  protected readonly examples: readonly (readonly [line: string, what: string])[] = [];

  override setCommand(command: CommanderCommand): this {
    configureCommand(command);
    if (this.examples.length > 0) command.addHelpText('after', () => examplesText(this.examples));
    return super.setCommand(command);
  }
}

export function configureCommand(command: CommanderCommand): void {
  command
    .exitOverride()
    .showSuggestionAfterError(true)
    .allowExcessArguments(false)
    .configureHelp({ showGlobalOptions: true, sortSubcommands: false })
    // The message is told once, by the code that knows how (JSON or text), when the error arrives there.
    .configureOutput({ outputError: () => undefined });
}

/** Name, help and options of the root command. */
export function setUpRoot(root: CommanderCommand): void {
  configureCommand(root);
  root
    .name('llmgw')
    .description('Turns a handful of GPU machines into one OpenAI-compatible service.')
    .option('-V, --version', 'print the version')
    .option('--debug', 'print stack traces of errors');
}

function examplesText(examples: readonly (readonly [string, string])[]): string {
  const width = Math.max(...examples.map(([line]) => line.length));
  const lines = examples.map(([line, what]) => `  ${line.padEnd(width)}  ${what}`);
  return `\nExamples:\n${lines.join('\n')}`;
}

/** A command that only groups others: alone it shows its help, an unknown word is an error with a suggestion. */
export abstract class GroupCommand extends LlmgwCommand {
  override setCommand(command: CommanderCommand): this {
    super.setCommand(command);
    // The unknown word must reach run(), where the suggestion is made, whatever flags stand behind it.
    command.allowExcessArguments(true).allowUnknownOption(true);
    return this;
  }

  override run(words: string[]): Promise<void> {
    const known = this.command.commands.map((command) => command.name());
    const word = words[0];
    if (word === undefined) this.command.help();
    if (word.startsWith('-')) throw usageError(`unknown option '${word}'`);
    const equivalent = this.equivalent(words);
    if (equivalent !== undefined)
      throw usageError(`${fullName(this.command)} has no '${word}'`, `use: ${equivalent}`);
    throw usageError(
      `unknown command '${word}' of '${fullName(this.command)}'${didYouMean(word, known)}`,
      `known are: ${known.join(', ')}`,
    );
  }

  /** What does what these words ask for in another program that people know. */
  protected equivalent(_words: readonly string[]): string | undefined {
    return undefined;
  }
}

/** `llmgw ctl nodes`, as the user typed it. */
export function fullName(command: CommanderCommand): string {
  const names: string[] = [];
  for (let at: CommanderCommand | null = command; at !== null; at = at.parent) names.unshift(at.name());
  return names.join(' ');
}

export function usageError(message: string, hint?: string): OperatorError {
  return new OperatorError('invalid_argument', message, hint === undefined ? {} : { hint });
}

/** Parser of a repeatable option. */
export function collect(value: string, previous: readonly string[] = []): string[] {
  return [...previous, value];
}
