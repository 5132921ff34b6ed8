import { didYouMean } from '../../shared/nearest.js';
import { usageError, type CommanderCommand } from '../llmgw-command.js';
import { SubCommand } from '../nest-commander-lean.js';
import {
  OTHER_COMMANDS,
  SHELLS,
  completionScript,
  type CommandWords,
  type Shell,
} from './completion-script.js';
import { CtlCommandBase } from './ctl-base.js';

/** Which list completes the argument of a command. */
const IDS: Readonly<Record<string, string>> = {
  node: 'nodes',
  cordon: 'nodes',
  uncordon: 'nodes',
  drain: 'nodes',
  remove: 'nodes',
  model: 'models',
  'explain-placement': 'models',
  scale: 'models',
  restart: 'models',
  replica: 'replicas',
  logs: 'replicas',
};

@SubCommand({
  name: 'completion',
  arguments: '<shell>',
  description: 'Print a completion script for bash, zsh or fish.',
})
export class CtlCompletionCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['source <(llmgw ctl completion bash)', 'for this shell; put it into ~/.bashrc for all'],
  ] as const;

  override async run([shell = '']: string[]): Promise<void> {
    const known: readonly string[] = SHELLS;
    if (!known.includes(shell)) {
      throw usageError(
        `unknown shell '${shell}'${didYouMean(shell, known)}`,
        `known are: ${known.join(', ')}`,
      );
    }
    const ctl = this.command.parent;
    if (ctl === null) throw new Error('completion stands below ctl');
    process.stdout.write(completionScript(shell as Shell, allCommands(ctl)));
  }
}

function allCommands(ctl: CommanderCommand): CommandWords[] {
  const others = OTHER_COMMANDS.filter(({ path }) => !path.includes(' ')).map(({ path }) => path);
  const root: CommandWords = { path: '', words: [...others, 'ctl'], options: ['--version', '--help'] };
  return [root, ...OTHER_COMMANDS, ...commandWords(ctl, 'ctl')];
}

/** A command and everything below it; options of a group may stand behind the words of its members too. */
export function commandWords(
  command: CommanderCommand,
  path: string,
  inherited: readonly string[] = [],
): CommandWords[] {
  const own = command.options
    .map((option) => option.long ?? option.short ?? '')
    .filter((flag) => flag !== '');
  const options = [...own, ...inherited];
  const ids = IDS[command.name()];
  return [
    {
      path,
      words: command.commands.map((sub) => sub.name()),
      options,
      ...(ids === undefined ? {} : { ids }),
    },
    ...command.commands.flatMap((sub) => commandWords(sub, `${path} ${sub.name()}`, options)),
  ];
}
