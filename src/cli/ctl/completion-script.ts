/** Completion for three shells, made from the commands themselves. */

import type { CommanderCommand } from '../llmgw-command.js';

/** One command as a shell needs to know it. */
export interface CommandWords {
  /** `ctl nodes`; empty for the root. */
  readonly path: string;
  /** Words that may follow. */
  readonly words: readonly string[];
  readonly options: readonly string[];
  /** Short forms by long one, e.g. `-o` of `--output`. */
  readonly shorts?: Readonly<Record<string, string>>;
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

/** What may stand behind an option of `ctl`: words, or the `ctl` list whose ids it takes; nothing = a file or free text. */
const VALUES: Readonly<Record<string, { readonly words?: string; readonly ids?: string }>> = {
  '-o': { words: 'table wide json yaml name' },
  '--output': { words: 'table wide json yaml name' },
  '--model': { ids: 'models' },
  '--models': { ids: 'models' },
  '--node': { ids: 'nodes' },
  '--replica': { ids: 'replicas' },
  '--gpu': { ids: 'gpus' },
  '--role': { words: 'viewer operator admin' },
  '--kind': { words: 'admin join' },
  '--file': {},
  '--token-file': {},
};

/** A command and everything below it; options of a group may stand behind the words of its members too. */
export function commandWordsOf(
  command: CommanderCommand,
  path: string,
  inherited: Pick<CommandWords, 'options' | 'shorts'> = { options: [] },
): CommandWords[] {
  const own = command.options
    .map((option) => option.long ?? option.short ?? '')
    .filter((flag) => flag !== '');
  const options = [...own, ...inherited.options];
  const shorts = {
    ...inherited.shorts,
    ...Object.fromEntries(
      command.options.flatMap(({ long, short }) => (long && short ? [[long, short]] : [])),
    ),
  };
  const ids = IDS[command.name()] ?? IDS[`${command.parent?.name() ?? ''} ${command.name()}`];
  return [
    {
      path,
      words: command.name() === 'completion' ? SHELLS : command.commands.map((sub) => sub.name()),
      options,
      shorts,
      ...(ids === undefined ? {} : { ids }),
    },
    ...command.commands.flatMap((sub) => commandWordsOf(sub, `${path} ${sub.name()}`, { options, shorts })),
  ];
}

export function completionScript(shell: Shell, commands: readonly CommandWords[]): string {
  switch (shell) {
    case 'bash':
      return bashScript(commands);
    case 'zsh':
      return `${ZSH_ADAPTER}${bashScript(commands)}`;
    case 'fish':
      return fishScript(commands);
  }
}

/** zsh runs bash completions through its own adapter, which needs its completion to be on; a plain .zshrc does not have it. */
const ZSH_ADAPTER = `(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }
autoload -Uz +X bashcompinit && bashcompinit
`;

/** Walks the words typed so far to the deepest known command, then offers what may follow it. No variable is `path`: zsh's is PATH. */
function bashScript(commands: readonly CommandWords[]): string {
  const cases = commands.map(({ path, words, options, ids }) => {
    const fixed = [...words, ...options].join(' ');
    return `    '${path}') candidates="${fixed} ${idsOf(ids)}" ;;`;
  });
  const paths = commands.map(({ path }) => `'${path}'`).join('|');
  const values = Object.entries(VALUES).map(
    ([option, { words = '', ids }]) => `      ${option}) candidates="${words}${idsOf(ids)}" ;;`,
  );
  return `# llmgw completion: source <(llmgw ctl completion bash)
_llmgw() {
  local current="\${COMP_WORDS[COMP_CWORD]}" at="" next word candidates=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    next="\${at:+$at }$word"
    case "$next" in
      ${paths}) at="$next" ;;
    esac
  done
  case "$at" in
${cases.join('\n')}
  esac
  if [[ "$at" == ctl* ]]; then
    case "\${COMP_WORDS[COMP_CWORD-1]}" in
${values.join('\n')}
    esac
  fi
  COMPREPLY=($(compgen -W "$candidates" -- "$current"))
}
complete -o default -F _llmgw llmgw
`;
}

const idsOf = (list: string | undefined): string =>
  list === undefined ? '' : `$(llmgw ctl ${list} -o name 2>/dev/null)`;

/** What fish needs to know of a value behind an option. */
function fishValue(path: string, option: string): string {
  const value = path.startsWith('ctl') ? VALUES[option] : undefined;
  if (value?.words !== undefined) return ` -x -a '${value.words}'`;
  if (value?.ids !== undefined) return ` -x -a '(llmgw ctl ${value.ids} -o name 2>/dev/null)'`;
  return value === undefined ? '' : ' -r';
}

function fishScript(commands: readonly CommandWords[]): string {
  const lines = commands.flatMap(({ path, words, options, shorts, ids }) => {
    const short = (long: string): string =>
      shorts?.[long] === undefined ? '' : ` -s ${shorts[long].slice(1)}`;
    const condition = `__llmgw_at "${path}"`;
    const offer = [...words, ...options.filter((option) => !option.startsWith('--'))];
    return [
      ...(offer.length === 0 ? [] : [`complete -c llmgw -f -n '${condition}' -a '${offer.join(' ')}'`]),
      ...options
        .filter((option) => option.startsWith('--'))
        .map(
          (option) =>
            `complete -c llmgw -n '${condition}'${short(option)} -l ${option.slice(2)}${fishValue(path, option)}`,
        ),
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
