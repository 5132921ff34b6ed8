/** Retries allowed at once as a share of active requests. */
export const RETRY_BUDGET_SHARE = 0.2;
/** Retries always allowed at once: a quiet gateway must be able to fail over. */
export const RETRY_BUDGET_FLOOR = 3;

/**
 * Keeps retries from multiplying an overload: when much fails at once, trying everything again is what turns a slow
 * engine into a dead fleet. Counts what is active now, so it needs no clock and cannot leak over time.
 */
export class RetryBudget {
  private activeRequests = 0;
  private activeRetries = 0;

  constructor(
    private readonly share = RETRY_BUDGET_SHARE,
    private readonly floor = RETRY_BUDGET_FLOOR,
  ) {}

  get retrying(): number {
    return this.activeRetries;
  }

  get active(): number {
    return this.activeRequests;
  }

  get hasRoom(): boolean {
    return this.activeRetries < Math.max(this.floor, Math.floor(this.activeRequests * this.share));
  }

  /** A request began; the returned pass ends it, with whatever retries it holds, exactly once. */
  begin(): BudgetPass {
    this.activeRequests += 1;
    let retries = 0;
    let open = true;
    return {
      takeRetry: () => {
        if (!open || !this.hasRoom) return false;
        this.activeRetries += 1;
        retries += 1;
        return true;
      },
      end: () => {
        if (!open) return;
        open = false;
        this.activeRequests -= 1;
        this.activeRetries -= retries;
      },
    };
  }
}

/** One request's hold on the retry budget. */
export interface BudgetPass {
  /** Takes one retry out of the budget until `end`; false when there is none. */
  takeRetry(): boolean;
  /** The request is over; harmless when repeated. */
  end(): void;
}
