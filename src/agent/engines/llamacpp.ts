/** llama.cpp: `llama-server`, alone or with `rpc-server` workers on other nodes. */
import { readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { EngineDriver, LaunchContext, ModelSource, Refusal } from './driver.js';
import { isRefusal } from './driver.js';
import { namesLike } from './environment.js';
import { hasFlag } from './flags.js';
import { COMMON_STEPS, readStepWith, type StepPattern } from './load-steps.js';
import { LLAMACPP_METRICS } from './metrics.js';

const STEPS: readonly StepPattern[] = [
  { phase: 'downloading', pattern: /(?:common_download_file\w*|curl_perform_with_retry|downloading from).*/ },
  { phase: 'loading', pattern: /(?:load_tensors|llama_model_loader|load_model): .*/ },
  { phase: 'compiling', pattern: /(?:warming up the model).*/ },
  ...COMMON_STEPS,
];

/** More layers than any model has: all of them on the GPU. */
const ALL_LAYERS = '999';

export const llamacppDriver: EngineDriver = {
  kind: 'llamacpp',
  defaultBinary: 'llama-server',
  needsSource: true,
  devicesBy: 'uuid',
  freeArgs: false,
  headWaitsForPeers: true,
  args(context) {
    const { start, bindHost, config } = context;
    const listen = ['--host', bindHost, '--port', String(start.ports.http)];
    // A worker takes nothing else; the profile's arguments are the server's.
    if (start.rank > 0) return listen;
    const model = modelArgs(context.source);
    if (isRefusal(model)) return model;
    return [
      ...config.baseArgs,
      ...model,
      ...['--alias', start.model],
      ...listen,
      '--metrics',
      ...rpcArgs(context),
      ...limitArgs(context),
      ...start.profile.args,
    ];
  },
  env: () => ({}),
  // Every flag of the server can also be set by LLAMA_ARG_*, past all rules for flags.
  takesEnv: namesLike(/^(?:LLAMA|GGML)_(?!ARG_|API_KEY$).*/, /^(?:CUDA|HIP|HSA|OMP|HF)_.*/),
  binariesFor(context, binary) {
    if (context.start.rank === 0) return [binary];
    // It was renamed; both come with llama-server and match its version only beside it.
    const names = ['rpc-server', 'ggml-rpc-server'];
    return context.config.binary?.includes('/') === true
      ? names.map((name) => join(dirname(binary), name))
      : names;
  },
  readiness: (rank) => (rank === 0 ? 'token' : 'listening'),
  readStep: (line) => readStepWith(STEPS, line),
  metrics: LLAMACPP_METRICS,
};

function modelArgs(source: ModelSource): string[] | Refusal {
  switch (source.kind) {
    case 'repository':
      if (source.revision !== undefined)
        return { verdict: 'badFlag', message: 'llama.cpp takes no revision of a repository' };
      return ['--hf-repo', source.id];
    case 'path': {
      const file = ggufFile(source.path);
      return isRefusal(file) ? file : ['--model', file.path];
    }
    case 'none':
      return { verdict: 'missingWeights', message: "engine llamacpp needs the model's source" };
  }
}

/** A directory stands for its one model; of a split model the first part, which names the others. */
function ggufFile(path: string): { readonly path: string } | Refusal {
  if (!statSync(path).isDirectory()) return { path };
  const files = readdirSync(path).filter((name) => name.endsWith('.gguf') && !name.startsWith('mmproj'));
  const heads = files.filter((name) => !/-\d{5}-of-\d{5}\.gguf$/.test(name) || /-00001-of-/.test(name));
  const [only, second] = heads;
  if (only === undefined) return { verdict: 'missingWeights', message: `no .gguf file in ${path}` };
  if (second === undefined) return { path: join(path, only) };
  return {
    verdict: 'missingWeights',
    message: `${path} holds several models (${heads.slice(0, 5).join(', ')}); name the file`,
  };
}

function rpcArgs({ start }: LaunchContext): string[] {
  const workers = start.peers.filter(({ rank }) => rank > 0);
  if (workers.length === 0) return [];
  return ['--rpc', workers.map(({ address, ports }) => `${address}:${ports.http}`).join(',')];
}

function limitArgs({ start }: LaunchContext): string[] {
  const { args, gpus, maxConcurrency } = start.profile;
  const usesGpus = gpus > 0 || start.shards > 1;
  return [
    ...(usesGpus && !hasFlag(args, '-ngl', '--gpu-layers', '--n-gpu-layers')
      ? ['--n-gpu-layers', ALL_LAYERS]
      : []),
    ...(maxConcurrency === undefined || hasFlag(args, '-np', '--parallel')
      ? []
      : ['--parallel', String(maxConcurrency)]),
  ];
}
