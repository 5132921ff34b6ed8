/** Extra requests hedging may cause, as a share of all. */
export const HEDGE_BUDGET_SHARE = 0.02;
/** Unused budget saved up for a bad moment, in hedges. */
const HEDGE_SAVINGS = 10;

/** Hedging of a routing profile: opt-in. */
export interface HedgePolicy {
  /** Send a second request when no token came after this long; 0 is off. */
  readonly afterMs: number;
  /** Share of requests that may be hedged. */
  readonly budgetShare: number;
}

/** Why a request is not hedged. */
export type NoHedgeReason =
  'off' | 'too_early' | 'committed' | 'already_hedged' | 'no_endpoint' | 'budget_exhausted';

export type HedgeDecision =
  | { readonly hedge: true }
  /** `againInMs`: when to ask again; undefined when asking again is pointless. */
  | { readonly hedge: false; readonly because: NoHedgeReason; readonly againInMs?: number };

/** Where the request stands. */
export interface HedgeState {
  /** Since the running attempt was sent. */
  readonly elapsedMs: number;
  readonly answerCommitted: boolean;
  /** Attempts running at the moment. */
  readonly running: number;
  /** Endpoints it could go to beside those already running or tried. */
  readonly endpointsLeft: number;
}

/** Decides whether a second attempt starts while the first still waits for its first token. */
export function decideHedge(policy: HedgePolicy, state: HedgeState, budget: HedgeBudget): HedgeDecision {
  if (policy.afterMs <= 0) return { hedge: false, because: 'off' };
  if (state.answerCommitted) return { hedge: false, because: 'committed' };
  if (state.running !== 1) return { hedge: false, because: 'already_hedged' };
  if (state.elapsedMs < policy.afterMs) {
    return { hedge: false, because: 'too_early', againInMs: policy.afterMs - state.elapsedMs };
  }
  if (state.endpointsLeft <= 0) return { hedge: false, because: 'no_endpoint' };
  return budget.take() ? { hedge: true } : { hedge: false, because: 'budget_exhausted' };
}

/**
 * Earns a share of a hedge with every request and spends whole ones. When everything is slow, hedging everything
 * would double the load just then; the budget makes that impossible.
 */
export class HedgeBudget {
  private saved = 1;

  constructor(private readonly share = HEDGE_BUDGET_SHARE) {}

  /** A request began. */
  earn(): void {
    this.saved = Math.min(HEDGE_SAVINGS, this.saved + this.share);
  }

  /** Spends one hedge; false when less than one is saved. */
  take(): boolean {
    // Fifty earnings of 0.02 sum up to a hair less than one.
    if (this.saved < 1 - 1e-9) return false;
    this.saved -= 1;
    return true;
  }
}
