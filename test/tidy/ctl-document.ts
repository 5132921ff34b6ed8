import { buildCtlProgram } from '../../src/cli/lean-runner.js';
import type { CommanderCommand } from '../../src/cli/llmgw-command.js';
import { EXIT } from '../../src/shared/errors.js';
import { EXIT_MEANINGS, WRITTEN, table } from './document-parts.js';

/** Manual of `llmgw ctl`, from its commands. */
export function ctlDocument(): string {
  const ctl = buildCtlProgram().commands.find((command) => command.name() === 'ctl');
  if (ctl === undefined) throw new Error('there is no ctl');
  const codes = Object.entries(EXIT) as [keyof typeof EXIT, number][];
  return `# llmgw ctl

${WRITTEN}

Looks at and changes a running server through its admin API. Ids may be cut to a unique beginning where something is only looked at; changes want whole names of models. A typing error is answered with what was probably meant.

Data goes to standard output, messages to standard error. \`-o json\` prints the objects of the admin API unchanged (\`GET /admin/v1/openapi.json\` describes them), and an error is then one JSON object on standard error, with \`code\`, \`message\` and mostly a \`hint\`. With \`--watch\` an answer is printed again when it differs, as one JSON object a line with \`-o json\`. Nothing is coloured without a terminal, with \`NO_COLOR\` or with \`--no-color\`; tables are cut to the width of a terminal and whole elsewhere. Questions are asked on a terminal only; \`--yes\` answers them.

${optionsTable(ctl)}

## Exit codes

${table(
  ['exit code', 'meaning'],
  codes.map(([name, code]) => [String(code), EXIT_MEANINGS[name]]),
)}

## Commands
${ctl.commands.map((command) => section(command, ['llmgw', 'ctl'])).join('')}`;
}

function section(command: CommanderCommand, path: readonly string[]): string {
  const words = [...path, command.name()];
  if (command.commands.length > 0 && command.registeredArguments.length === 0 && !canRun(command))
    return command.commands.map((sub) => section(sub, words)).join('');
  const args = command.registeredArguments.map((one) =>
    one.required ? ` <${one.name()}>` : ` [${one.name()}]`,
  );
  const examples = examplesOf(command);
  const parts = [
    `### ${words.slice(2).join(' ')}`,
    command.description(),
    `\`\`\`\n${words.join(' ')}${args.join('')}${command.options.length === 0 ? '' : ' [options]'}\n\`\`\``,
    ...(command.options.length === 0 ? [] : [optionsTable(command)]),
    ...(examples.length === 0 ? [] : [table(['example', 'what it does'], examples)]),
  ];
  return `\n${parts.join('\n\n')}\n${command.commands.map((sub) => section(sub, words)).join('')}`;
}

/** A group that does something by itself too, such as `nodes`. */
const canRun = (command: CommanderCommand): boolean => command.options.length > 0;

const optionsTable = (command: CommanderCommand): string =>
  table(
    ['option', 'meaning'],
    command.options.map(({ flags, description }) => [`\`${flags}\``, escaped(description)]),
  );

/** What its help shows under the options. */
function examplesOf(command: CommanderCommand): string[][] {
  let help = '';
  command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
  const [, examples = ''] = help.split('\nExamples:\n');
  return examples
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => line.trim().split(/ {2,}/))
    .map(([line = '', what = '']) => [`\`${escaped(line)}\``, escaped(what)]);
}

/** A bar would end the cell. */
const escaped = (text: string): string => text.replaceAll('|', '\\|');
