/**
 * Which engine flags a profile may not pass. Two kinds: those the agent's driver sets itself (a second `--port` would
 * make the probe look at the wrong door for ever), and those that would give away a secret or run foreign code.
 * The configuration refuses the first kind by name; the agent refuses both, whoever asks.
 */
import type { EngineKind } from '../model-spec.js';

interface FlagRules {
  /** Set by the driver, or breaking what it relies on. Long and short forms. */
  readonly reserved: readonly string[];
  /** Can run code or read and write files outside the model roots; only the agent's own file may allow them. */
  readonly guarded: readonly string[];
}

const NONE: FlagRules = { reserved: [], guarded: [] };

const FLAG_RULES: Readonly<Record<EngineKind, FlagRules>> = {
  vllm: {
    reserved: [
      '--host',
      '--port',
      '--uds',
      '--model',
      '--served-model-name',
      '--config',
      '--headless',
      '--grpc',
      '--nnodes',
      '-n',
      '--node-rank',
      '-r',
      '--master-addr',
      '--master-port',
      '--distributed-executor-backend',
      '--data-parallel-address',
      '-dpa',
      '--data-parallel-rpc-port',
      '-dpp',
      '--data-parallel-start-rank',
      '-dpr',
      '--data-parallel-rank',
      '-dpn',
      '--data-parallel-size-local',
      '-dpl',
      '--data-parallel-backend',
      '-dpb',
      '--data-parallel-hybrid-lb',
      '-dph',
      '--data-parallel-external-lb',
      '-dpe',
      '--ssl-keyfile',
      '--ssl-certfile',
      '--ssl-ca-certs',
      '--root-path',
    ],
    guarded: [
      // Refused as secrets when written out; here for their beginnings.
      '--api-key',
      '--hf-token',
      '--trust-remote-code',
      '--middleware',
      '--tool-parser-plugin',
      '--reasoning-parser-plugin',
      '--worker-cls',
      '--worker-extension-cls',
      '--scheduler-cls',
      '--logits-processors',
      '--io-processor-plugin',
      '--allowed-local-media-path',
      '--download-dir',
      '--log-config-file',
      '--lora-modules',
      '--kv-transfer-config',
    ],
  },
  sglang: {
    reserved: [
      '--host',
      '--port',
      '--model-path',
      '--model',
      '--served-model-name',
      '--config',
      '--nnodes',
      '--node-rank',
      '--dist-init-addr',
      '--nccl-init-addr',
      '--nccl-port',
      '--base-gpu-id',
      '--gpu-id-step',
      '--ssl-keyfile',
      '--ssl-certfile',
      '--ssl-ca-certs',
      '--grpc-mode',
    ],
    guarded: [
      '--api-key',
      '--admin-api-key',
      '--trust-remote-code',
      '--enable-custom-logit-processor',
      '--custom-weight-loader',
      '--tool-server',
      '--file-storage-path',
      '--download-dir',
      '--lora-paths',
      '--crash-dump-folder',
    ],
  },
  llamacpp: {
    reserved: [
      '--host',
      '--port',
      '-m',
      '--model',
      '-mu',
      '--model-url',
      '-hf',
      '-hfr',
      '--hf-repo',
      '-hff',
      '--hf-file',
      '-dr',
      '--docker-repo',
      '-hft',
      '-a',
      '--alias',
      '--rpc',
      '-dev',
      '--device',
      '--api-key-file',
      '--ssl-key-file',
      '--ssl-cert-file',
      '--api-prefix',
      '--models-dir',
      '--models-preset',
      '--models-max',
    ],
    guarded: [
      '--path',
      '--slot-save-path',
      '--media-path',
      '--log-file',
      '--chat-template-file',
      '--grammar-file',
      '-jf',
      '--json-schema-file',
      '-lcs',
      '--lookup-cache-static',
      '-lcd',
      '--lookup-cache-dynamic',
      '--control-vector',
      '--control-vector-scaled',
      '--props',
      '--tools',
      '-md',
      '--model-draft',
      '-hfd',
      '--hf-repo-draft',
      '-mv',
      '--model-vocoder',
      '--lora',
      '--lora-scaled',
      '-mm',
      '--mmproj',
      '-mmu',
      '--mmproj-url',
    ],
  },
  // What a command is and takes is the agent's own business; only the agent's file names it.
  command: NONE,
  sim: { reserved: ['--host', '--port', '--model', '--name'], guarded: [] },
  embedded: { reserved: ['--host', '--port', '--model', '--model-file'], guarded: [] },
};

/** Flags whose value would stand in the process list for every user of the machine to read. */
const SECRET_FLAG = /^--?(?:.*[-_])?(?:api[-_]?key|token|password|secret)$/;

export type FlagProblem =
  | { readonly kind: 'reserved'; readonly flag: string; readonly by: string }
  | { readonly kind: 'guarded'; readonly flag: string; readonly by: string }
  | { readonly kind: 'secret'; readonly flag: string };

/**
 * The flag an argument names, as the engines read it: without its value, `_` as `-`, and without the path into a
 * nested option (`--hf-overrides.x`). Undefined for a value.
 */
export function flagName(arg: string): string | undefined {
  if (!/^--?[A-Za-z]/.test(arg)) return undefined;
  const name = arg.split('=', 1)[0] ?? arg;
  return name.startsWith('--') ? (name.replaceAll('_', '-').split('.', 1)[0] ?? name) : name;
}

/** Why a profile may not pass this argument; undefined when the rules have nothing against it. */
export function flagProblem(engine: EngineKind, arg: string): FlagProblem | undefined {
  const flag = flagName(arg);
  if (flag === undefined) return undefined;
  const rules = FLAG_RULES[engine];
  const reserved = rules.reserved.find((rule) => matches(flag, rule));
  if (reserved !== undefined) return { kind: 'reserved', flag, by: reserved };
  if (SECRET_FLAG.test(flag)) return { kind: 'secret', flag };
  const guarded = rules.guarded.find((rule) => matches(flag, rule));
  return guarded === undefined ? undefined : { kind: 'guarded', flag, by: guarded };
}

/** One sentence for people. */
export function flagProblemText(engine: EngineKind, problem: FlagProblem): string {
  switch (problem.kind) {
    case 'reserved': {
      const meant = problem.flag === problem.by ? '' : ` (short for ${problem.by})`;
      return `${problem.flag}${meant} is set by llmgw for engine ${engine}; remove it from args`;
    }
    case 'secret':
      return `${problem.flag} would show a secret in the process list; pass it by env with fromFile`;
    case 'guarded':
      return `${problem.flag} is not allowed for engine ${engine} unless the agent's own file lists it in engines.${engine}.allowArgs`;
  }
}

/** Python's argument parser takes any unambiguous beginning of a long flag for the flag: `--trust-rem` is `--trust-remote-code`. */
function matches(flag: string, rule: string): boolean {
  if (flag === rule) return true;
  // And a value glued to a short flag: `-r1` is `-r 1`. Longer names of one dash (`-rpc`) take no value so.
  if (rule.length === 2 && /^-[A-Za-z]\d+$/.test(flag) && flag.startsWith(rule)) return true;
  return flag.startsWith('--') && rule.startsWith('--') && flag.length > 3 && rule.startsWith(flag);
}
