import { describe, expect, it } from 'vitest';
import { buildCtlProgram } from '../../src/cli/lean-runner.js';
import type { CommanderCommand } from '../../src/cli/llmgw-command.js';
import { projectFiles, read } from './repository.js';

const documents = projectFiles()
  .filter((path) => /\.(md|ya?ml)$/.test(path) && !path.startsWith('test/'))
  .map(read);

/** Command lines a document gives, the short form `ctl nodes` of its sentences too. */
function commandLines(text: string): string[] {
  const lines = [...text.matchAll(/(?:\bllmgw |`)(ctl [^`\n#;|&)]+)/g)].map(([, line]) => line!);
  // Of what may be left out, and of ranges of words, nothing is looked at.
  return lines
    .map((line) => line.replace(/\[[^\]]*\]|\.\.\.|\\\s*$/g, '').trim())
    .filter((line) => line !== 'ctl');
}

describe('documents', () => {
  it('give commands that exist, with flags that exist', () => {
    const lines = documents.flatMap(({ path, text }) => commandLines(text).map((line) => ({ path, line })));
    expect(lines.length).toBeGreaterThan(200);
    expect(lines.flatMap(({ path, line }) => problemIn(path, line))).toEqual([]);
  });

  it('would be found out', () => {
    const found = (text: string) => commandLines(text).map(commandProblem);
    expect(found('and `ctl get nodes` who.')).toEqual(['ctl get nodes: no command get']);
    expect(found('llmgw ctl nodes --all  # x')).toEqual(['ctl nodes --all: no flag --all']);
    expect(found('`llmgw ctl gpus n1`')).toEqual(['ctl gpus n1: takes no n1']);
    expect(found('`ctl node NODE`, `llmgw ctl keys list --all`')).toEqual([undefined, undefined]);
  });
});

function problemIn(path: string, line: string): string[] {
  const problem = commandProblem(line);
  return problem === undefined ? [] : [`${path}: ${problem}`];
}

/** Why the program would not take a command line, looked up without running it. */
function commandProblem(line: string): string | undefined {
  let command: CommanderCommand = buildCtlProgram();
  const words = line.split(/\s+/);
  while (words[0] !== undefined) {
    const found = command.commands.find((one) => one.name() === words[0]);
    if (found === undefined) break;
    command = found;
    words.shift();
  }
  const takesArgument = command.registeredArguments.length > 0;
  const flags = words.filter((word) => word.startsWith('-') && word !== '-');
  const known = new Set(
    [command, ...ancestors(command)].flatMap(({ options }) =>
      options.flatMap(({ long, short }) => [long, short]),
    ),
  );
  const unknown = flags.find((flag) => !known.has(flag));
  if (unknown !== undefined) return `${line}: no flag ${unknown}`;
  const word = words[0];
  if (command.name() === 'ctl' && word !== undefined && !word.startsWith('-'))
    return `${line}: no command ${word}`;
  return word !== undefined && !word.startsWith('-') && !takesArgument
    ? `${line}: takes no ${word}`
    : undefined;
}

function ancestors(command: CommanderCommand): CommanderCommand[] {
  return command.parent === null ? [] : [command.parent, ...ancestors(command.parent)];
}
