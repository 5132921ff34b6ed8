/** What fingers used to kubectl type, and what it is called here. */

/** One kind of thing: the command that lists it, the one that shows one of it, and the one that takes one away. */
interface Kind {
  readonly words: readonly string[];
  readonly list: string;
  readonly one?: string;
  readonly remove?: string;
}

const KINDS: readonly Kind[] = [
  { words: ['node', 'nodes', 'no'], list: 'nodes', one: 'node', remove: 'nodes remove' },
  { words: ['model', 'models', 'deployment', 'deployments', 'deploy'], list: 'models', one: 'model' },
  {
    words: ['replica', 'replicas', 'pod', 'pods', 'po', 'replicaset', 'replicasets', 'rs'],
    list: 'replicas',
    one: 'replica',
    remove: 'restart',
  },
  { words: ['endpoint', 'endpoints', 'ep', 'service', 'services', 'svc'], list: 'endpoints' },
  { words: ['event', 'events', 'ev'], list: 'events' },
  { words: ['gpu', 'gpus'], list: 'gpus' },
  { words: ['key', 'keys', 'secret', 'secrets'], list: 'keys list', remove: 'keys revoke' },
  { words: ['token', 'tokens'], list: 'tokens list', remove: 'tokens revoke' },
];

/** The command line that does it here; undefined where nothing does. `words` without `ctl`, flags among them. */
export function kubectlEquivalent(words: readonly string[]): string | undefined {
  const [verb = '', ...rest] = words;
  // What stands behind a flag may be its value.
  const flagAt = rest.findIndex((word) => word.startsWith('-'));
  const [kindWord = '', separate] = flagAt < 0 ? rest : rest.slice(0, flagAt);
  const [kindName = '', inOne] = kindWord.split('/');
  const kind = KINDS.find((one) => one.words.includes(kindName.toLowerCase()));
  const command = lineOf(verb, kindName, kind, inOne ?? separate);
  return command === undefined ? undefined : `llmgw ctl ${command}`;
}

function lineOf(
  verb: string,
  kindWord: string,
  kind: Kind | undefined,
  name: string | undefined,
): string | undefined {
  switch (verb) {
    case 'get':
    case 'describe':
      if (kind === undefined) return undefined;
      return name !== undefined && kind.one !== undefined ? `${kind.one} ${name}` : kind.list;
    case 'delete':
      return kind?.remove === undefined ? undefined : `${kind.remove} ${name ?? kindWord.toUpperCase()}`;
    case 'apply':
      return 'plan -f FILE to see what it would do; then save it as the file the server reads, or config reload';
    case 'rollout':
      return rollout(kindWord, name);
    case 'cluster-info':
      return 'status';
    default:
      return undefined;
  }
}

/** `rollout restart deployment/qwen`: the word behind the verb is no kind but what to do. */
function rollout(what: string, target: string | undefined): string | undefined {
  const model = target?.split('/').at(-1) ?? 'MODEL';
  if (what === 'restart') return `restart ${model}`;
  return what === 'status' ? `replicas --model ${model} --watch` : undefined;
}
