/** SGLang: one node or several. */
import { basename } from 'node:path';
import type { EngineDriver, LaunchContext, Refusal } from './driver.js';
import { isRefusal } from './driver.js';
import { namesLike, PYTHON_ENGINE_NAMES } from './environment.js';
import { hasFlag, numberFlag } from './flags.js';
import { memoryShare, rendezvousOf } from './gang.js';
import { COMMON_STEPS, readStepWith, type StepPattern } from './load-steps.js';
import { SGLANG_METRICS } from './metrics.js';

const STEPS: readonly StepPattern[] = [
  { phase: 'loading', pattern: /Load weight (?:begin|end).*/ },
  { phase: 'compiling', pattern: /(?:Capture cuda graph|Capturing batches).*/ },
  ...COMMON_STEPS,
];

const TENSOR = ['--tp-size', '--tp', '--tensor-parallel-size'] as const;
const PIPELINE = ['--pp-size', '--pp', '--pipeline-parallel-size'] as const;
const DATA = ['--dp-size', '--dp', '--data-parallel-size'] as const;

/** The engine's own overhead (graphs, buffers) lies outside its static part. */
const STATIC_SHARE = 0.9;

export const sglangDriver: EngineDriver = {
  kind: 'sglang',
  defaultBinary: 'python3',
  needsSource: true,
  devicesBy: 'index',
  freeArgs: false,
  headWaitsForPeers: false,
  args(context) {
    const parallel = parallelArgs(context);
    if (isRefusal(parallel)) return parallel;
    const gang = gangArgs(context);
    if (isRefusal(gang)) return gang;
    const { start, source, bindHost } = context;
    const model = source.kind === 'path' ? source.path : source.kind === 'repository' ? source.id : '';
    const revision =
      source.kind === 'repository' && source.revision !== undefined ? ['--revision', source.revision] : [];
    return [
      ...baseArgs(context),
      ...['--model-path', model, ...revision],
      ...['--host', bindHost, '--port', String(start.ports.http)],
      ...['--served-model-name', start.model],
      ...parallel,
      ...gang,
      ...limitArgs(context),
      '--enable-metrics',
      ...start.profile.args,
    ];
  },
  env: () => ({}),
  takesEnv: namesLike(...PYTHON_ENGINE_NAMES, /^(?:SGLANG|SGL)_(?!HOST_IP$|PORT$).*/),
  // The others run a server that answers without doing anything.
  readiness: (rank) => (rank === 0 ? 'token' : 'running'),
  readStep: (line) => readStepWith(STEPS, line),
  metrics: SGLANG_METRICS,
};

function baseArgs({ config }: LaunchContext): readonly string[] {
  if (config.baseArgs.length > 0) return config.baseArgs;
  return config.binary !== undefined && basename(config.binary) === 'sglang'
    ? ['serve']
    : ['-m', 'sglang.launch_server'];
}

/** One tensor-parallel group over all GPUs of all nodes, unless the profile says otherwise. */
function parallelArgs({ start }: LaunchContext): string[] | Refusal {
  const { args, gpus } = start.profile;
  const devices = gpus * start.shards;
  const tensor = numberFlag(args, ...TENSOR);
  const pipeline = numberFlag(args, ...PIPELINE);
  if (tensor === undefined && pipeline === undefined)
    return devices > 1 && !hasFlag(args, ...DATA) ? ['--tp-size', String(devices)] : [];
  const used = (tensor ?? 1) * (pipeline ?? 1);
  // Data parallelism shares or multiplies the group depending on other flags: the engine itself checks that.
  if (used === devices || hasFlag(args, ...DATA)) return [];
  const message = `the parallel sizes in args use ${used} GPUs, the profile gives ${devices}`;
  return { verdict: 'badFlag', message };
}

function gangArgs({ start }: LaunchContext): string[] | Refusal {
  if (start.shards === 1) return [];
  const rendezvous = rendezvousOf(start);
  if (isRefusal(rendezvous)) return rendezvous;
  return [
    ...['--nnodes', String(start.shards), '--node-rank', String(start.rank)],
    ...['--dist-init-addr', `${rendezvous.address}:${rendezvous.port}`],
  ];
}

function limitArgs(context: LaunchContext): string[] {
  const { args, maxConcurrency } = context.start.profile;
  const share = memoryShare(context);
  return [
    ...(share === undefined || hasFlag(args, '--mem-fraction-static')
      ? []
      : ['--mem-fraction-static', (share * STATIC_SHARE).toFixed(2)]),
    ...(maxConcurrency === undefined || hasFlag(args, '--max-running-requests')
      ? []
      : ['--max-running-requests', String(maxConcurrency)]),
  ];
}
