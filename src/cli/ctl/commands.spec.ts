import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { runLlmgw } from '../../../test/support/run-ctl.js';
import { buildCtlProgram } from '../lean-runner.js';
import type { CommanderCommand } from '../llmgw-command.js';
import { SHELLS } from './completion-script.js';

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
  scale: '<model> <replicas>',
  restart: '<model-or-replica>',
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

const script = async (shell: string): Promise<string> => (await runLlmgw('ctl', 'completion', shell)).out;
const has = (program: string): boolean => spawnSync(program, ['--version']).error === undefined;

/** What bash would offer for the words, the last of which is being typed. */
function offered(completion: string, words: readonly string[]): string[] {
  const quoted = words.map((word) => `'${word}'`).join(' ');
  // The stand-in answers what the completion asks the server for.
  const program = `llmgw() { printf 'n1\\nn2\\n'; }
${completion}
COMP_WORDS=(${quoted}); COMP_CWORD=${words.length - 1}; _llmgw; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', program], { encoding: 'utf8' });
  expect(stderr).toBe('');
  return stdout.split('\n').filter((line) => line !== '');
}

describe('completion', () => {
  it.each(SHELLS)('for %s knows every command', async (shell) => {
    const text = await script(shell);
    for (const path of commands.keys()) expect(text).toContain(`ctl ${path}`);
  });

  it.skipIf(!has('bash')).each(['bash', 'zsh'])('for %s is well-formed', async (shell) => {
    const { stderr, status } = spawnSync('bash', ['-n'], { input: await script(shell), encoding: 'utf8' });
    expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
  });

  // Neither is on every machine; where one is, it must at least read what it is given.
  it.skipIf(!has('zsh'))('is read by zsh', async () => {
    const { stderr } = spawnSync('zsh', ['-n'], { input: await script('zsh'), encoding: 'utf8' });
    expect(stderr).toBe('');
  });

  it.skipIf(!has('fish'))('is read by fish', async () => {
    const { stderr } = spawnSync('fish', ['--no-execute'], { input: await script('fish'), encoding: 'utf8' });
    expect(stderr).toBe('');
  });

  it.skipIf(!has('bash')).each([
    [
      ['llmgw', ''],
      ['server', 'agent', 'up', 'ctl'],
    ],
    [['llmgw', 'ctl', 'dr'], ['drain']],
    [['llmgw', 'ctl', 'nodes', 'r'], ['remove']],
    [
      ['llmgw', 'ctl', 'drain', ''],
      ['n1', 'n2', '--plan', '--wait'],
    ],
    [['llmgw', 'ctl', 'drain', 'n1', '--all'], ['--allow-gap']],
    [
      ['llmgw', 'ctl', '-o', 'json', 'node', 'n'],
      ['n1', 'n2'],
    ],
    [
      ['llmgw', 'ctl', 'nodes', '-o', ''],
      ['table', 'wide', 'json', 'yaml', 'name'],
    ],
    [
      ['llmgw', 'ctl', 'keys', 'revoke', 'n'],
      ['n1', 'n2'],
    ],
    [
      ['llmgw', 'ctl', 'completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [
      ['llmgw', 'ctl', 'replicas', '--model', ''],
      ['n1', 'n2'],
    ],
  ])('in bash, %j offers %j', async (words, expected) => {
    expect(offered(await script('bash'), words)).toEqual(expect.arrayContaining(expected));
  });
});
