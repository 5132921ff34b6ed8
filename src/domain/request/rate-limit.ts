import { clampRetryAfter } from './drain-rate.js';

/** Limits of one API key; undefined members are unlimited. */
export interface RateLimits {
  readonly requestsPerMinute: number | undefined;
  readonly tokensPerMinute: number | undefined;
  readonly concurrentRequests: number | undefined;
}

/** Which limit refused a request. */
export type RateLimitKind = 'requests' | 'tokens' | 'concurrent';

export interface RateRefusal {
  readonly granted: false;
  readonly limit: RateLimitKind;
  /** Whole seconds, 1 to 60. */
  readonly retryAfterSeconds: number;
}

export type RateDecision = RateGrant | RateRefusal;

/** Remaining room as the `x-ratelimit-*` headers say it; undefined where there is no such limit. */
export interface RateSnapshot {
  readonly requests: WindowSnapshot | undefined;
  readonly tokens: WindowSnapshot | undefined;
}

export interface WindowSnapshot {
  readonly limit: number;
  readonly remaining: number;
  /** Until the window is full again, milliseconds. */
  readonly resetMs: number;
}

const MINUTE_MS = 60_000;

/**
 * A bucket that refills evenly and holds one minute's worth. It may go below zero: what a request really used is only
 * known when it ends, and the debt then delays the next ones.
 */
class TokenBucket {
  private level: number;

  constructor(
    private readonly perMinute: number,
    private atMs: number,
  ) {
    this.level = perMinute;
  }

  levelAt(nowMs: number): number {
    if (nowMs > this.atMs) {
      this.level = Math.min(this.perMinute, this.level + ((nowMs - this.atMs) * this.perMinute) / MINUTE_MS);
      this.atMs = nowMs;
    }
    return this.level;
  }

  /** A negative amount gives back; what is above one minute's worth is lost. */
  take(amount: number, nowMs: number): void {
    this.level = Math.min(this.perMinute, this.levelAt(nowMs) - amount);
  }

  /** Milliseconds until the level reaches `wanted`. */
  waitMs(wanted: number, nowMs: number): number {
    if (this.perMinute <= 0) return MINUTE_MS;
    return Math.max(0, ((wanted - this.levelAt(nowMs)) * MINUTE_MS) / this.perMinute);
  }

  snapshot(nowMs: number): WindowSnapshot {
    const level = this.levelAt(nowMs);
    const remaining = Math.max(0, Math.floor(level + ROUNDING));
    return { limit: this.perMinute, remaining, resetMs: this.waitMs(this.perMinute, nowMs) };
  }
}

/** Refilling adds fractions; a level of 0.9999999999 is a whole request. */
const ROUNDING = 1e-6;

/**
 * Counts one key's requests against its limits. A request is granted wholly or refused wholly: a refused one has
 * taken nothing from any window, else a client that is turned away a hundred times stays locked out by its own knocks.
 */
export class KeyLimiter {
  private readonly requests: TokenBucket | undefined;
  private readonly tokens: TokenBucket | undefined;
  private open = 0;
  private reserved = 0;

  constructor(
    private readonly limits: RateLimits,
    nowMs: number,
  ) {
    this.requests = bucket(limits.requestsPerMinute, nowMs);
    this.tokens = bucket(limits.tokensPerMinute, nowMs);
  }

  /** Requests granted and not yet ended. */
  get concurrent(): number {
    return this.open;
  }

  /** Estimated tokens of the requests that run; 0 at rest. */
  get reservedTokens(): number {
    return this.reserved;
  }

  /**
   * Asks for one request; retries inside the gateway belong to the same grant. The estimate is held back from the token
   * window until the request ends, so that a burst cannot all be let in on a window that only one of them fits. It may
   * exceed what is left, even the whole limit: a request is refused only when the window is used up already, else one
   * whose estimate is too high would never run.
   */
  request(nowMs: number, estimatedTokens: number): RateDecision {
    const { concurrentRequests } = this.limits;
    if (concurrentRequests !== undefined && this.open >= concurrentRequests) {
      return { granted: false, limit: 'concurrent', retryAfterSeconds: 1 };
    }
    if (this.requests !== undefined && this.requests.levelAt(nowMs) < 1 - ROUNDING) {
      return refusal('requests', this.requests.waitMs(1, nowMs));
    }
    if (this.tokens !== undefined && this.tokens.levelAt(nowMs) < 1 - ROUNDING) {
      return refusal('tokens', this.tokens.waitMs(1, nowMs));
    }
    this.requests?.take(1, nowMs);
    this.tokens?.take(estimatedTokens, nowMs);
    this.open += 1;
    this.reserved += estimatedTokens;
    return new RateGrant(this, estimatedTokens);
  }

  snapshot(nowMs: number): RateSnapshot {
    return { requests: this.requests?.snapshot(nowMs), tokens: this.tokens?.snapshot(nowMs) };
  }

  /** @internal */
  settle(estimatedTokens: number, use: RequestUse, nowMs: number): void {
    this.open -= 1;
    this.reserved -= estimatedTokens;
    this.tokens?.take(use.tokens - estimatedTokens, nowMs);
    if (!use.counts) this.requests?.take(-1, nowMs);
  }
}

/** What a request that ended has used of its key's limits. */
export interface RequestUse {
  /** Prompt and output tokens, also those of a stream that was cut. */
  readonly tokens: number;
  /** False for one that nobody served: it goes back into the window of requests. */
  readonly counts: boolean;
}

/** One granted request of a key. */
export class RateGrant {
  readonly granted = true;
  private open = true;

  constructor(
    private readonly limiter: KeyLimiter,
    private readonly estimatedTokens: number,
  ) {}

  /** The request is over: what it really used takes the place of its estimate. Counts once. */
  end(use: RequestUse, nowMs: number): void {
    if (!this.open) return;
    this.open = false;
    this.limiter.settle(this.estimatedTokens, use, nowMs);
  }
}

function bucket(perMinute: number | undefined, nowMs: number): TokenBucket | undefined {
  return perMinute === undefined ? undefined : new TokenBucket(perMinute, nowMs);
}

function refusal(limit: RateLimitKind, waitMs: number): RateRefusal {
  return { granted: false, limit, retryAfterSeconds: clampRetryAfter(waitMs / 1000) };
}

/** The `x-ratelimit-*` headers in the form OpenAI's clients read: name, value, name, value. Empty when nothing is limited. */
export function rateLimitHeaders({ requests, tokens }: RateSnapshot): string[] {
  const headers: string[] = [];
  if (requests !== undefined) pushWindow(headers, REQUEST_HEADERS, requests);
  if (tokens !== undefined) pushWindow(headers, TOKEN_HEADERS, tokens);
  return headers;
}

type WindowHeaders = readonly [limit: string, remaining: string, reset: string];

const REQUEST_HEADERS: WindowHeaders = [
  'x-ratelimit-limit-requests',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-reset-requests',
];
const TOKEN_HEADERS: WindowHeaders = [
  'x-ratelimit-limit-tokens',
  'x-ratelimit-remaining-tokens',
  'x-ratelimit-reset-tokens',
];

function pushWindow(headers: string[], names: WindowHeaders, window: WindowSnapshot): void {
  const { limit, remaining, resetMs } = window;
  headers.push(names[0], `${limit}`, names[1], `${remaining}`, names[2], formatReset(resetMs));
}

/** `250ms`, `1.5s`, `6m0s`: durations as OpenAI writes them. */
export function formatReset(ms: number): string {
  const whole = Math.ceil(ms);
  if (whole < 1000) return `${whole}ms`;
  if (whole < MINUTE_MS) return `${Math.ceil(whole / 10) / 100}s`;
  const seconds = Math.ceil(whole / 1000);
  return `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}
