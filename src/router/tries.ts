import type { SplitVerdict } from '../domain/balancing/canary.js';
import type { Choice, Chosen } from '../domain/balancing/candidate.js';
import type { ReusePrediction } from '../domain/balancing/prefix-cache-model.js';
import { hashPrompt, type PromptChain } from '../domain/balancing/prompt-chain.js';
import { firstTokenDeadlineMs } from '../domain/request/deadlines.js';
import { decideHedge } from '../domain/request/hedge.js';
import {
  clientShouldNotRetry,
  decideRetry,
  mayHaveStarted,
  costsBudget,
  type AttemptFailure,
  type Blame,
  type RetryDecision,
  type RetryState,
} from '../domain/request/retry.js';
import type { BudgetPass } from '../domain/request/retry-budget.js';
import { explainHeaders } from './answer-heads.js';
import { Attempt, type AttemptOwner } from './attempt.js';
import { wantsAbortCall } from './engine-abort.js';
import type { EndpointState } from './endpoint-state.js';
import type { RouterCore } from './exchange-account.js';
import type { AttemptKind } from './explanation.js';
import type { RequestTrace } from './request-trace.js';
import type { HeaderList } from './front.js';
import type { ModelState } from './model-state.js';
import type { ReadBody } from './request-body.js';
import type { RequestHead } from './request-head.js';
import type { EngineRoute } from './routes.js';
import type { RoutingProfile } from './routing-profiles.js';

/**
 * An answer that is not streamed shows its first token only with its last. Its deadline grows by this share of
 * `firstToken` per output token: with 60 s, 100 ms a token.
 */
const UNSTREAMED_SHARE_PER_TOKEN = 1 / 600;
/** Output tokens assumed for that when the request names no limit. */
const UNSTREAMED_TOKENS = 4_096;

/** A request that is known well enough to be sent to an engine. */
export interface RoutedRequest {
  readonly head: RequestHead;
  readonly route: EngineRoute;
  readonly body: ReadBody;
  readonly model: ModelState;
  readonly profile: RoutingProfile;
  /** Monotonic. */
  readonly arrivedMs: number;
  /** The side of the model's canary split that it is on; undefined where the model has none. */
  readonly split: SplitVerdict | undefined;
  /** Estimates. */
  readonly promptTokens: number;
  readonly outputTokens: number;
}

/** What choosing an endpoint found out that sending there needs. */
interface SendPlan {
  readonly trial: boolean;
  readonly cachedTokens: number;
  readonly reuse: ReusePrediction | undefined;
}

/** The attempts of one request: where it goes, what a failure means, whether and where it is tried again. */
export class Tries {
  readonly running: Attempt[] = [];
  /** Requests sent to engines, fresh-socket retries included. */
  sends = 0;
  /** The client's own retries would only repeat what failed, see `clientShouldNotRetry`. */
  inVain = false;
  /** Endpoints it does not go to again. */
  readonly tried: string[] = [];
  private attempts = 0;
  private freshSocketTried = false;
  private retriesOfStartedWork = 0;
  private hedged = false;
  private chain: PromptChain | undefined;
  private longAnswerFactor: number;

  constructor(
    private readonly core: RouterCore,
    private readonly owner: AttemptOwner,
    private request: RoutedRequest,
    private readonly trace: RequestTrace,
    private readonly budget: BudgetPass,
  ) {
    this.longAnswerFactor = longAnswerFactor(request);
  }

  /** Something was sent already, so the next one is a retry. */
  get begun(): boolean {
    return this.attempts > 0;
  }

  /** Goes on with the same request at another model, whose endpoints it has not tried. */
  moveTo(request: RoutedRequest): void {
    this.request = request;
    this.tried.length = 0;
    this.attempts = 0;
    this.freshSocketTried = false;
    this.inVain = false;
    this.chain = undefined;
    this.longAnswerFactor = longAnswerFactor(request);
  }

  choose(nowMs: number): Choice<EndpointState> {
    const { model, profile, head, promptTokens, outputTokens, split } = this.request;
    const chain = this.promptChain();
    const { pool, otherSides, closedPools } = split ?? {};
    const facts = {
      model: model.name,
      pool,
      otherSides,
      closedPools,
      promptTokens,
      outputTokens,
      sessionKey: head.session,
      chain,
    };
    const context = { nowMs, random: this.core.random, tried: this.tried, explain: true };
    const choice = model.balancer(profile).choose(model.endpoints, facts, context);
    this.core.metrics.decided(profile.policy, (this.core.clock.monotonicMs() - nowMs) / 1000);
    // Who was left when the failure was judged may be gone by now.
    if (choice.endpoint === undefined && choice.because === 'all_tried') this.inVain = this.attempts > 1;
    this.trace.chose(choice, nowMs - this.request.arrivedMs);
    return choice;
  }

  /** Hashed once, and only where it can tell endpoints apart. */
  private promptChain(): PromptChain | undefined {
    const { model, profile, body } = this.request;
    if (profile.policy !== 'prefixAware' || model.endpoints.length < 2) return undefined;
    this.chain ??= hashPrompt(body.promptRanges(), model.name);
    return this.chain;
  }

  /** Sends the request to what was chosen. */
  dispatch(choice: Chosen<EndpointState>, kind: AttemptKind, nowMs: number): Attempt {
    const { endpoint, predictedCachedTokens: cachedTokens, reuse } = choice;
    const trial = choice.because === 'trial';
    if (trial) endpoint.health.trialStarted(nowMs);
    this.attempts += 1;
    return this.send(endpoint, kind, { trial, cachedTokens, reuse }, nowMs);
  }

  /** Sends it again to the same endpoint on a fresh connection: the kept-alive one was stale. */
  resend(failed: Attempt, nowMs: number): Attempt {
    this.freshSocketTried = true;
    // If one was closed in silence, its siblings were too.
    failed.endpoint.upstream.closeIdle();
    const at = this.tried.indexOf(failed.endpoint.id);
    if (at >= 0) this.tried.splice(at, 1);
    const { trial, reuse } = failed;
    return this.send(failed.endpoint, 'fresh_socket', { trial, cachedTokens: 0, reuse }, nowMs);
  }

  private send(endpoint: EndpointState, kind: AttemptKind, plan: SendPlan, nowMs: number): Attempt {
    const { head, route, body, model, promptTokens, outputTokens, arrivedMs } = this.request;
    const { trial, cachedTokens, reuse } = plan;
    const uncachedTokens = Math.max(0, promptTokens - cachedTokens);
    this.sends += 1;
    const { id, generation } = endpoint;
    const record = this.trace.attempt(id, generation, kind, nowMs - arrivedMs);
    const tokensAhead = endpoint.load.prefillTokens + uncachedTokens;
    const lease = endpoint.load.acquire(uncachedTokens, outputTokens, nowMs, cachedTokens);
    const attemptId = `${head.requestId}-${this.sends}`;
    const abortId = route.generates && wantsAbortCall(endpoint) ? attemptId : undefined;
    const attempt = new Attempt(
      this.owner,
      endpoint,
      lease,
      { trial, tokensAhead, reuse, abortId },
      record,
      nowMs,
    );
    this.running.push(attempt);
    const { parts, length } = body.forEngine(model.name, abortId);
    const text = this.engineHead(endpoint, length, attemptId);
    attempt.send({ head: text, body: parts, fresh: kind === 'fresh_socket' });
    return attempt;
  }

  private engineHead(endpoint: EndpointState, length: number, attemptId: string): string {
    const { head, route } = this.request;
    return (
      endpoint.requestHead(route, head.query) +
      `content-type: ${head.contentType ?? 'application/json'}\r\ncontent-length: ${length}\r\n` +
      `accept-encoding: identity\r\nx-request-id: ${attemptId}\r\n${head.passed}\r\n`
    );
  }

  /** When the attempt's present wait is over, monotonic. */
  dueMs(attempt: Attempt): number {
    const { deadlines } = this.request.profile;
    if (attempt.phase === 'connecting') {
      return deadlines.connectMs === 0 ? Number.POSITIVE_INFINITY : attempt.sentAtMs + deadlines.connectMs;
    }
    const firstTokenMs = firstTokenDeadlineMs(deadlines, this.request.promptTokens);
    if (firstTokenMs === undefined) return Number.POSITIVE_INFINITY;
    return attempt.connectedAtMs + firstTokenMs * this.longAnswerFactor;
  }

  /** Ends the attempts whose wait is over. */
  expireDue(nowMs: number): void {
    for (const attempt of this.running.slice()) {
      if (nowMs < this.dueMs(attempt)) continue;
      attempt.expire(attempt.phase === 'connecting' ? 'connect_timeout' : 'first_token_timeout');
    }
  }

  /** When the next of those waits is over. */
  nextDueMs(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const attempt of this.running) next = Math.min(next, this.dueMs(attempt));
    return next;
  }

  /** The client has all of its answer: from `untilMs` on no engine is waited for any more. Returns when to ask again. */
  endTails(nowMs: number, untilMs: number): number {
    if (nowMs < untilMs) return untilMs;
    for (const attempt of this.running.slice()) attempt.cancel('ok');
    return Number.POSITIVE_INFINITY;
  }

  /** Takes note of a failure and says what follows. */
  failed(attempt: Attempt, failure: AttemptFailure, committed: boolean, nowMs: number): RetryDecision {
    attempt.record.endedMs = nowMs - this.request.arrivedMs;
    this.exclude(attempt.endpoint);
    // Nobody listens there: whatever comes back, a static endpoint's generation stays, its cache does not.
    if (failure.kind === 'connect_refused') this.core.table.prefixes.drop(attempt.endpoint.id);
    const decision = decideRetry(failure, this.retryState(committed));
    this.inVain = clientShouldNotRetry(decision, failure, this.attempts);
    attempt.record.next = decision.action;
    if ('because' in decision) attempt.record.nextBecause = decision.because;
    blame(attempt, decision.blame, failure, nowMs);
    this.request.model.series.attempts.add(attempt.record.outcome ?? failure.kind);
    return decision;
  }

  /** Takes what a retry costs out of the budget. */
  spend(decision: Extract<RetryDecision, { action: 'retry_elsewhere' | 'retry_fresh_socket' }>): void {
    this.request.model.series.retries.add(decision.reason);
    if (decision.action === 'retry_fresh_socket') return;
    if (costsBudget(decision.reason)) this.budget.takeRetry();
    if (mayHaveStarted(decision.reason)) this.retriesOfStartedWork += 1;
  }

  private retryState(answerCommitted: boolean): RetryState {
    const { profile, promptTokens } = this.request;
    return {
      answerCommitted,
      attempts: this.attempts,
      maxAttempts: profile.maxAttempts,
      freshSocketTried: this.freshSocketTried,
      retriesOfStartedWork: this.retriesOfStartedWork,
      endpointsLeft: this.untried(),
      budgetLeft: profile.retryBudget.hasRoom,
      promptTokens,
    };
  }

  private untried(): number {
    let left = 0;
    for (const { id, weight } of this.request.model.endpoints) {
      if (weight > 0 && !this.tried.includes(id)) left += 1;
    }
    return left;
  }

  /** An endpoint that left the table cannot be chosen anyway, and its id may already be a new generation's. */
  private exclude(endpoint: EndpointState): void {
    if (!endpoint.draining && !this.tried.includes(endpoint.id)) this.tried.push(endpoint.id);
  }

  /** Starts a second attempt beside the running one if it is time; otherwise says when to ask again. */
  hedge(nowMs: number): number {
    const { hedge: policy, hedgeBudget } = this.request.profile;
    const attempt = this.running[0];
    if (policy.afterMs === 0 || this.hedged || attempt === undefined) return Number.POSITIVE_INFINITY;
    const state = {
      elapsedMs: nowMs - attempt.sentAtMs,
      answerCommitted: false,
      running: this.running.length,
      endpointsLeft: this.untried() - (this.tried.includes(attempt.endpoint.id) ? 0 : 1),
    };
    const decision = decideHedge(policy, state, hedgeBudget);
    if (!decision.hedge) {
      return decision.againInMs === undefined ? Number.POSITIVE_INFINITY : nowMs + decision.againInMs;
    }
    this.hedged = true;
    this.tried.push(attempt.endpoint.id);
    const choice = this.choose(nowMs);
    this.tried.pop();
    if (choice.endpoint === undefined) return Number.POSITIVE_INFINITY;
    return this.dueMs(this.dispatch(choice, 'hedge', nowMs));
  }

  /** Cancels the others: `winner` answers. */
  settle(winner: Attempt, nowMs: number): void {
    for (const attempt of this.running.slice())
      if (attempt !== winner) this.drop(attempt, 'hedge_lost', nowMs);
  }

  /** Cancels everything that still has something to give to the client. */
  cancelAll(outcome: string, nowMs: number): void {
    for (const attempt of this.running.slice())
      if (attempt.phase !== 'tail') this.drop(attempt, outcome, nowMs);
  }

  /** What `x-llmgw-explain` adds to an answer of `endpoint`, or to the failure of the last one; of none if it was sent nowhere. */
  explainHeaders(endpoint = this.trace.lastEndpoint): HeaderList {
    const { split, policy } = this.trace;
    const facts = { split, policy: policy === '' ? this.request.profile.policy : policy };
    return explainHeaders(facts, endpoint, this.sends);
  }

  /** Cancels one for which nobody waits any more, or whose answer cannot be used. */
  drop(attempt: Attempt, outcome: string, nowMs: number): void {
    attempt.record.endedMs = nowMs - this.request.arrivedMs;
    if (attempt.trial && !attempt.relaying) attempt.endpoint.health.trialAbandoned();
    this.request.model.series.attempts.add(outcome);
    attempt.cancel(outcome);
  }

  /** The attempt is over. */
  remove(attempt: Attempt): void {
    const at = this.running.indexOf(attempt);
    if (at >= 0) this.running.splice(at, 1);
  }
}

function longAnswerFactor({ route, body }: RoutedRequest): number {
  if (!route.generates || body.stream) return 1;
  return 1 + Math.min(body.maxTokens ?? UNSTREAMED_TOKENS, UNSTREAMED_TOKENS) * UNSTREAMED_SHARE_PER_TOKEN;
}

/** Tells the endpoint what the failure says about it. */
function blame(attempt: Attempt, verdict: Blame, failure: AttemptFailure, nowMs: number): void {
  const { endpoint, trial } = attempt;
  switch (verdict) {
    case 'fault':
      return endpoint.faulted(nowMs, trial);
    case 'first_token_timeout':
      return endpoint.timedOut(attempt.sentAtMs, nowMs, trial);
    case 'busy':
      if (trial) endpoint.health.trialAbandoned();
      return endpoint.busy(nowMs, failure.kind === 'status' ? failure.retryAfterMs : undefined);
    case 'none':
      // A 4xx is an answer: whoever refuses a bad request works.
      if (failure.kind === 'status' || failure.kind === 'error_event') endpoint.worked(nowMs);
      else if (trial) endpoint.health.trialAbandoned();
  }
}
