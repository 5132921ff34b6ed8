/** Completion as the three shells really take it; a shell that is not here is skipped, and `.ci/steps/completion.sh` brings all three. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { hasTerminals, TerminalProcess } from '../../../test/support/pty.js';
import { runLlmgw } from '../../../test/support/run-ctl.js';
import { waitFor } from '../../../test/support/wait-for.js';
import { buildCtlProgram } from '../lean-runner.js';
import type { CommanderCommand } from '../llmgw-command.js';
import { SHELLS, type Shell } from './completion-script.js';

const has = (program: string): boolean => spawnSync(program, ['--version']).error === undefined;
const HAS = Object.fromEntries(SHELLS.map((shell) => [shell, has(shell)])) as Record<Shell, boolean>;
const TAB = '\t';

for (const shell of SHELLS) {
  if (HAS[shell]) continue;
  // What is required where everything is installed must not pass by being skipped.
  if (process.env['LLMGW_TEST_SHELLS'] === 'all') throw new Error(`${shell} is not installed`);
  process.stderr.write(`completion.spec: skipped for ${shell}, which is not installed\n`);
}

/** The script of each shell in a file, beside a stand-in for `llmgw` that answers what completion asks the server for. */
const dir = mkdtempSync(join(tmpdir(), 'llmgw-completion-'));
const file = (shell: Shell): string => join(dir, `completion.${shell}`);
const env = { PATH: `${dir}:${process.env['PATH'] ?? ''}`, HOME: dir, TERM: 'xterm' };

const STAND_IN = `#!/bin/sh
printf '%s\\n' "$*" >>'${join(dir, 'ran')}'
case "$*" in *'-o name') echo node-1; echo node-2 ;; esac
`;

beforeAll(async () => {
  for (const shell of SHELLS) writeFileSync(file(shell), (await runLlmgw('ctl', 'completion', shell)).out);
  writeFileSync(join(dir, 'ran'), '');
  writeFileSync(join(dir, 'llmgw'), STAND_IN, { mode: 0o755 });
});
// A shell that is killed may still be writing what it remembers.
afterAll(() => rmSync(dir, { recursive: true, force: true, maxRetries: 10 }));

const run = (program: string, ...args: string[]) => spawnSync(program, args, { encoding: 'utf8', env });

const pathsOf = (command: CommanderCommand, path: string): string[] => [
  path,
  ...command.commands.flatMap((sub) => pathsOf(sub, `${path} ${sub.name()}`)),
];

it.each(SHELLS)('completion for %s knows every command', async (shell) => {
  const { out } = await runLlmgw('ctl', 'completion', shell);
  const ctl = buildCtlProgram().commands.find((command) => command.name() === 'ctl')!;
  for (const path of pathsOf(ctl, 'ctl')) expect(out).toContain(path);
});

it.each([
  ['bash', '-n'],
  ['zsh', '-n'],
  ['fish', '--no-execute'],
] as const)('%s reads it without a complaint', (shell, flag) => {
  if (!HAS[shell]) return;
  const { status, stdout, stderr } = run(shell, flag, file(shell));
  expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: '', stderr: '' });
});

/** Words typed, the last of which is not finished, and some of what is offered for it. */
const OFFERS: readonly [readonly string[], readonly string[]][] = [
  [[''], ['server', 'agent', 'up', 'ctl']],
  [['ctl', 'dr'], ['drain']],
  [['ctl', 'nodes', 'r'], ['remove']],
  [
    ['ctl', 'drain', ''],
    ['node-1', 'node-2'],
  ],
  [['ctl', 'drain', 'node-1', '--all'], ['--allow-gap']],
  [
    ['ctl', '-o', 'json', 'node', 'n'],
    ['node-1', 'node-2'],
  ],
  [
    ['ctl', 'nodes', '-o', ''],
    ['table', 'wide', 'json', 'yaml', 'name'],
  ],
  [
    ['ctl', 'keys', 'revoke', 'n'],
    ['node-1', 'node-2'],
  ],
  [
    ['ctl', 'completion', ''],
    ['bash', 'zsh', 'fish'],
  ],
  [
    ['ctl', 'replicas', '--model', ''],
    ['node-1', 'node-2'],
  ],
];

function offeredByBash(words: readonly string[]): string[] {
  const quoted = ['llmgw', ...words].map((word) => `'${word}'`).join(' ');
  const program = `source '${file('bash')}'
COMP_WORDS=(${quoted}); COMP_CWORD=${words.length}; _llmgw; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = run('bash', '--norc', '-c', program);
  expect(stderr).toBe('');
  return stdout.split('\n');
}

function offeredByFish(words: readonly string[]): string[] {
  const line = ['llmgw', ...words].join(' ');
  const { stdout, stderr } = run(
    'fish',
    '--no-config',
    '-c',
    `source '${file('fish')}'; complete -C '${line}'`,
  );
  expect(stderr).toBe('');
  return stdout.split('\n').map((offer) => offer.split('\t')[0] ?? '');
}

describe.each([
  ['bash', offeredByBash],
  ['fish', offeredByFish],
] as const)('%s offers', (shell, offered) => {
  it.skipIf(!HAS[shell]).each(OFFERS)('for %j: %j', (words, expected) => {
    expect(offered(words)).toEqual(expect.arrayContaining([...expected]));
  });
});

describe.skipIf(!hasTerminals)('the key itself', () => {
  let shell: TerminalProcess | undefined;
  afterEach(() => shell?.kill());

  const START: Record<'bash' | 'zsh', readonly string[]> = {
    bash: ['bash', '--norc', '--noprofile', '-i'],
    zsh: ['zsh', '-f', '-i'],
  };

  const ran = (line: string) =>
    waitFor(() => readFileSync(join(dir, 'ran'), 'utf8').split('\n').includes(line), {
      deadlineMs: 15_000,
      what: `llmgw ${line}; on the screen: ${shell?.text}`,
    });

  it.each(['bash', 'zsh'] as const)(
    'in %s finishes commands, options and the ids of machines',
    async (name) => {
      if (!HAS[name]) return;
      shell = new TerminalProcess(START[name], 200, env);
      shell.type(`source '${file(name)}' && llmgw loaded\r`);
      await ran('loaded');
      // What is finished by the key is run, so that it can be seen as one line whatever the shell draws.
      shell.type(`llmgw ctl dr${TAB}nod${TAB}1 --allow${TAB}\r`);
      await ran('ctl drain node-1 --allow-gap');
      expect(shell.text).not.toMatch(/not found|insecure/i);
      shell.type('exit\r');
      await shell.ended();
    },
  );
});
