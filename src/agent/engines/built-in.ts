/** The engines that come with the program: simulated, and llama.cpp embedded. Both run in a Node process of their own. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { EngineDriver, LaunchContext, Refusal } from './driver.js';
import { namesLike } from './environment.js';
import { readCommonStep } from './load-steps.js';
import { VLLM_METRICS, SGLANG_METRICS, LLAMACPP_METRICS, mergedMetrics } from './metrics.js';

/** The compiled entry file of a built-in engine: beside us in `dist`, or in `dist` when the sources run by themselves. */
export function builtInEntry(kind: 'sim' | 'embedded'): string | undefined {
  return [`../../engines/${kind}/main.js`, `../../../dist/engines/${kind}/main.js`]
    .map((path) => fileURLToPath(new URL(path, import.meta.url)))
    .find((path) => existsSync(path));
}

function entryArgs(kind: 'sim' | 'embedded', context: LaunchContext): string[] | Refusal {
  const entry = builtInEntry(kind);
  if (entry === undefined) {
    return { verdict: 'binaryMissing', message: `the built-in engine ${kind} is not built` };
  }
  const { start, bindHost, config } = context;
  return [entry, ...config.baseArgs, '--host', bindHost, '--port', String(start.ports.http)];
}

function slots(context: LaunchContext): string[] {
  const { maxConcurrency, args } = context.start.profile;
  const given = args.some((arg) => arg === '--slots' || arg.startsWith('--slots='));
  return maxConcurrency === undefined || given ? [] : ['--slots', String(maxConcurrency)];
}

export const simDriver: EngineDriver = {
  kind: 'sim',
  defaultBinary: process.execPath,
  needsSource: false,
  devicesBy: 'uuid',
  freeArgs: false,
  headWaitsForPeers: false,
  args(context) {
    const head = entryArgs('sim', context);
    if (!Array.isArray(head)) return head;
    const { start } = context;
    const names = [start.model, ...start.aliases].flatMap((name) => ['--model', name]);
    return [...head, ...names, '--name', start.shardId, ...slots(context), ...start.profile.args];
  },
  env: () => ({}),
  takesEnv: namesLike(/^[A-Z][A-Z0-9_]*$/),
  readiness: (rank) => (rank === 0 ? 'token' : 'listening'),
  readStep: readCommonStep,
  // It speaks in any of the three dialects.
  metrics: mergedMetrics(VLLM_METRICS, SGLANG_METRICS, LLAMACPP_METRICS),
};

export const embeddedDriver: EngineDriver = {
  kind: 'embedded',
  defaultBinary: process.execPath,
  needsSource: true,
  devicesBy: 'uuid',
  freeArgs: false,
  headWaitsForPeers: false,
  args(context) {
    const head = entryArgs('embedded', context);
    if (!Array.isArray(head)) return head;
    const { start, source } = context;
    if (start.shards > 1) return { verdict: 'badFlag', message: 'engine embedded runs on one node only' };
    if (source.kind === 'repository') {
      return {
        verdict: 'missingWeights',
        message: `engine embedded needs a local GGUF file, ${source.id} is none under the agent's modelRoots`,
      };
    }
    const file = source.kind === 'path' ? ['--model-file', source.path] : [];
    const names = [start.model, ...start.aliases].flatMap((name) => ['--model', name]);
    return [...head, ...names, ...file, ...slots(context), ...start.profile.args];
  },
  env: () => ({}),
  takesEnv: namesLike(/^(?:LLAMA|GGML)_(?!ARG_).*/),
  readiness: () => 'token',
  readStep: readCommonStep,
  metrics: VLLM_METRICS,
};
