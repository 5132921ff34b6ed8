import type { Scan } from './balancer.js';

/**
 * Bounded load: an endpoint that everybody prefers (one hot system prompt, one session key behind a proxy) may carry
 * this much more than its fair share of requests, then the next one of the same order takes over.
 */
export const BOUND_FACTOR = 1.25;
/** Requests on top of the factor, so that small numbers work: with one request in flight the fair share is a fraction. */
export const BOUND_SLACK_REQUESTS = 2;

/**
 * Marks in `scan.overBound` who would exceed the bound with one request more; returns how many stay below it.
 * Shares follow weights. Never 0: whoever has least per weight is always below.
 */
export function markOverBound(
  scan: Scan,
  factor = BOUND_FACTOR,
  slackRequests = BOUND_SLACK_REQUESTS,
): number {
  let weights = 0;
  let requests = 1;
  for (let at = 0; at < scan.count; at++) {
    const candidate = scan.eligible[at]!;
    weights += candidate.weight;
    requests += candidate.load.requests;
  }
  let below = 0;
  for (let at = 0; at < scan.count; at++) {
    const candidate = scan.eligible[at]!;
    const bound = (factor * requests * candidate.weight) / weights + slackRequests;
    const over = candidate.load.requests + 1 > bound;
    scan.overBound[at] = over ? 1 : 0;
    if (!over) below += 1;
  }
  return below;
}
