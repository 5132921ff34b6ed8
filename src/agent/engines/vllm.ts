/** vLLM: one node, or several with its own multiprocessing executor (no Ray). */
import type { EngineDriver, LaunchContext, Refusal } from './driver.js';
import { isRefusal } from './driver.js';
import { namesLike, PYTHON_ENGINE_NAMES } from './environment.js';
import { hasFlag, numberFlag } from './flags.js';
import { COMMON_STEPS, readStepWith, type StepPattern } from './load-steps.js';
import { VLLM_METRICS } from './metrics.js';
import { memoryShare, peerAddress, rendezvousOf } from './gang.js';

const STEPS: readonly StepPattern[] = [
  { phase: 'downloading', pattern: /Time spent downloading weights.*/ },
  { phase: 'loading', pattern: /(?:Starting to load model|Loading weights took|Model loading took).*/ },
  {
    phase: 'compiling',
    pattern: /(?:Dynamo bytecode transform time|Compiling a graph|torch\.compile takes).*/,
  },
  {
    phase: 'compiling',
    pattern: /(?:Capturing CUDA graphs?|Graph capturing finished|Profiling CUDA graph).*/,
  },
  ...COMMON_STEPS,
];

export const vllmDriver: EngineDriver = {
  kind: 'vllm',
  defaultBinary: 'vllm',
  needsSource: true,
  devicesBy: 'index',
  freeArgs: false,
  headWaitsForPeers: false,
  args(context) {
    const parallel = parallelArgs(context);
    if (isRefusal(parallel)) return parallel;
    const gang = gangArgs(context);
    if (isRefusal(gang)) return gang;
    const { start } = context;
    const http = start.rank === 0 ? ['--host', context.bindHost, '--port', String(start.ports.http)] : [];
    return [
      ...modelArgs(context),
      ...http,
      ...['--served-model-name', start.model, ...start.aliases],
      ...parallel,
      ...gang,
      ...limitArgs(context),
      ...start.profile.args,
    ];
  },
  env(context) {
    const { start } = context;
    // With several addresses on a machine it takes the wrong one as its own.
    return start.shards > 1 ? { VLLM_HOST_IP: peerAddress(start, start.rank) } : {};
  },
  takesEnv: namesLike(
    ...PYTHON_ENGINE_NAMES,
    // Those left out are set here, open doors, or load code.
    /^VLLM_(?!HOST_IP$|PORT$|API_KEY$|SERVER_DEV_MODE$|ALLOW_RUNTIME_LORA|DP_|PLUGINS$|LOGGING_CONFIG_PATH$|ALLOW_INSECURE).*/,
  ),
  readiness: (rank) => (rank === 0 ? 'token' : 'running'),
  readStep: (line) => readStepWith(STEPS, line),
  metrics: VLLM_METRICS,
};

/** `vllm serve MODEL`, or whatever the agent's file starts instead and the model by flag. */
function modelArgs({ config, source }: LaunchContext): string[] {
  const model = source.kind === 'path' ? source.path : source.kind === 'repository' ? source.id : '';
  const revision =
    source.kind === 'repository' && source.revision !== undefined ? ['--revision', source.revision] : [];
  const { baseArgs } = config;
  const positional = baseArgs.length === 0 || baseArgs.at(-1) === 'serve';
  const base = baseArgs.length === 0 ? ['serve'] : baseArgs;
  return [...base, ...(positional ? [model] : ['--model', model]), ...revision];
}

/** All of a shard's GPUs are one tensor-parallel group and nodes are pipeline stages, unless the profile says otherwise. */
function parallelArgs({ start }: LaunchContext): string[] | Refusal {
  const { args, gpus } = start.profile;
  if (gpus === 0) return [];
  const tensor = numberFlag(args, '--tensor-parallel-size', '-tp');
  const pipeline = numberFlag(args, '--pipeline-parallel-size', '-pp');
  const data = numberFlag(args, '--data-parallel-size', '-dp');
  const devices = gpus * start.shards;
  if (tensor === undefined && pipeline === undefined && data === undefined) {
    const stages = start.shards > 1 ? ['--pipeline-parallel-size', String(start.shards)] : [];
    return gpus > 1 ? ['--tensor-parallel-size', String(gpus), ...stages] : stages;
  }
  if (data !== undefined && start.shards > 1)
    return { verdict: 'badFlag', message: '--data-parallel-size over several nodes is not supported' };
  const used = (tensor ?? 1) * (pipeline ?? 1) * (data ?? 1);
  if (used === devices) return [];
  const message = `the parallel sizes in args use ${used} GPUs, the profile gives ${devices}`;
  return { verdict: 'badFlag', message };
}

function gangArgs({ start }: LaunchContext): string[] | Refusal {
  if (start.shards === 1) return [];
  const rendezvous = rendezvousOf(start);
  if (isRefusal(rendezvous)) return rendezvous;
  return [
    ...['--nnodes', String(start.shards), '--node-rank', String(start.rank)],
    ...['--master-addr', rendezvous.address, '--master-port', String(rendezvous.port)],
    ...['--distributed-executor-backend', 'mp'],
    ...(start.rank > 0 ? ['--headless'] : []),
  ];
}

/** What was booked is what the engine may take: two that share a device would else both take nine tenths of it. */
function limitArgs(context: LaunchContext): string[] {
  const { args, maxConcurrency } = context.start.profile;
  const share = memoryShare(context);
  return [
    ...(share === undefined || hasFlag(args, '--gpu-memory-utilization')
      ? []
      : ['--gpu-memory-utilization', share.toFixed(2)]),
    ...(maxConcurrency === undefined || hasFlag(args, '--max-num-seqs')
      ? []
      : ['--max-num-seqs', String(maxConcurrency)]),
  ];
}
