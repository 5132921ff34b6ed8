/** Answers that quantiles and shares look back over: enough for a p90, few enough to be of late. */
const RECENT_MAX = 128;

/** What passed through a model or an endpoint; totals since it is there, the rest of the last answers. */
export interface TrafficCounts {
  /** As engines reported them. */
  readonly promptTokensTotal: number;
  readonly completionTokensTotal: number;
  readonly cachedTokensTotal: number;
  /** From a request being sent to an engine to its first token, ms: of the last 128 streams. */
  readonly firstTokenP50Ms?: number;
  readonly firstTokenP90Ms?: number;
  /** Share of prompt tokens that engines had cached, 0 to 1: of the last 128 answers that say so. */
  readonly cachedShare?: number;
}

/** The same of a model, with its own counts. */
export interface ModelTraffic extends TrafficCounts {
  /** Requests that are over, however they ended. */
  readonly requestsTotal: number;
  /** Of these, the ones that no engine answered for: 429 and 5xx. */
  readonly failuresTotal: number;
  /** Requests that wait for an endpoint now. */
  readonly queueDepth: number;
}

/** Counts what passes; written once an answer, read by people. Of fixed size. */
export class Traffic {
  private promptTokens = 0;
  private completionTokens = 0;
  private cachedTokens = 0;
  private readonly firstTokensMs = new Recent();
  private readonly recentPrompt = new Recent();
  private readonly recentCached = new Recent();

  firstToken(ms: number): void {
    this.firstTokensMs.add(ms);
  }

  /** An answer's tokens; what an engine does not report is undefined. */
  used(prompt: number | undefined, completion: number | undefined, cached: number | undefined): void {
    this.promptTokens += prompt ?? 0;
    this.completionTokens += completion ?? 0;
    this.cachedTokens += cached ?? 0;
    if (prompt === undefined || cached === undefined) return;
    this.recentPrompt.add(prompt);
    this.recentCached.add(cached);
  }

  view(): TrafficCounts {
    const { firstTokensMs, recentPrompt, recentCached } = this;
    const prompt = recentPrompt.sum();
    return {
      promptTokensTotal: this.promptTokens,
      completionTokensTotal: this.completionTokens,
      cachedTokensTotal: this.cachedTokens,
      ...(firstTokensMs.count === 0
        ? {}
        : { firstTokenP50Ms: firstTokensMs.quantile(0.5), firstTokenP90Ms: firstTokensMs.quantile(0.9) }),
      ...(prompt > 0 ? { cachedShare: recentCached.sum() / prompt } : {}),
    };
  }
}

/** The last values, oldest overwritten first. */
class Recent {
  private readonly values = new Float64Array(RECENT_MAX);
  private added = 0;

  get count(): number {
    return Math.min(this.added, RECENT_MAX);
  }

  add(value: number): void {
    this.values[this.added++ % RECENT_MAX] = value;
  }

  sum(): number {
    return this.values.subarray(0, this.count).reduce((sum, value) => sum + value, 0);
  }

  /** The smallest value that `share` of all do not exceed, rounded. */
  quantile(share: number): number {
    const sorted = this.values.slice(0, this.count).sort();
    return Math.round(sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0);
  }
}
