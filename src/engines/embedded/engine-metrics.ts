/** Upper bounds of the first-token histogram, seconds. */
const FIRST_TOKEN_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 600];

/** What is read off the slots at scrape time. */
export interface EngineGauges {
  readonly running: number;
  readonly waiting: number;
  /** Share of the KV cache in use, 0 to 1. */
  readonly cacheUse: number;
}

/** Numbers of the embedded engine under the names vLLM uses, so that one scraper reads both. */
export class EngineMetrics {
  promptTokens = 0;
  cachedTokens = 0;
  generatedTokens = 0;
  readonly finished = { stop: 0, length: 0, abort: 0 };

  private readonly firstTokenCounts = FIRST_TOKEN_BUCKETS_S.map(() => 0);
  private firstTokens = 0;
  private firstTokenSumS = 0;

  observeFirstToken(seconds: number): void {
    this.firstTokens++;
    this.firstTokenSumS += seconds;
    for (const [index, bound] of FIRST_TOKEN_BUCKETS_S.entries()) {
      if (seconds <= bound) this.firstTokenCounts[index] = (this.firstTokenCounts[index] ?? 0) + 1;
    }
  }

  /** Prometheus text. */
  render(model: string, gauges: EngineGauges): string {
    const label = `model_name=${JSON.stringify(model)},engine="0"`;
    const lines: string[] = [];
    const add = (
      name: string,
      type: string,
      samples: readonly (readonly [suffix: string, labels: string, value: number])[],
    ) => {
      lines.push(`# TYPE vllm:${name} ${type}`);
      for (const [suffix, more, value] of samples)
        lines.push(`vllm:${name}${suffix}{${label}${more}} ${value}`);
    };
    add('num_requests_running', 'gauge', [['', '', gauges.running]]);
    add('num_requests_waiting', 'gauge', [['', '', gauges.waiting]]);
    add('kv_cache_usage_perc', 'gauge', [['', '', gauges.cacheUse]]);
    add('prefix_cache_queries_total', 'counter', [['', '', this.promptTokens]]);
    add('prefix_cache_hits_total', 'counter', [['', '', this.cachedTokens]]);
    add('prompt_tokens_total', 'counter', [['', '', this.promptTokens]]);
    add('generation_tokens_total', 'counter', [['', '', this.generatedTokens]]);
    add(
      'request_success_total',
      'counter',
      Object.entries(this.finished).map(
        ([reason, count]) => ['', `,finished_reason="${reason}"`, count] as const,
      ),
    );
    add('time_to_first_token_seconds', 'histogram', [
      ...FIRST_TOKEN_BUCKETS_S.map(
        (bound, index) => ['_bucket', `,le="${bound}"`, this.firstTokenCounts[index] ?? 0] as const,
      ),
      ['_bucket', ',le="+Inf"', this.firstTokens],
      ['_sum', '', this.firstTokenSumS],
      ['_count', '', this.firstTokens],
    ]);
    return `${lines.join('\n')}\n`;
  }
}
