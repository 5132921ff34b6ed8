import type { Choice } from '../domain/balancing/candidate.js';
import { estimatePromptTokens, firstTokenDeadlineMs } from '../domain/request/deadlines.js';
import type { AdmissionRefusal, Ticket } from '../domain/request/admission.js';
import { decideHedge } from '../domain/request/hedge.js';
import {
  clientShouldNotRetry,
  decideRetry,
  mayHaveStarted,
  type AttemptFailure,
  type Blame,
  type RetryDecision,
} from '../domain/request/retry.js';
import type { BudgetPass } from '../domain/request/retry-budget.js';
import type { ApiErrorCode } from '../shared/errors.js';
import { Attempt, type AttemptOwner } from './attempt.js';
import { isRefusal, type Grant, type Principal } from './authoriser.js';
import { giveEngineError, giveError, plainHeaders, streamHeaders } from './client-answer.js';
import { DeadlineWatch } from './deadline-watch.js';
import { dialectOf, type Dialect, type GatewayError } from './dialects.js';
import type { EndpointState } from './endpoint-state.js';
import { isEventStream, type EngineErrorAnswer } from './engine-answer.js';
import type { EventStream } from './event-stream.js';
import { concludeExchange, type ExchangeFacts, type RouterCore } from './exchange-account.js';
import type { ExplainedAttempt, RequestExplanation } from './explain-ring.js';
import type { Front, FrontSink } from './front.js';
import type { ModelState, Waiting } from './model-state.js';
import { readJsonBody, type ReadBody } from './request-body.js';
import type { RequestHead } from './request-head.js';
import type { DialectName, EngineRoute } from './routes.js';
import type { RoutingProfile } from './routing-profiles.js';
import type { UpstreamHead } from './upstream/response-head.js';

/** Longest pause in the middle of a request's body, ms; whoever sends slower holds memory for nothing. */
const BODY_STALL_MS = 60_000;
/** Longest wait for the engine to end its answer after the client has all of it, ms. */
const TAIL_MS = 1_000;
/** Pause after which a comment shows everybody between here and the client that the stream lives, ms. */
const HEARTBEAT_MS = 10_000;
/**
 * A queued stream's status is held longer than one at an engine: "try again later" with a real status is retried by
 * every SDK, in a stream by none. Still below the 60 s at which proxies in front give up.
 */
const QUEUED_HOLD_MS = 40_000;
/**
 * An answer that is not streamed shows its first token only with its last. Its deadline grows by this share of
 * `firstToken` per output token: with 60 s, 100 ms a token.
 */
const UNSTREAMED_SHARE_PER_TOKEN = 1 / 600;
/** Output tokens assumed for that when the request names no limit. */
const UNSTREAMED_TOKENS = 4_096;

/** Where a request stands. `ended`: the client has its answer or left; an attempt may still wait for its engine's end. */
type Phase = 'body' | 'queued' | 'attempting' | 'relaying' | 'ended';

const NOTHING = Buffer.alloc(0);

/**
 * One request to an engine, from its head to its log line: body → model → admission → choice → attempt(s) → answer.
 * A state machine driven by the client's side, the attempts and one timer; it awaits nothing.
 */
export class Exchange implements FrontSink, AttemptOwner, Waiting {
  readonly dialect: DialectName;
  private phase: Phase = 'body';
  private readonly arrivedMs: number;
  private readonly watch: DeadlineWatch;
  private readonly words: Dialect;
  private readonly facts: ExchangeFacts;
  private readonly explanation: RequestExplanation;

  private pieces: Buffer[] = [];
  private bodyBytes = 0;
  private lastBodyMs: number;
  private body: ReadBody | undefined;

  private model: ModelState | undefined;
  private profile: RoutingProfile | undefined;
  private grant: Grant | undefined;
  private budget: BudgetPass | undefined;
  private promptTokens = 0;
  private outputTokens = 0;
  private ticket: Ticket<Waiting> | undefined;
  private queueDeadlineMs: number | undefined;

  private readonly running: Attempt[] = [];
  private readonly tried: string[] = [];
  private attempts = 0;
  private sends = 0;
  private freshSocketTried = false;
  private retriesOfStartedWork = 0;
  private hedged = false;
  private holdUntilMs = Number.POSITIVE_INFINITY;
  private winner: Attempt | undefined;
  private lastFailure:
    { readonly failure: AttemptFailure; readonly answer: EngineErrorAnswer | undefined } | undefined;

  private events = 0;
  private lastEventMs = 0;
  private lastWriteMs = 0;
  private lastTokenMs = 0;
  private clientSlowSinceMs: number | undefined;
  private finished = false;
  private endedMs = 0;

  constructor(
    private readonly core: RouterCore,
    private readonly front: Front,
    private readonly head: RequestHead,
    private readonly route: EngineRoute,
    private readonly principal: Principal,
    private readonly common: string[],
  ) {
    this.dialect = route.dialect;
    this.words = dialectOf(route.dialect);
    this.arrivedMs = core.clock.monotonicMs();
    this.lastBodyMs = this.arrivedMs;
    this.watch = new DeadlineWatch(core.clock, (now) => this.look(now));
    this.explanation = {
      requestId: head.requestId,
      receivedWallMs: core.clock.wallMs(),
      route: route.path,
      phases: [],
      choices: [],
      attempts: [],
    };
    this.facts = {
      head,
      route,
      principal,
      arrivedMs: this.arrivedMs,
      explanation: this.explanation,
      bytesOut: 0,
    };
    core.exchanges.add(this);
  }

  // ---------------------------------------------------------------- the body

  start(): void {
    const { contentLength } = this.head;
    if (contentLength > this.core.config.bodyLimit) return this.tooLarge();
    this.watch.by(this.arrivedMs + BODY_STALL_MS);
    this.front.startBody(this);
  }

  onBody(bytes: Buffer): void {
    if (this.phase !== 'body') return;
    this.bodyBytes += bytes.length;
    if (this.bodyBytes > this.core.config.bodyLimit) return this.tooLarge();
    this.pieces.push(bytes);
    this.lastBodyMs = this.core.clock.monotonicMs();
  }

  onBodyEnd(): void {
    if (this.phase !== 'body') return;
    const bytes = this.pieces.length === 1 ? (this.pieces[0] as Buffer) : Buffer.concat(this.pieces);
    this.pieces = [];
    this.facts.bytesIn = bytes.length;
    const reading = readJsonBody(bytes, this.route);
    if (!reading.ok) return this.fail(reading.error);
    this.body = reading.body;
    this.explanation.stream = reading.body.stream;
    this.explanation.bodyBytes = bytes.length;
    this.resolve(reading.body);
  }

  private tooLarge(): void {
    const limit = this.core.config.bodyLimit;
    this.fail({ code: 'request_too_large', message: `the body is larger than ${limit} bytes` });
  }

  private resolve(body: ReadBody): void {
    const model = this.core.table.find(body.model);
    if (model === undefined) {
      const message = `the model \`${shown(body.model)}\` does not exist`;
      return this.fail({ code: 'model_not_found', message, param: 'model' });
    }
    this.model = model;
    this.facts.model = model;
    this.explanation.model = model.name;
    if (body.model !== model.name) this.explanation.alias = body.model;
    if (!this.principal.mayUse(model.name)) {
      const message = `this key may not use the model \`${shown(body.model)}\``;
      return this.fail({ code: 'model_not_allowed', message, param: 'model' });
    }
    this.profile = this.core.profiles.select(this.head.profile, model.info.routingProfile);
    this.facts.profile = this.profile;
    this.explanation.routingProfile = this.profile.name;
    this.promptTokens = estimatePromptTokens(body.promptBytes);
    this.outputTokens = Math.min(body.maxTokens ?? Number.POSITIVE_INFINITY, model.meanOutputTokens);
    this.explanation.estimatedPromptTokens = this.promptTokens;
    const grant = this.core.authoriser.grant(
      this.principal,
      model.name,
      this.promptTokens + this.outputTokens,
    );
    if (isRefusal(grant)) return this.fail(grant, grant.retryAfterSeconds);
    this.grant = grant;
    this.common.push(...grant.headers);
    this.budget = this.profile.retryBudget.begin();
    this.profile.hedgeBudget.earn();
    const { queueMs, totalMs } = this.profile.deadlines;
    const now = this.core.clock.monotonicMs();
    if (totalMs > 0) this.watch.by(this.arrivedMs + totalMs);
    this.queueDeadlineMs = queueMs === 0 ? undefined : now + queueMs;
    this.admit(now);
  }

  // ---------------------------------------------------------------- admission and choice

  private admit(now: number): void {
    const model = this.model as ModelState;
    if (model.queue.depth > 0 && !model.hasRoom) return this.wait(now);
    const choice = this.choose(now);
    if (choice.endpoint !== undefined) {
      model.queue.admitDirect(this.share());
      return this.dispatch(choice, this.attempts === 0 ? 'first' : 'retry', now);
    }
    switch (choice.because) {
      case 'at_capacity':
        return this.wait(now);
      case 'no_endpoint':
        if (model.info.outlook === 'coming') return this.wait(now);
        return this.turnedAway(model.refuse('no_ready_replica', now));
      case 'all_tried':
        return this.giveUp();
    }
  }

  private share() {
    const { principal, head } = this;
    return {
      fairnessKey: principal.id === 'anonymous' ? head.clientAddress : principal.id,
      priority: principal.priority ?? this.profile?.priority ?? 0,
      tokens: this.promptTokens + this.outputTokens,
    };
  }

  private wait(now: number): void {
    const model = this.model as ModelState;
    this.enter('queued', now);
    const result = model.queue.enqueue(
      { ...this.share(), deadlineMs: this.queueDeadlineMs, payload: this },
      now,
    );
    if (result.ticket === undefined) return this.turnedAway(result.refusal);
    this.ticket = result.ticket;
    result.displaced?.arrival.payload.turnedAway(model.refuse('queue_full', now));
    if (this.queueDeadlineMs !== undefined) this.watch.by(this.queueDeadlineMs);
    if (this.body?.stream === true) this.holdFor(now, QUEUED_HOLD_MS);
  }

  proceed(): void {
    this.leaveQueue(this.core.clock.monotonicMs());
    if (this.phase === 'queued') this.admit(this.core.clock.monotonicMs());
  }

  turnedAway(refusal: AdmissionRefusal): void {
    this.leaveQueue(this.core.clock.monotonicMs());
    this.fail({ code: refusal.refused, message: REFUSALS[refusal.refused] }, refusal.retryAfterSeconds);
  }

  private leaveQueue(now: number): void {
    if (this.ticket === undefined) return;
    this.facts.queueMs = (this.facts.queueMs ?? 0) + (now - this.ticket.enqueuedAtMs);
    this.ticket = undefined;
  }

  private choose(now: number): Choice<EndpointState> {
    const model = this.model as ModelState;
    const profile = this.profile as RoutingProfile;
    const request = {
      model: model.name,
      promptTokens: this.promptTokens,
      outputTokens: this.outputTokens,
      sessionKey: this.head.session,
    };
    const random = this.core.random;
    const context = { nowMs: now, random, tried: this.tried, explain: true };
    const startedMs = this.core.clock.monotonicMs();
    const choice = model.balancer(profile).choose(model.endpoints, request, context);
    this.core.metrics.decided(profile.policy, (this.core.clock.monotonicMs() - startedMs) / 1000);
    this.explanation.choices.push({
      atMs: now - this.arrivedMs,
      policy: choice.policy,
      chosen: choice.endpoint?.id,
      because: choice.because,
      candidates: choice.candidates ?? [],
      ...(choice.endpoint === undefined
        ? {}
        : { predictedCachedTokens: choice.predictedCachedTokens, costSeconds: choice.costSeconds }),
    });
    return choice;
  }

  // ---------------------------------------------------------------- attempts

  private dispatch(
    choice: Choice<EndpointState> & { endpoint: EndpointState },
    kind: ExplainedAttempt['kind'],
    now: number,
  ): void {
    const { endpoint, predictedCachedTokens } = choice;
    const trial = choice.because === 'trial';
    if (trial) endpoint.health.trialStarted(now);
    this.attempts += 1;
    this.core.metrics.prefixPredictedTokens += predictedCachedTokens;
    this.send(endpoint, kind, trial, this.promptTokens - predictedCachedTokens, now);
  }

  private send(
    endpoint: EndpointState,
    kind: ExplainedAttempt['kind'],
    trial: boolean,
    uncachedTokens: number,
    now: number,
  ): void {
    const body = this.body as ReadBody;
    const profile = this.profile as RoutingProfile;
    this.enter('attempting', now);
    this.sends += 1;
    const { id, generation } = endpoint;
    const startedMs = now - this.arrivedMs;
    const record: ExplainedAttempt = { number: this.sends, endpoint: id, generation, kind, startedMs };
    this.explanation.attempts.push(record);
    const lease = endpoint.load.acquire(uncachedTokens, this.outputTokens, now);
    const attempt = new Attempt(this, endpoint, lease, trial, record);
    this.running.push(attempt);
    const spliced = body.forEngine((this.model as ModelState).name);
    const head = this.engineHead(endpoint, spliced.length);
    attempt.send({ head, body: spliced.parts, fresh: kind === 'fresh_socket' });
    if (body.stream) this.holdFor(now, profile.deadlines.holdHeadersMs);
    this.watch.by(this.attemptDueMs(attempt));
    if (profile.hedge.afterMs > 0) this.watch.by(now + profile.hedge.afterMs);
  }

  private engineHead(endpoint: EndpointState, length: number): string {
    const { head } = this;
    return (
      endpoint.requestHead(this.route, head.query) +
      `content-type: ${head.contentType ?? 'application/json'}\r\ncontent-length: ${length}\r\n` +
      `accept-encoding: identity\r\nx-request-id: ${head.requestId}-${this.sends}\r\n${head.passed}\r\n`
    );
  }

  private holdFor(now: number, ms: number): void {
    if (this.front.headGiven) return;
    this.holdUntilMs = Math.min(this.holdUntilMs, now + ms);
    this.watch.by(this.holdUntilMs);
  }

  /** When the attempt's present wait is over, monotonic. */
  private attemptDueMs(attempt: Attempt): number {
    const profile = this.profile as RoutingProfile;
    const { connectMs } = profile.deadlines;
    if (attempt.phase === 'connecting') {
      return connectMs === 0 ? Number.POSITIVE_INFINITY : attempt.sentAtMs + connectMs;
    }
    const firstTokenMs = firstTokenDeadlineMs(profile.deadlines, this.promptTokens);
    if (firstTokenMs === undefined) return Number.POSITIVE_INFINITY;
    return attempt.connectedAtMs + firstTokenMs * this.longAnswerFactor();
  }

  private longAnswerFactor(): number {
    const { body, route } = this;
    if (!route.generates || body?.stream === true) return 1;
    return 1 + Math.min(body?.maxTokens ?? UNSTREAMED_TOKENS, UNSTREAMED_TOKENS) * UNSTREAMED_SHARE_PER_TOKEN;
  }

  monotonicMs(): number {
    return this.core.clock.monotonicMs();
  }
  wallMs(): number {
    return this.core.clock.wallMs();
  }

  connected(attempt: Attempt): void {
    attempt.record.connectedMs = attempt.connectedAtMs - this.arrivedMs;
    if (this.phase === 'attempting') this.watch.by(this.attemptDueMs(attempt));
  }

  failed(
    attempt: Attempt,
    failure: AttemptFailure,
    answer: EngineErrorAnswer | undefined,
    detail: string,
  ): void {
    const now = this.core.clock.monotonicMs();
    attempt.record.endedMs = now - this.arrivedMs;
    this.facts.detail = detail;
    this.exclude(attempt.endpoint);
    const decision = decideRetry(failure, this.retryState());
    attempt.record.next = decision.action;
    if ('because' in decision) attempt.record.nextBecause = decision.because;
    this.blame(attempt, decision.blame, failure, now);
    this.model?.series.attempts.add(attempt.record.outcome ?? failure.kind);
    if (this.phase === 'ended') return;
    this.lastFailure = { failure, answer };
    if (this.winner === attempt) return this.breakOff(failure);
    // The other one of a hedged pair may still do it.
    if (this.running.some((other) => other !== attempt && other.active)) return;
    this.follow(decision, attempt, now);
  }

  /** An endpoint that left the table cannot be chosen anyway, and its id may already be a new generation's. */
  private exclude(endpoint: EndpointState): void {
    if (!endpoint.draining && !this.tried.includes(endpoint.id)) this.tried.push(endpoint.id);
  }

  private readmit(endpoint: EndpointState): void {
    const at = this.tried.indexOf(endpoint.id);
    if (at >= 0) this.tried.splice(at, 1);
  }

  private retryState() {
    const profile = this.profile as RoutingProfile;
    const model = this.model as ModelState;
    let endpointsLeft = 0;
    for (const endpoint of model.endpoints) if (!this.tried.includes(endpoint.id)) endpointsLeft += 1;
    return {
      answerCommitted: this.winner !== undefined,
      attempts: this.attempts,
      maxAttempts: profile.maxAttempts,
      freshSocketTried: this.freshSocketTried,
      retriesOfStartedWork: this.retriesOfStartedWork,
      endpointsLeft,
      budgetLeft: profile.retryBudget.hasRoom,
      promptTokens: this.promptTokens,
    };
  }

  private follow(decision: RetryDecision, attempt: Attempt, now: number): void {
    const series = this.model?.series;
    switch (decision.action) {
      case 'retry_fresh_socket':
        series?.retries.add(decision.reason);
        this.freshSocketTried = true;
        this.readmit(attempt.endpoint);
        attempt.endpoint.upstream.closeIdle();
        return this.send(attempt.endpoint, 'fresh_socket', attempt.trial, this.promptTokens, now);
      case 'retry_elsewhere':
        series?.retries.add(decision.reason);
        this.budget?.takeRetry();
        if (mayHaveStarted(decision.reason)) this.retriesOfStartedWork += 1;
        return this.admit(now);
      case 'relay':
      case 'give_up':
        if (decision.because === 'budget_exhausted') this.core.metrics.retryBudgetExhausted += 1;
        this.facts.allTried =
          clientShouldNotRetry(decision) && (this.attempts > 1 || decision.blame !== 'busy');
        return this.giveUp();
    }
  }

  private blame(attempt: Attempt, blame: Blame, failure: AttemptFailure, now: number): void {
    const { endpoint, trial } = attempt;
    switch (blame) {
      case 'fault':
        return endpoint.faulted(now, trial);
      case 'first_token_timeout':
        return endpoint.timedOut(attempt.sentAtMs, now, trial);
      case 'busy':
        if (trial) endpoint.health.trialAbandoned();
        return endpoint.busy(now, failure.kind === 'status' ? failure.retryAfterMs : undefined);
      case 'none':
        // A 4xx is an answer: whoever refuses a bad request works.
        if (failure.kind === 'status' || failure.kind === 'error_event') endpoint.worked(now);
        else if (trial) endpoint.health.trialAbandoned();
    }
  }

  released(attempt: Attempt): void {
    const at = this.running.indexOf(attempt);
    if (at >= 0) this.running.splice(at, 1);
    if (this.phase === 'ended' && this.running.length === 0) this.watch.stop();
    this.core.table.released(attempt.endpoint, this.core.clock.monotonicMs());
  }

  private hedge(now: number): void {
    const profile = this.profile as RoutingProfile;
    const attempt = this.running[0];
    if (attempt === undefined || this.hedged) return;
    const { endpointsLeft } = this.retryState();
    const state = {
      elapsedMs: now - attempt.sentAtMs,
      answerCommitted: this.winner !== undefined,
      running: this.running.length,
      endpointsLeft: endpointsLeft - (this.tried.includes(attempt.endpoint.id) ? 0 : 1),
    };
    const decision = decideHedge(profile.hedge, state, profile.hedgeBudget);
    if (!decision.hedge) {
      if (decision.againInMs !== undefined) this.watch.by(now + decision.againInMs);
      return;
    }
    this.hedged = true;
    this.tried.push(attempt.endpoint.id);
    const choice = this.choose(now);
    this.tried.pop();
    if (choice.endpoint !== undefined) this.dispatch(choice, 'hedge', now);
  }

  // ---------------------------------------------------------------- the answer

  begins(attempt: Attempt, head: UpstreamHead): boolean {
    if (this.phase === 'ended' || this.winner !== undefined) return false;
    const now = this.core.clock.monotonicMs();
    const streamed = isEventStream(head);
    if (this.front.headGiven && !streamed) {
      // The status and the form are out; anything but events cannot follow them.
      attempt.cancel('not_a_stream');
      this.fail({ code: 'upstream_protocol_error', message: 'the engine did not answer with a stream' });
      return false;
    }
    this.winner = attempt;
    this.facts.winner = attempt;
    for (const other of this.running.slice()) if (other !== attempt) this.lose(other);
    this.enter('relaying', now);
    attempt.record.firstEventMs = now - this.arrivedMs;
    this.lastEventMs = now;
    this.lastTokenMs = now;
    this.lastWriteMs = now;
    this.facts.streamed = streamed;
    if (!this.front.headGiven) this.giveHead(attempt, head, streamed);
    this.watch.by(this.idleDueMs());
    return true;
  }

  private lose(attempt: Attempt): void {
    attempt.record.endedMs = this.core.clock.monotonicMs() - this.arrivedMs;
    if (attempt.trial) attempt.endpoint.health.trialAbandoned();
    this.model?.series.attempts.add('hedge_lost');
    attempt.cancel('hedge_lost');
  }

  private giveHead(attempt: Attempt, head: UpstreamHead, streamed: boolean): void {
    const common = this.head.explain ? [...this.common, ...this.explainHeaders(attempt)] : this.common;
    this.facts.status = head.status;
    if (streamed) {
      this.front.head(head.status, streamHeaders(common, head.contentType ?? EVENT_STREAM), 'stream');
      return;
    }
    const length =
      head.framing === 'length' ? (head.contentLength ?? 0) : head.framing === 'none' ? 0 : 'stream';
    this.front.head(head.status, plainHeaders(common, head), length);
  }

  private explainHeaders(attempt: Attempt): string[] {
    const policy = this.explanation.choices.at(-1)?.policy ?? '';
    const { id } = attempt.endpoint;
    return ['x-llmgw-endpoint', id, 'x-llmgw-policy', policy, 'x-llmgw-attempts', String(this.sends)];
  }

  relay(bytes: Buffer, from: number, to: number): boolean {
    if (this.phase !== 'relaying') return true;
    const now = this.core.clock.monotonicMs();
    this.lastEventMs = now;
    this.facts.bytesOut += to - from;
    return this.gave(this.front.give(bytes, from, to), now);
  }

  relayAll(bytes: Buffer, from: number, to: number): void {
    if (this.phase !== 'relaying') return;
    this.facts.bytesOut += to - from;
    this.finished = true;
    this.front.finish(bytes, from, to);
  }

  relayEvents(_attempt: Attempt, stream: EventStream): boolean {
    if (this.phase !== 'relaying') return true;
    const now = this.core.clock.monotonicMs();
    if (stream.events > 0) this.countEvents(stream, now);
    this.facts.bytesOut += stream.to - stream.from;
    if (stream.done) {
      this.finished = true;
      this.front.finish(stream.bytes, stream.from, stream.to);
      this.conclude('ok');
      this.watch.by(now + TAIL_MS);
      return true;
    }
    if (stream.to === stream.from) return true;
    this.lastWriteMs = now;
    return this.gave(this.front.give(stream.bytes, stream.from, stream.to), now);
  }

  private countEvents(stream: EventStream, now: number): void {
    this.events += stream.events;
    this.lastEventMs = now;
    if (stream.error !== undefined) this.facts.engineError = true;
    if (stream.tokens === 0) return;
    if (this.facts.firstTokenMs === undefined) {
      const sentAtMs = this.winner?.sentAtMs ?? now;
      this.facts.firstTokenMs = now - sentAtMs;
      this.winner?.endpoint.rates.firstToken(this.promptTokens, (now - sentAtMs) / 1000);
    } else {
      this.model?.series.interToken.observe((now - this.lastTokenMs) / 1000);
    }
    this.lastTokenMs = now;
  }

  private gave(accepted: boolean, now: number): boolean {
    if (accepted || this.clientSlowSinceMs !== undefined) return accepted;
    this.clientSlowSinceMs = now;
    const { clientStallMs } = this.profile as RoutingProfile;
    if (clientStallMs > 0) this.watch.by(now + clientStallMs);
    return false;
  }

  answered(_attempt: Attempt): void {
    if (this.phase !== 'relaying') return;
    if (!this.finished) this.front.finish(NOTHING, 0, 0);
    this.finished = true;
    this.conclude('ok');
  }

  // ---------------------------------------------------------------- the client

  onDrain(): void {
    if (this.clientSlowSinceMs === undefined) return;
    this.clientSlowSinceMs = undefined;
    const now = this.core.clock.monotonicMs();
    // The engine could not send while it was paused; its time starts again.
    this.lastEventMs = now;
    this.winner?.resume();
    if (this.phase === 'relaying') this.watch.by(this.idleDueMs());
  }

  onClientGone(): void {
    this.stopEverything('client_closed');
    this.conclude('client_closed');
  }

  /** The gateway's own grace is over. */
  shutDown(): void {
    if (this.phase === 'ended') return;
    this.stopEverything('shutting_down');
    this.fail({ code: 'shutting_down', message: 'the gateway is being stopped' });
  }

  private stopEverything(outcome: string): void {
    if (this.ticket !== undefined) this.model?.queue.leave(this.ticket);
    this.leaveQueue(this.core.clock.monotonicMs());
    for (const attempt of this.running.slice()) {
      if (attempt.phase === 'tail') continue;
      attempt.record.endedMs = this.core.clock.monotonicMs() - this.arrivedMs;
      if (attempt.trial && !attempt.relaying) attempt.endpoint.health.trialAbandoned();
      this.model?.series.attempts.add(outcome);
      attempt.cancel(outcome);
    }
  }

  // ---------------------------------------------------------------- time

  /** Acts on what is due; returns when to look again. */
  private look(now: number): number {
    const totalMs = this.profile?.deadlines.totalMs ?? 0;
    const totalDueMs = totalMs === 0 ? Number.POSITIVE_INFINITY : this.arrivedMs + totalMs;
    if (now >= totalDueMs && this.phase !== 'ended') this.totalExpired();
    switch (this.phase) {
      case 'body':
        return this.lookAtBody(now);
      case 'queued':
        this.model?.expire(now);
        if (this.phase !== 'queued') return this.again(now);
        return Math.min(totalDueMs, this.queueDeadlineMs ?? Number.POSITIVE_INFINITY, this.lookAtHold(now));
      case 'attempting':
        return Math.min(totalDueMs, this.lookAtAttempts(now));
      case 'relaying':
        return Math.min(totalDueMs, this.lookAtStream(now));
      case 'ended':
        return this.lookAtTail(now);
    }
  }

  private again(now: number): number {
    return this.phase === 'ended' && this.running.length === 0 ? Number.POSITIVE_INFINITY : now;
  }

  private lookAtBody(now: number): number {
    const dueMs = this.lastBodyMs + BODY_STALL_MS;
    if (now < dueMs) return dueMs;
    this.fail({ code: 'bad_request', message: 'the body did not arrive in time' });
    return Number.POSITIVE_INFINITY;
  }

  private lookAtAttempts(now: number): number {
    for (const attempt of this.running.slice()) {
      if (now < this.attemptDueMs(attempt)) continue;
      attempt.expire(attempt.phase === 'connecting' ? 'connect_timeout' : 'first_token_timeout');
    }
    if (this.phase !== 'attempting') return this.again(now);
    this.hedge(now);
    let next = this.lookAtHold(now);
    for (const attempt of this.running) next = Math.min(next, this.attemptDueMs(attempt));
    return next;
  }

  private lookAtHold(now: number): number {
    if (this.body?.stream !== true) return Number.POSITIVE_INFINITY;
    if (!this.front.headGiven) {
      if (now < this.holdUntilMs) return this.holdUntilMs;
      this.facts.status = 200;
      this.front.head(200, streamHeaders(this.common, EVENT_STREAM), 'stream');
      this.heartbeat(now);
    }
    if (now - this.lastWriteMs >= HEARTBEAT_MS) this.heartbeat(now);
    return this.lastWriteMs + HEARTBEAT_MS;
  }

  private heartbeat(now: number): void {
    const bytes = Buffer.from(this.words.heartbeat);
    this.lastWriteMs = now;
    this.gave(this.front.give(bytes, 0, bytes.length), now);
  }

  private lookAtStream(now: number): number {
    if (this.clientSlowSinceMs !== undefined) return this.lookAtSlowClient(now, this.clientSlowSinceMs);
    const idleDueMs = this.idleDueMs();
    if (now >= idleDueMs) {
      this.winner?.expire('idle_timeout');
      return this.again(now);
    }
    if (this.facts.streamed !== true || this.winner?.brokeInsideEvent === true) return idleDueMs;
    if (now - this.lastWriteMs >= HEARTBEAT_MS) this.heartbeat(now);
    return Math.min(idleDueMs, this.lastWriteMs + HEARTBEAT_MS);
  }

  private lookAtSlowClient(now: number, sinceMs: number): number {
    const { clientStallMs } = this.profile as RoutingProfile;
    if (clientStallMs === 0) return Number.POSITIVE_INFINITY;
    if (now < sinceMs + clientStallMs) return sinceMs + clientStallMs;
    this.core.metrics.streamAborted.add('client_stalled');
    this.stopEverything('client_stalled');
    this.front.cut();
    this.conclude('client_closed');
    return Number.POSITIVE_INFINITY;
  }

  private idleDueMs(): number {
    const { idleMs } = (this.profile as RoutingProfile).deadlines;
    return idleMs === 0 ? Number.POSITIVE_INFINITY : this.lastEventMs + idleMs;
  }

  private lookAtTail(now: number): number {
    if (now < this.endedMs + TAIL_MS) return this.endedMs + TAIL_MS;
    for (const attempt of this.running.slice()) attempt.cancel('ok');
    return Number.POSITIVE_INFINITY;
  }

  private totalExpired(): void {
    this.stopEverything('total_timeout');
    this.fail({ code: 'total_timeout', message: 'the request took longer than its deadline' });
  }

  // ---------------------------------------------------------------- endings

  /** No attempt is left: the engine's own error answer if there is one, else ours. */
  private giveUp(): void {
    const last = this.lastFailure;
    if (last === undefined)
      return this.turnedAway((this.model as ModelState).refuse('no_ready_replica', this.monotonicMs()));
    const error = errorOf(last.failure);
    const { answer } = last;
    if (answer === undefined) return this.fail(error);
    if (this.front.headGiven) {
      const engineJson = answer.json ? answer.body.toString('utf8') : '';
      return this.endWithEvent(this.words.engineErrorEvent(engineJson, error, this.events), error.code);
    }
    giveEngineError(this.front, this.dialect, this.answerHeaders(), answer, this.facts.allTried === true);
    this.facts.status = answer.status;
    this.conclude('engine_error');
  }

  /** The answer had begun and cannot go on. */
  private breakOff(failure: AttemptFailure): void {
    const code: ApiErrorCode =
      failure.kind === 'reset_in_response' || failure.kind === 'protocol_error'
        ? 'upstream_aborted'
        : errorOf(failure).code;
    this.fail({ code, message: BROKEN_OFF[code] ?? errorOf(failure).message });
  }

  /** Ends the request with an error of ours, in the form that is still possible. */
  private fail(error: GatewayError, retryAfterSeconds?: number): void {
    if (this.phase === 'ended') return;
    this.explanation.error = error.code;
    if (!this.front.headGiven) {
      const noRetry = this.facts.allTried === true;
      const extra = { retryAfterSeconds, noRetry };
      this.facts.status = giveError(this.front, this.dialect, this.answerHeaders(), error, extra);
      return this.conclude(error.code);
    }
    if (this.winner !== undefined && this.facts.streamed !== true) {
      this.core.metrics.streamAborted.add(error.code);
      this.front.cut();
      return this.conclude(error.code);
    }
    this.endWithEvent(this.words.errorEvent(error, this.events), error.code);
  }

  private endWithEvent(event: string, code: ApiErrorCode): void {
    // A half-sent line is closed first, or the event would become part of it.
    const bytes = Buffer.from(this.winner?.brokeInsideEvent === true ? `\n\n${event}` : event);
    this.core.metrics.streamAborted.add(code);
    this.front.finish(bytes, 0, bytes.length);
    this.finished = true;
    this.conclude(code);
  }

  private answerHeaders(): readonly string[] {
    if (!this.head.explain || this.sends === 0) return this.common;
    return [...this.common, 'x-llmgw-attempts', String(this.sends)];
  }

  private enter(phase: Phase, now: number): void {
    if (this.phase === phase) return;
    this.phase = phase;
    this.explanation.phases.push({ phase, atMs: now - this.arrivedMs });
  }

  /** Exactly once: from here on the client has nothing more to expect. */
  private conclude(outcome: ApiErrorCode | 'ok' | 'engine_error'): void {
    if (this.phase === 'ended') return;
    const now = this.core.clock.monotonicMs();
    this.endedMs = now;
    this.enter('ended', now);
    if (this.running.length === 0) this.watch.stop();
    this.pieces = [];
    this.budget?.end();
    this.grant?.end(undefined);
    this.facts.attempts = this.sends;
    if (outcome !== 'ok' && outcome !== 'engine_error') this.explanation.error = outcome;
    concludeExchange(this.core, this.facts, outcome, now);
    this.core.exchanges.delete(this);
  }
}

const EVENT_STREAM = 'text/event-stream';

const REFUSALS: Record<AdmissionRefusal['refused'], string> = {
  queue_full: 'too many requests are waiting for this model',
  queue_timeout: 'no replica of the model had room in time',
  no_ready_replica: 'no replica of the model is ready',
};

const BROKEN_OFF: Partial<Record<ApiErrorCode, string>> = {
  upstream_aborted: 'the engine broke off in the middle of the answer',
  idle_timeout: 'the engine sent nothing for longer than the idle deadline',
  shutting_down: 'the replica is being stopped',
};

/** A name from a client, short and printable. */
function shown(name: string): string {
  // oxlint-disable-next-line no-control-regex
  const clean = name.replace(/[\0-\x1f\x7f]/g, '?');
  return clean.length > 100 ? `${clean.slice(0, 100)}…` : clean;
}

function errorOf(failure: AttemptFailure): GatewayError {
  switch (failure.kind) {
    case 'connect_refused':
    case 'connect_failed':
      return { code: 'upstream_connect_failed', message: 'no engine could be connected to' };
    case 'connect_timeout':
      return { code: 'connect_timeout', message: 'no connection to an engine in time' };
    case 'reset_before_response':
    case 'reset_in_response':
      return { code: 'upstream_reset', message: 'the engine closed the connection before it answered' };
    case 'protocol_error':
      return { code: 'upstream_protocol_error', message: 'the engine did not answer with valid HTTP' };
    case 'redirect':
      return { code: 'bad_upstream_redirect', message: 'the engine answered with a redirect' };
    case 'first_token_timeout':
      return { code: 'first_token_timeout', message: 'no first token in time' };
    case 'idle_timeout':
      return { code: 'idle_timeout', message: 'the engine sent nothing for longer than the idle deadline' };
    case 'total_timeout':
      return { code: 'total_timeout', message: 'the request took longer than its deadline' };
    case 'shutting_down':
      return { code: 'shutting_down', message: 'the replica is being stopped' };
    case 'client_closed':
      return { code: 'client_closed', message: 'the client left' };
    case 'status':
    case 'error_event':
      return { code: codeOfStatus(failure.status ?? 500), message: 'the engine reported an error' };
  }
}

/** Class of an engine's status, for the form an error takes in a stream. */
function codeOfStatus(status: number): ApiErrorCode {
  if (status === 429) return 'rate_limit_exceeded';
  if (status === 503) return 'no_ready_replica';
  return status < 500 ? 'bad_request' : 'upstream_aborted';
}
