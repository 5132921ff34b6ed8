import { describe, expect, it } from 'vitest';
import { runLlmgw } from '../../../test/support/run-ctl.js';
import { buildCtlProgram } from '../lean-runner.js';
import type { CommanderCommand } from '../llmgw-command.js';

/** Every word users and scripts rely on, with its arguments and options; what is gone from here breaks them. */
const PROMISED: Readonly<Record<string, string>> = {
  nodes: '',
  'nodes remove': '<node> --yes',
  node: '<id>',
  gpus: '',
  models: '',
  model: '<name>',
  replicas: '--model',
  replica: '<id>',
  endpoints: '',
  events: '--follow',
  top: '',
  status: '',
  version: '',
  'explain-placement': '<model> --replica',
  'explain-request': '<request-id>',
  plan: '--file',
  cordon: '<node> --reason',
  uncordon: '<node>',
  drain: '<node> --gpu --plan --wait --deadline --stream-grace --allow-gap --reason --yes',
  scale: '<model> <replicas> --wait',
  restart: '<model-or-replica> --wait --allow-gap',
  logs: '<shard-or-replica> --follow --tail',
  'keys create': '',
  'keys list': '',
  'keys revoke': '<id>',
  'tokens create': '',
  'tokens list': '',
  'tokens revoke': '<id>',
  'backup create': '',
  'backup verify': '',
  'backup restore': '',
  'config reload': '',
  completion: '<shell>',
};

const ctl = buildCtlProgram().commands.find((command) => command.name() === 'ctl')!;

/** Commands below one, by the words that lead there. */
function walk(command: CommanderCommand, path: readonly string[] = []): [string, CommanderCommand][] {
  return command.commands.flatMap((sub) => {
    const words = [...path, sub.name()];
    return [[words.join(' '), sub] as [string, CommanderCommand], ...walk(sub, words)];
  });
}

const commands = new Map(walk(ctl));
const argumentsOf = (command: CommanderCommand): string[] =>
  command.registeredArguments.map((one) => (one.required ? `<${one.name()}>` : `[${one.name()}]`));
const optionsOf = (command: CommanderCommand): string[] => command.options.map(({ long }) => long ?? '');

describe('the commands', () => {
  it.each(Object.entries(PROMISED))('has %s %s', (path, promised) => {
    const command = commands.get(path);
    expect(command, `${path} is gone`).toBeDefined();
    const words = promised.split(' ').filter((word) => word !== '');
    expect(argumentsOf(command!).filter((one) => one.startsWith('<'))).toEqual(
      expect.arrayContaining(words.filter((word) => word.startsWith('<'))),
    );
    expect(optionsOf(command!)).toEqual(
      expect.arrayContaining(words.filter((word) => word.startsWith('--'))),
    );
  });

  it('are all promised: a new one is written down here too', () => {
    const leaves = [...commands].filter(([, command]) => command.commands.length === 0);
    expect(leaves.map(([path]) => path).filter((path) => PROMISED[path] === undefined)).toEqual([]);
  });

  it('take the options of all before and after their own word', () => {
    expect(optionsOf(ctl)).toEqual(
      expect.arrayContaining(['--server', '--token-file', '--output', '--watch', '--no-color', '--timeout']),
    );
  });

  it.each([...commands.keys()])(
    '%s says in its help what it does, with its options described',
    async (path) => {
      const { code, out } = await runLlmgw('ctl', ...path.split(' '), '--help');
      expect(code).toBe(0);
      expect(out).toMatch(/^Usage: llmgw ctl /);
      const command = commands.get(path)!;
      expect(command.description()).toMatch(/^[A-Z].*\.$/s);
      expect(command.options.filter(({ description }) => description === '')).toEqual([]);
    },
  );

  it('that change or need explaining have examples', () => {
    const needExamples = ['drain', 'scale', 'restart', 'plan', 'logs', 'events', 'explain-placement'];
    const without = needExamples.filter((path) => !helpOf(commands.get(path)!).includes('Examples:'));
    expect(without).toEqual([]);
  });
});

/** With what is written after the options. */
function helpOf(command: CommanderCommand): string {
  let text = '';
  command.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
  return text;
}
