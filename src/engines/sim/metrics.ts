import type { Dialect } from './options.js';
import type { SimStats } from './stats.js';

type Sample = readonly [name: string, type: 'gauge' | 'counter', value: number];

/** The engine's numbers in Prometheus text, under the names its dialect uses. */
export function renderMetrics(dialect: Dialect, stats: SimStats): string {
  const model = stats.models[0] ?? '';
  const labels = dialect === 'llamacpp' ? '' : `{model_name=${JSON.stringify(model)}${engineLabel(dialect)}}`;
  const lines = SAMPLES[dialect](stats).map(
    ([name, type, value]) => `# TYPE ${name} ${type}\n${name}${labels} ${value}\n`,
  );
  return lines.join('');
}

function engineLabel(dialect: Dialect): string {
  return dialect === 'vllm' ? ',engine="0"' : '';
}

const cacheUse = (stats: SimStats) =>
  stats.cacheCapacityBlocks === 0 ? 0 : stats.cacheBlocks / stats.cacheCapacityBlocks;

const SAMPLES: Readonly<Record<Dialect, (stats: SimStats) => Sample[]>> = {
  vllm: (stats) => [
    ['vllm:num_requests_running', 'gauge', stats.running],
    ['vllm:num_requests_waiting', 'gauge', stats.waiting],
    ['vllm:kv_cache_usage_perc', 'gauge', cacheUse(stats)],
    ['vllm:prefix_cache_queries_total', 'counter', stats.promptTokens],
    ['vllm:prefix_cache_hits_total', 'counter', stats.cachedTokens],
    ['vllm:prompt_tokens_total', 'counter', stats.promptTokens],
    ['vllm:generation_tokens_total', 'counter', stats.tokensGenerated],
    ['vllm:request_success_total', 'counter', stats.completed],
    ['vllm:time_to_first_token_seconds_sum', 'counter', stats.firstTokenMsSum / 1000],
    ['vllm:time_to_first_token_seconds_count', 'counter', stats.firstTokens],
  ],
  sglang: (stats) => [
    ['sglang:num_running_reqs', 'gauge', stats.running],
    ['sglang:num_queue_reqs', 'gauge', stats.waiting],
    ['sglang:token_usage', 'gauge', cacheUse(stats)],
    ['sglang:num_used_tokens', 'gauge', stats.cacheBlocks * stats.blockTokens],
    ['sglang:max_total_num_tokens', 'gauge', stats.cacheCapacityBlocks * stats.blockTokens],
    [
      'sglang:cache_hit_rate',
      'gauge',
      stats.promptTokens === 0 ? 0 : stats.cachedTokens / stats.promptTokens,
    ],
    ['sglang:cached_tokens_total', 'counter', stats.cachedTokens],
    ['sglang:prompt_tokens_total', 'counter', stats.promptTokens],
    ['sglang:generation_tokens_total', 'counter', stats.tokensGenerated],
    ['sglang:num_aborted_requests_total', 'counter', stats.abortedByClient],
    ['sglang:time_to_first_token_seconds_sum', 'counter', stats.firstTokenMsSum / 1000],
    ['sglang:time_to_first_token_seconds_count', 'counter', stats.firstTokens],
  ],
  llamacpp: (stats) => [
    ['llamacpp:requests_processing', 'gauge', stats.running],
    ['llamacpp:requests_deferred', 'gauge', stats.waiting],
    ['llamacpp:prompt_tokens_total', 'counter', stats.promptTokens - stats.cachedTokens],
    ['llamacpp:prompt_tokens_cached_total', 'counter', stats.cachedTokens],
    ['llamacpp:tokens_predicted_total', 'counter', stats.tokensGenerated],
    ['llamacpp:n_tokens_max', 'counter', stats.longestTokens],
  ],
};
