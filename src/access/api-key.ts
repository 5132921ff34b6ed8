import {
  KeyLimiter,
  rateLimitHeaders,
  type RateLimitKind,
  type RequestUse,
} from '../domain/request/rate-limit.js';
import type { Grant, NamedModel, Principal, Refusal } from '../router/authoriser.js';
import type { ApiKeyRecord } from './records.js';

/** A key that may be used: what it allows, what runs on it, and what it has used since the server started. */
export class ApiKey implements Principal {
  readonly id: string;
  readonly priority: number | undefined;
  readonly limiter: KeyLimiter;
  /** Requests granted. */
  requests = 0;
  /** Requests refused by a limit. */
  refused = 0;
  /** Tokens charged. */
  tokens = 0;
  /** When it was last used, wall time in ms; undefined when it was not since the server started. */
  lastUsedWallMs: number | undefined;
  /** Set when it is: requests that wait hold on to their key. */
  revoked = false;
  private readonly expiresWallMs: number;
  private readonly models: ModelPatterns | undefined;

  constructor(
    readonly record: ApiKeyRecord,
    nowMs: number,
  ) {
    this.id = record.id;
    this.priority = record.priority;
    this.limiter = new KeyLimiter(
      {
        requestsPerMinute: record.requestsPerMinute,
        tokensPerMinute: record.tokensPerMinute,
        concurrentRequests: record.maxConcurrent,
      },
      nowMs,
    );
    this.expiresWallMs =
      record.expiresAt === undefined ? Number.POSITIVE_INFINITY : Date.parse(record.expiresAt);
    this.models = record.models.length === 0 ? undefined : new ModelPatterns(record.models);
  }

  expired(wallMs: number): boolean {
    return wallMs >= this.expiresWallMs;
  }

  mayUse(model: NamedModel): boolean {
    return this.models === undefined || this.models.match(model);
  }

  /** Asks the key's limits for one request. `nowMs` gives the monotonic time. */
  grant(estimatedTokens: number, nowMs: () => number): Grant | Refusal {
    const now = nowMs();
    // Whole: sums of fractions do not come back to 0.
    const decision = this.limiter.request(now, Math.ceil(estimatedTokens));
    const headers = rateLimitHeaders(this.limiter.snapshot(now));
    if (!decision.granted) {
      this.refused += 1;
      const { retryAfterSeconds, limit } = decision;
      return { code: 'rate_limit_exceeded', message: this.limitText(limit), retryAfterSeconds, headers };
    }
    this.requests += 1;
    return {
      headers,
      end: (use: RequestUse) => {
        decision.end(use, nowMs());
        this.tokens += use.tokens;
      },
    };
  }

  private limitText(limit: RateLimitKind): string {
    const { requestsPerMinute, tokensPerMinute, maxConcurrent } = this.record;
    switch (limit) {
      case 'requests':
        return `this key's ${requestsPerMinute} requests per minute are used up`;
      case 'tokens':
        return `this key's ${tokensPerMinute} tokens per minute are used up`;
      case 'concurrent':
        return `this key's limit of ${maxConcurrent} requests at once is reached`;
    }
  }
}

/**
 * Names of models, where `*` stands for any characters. A model is meant by any of its names: what a key allows must
 * not depend on which of them a client happens to write.
 */
class ModelPatterns {
  private readonly exact = new Set<string>();
  private readonly globs: RegExp[] = [];

  constructor(patterns: readonly string[]) {
    for (const pattern of patterns) {
      if (pattern.includes('*')) this.globs.push(globOf(pattern));
      else this.exact.add(pattern);
    }
  }

  match({ name, aliases }: NamedModel): boolean {
    return this.fits(name) || aliases.some((alias) => this.fits(alias));
  }

  private fits(name: string): boolean {
    return this.exact.has(name) || this.globs.some((glob) => glob.test(name));
  }
}

/** Runs of stars are one, so that no pattern makes matching slow. */
function globOf(pattern: string): RegExp {
  const parts = pattern.split(/\*+/).map((part) => part.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`, 's');
}

/** Whether one of the patterns means the model of this name. */
export function matchesModel(pattern: string, model: NamedModel): boolean {
  return new ModelPatterns([pattern]).match(model);
}
