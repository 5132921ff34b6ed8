import { canonical } from '../domain/catalog/spec-digest.js';
import type { DeadlinePolicy } from '../domain/request/deadlines.js';
import { HedgeBudget, type HedgePolicy } from '../domain/request/hedge.js';
import { RetryBudget } from '../domain/request/retry-budget.js';
import type { BalancingPolicy, RouterConfig, RoutingProfileConfig } from '../config/server-config.js';

/** A routing profile as the pipeline uses it, with the budgets its requests share. */
export interface RoutingProfile {
  readonly name: string;
  readonly policy: BalancingPolicy;
  readonly deadlines: DeadlinePolicy;
  /** How long a client may block before its request is ended, ms; 0 = as long as it likes. */
  readonly clientStallMs: number;
  readonly maxAttempts: number;
  readonly retryBudget: RetryBudget;
  readonly hedge: HedgePolicy;
  readonly hedgeBudget: HedgeBudget;
  readonly queueMax: number;
  readonly priority: number;
}

function compile(name: string, config: RoutingProfileConfig): RoutingProfile {
  const { deadlines, hedging, queue, retries } = config;
  return {
    name,
    policy: config.policy,
    deadlines: {
      queueMs: deadlines.queue,
      connectMs: deadlines.connect,
      firstTokenMs: deadlines.firstToken,
      firstTokenPer1kTokensMs: deadlines.firstTokenPer1kTokens,
      idleMs: deadlines.idle,
      totalMs: deadlines.total,
      holdHeadersMs: config.holdHeaders,
    },
    clientStallMs: deadlines.clientStall,
    maxAttempts: retries.attempts,
    retryBudget: new RetryBudget(retries.budget),
    hedge: { afterMs: hedging.after, budgetShare: hedging.budget },
    hedgeBudget: new HedgeBudget(hedging.budget),
    queueMax: queue.max,
    priority: queue.priority,
  };
}

/** The routing profiles of a configuration by name, and which one a request gets. A request keeps the one it began with. */
export class RoutingProfiles {
  private byName: ReadonlyMap<string, RoutingProfile> = new Map();
  private written = new Map<string, string>();
  private fallback!: RoutingProfile;

  constructor(config: RouterConfig) {
    this.replace(config);
  }

  /** Takes another configuration. A profile that is the same in both stays, and with it the budgets its requests share. */
  replace(config: RouterConfig): void {
    const before = { byName: this.byName, written: this.written };
    this.written = new Map(Object.entries(config.profiles).map(([name, one]) => [name, canonical(one)]));
    this.byName = new Map(
      Object.entries(config.profiles).map(([name, profile]) => {
        const kept =
          before.written.get(name) === this.written.get(name) ? before.byName.get(name) : undefined;
        return [name, kept ?? compile(name, profile)];
      }),
    );
    const named = this.byName.get(config.defaultProfile);
    // Checked by the configuration already; here it would be a fault of ours.
    if (named === undefined) throw new Error(`no routing profile named ${config.defaultProfile}`);
    this.fallback = named;
  }

  /** The one the client asked for if it exists, else the model's, else the default. */
  select(asked: string | undefined, ofModel: string): RoutingProfile {
    return (
      (asked === undefined ? undefined : this.byName.get(asked)) ?? this.byName.get(ofModel) ?? this.fallback
    );
  }

  get(name: string): RoutingProfile {
    return this.byName.get(name) ?? this.fallback;
  }

  all(): Iterable<RoutingProfile> {
    return this.byName.values();
  }
}
