/**
 * Any program that serves the OpenAI API. The agent's file names the program and its base arguments, so that the server
 * can only choose values, never the program. Known placeholders are replaced in base and profile arguments:
 * `{port} {host} {model} {source} {rank} {shards} {head} {rendezvous} {gpus} {maxConcurrency}`; anything else stays as it is.
 */
import type { EngineDriver, LaunchContext } from './driver.js';
import { namesLike } from './environment.js';
import { readCommonStep } from './load-steps.js';
import { LLAMACPP_METRICS, mergedMetrics, SGLANG_METRICS, VLLM_METRICS } from './metrics.js';

export const commandDriver: EngineDriver = {
  kind: 'command',
  needsSource: false,
  devicesBy: 'uuid',
  freeArgs: true,
  headWaitsForPeers: false,
  args(context) {
    const values = placeholders(context);
    const filled = [...context.config.baseArgs, ...context.start.profile.args].map((arg) =>
      arg.replaceAll(/\{(\w+)\}/g, (whole, name: string) => values[name] ?? whole),
    );
    return filled;
  },
  /** The same values again, for wrappers that are scripts. */
  env(context) {
    return Object.fromEntries(
      Object.entries(placeholders(context)).map(([name, value]) => [
        `LLMGW_${name.replaceAll(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`,
        value,
      ]),
    );
  },
  takesEnv: namesLike(/^[A-Za-z_][A-Za-z0-9_]*$/),
  readiness: (rank) => (rank === 0 ? 'token' : 'running'),
  readStep: readCommonStep,
  metrics: mergedMetrics(VLLM_METRICS, SGLANG_METRICS, LLAMACPP_METRICS),
};

function placeholders(context: LaunchContext): Record<string, string> {
  const { start, bindHost, source } = context;
  const head = start.peers.find((peer) => peer.rank === 0);
  return {
    port: String(start.ports.http),
    host: bindHost,
    model: start.model,
    source: source.kind === 'path' ? source.path : source.kind === 'repository' ? source.id : '',
    rank: String(start.rank),
    shards: String(start.shards),
    head: head?.address ?? bindHost,
    rendezvous: String(start.ports.rendezvous ?? ''),
    gpus: start.gpuUuids.join(','),
    maxConcurrency: String(start.profile.maxConcurrency ?? ''),
  };
}
