/** Engine metrics as scraped; a member is undefined where the engine does not report it. */
export interface ScrapedLoad {
  readonly runningRequests: number | undefined;
  readonly waitingRequests: number | undefined;
}

/** A scrape older than this says nothing any more: three periods of the usual five seconds. */
const SCRAPE_TRUSTED_MS = 15_000;

/**
 * The router's own count of what one endpoint generation has to do. Raised at pick time, because a count that waits
 * for the engine's metrics sends a whole burst to the one replica that looked idle a second ago.
 * Scraped metrics only add what others send to the same engine.
 */
export class EndpointLoad {
  /** Requests sent and not yet ended. */
  requests = 0;
  /** Requests whose first token has not come. */
  prefillRequests = 0;
  /** Prompt tokens still to compute, summed over `prefillRequests`. */
  prefillTokens = 0;
  /** Output tokens still expected. */
  outputTokens = 0;
  /** Whole size of the requests in flight, prompt (cached part too) and expected output: what fills the KV cache. */
  heldTokens = 0;
  /** When the engine was last seen to finish a prefill, or began one on an idle queue. */
  private prefillSinceMs = 0;
  private foreignRunning = 0;
  private foreignWaiting = 0;
  private scrapedAtMs = Number.NEGATIVE_INFINITY;

  /** Prompt and output tokens still to do. */
  get outstandingTokens(): number {
    return this.prefillTokens + this.outputTokens;
  }

  /**
   * Counts one attempt in, until `release`.
   * @param uncachedTokens prompt tokens the engine is expected to compute
   * @param cachedTokens the rest of the prompt, which it is expected to have cached
   */
  acquire(uncachedTokens: number, outputTokens: number, nowMs: number, cachedTokens = 0): LoadLease {
    if (this.prefillRequests === 0) this.prefillSinceMs = nowMs;
    const uncached = Math.max(0, uncachedTokens);
    return new LoadLease(this, uncached + Math.max(0, cachedTokens), uncached, Math.max(0, outputTokens));
  }

  /** @internal the engine finished a prefill. */
  markPrefilled(nowMs: number): void {
    this.prefillSinceMs = nowMs;
  }

  /**
   * Prompt tokens ahead of a newcomer. The request at the head of the engine's queue is partly done; without that
   * credit one long prompt makes its replica look busy until the very moment it is free.
   */
  prefillBacklogTokens(prefillTokensPerSecond: number, nowMs: number): number {
    if (this.prefillRequests === 0) return 0;
    const done = (prefillTokensPerSecond * Math.max(0, nowMs - this.prefillSinceMs)) / 1000;
    return this.prefillTokens - Math.min(done, this.prefillTokens / this.prefillRequests);
  }

  /**
   * Takes in a scrape. What the engine has beyond our own count comes from others: other routers, or clients that
   * know its address. Of ours, those without a first token may be waiting or running; others get the doubt.
   */
  scraped(sample: ScrapedLoad, nowMs: number): void {
    const { runningRequests, waitingRequests } = sample;
    if (runningRequests === undefined && waitingRequests === undefined) return;
    const waiting = waitingRequests ?? 0;
    const foreign = Math.max(0, (runningRequests ?? 0) + waiting - this.requests);
    this.foreignWaiting = Math.min(foreign, Math.max(0, waiting - this.prefillRequests));
    this.foreignRunning = foreign - this.foreignWaiting;
    this.scrapedAtMs = nowMs;
  }

  /** Running requests of others on the same engine, by the last scrape; 0 when that is too old to believe. */
  foreignRunningAt(nowMs: number): number {
    return nowMs - this.scrapedAtMs <= SCRAPE_TRUSTED_MS ? this.foreignRunning : 0;
  }

  /** The same for requests that wait in the engine's queue. */
  foreignWaitingAt(nowMs: number): number {
    return nowMs - this.scrapedAtMs <= SCRAPE_TRUSTED_MS ? this.foreignWaiting : 0;
  }
}

/**
 * One attempt's share of an endpoint's load. It knows what it added, so that releasing is exact and happens once:
 * counters released twice or on some paths never are how least-load ends up feeding a single worker.
 */
export class LoadLease {
  private open = true;
  private prefilling = true;

  private readonly heldTokens: number;

  constructor(
    private readonly load: EndpointLoad,
    promptTokens: number,
    private readonly prefillTokens: number,
    private outputTokensLeft: number,
  ) {
    this.heldTokens = promptTokens + outputTokensLeft;
    load.heldTokens += this.heldTokens;
    load.requests += 1;
    load.prefillRequests += 1;
    load.prefillTokens += prefillTokens;
    load.outputTokens += outputTokensLeft;
  }

  /** The first token came: the prompt is computed. */
  prefilled(nowMs: number): void {
    if (!this.open || !this.prefilling) return;
    this.leavePrefill();
    this.load.markPrefilled(nowMs);
  }

  /** `tokens` more output tokens came. */
  generated(tokens: number): void {
    if (!this.open) return;
    const done = Math.min(tokens, this.outputTokensLeft);
    this.outputTokensLeft -= done;
    this.load.outputTokens = settle(this.load.outputTokens - done, this.load.requests);
  }

  /** Gives everything back; true the first time. */
  release(): boolean {
    if (!this.open) return false;
    this.open = false;
    if (this.prefilling) this.leavePrefill();
    this.load.requests -= 1;
    this.load.heldTokens = settle(this.load.heldTokens - this.heldTokens, this.load.requests);
    this.load.outputTokens = settle(this.load.outputTokens - this.outputTokensLeft, this.load.requests);
    return true;
  }

  private leavePrefill(): void {
    this.prefilling = false;
    this.load.prefillRequests -= 1;
    this.load.prefillTokens = settle(this.load.prefillTokens - this.prefillTokens, this.load.prefillRequests);
  }
}

/** Estimates are fractions; adding and taking them back may leave a rounding rest, which an idle endpoint must not keep. */
function settle(tokens: number, requests: number): number {
  return requests === 0 ? 0 : Math.max(0, tokens);
}
