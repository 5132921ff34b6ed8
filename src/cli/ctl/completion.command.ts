import { didYouMean } from '../../shared/nearest.js';
import { usageError, type CommanderCommand } from '../llmgw-command.js';
import { SubCommand } from '../nest-commander-lean.js';
import {
  OTHER_COMMANDS,
  commandWordsOf,
  SHELLS,
  completionScript,
  type CommandWords,
  type Shell,
} from './completion-script.js';
import { CtlCommandBase } from './ctl-base.js';

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
  return [root, ...OTHER_COMMANDS, ...commandWordsOf(ctl, 'ctl')];
}
