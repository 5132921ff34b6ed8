/** Completion for three shells, made from the commands themselves. */

import type { CommanderCommand } from '../llmgw-command.js';

/** One command as a shell needs to know it. */
export interface CommandWords {
  /** `ctl nodes`; empty for the root. */
  readonly path: string;
  /** Words that may follow. */
  readonly words: readonly string[];
  readonly options: readonly string[];
  /** `ctl` list whose ids may follow, e.g. `nodes`. */
  readonly ids?: string;
}

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

/** Commands beside `ctl`: they are not loaded with it, and a test holds this equal to what they really take. */
export const OTHER_COMMANDS: readonly CommandWords[] = [
  {
    path: 'server',
    words: [],
    options: ['--config', '--listen', '--admin-listen', '--agent-listen', '--state-dir', '--endpoint'],
  },
  {
    path: 'agent',
    words: [],
    options: ['--config', '--server', '--node-id', '--label', '--state-dir', '--join-token-file', '--check'],
  },
  {
    path: 'up',
    words: [],
    options: [
      '--config',
      '--model',
      '--listen',
      '--admin-listen',
      '--agent-listen',
      '--state-dir',
      '--verbose',
    ],
  },
  {
    path: 'bench',
    words: [],
    options: [
      ...[
        '--url',
        '--model',
        '--concurrency',
        '--requests',
        '--duration',
        '--rate',
        '--shape',
        '--max-tokens',
      ],
      ...['--seed', '--faults', '--max-errors', '--timeout', '--api-key-file', '--output'],
    ],
  },
  { path: 'config', words: ['check', 'show', 'schema'], options: [] },
  { path: 'config check', words: [], options: ['--config', '--agent'] },
  { path: 'config show', words: [], options: ['--config', '--agent', '--output'] },
  { path: 'config schema', words: [], options: ['--config', '--agent'] },
];

/** Which list completes the argument of a command, by its word or, where others have the same, its group's too. */
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
  'keys revoke': 'keys list',
  'tokens revoke': 'tokens list',
};

/** A command and everything below it; options of a group may stand behind the words of its members too. */
export function commandWordsOf(
  command: CommanderCommand,
  path: string,
  inherited: readonly string[] = [],
): CommandWords[] {
  const own = command.options
    .map((option) => option.long ?? option.short ?? '')
    .filter((flag) => flag !== '');
  const options = [...own, ...inherited];
  const ids = IDS[command.name()] ?? IDS[`${command.parent?.name() ?? ''} ${command.name()}`];
  return [
    {
      path,
      words: command.commands.map((sub) => sub.name()),
      options,
      ...(ids === undefined ? {} : { ids }),
    },
    ...command.commands.flatMap((sub) => commandWordsOf(sub, `${path} ${sub.name()}`, options)),
  ];
}

export function completionScript(shell: Shell, commands: readonly CommandWords[]): string {
  switch (shell) {
    case 'bash':
      return bashScript(commands);
    case 'zsh':
      // zsh runs bash completions through its own adapter.
      return `autoload -U +X bashcompinit && bashcompinit\n${bashScript(commands)}`;
    case 'fish':
      return fishScript(commands);
  }
}

/** Walks the words typed so far to the deepest known command, then offers what may follow it. */
function bashScript(commands: readonly CommandWords[]): string {
  const cases = commands.map(({ path, words, options, ids }) => {
    const fixed = [...words, ...options].join(' ');
    const dynamic = ids === undefined ? '' : ` $(llmgw ctl ${ids} -o name 2>/dev/null)`;
    return `    '${path}') candidates="${fixed}${dynamic}" ;;`;
  });
  const paths = commands.map(({ path }) => `'${path}'`).join('|');
  return `# llmgw completion: source <(llmgw ctl completion bash)
_llmgw() {
  local current="\${COMP_WORDS[COMP_CWORD]}" path="" next word candidates=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    next="\${path:+$path }$word"
    case "$next" in
      ${paths}) path="$next" ;;
    esac
  done
  case "$path" in
${cases.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$candidates" -- "$current"))
}
complete -o default -F _llmgw llmgw
`;
}

function fishScript(commands: readonly CommandWords[]): string {
  const lines = commands.flatMap(({ path, words, options, ids }) => {
    const condition = `__llmgw_at "${path}"`;
    const offer = [...words, ...options.filter((option) => !option.startsWith('--'))];
    return [
      ...(offer.length === 0 ? [] : [`complete -c llmgw -f -n '${condition}' -a '${offer.join(' ')}'`]),
      ...options
        .filter((option) => option.startsWith('--'))
        .map((option) => `complete -c llmgw -n '${condition}' -l ${option.slice(2)}`),
      ...(ids === undefined
        ? []
        : [`complete -c llmgw -f -n '${condition}' -a '(llmgw ctl ${ids} -o name 2>/dev/null)'`]),
    ];
  });
  const paths = commands.map(({ path }) => `"${path}"`).join(' ');
  return `# llmgw completion: llmgw ctl completion fish | source
function __llmgw_at
  set -l known ${paths}
  set -l path ""
  for word in (commandline -opc)[2..-1]
    set -l next (string trim -- "$path $word")
    contains -- "$next" $known; and set path "$next"
  end
  test "$path" = "$argv[1]"
end
${lines.join('\n')}
`;
}
