/** Load metrics of the engines, and what one scrape says of an engine's work. */
import type { MetricNames } from './driver.js';

export const VLLM_METRICS: MetricNames = {
  running: ['vllm:num_requests_running'],
  waiting: ['vllm:num_requests_waiting'],
  progress: ['vllm:iteration_tokens_total_count', 'vllm:generation_tokens_total', 'vllm:prompt_tokens_total'],
};

export const SGLANG_METRICS: MetricNames = {
  running: ['sglang:num_running_reqs'],
  waiting: ['sglang:num_queue_reqs'],
  progress: ['sglang:generation_tokens_total', 'sglang:prompt_tokens_total', 'sglang:realtime_tokens_total'],
};

/** Token counters of llama.cpp move only when a request ends; the decode counter moves with each batch. */
export const LLAMACPP_METRICS: MetricNames = {
  running: ['llamacpp:requests_processing'],
  waiting: ['llamacpp:requests_deferred'],
  progress: ['llamacpp:n_decode_total', 'llamacpp:tokens_predicted_total', 'llamacpp:prompt_tokens_total'],
};

export function mergedMetrics(...all: readonly MetricNames[]): MetricNames {
  return {
    running: all.flatMap((names) => names.running),
    waiting: all.flatMap((names) => names.waiting),
    progress: all.flatMap((names) => names.progress),
  };
}

export interface WorkSample {
  /** Requests inside the engine; undefined when it does not tell. */
  readonly running?: number;
  readonly waiting?: number;
  /** Sum of the counters that move while tokens are made; undefined when it does not tell. */
  readonly progress?: number;
}

/** Reads Prometheus text. Series of several labels (one per data-parallel rank) are added up; unreadable values count as absent. */
export function readWork(text: string, names: MetricNames): WorkSample {
  const sums = new Map<string, number>();
  const wanted = new Set([...names.running, ...names.waiting, ...names.progress]);
  for (const line of text.split('\n')) {
    const name = /^[A-Za-z_:][\w:]*/.exec(line)?.[0];
    if (name === undefined || !wanted.has(name)) continue;
    const value = Number(
      line
        .slice(line.lastIndexOf('}') + 1)
        .trim()
        .replace(/^[A-Za-z_:][\w:]*/, '')
        .trim()
        .split(/\s/, 1)[0],
    );
    if (Number.isFinite(value)) sums.set(name, (sums.get(name) ?? 0) + value);
  }
  const sum = (list: readonly string[]): number | undefined => {
    const found = list.map((name) => sums.get(name)).filter((value) => value !== undefined);
    return found.length === 0 ? undefined : found.reduce((a, b) => a + b, 0);
  };
  const [running, waiting, progress] = [sum(names.running), sum(names.waiting), sum(names.progress)];
  return {
    ...(running === undefined ? {} : { running }),
    ...(waiting === undefined ? {} : { waiting }),
    ...(progress === undefined ? {} : { progress }),
  };
}
