import { estimatePromptTokens } from '../domain/request/deadlines.js';
import type { AdmissionRefusal, Ticket } from '../domain/request/admission.js';
import { clientShouldNotRetry, type AttemptFailure, type RetryDecision } from '../domain/request/retry.js';
import type { BudgetPass } from '../domain/request/retry-budget.js';
import type { ApiErrorCode } from '../shared/errors.js';
import type { Attempt, AttemptOwner } from './attempt.js';
import { isRefusal, type Grant, type Principal } from './authoriser.js';
import { BodyBuffer } from './body-buffer.js';
import type { ByteRuns } from './byte-runs.js';
import { ClientAnswer, HEARTBEAT_MS } from './client-answer.js';
import { DeadlineWatch, type Watcher } from './deadline-watch.js';
import type { GatewayError } from './dialects.js';
import { isEventStream, type EngineErrorAnswer } from './engine-answer.js';
import type { EndpointState } from './endpoint-state.js';
import { abortAtEngine } from './engine-abort.js';
import type { EventStream } from './event-stream.js';
import { concludeExchange, type ExchangeFacts, type RouterCore } from './exchange-account.js';
import type { RequestTrace } from './explain-ring.js';
import { errorOfBreak, errorOfFailure, REFUSAL_WORDS, shown } from './failure-words.js';
import type { Front, FrontSink } from './front.js';
import type { ModelState, Waiting } from './model-state.js';
import { readBody, type ReadBody } from './request-body.js';
import type { RequestHead } from './request-head.js';
import type { EngineRoute } from './routes.js';
import { Tries, type RoutedRequest } from './tries.js';
import type { UpstreamHead } from './upstream/response-head.js';

/** Longest pause in the middle of a request's body, ms; whoever sends slower holds memory for nothing. */
const BODY_STALL_MS = 60_000;
/** A body from this size on is read in a turn of its own. */
const LARGE_BODY_BYTES = 1024 * 1024;
/** Longest wait for the engine to end its answer after the client has all of it, ms. */
const TAIL_MS = 1_000;
/**
 * A queued stream's status is held longer than one at an engine: "try again later" with a real status is retried by
 * every SDK, in a stream by none. Still below the 60 s at which proxies in front give up.
 */
const QUEUED_HOLD_MS = 40_000;

/** Where a request stands. `ended`: the client has its answer or left; an attempt may still wait for its engine's end. */
type Phase = 'body' | 'queued' | 'attempting' | 'relaying' | 'ended';

const NEVER = Number.POSITIVE_INFINITY;

/**
 * One request to an engine, from its head to its log line: body → model → admission → choice → attempt(s) → answer.
 * A state machine driven by the client's side, the attempts and one timer; it awaits nothing.
 */
export class Exchange implements FrontSink, AttemptOwner, Waiting, Watcher {
  private phase: Phase = 'body';
  private readonly arrivedMs: number;
  private readonly watch: DeadlineWatch;
  private readonly answer: ClientAnswer;
  private readonly facts: ExchangeFacts;
  private readonly trace: RequestTrace;

  private readonly incoming: BodyBuffer;
  private lastBodyMs: number;

  /** Set once the body is read and the model known; so are `tries`. */
  private request: RoutedRequest | undefined;
  private tries: Tries | undefined;
  private grant: Grant | undefined;
  private budget: BudgetPass | undefined;
  private ticket: Ticket<Waiting> | undefined;
  private queueDeadlineMs = NEVER;
  private holdUntilMs = NEVER;

  private winner: Attempt | undefined;
  private lastFailure:
    { readonly error: GatewayError; readonly answer: EngineErrorAnswer | undefined } | undefined;
  private lastEventMs = 0;
  private lastTokenMs = 0;
  private endedMs = 0;

  constructor(
    private readonly core: RouterCore,
    private readonly front: Front,
    private readonly head: RequestHead,
    readonly route: EngineRoute,
    private readonly principal: Principal,
    common: string[],
  ) {
    this.arrivedMs = core.clock.monotonicMs();
    this.lastBodyMs = this.arrivedMs;
    this.watch = new DeadlineWatch(core.clock, this);
    this.incoming = new BodyBuffer(core.config.bodyLimit, core.bodies, head.contentLength);
    this.answer = new ClientAnswer(front, route.dialect, common);
    this.trace = core.explain.begin(head.requestId, core.clock.wallMs(), route.path);
    const { answer, arrivedMs, trace } = this;
    this.facts = { head, route, principal, arrivedMs, trace, answer };
    core.exchanges.add(this);
  }

  // ---------------------------------------------------------------- the body

  start(): void {
    if (this.head.contentLength > this.core.config.bodyLimit) return this.tooLarge();
    this.watch.by(this.arrivedMs + BODY_STALL_MS);
    this.front.startBody(this);
  }

  onBody(bytes: Buffer): void {
    if (this.phase !== 'body') return;
    this.lastBodyMs = this.core.clock.monotonicMs();
    switch (this.incoming.push(bytes)) {
      case undefined:
        return;
      case 'too_large':
        return this.tooLarge();
      case 'no_room':
        return this.fail({ code: 'queue_full', message: 'too many large requests are being held' });
    }
  }

  onBodyEnd(): void {
    if (this.phase !== 'body') return;
    if (this.incoming.length < LARGE_BODY_BYTES) this.read();
    else this.core.turns.add(() => this.read());
  }

  private read(): void {
    if (this.phase !== 'body') return;
    const bytes = this.incoming.take();
    this.facts.bytesIn = bytes.length;
    this.trace.bodyBytes = bytes.length;
    const reading = readBody(bytes, this.head.contentType, this.route);
    if (reading.ok) this.resolve(reading.body);
    else this.fail(reading.error);
  }

  /** There will be no other attempt. */
  private letGoOfBody(): void {
    this.request?.body.release();
    this.incoming.release();
  }

  private tooLarge(): void {
    const limit = this.core.config.bodyLimit;
    this.fail({ code: 'request_too_large', message: `the body is larger than ${limit} bytes` });
  }

  private resolve(body: ReadBody): void {
    const asked = this.core.table.find(body.model);
    this.trace.stream = body.stream;
    if (asked === undefined) {
      const message = `the model \`${shown(body.model)}\` does not exist`;
      return this.fail({ code: 'model_not_found', message, param: 'model' });
    }
    const model = this.core.table.serving(asked, this.principal);
    this.facts.model = model;
    this.trace.model = model.name;
    if (body.model !== model.name) this.trace.alias = body.model;
    if (!this.principal.mayUse(asked.name)) {
      const message = `this key may not use the model \`${shown(body.model)}\``;
      return this.fail({ code: 'model_not_allowed', message, param: 'model' });
    }
    this.enroll(body, model);
  }

  /** Takes the request's share of what is limited, and lets it in. */
  private enroll(body: ReadBody, model: ModelState): void {
    const { core, head, route, arrivedMs } = this;
    const profile = core.profiles.select(head.profile, model.info.routingProfile);
    const promptTokens = estimatePromptTokens(body.promptBytes);
    const outputTokens = Math.min(body.maxTokens ?? NEVER, model.meanOutputTokens);
    this.facts.profile = profile;
    this.trace.routingProfile = profile.name;
    this.trace.estimatedPromptTokens = promptTokens;
    const grant = core.authoriser.grant(this.principal, model.name, promptTokens + outputTokens);
    if (isRefusal(grant)) return this.fail(grant, grant.retryAfterSeconds);
    this.grant = grant;
    this.answer.addHeaders(grant.headers);
    this.budget = profile.retryBudget.begin();
    profile.hedgeBudget.earn();
    this.request = { head, route, body, model, profile, arrivedMs, promptTokens, outputTokens };
    this.tries = new Tries(core, this, this.request, this.trace, this.budget);
    const { queueMs, totalMs } = profile.deadlines;
    const now = core.clock.monotonicMs();
    if (queueMs > 0) this.queueDeadlineMs = now + queueMs;
    if (totalMs > 0) this.watch.by(arrivedMs + totalMs);
    this.admit(now);
  }

  // ---------------------------------------------------------------- admission

  private admit(now: number): void {
    const { request, tries } = this;
    if (request === undefined || tries === undefined) return;
    const { model } = request;
    if (model.queue.depth > 0 && !model.hasRoom) return this.wait(request, now);
    const choice = tries.choose(now);
    if (choice.endpoint !== undefined) {
      model.queue.admitDirect(this.share(request));
      const kind = tries.begun ? 'retry' : 'first';
      this.enter('attempting', now);
      return this.sent(tries.dispatch(choice, kind, now), now);
    }
    switch (choice.because) {
      case 'at_capacity':
        return this.wait(request, now);
      case 'no_endpoint':
        if (model.info.outlook === 'coming') return this.wait(request, now);
        return this.giveUp();
      case 'all_tried':
        return this.giveUp();
    }
  }

  private share({ profile, promptTokens, outputTokens }: RoutedRequest) {
    const { id, priority } = this.principal;
    return {
      fairnessKey: id === 'anonymous' ? this.head.clientAddress : id,
      priority: priority ?? profile.priority,
      tokens: promptTokens + outputTokens,
    };
  }

  private wait(request: RoutedRequest, now: number): void {
    const { model, body } = request;
    this.enter('queued', now);
    const deadlineMs = this.queueDeadlineMs === NEVER ? undefined : this.queueDeadlineMs;
    const result = model.queue.enqueue({ ...this.share(request), deadlineMs, payload: this }, now);
    if (result.ticket === undefined) return this.turnedAway(result.refusal);
    this.ticket = result.ticket;
    result.displaced?.arrival.payload.turnedAway(model.refuse('queue_full', now));
    this.watch.by(this.queueDeadlineMs);
    if (body.stream) this.hold(now + QUEUED_HOLD_MS);
  }

  proceed(): void {
    const now = this.core.clock.monotonicMs();
    this.leaveQueue(now);
    if (this.phase === 'queued') this.admit(now);
  }

  turnedAway(refusal: AdmissionRefusal): void {
    this.leaveQueue(this.core.clock.monotonicMs());
    const error = { code: refusal.refused, message: REFUSAL_WORDS[refusal.refused] };
    this.fail(error, refusal.retryAfterSeconds);
  }

  private leaveQueue(now: number): void {
    if (this.ticket === undefined) return;
    this.facts.queueMs = (this.facts.queueMs ?? 0) + (now - this.ticket.enqueuedAtMs);
    this.ticket = undefined;
  }

  /** From `untilMs` on, a stream's status does not wait for its first event. */
  private hold(untilMs: number): void {
    if (this.answer.statusGiven) return;
    this.holdUntilMs = Math.min(this.holdUntilMs, untilMs);
    this.watch.by(this.holdUntilMs);
  }

  // ---------------------------------------------------------------- attempts

  private sent(attempt: Attempt, now: number): void {
    const { request, tries } = this;
    if (request === undefined || tries === undefined || !attempt.active) return;
    const { deadlines, hedge } = request.profile;
    if (request.body.stream) this.hold(now + deadlines.holdHeadersMs);
    this.watch.by(tries.dueMs(attempt));
    if (hedge.afterMs > 0) this.watch.by(now + hedge.afterMs);
  }

  get stripsUsage(): boolean {
    return this.request?.body.stripUsage === true;
  }

  monotonicMs(): number {
    return this.core.clock.monotonicMs();
  }

  wallMs(): number {
    return this.core.clock.wallMs();
  }

  connected(attempt: Attempt): void {
    attempt.record.connectedMs = attempt.connectedAtMs - this.arrivedMs;
    if (this.phase === 'attempting' && this.tries !== undefined) this.watch.by(this.tries.dueMs(attempt));
  }

  failed(
    attempt: Attempt,
    failure: AttemptFailure,
    answer: EngineErrorAnswer | undefined,
    detail: string,
  ): void {
    const { tries } = this;
    if (tries === undefined) return;
    const now = this.core.clock.monotonicMs();
    this.facts.detail = detail;
    const decision = tries.failed(attempt, failure, this.winner !== undefined, now);
    if (this.phase === 'ended') return;
    if (this.winner === attempt) return this.fail(errorOfBreak(failure));
    this.lastFailure = { error: errorOfFailure(failure), answer };
    // The other one of a hedged pair may still do it.
    if (tries.running.some((other) => other !== attempt && other.active)) return;
    this.follow(tries, decision, attempt, now);
  }

  private follow(tries: Tries, decision: RetryDecision, attempt: Attempt, now: number): void {
    switch (decision.action) {
      case 'retry_fresh_socket':
        tries.spend(decision);
        // Withdrawn meanwhile: nothing new goes there, not even this.
        if (attempt.endpoint.draining) return this.admit(now);
        return this.sent(tries.resend(attempt, now), now);
      case 'retry_elsewhere':
        tries.spend(decision);
        return this.admit(now);
      case 'relay':
      case 'give_up':
        if (decision.because === 'budget_exhausted') this.core.metrics.retryBudgetExhausted += 1;
        // A single busy engine asks the client to come back; only when all were asked is that pointless.
        this.facts.allTried = clientShouldNotRetry(decision) && (tries.repeated || decision.blame !== 'busy');
        return this.giveUp();
    }
  }

  abortAtEngine(endpoint: EndpointState, abortId: string): Promise<void> {
    return abortAtEngine(endpoint, abortId, this.core.sideAgent);
  }

  released(attempt: Attempt): void {
    this.tries?.remove(attempt);
    if (this.phase === 'ended' && this.tries?.running.length === 0) this.watch.stop();
    this.core.table.released(attempt.endpoint, this.core.clock.monotonicMs());
  }

  // ---------------------------------------------------------------- the answer

  begins(attempt: Attempt, head: UpstreamHead): boolean {
    if (this.phase !== 'attempting' || this.winner !== undefined) return false;
    const now = this.core.clock.monotonicMs();
    this.tries?.settle(attempt, now);
    const extra = this.head.explain ? this.explainHeaders(attempt) : [];
    if (!this.answer.begin(head, isEventStream(head), extra, now)) {
      attempt.cancel('not_a_stream');
      this.fail({ code: 'upstream_protocol_error', message: 'the engine did not answer with a stream' });
      return false;
    }
    this.winner = attempt;
    this.facts.winner = attempt;
    this.letGoOfBody();
    this.enter('relaying', now);
    attempt.record.firstEventMs = now - this.arrivedMs;
    this.lastEventMs = now;
    this.lastTokenMs = now;
    this.watch.by(this.idleDueMs());
    return true;
  }

  private explainHeaders(attempt: Attempt): string[] {
    const policy = this.trace.policy;
    const sends = String(this.tries?.sends ?? 0);
    return ['x-llmgw-endpoint', attempt.endpoint.id, 'x-llmgw-policy', policy, 'x-llmgw-attempts', sends];
  }

  relay(runs: ByteRuns): boolean {
    if (this.phase !== 'relaying') return true;
    const now = this.core.clock.monotonicMs();
    this.lastEventMs = now;
    return this.give(runs, now);
  }

  relayWhole(runs: ByteRuns): void {
    if (this.phase === 'relaying') this.answer.finish(runs);
  }

  relayEvents(stream: EventStream): boolean {
    if (this.phase !== 'relaying') return true;
    const now = this.core.clock.monotonicMs();
    if (stream.events > 0) this.countEvents(stream, now);
    if (stream.done) {
      this.answer.finish(stream.runs);
      this.conclude('ok');
      this.watch.by(now + TAIL_MS);
      return true;
    }
    return stream.runs.length === 0 || this.give(stream.runs, now);
  }

  engineErred(): void {
    this.facts.engineError = true;
  }

  private countEvents(stream: EventStream, now: number): void {
    this.answer.events += stream.events;
    this.lastEventMs = now;
    if (stream.error !== undefined) this.engineErred();
    if (stream.tokens === 0) return;
    const { winner, request } = this;
    if (this.facts.firstTokenMs !== undefined) {
      request?.model.series.interToken.observe((now - this.lastTokenMs) / 1000);
    } else if (winner !== undefined && request !== undefined) {
      this.facts.firstTokenMs = now - winner.sentAtMs;
      winner.endpoint.rates.firstToken(winner.tokensAhead, this.facts.firstTokenMs / 1000);
    }
    this.lastTokenMs = now;
  }

  private give(runs: ByteRuns, now: number): boolean {
    const accepted = this.answer.give(runs, now);
    if (!accepted) this.watchSlowClient();
    return accepted;
  }

  private watchSlowClient(): void {
    const stallMs = this.request?.profile.clientStallMs ?? 0;
    if (stallMs > 0 && this.answer.slowSinceMs !== undefined)
      this.watch.by(this.answer.slowSinceMs + stallMs);
  }

  answered(): void {
    if (this.phase !== 'relaying') return;
    this.answer.complete();
    this.conclude('ok');
  }

  // ---------------------------------------------------------------- the client

  onDrain(): void {
    if (this.answer.slowSinceMs === undefined) return;
    this.answer.slowSinceMs = undefined;
    // The engine could not send while it was paused; its time starts again.
    this.lastEventMs = this.core.clock.monotonicMs();
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
    const now = this.core.clock.monotonicMs();
    if (this.ticket !== undefined) this.request?.model.queue.leave(this.ticket);
    this.leaveQueue(now);
    this.tries?.cancelAll(outcome, now);
  }

  // ---------------------------------------------------------------- time

  /** Acts on what is due; returns when to look again. */
  look(now: number): number {
    const totalMs = this.request?.profile.deadlines.totalMs ?? 0;
    const totalDueMs = totalMs === 0 ? NEVER : this.arrivedMs + totalMs;
    if (now >= totalDueMs && this.phase !== 'ended') this.totalExpired();
    const before = this.phase;
    const next = this.lookAtPhase(before, now);
    if (this.phase !== before) return this.finishedBusiness ? NEVER : now;
    return this.phase === 'ended' ? next : Math.min(totalDueMs, next);
  }

  private get finishedBusiness(): boolean {
    return this.phase === 'ended' && (this.tries?.running.length ?? 0) === 0;
  }

  private lookAtPhase(phase: Phase, now: number): number {
    switch (phase) {
      case 'body':
        return this.lookAtBody(now);
      case 'queued':
        this.request?.model.expire(now);
        return Math.min(this.queueDeadlineMs, this.lookAtHold(now));
      case 'attempting':
        return this.lookAtAttempts(now);
      case 'relaying':
        return this.lookAtAnswer(now);
      case 'ended':
        return this.lookAtTail(now);
    }
  }

  private lookAtBody(now: number): number {
    const dueMs = this.lastBodyMs + BODY_STALL_MS;
    if (now >= dueMs) this.fail({ code: 'bad_request', message: 'the body did not arrive in time' });
    return dueMs;
  }

  private lookAtAttempts(now: number): number {
    const { tries } = this;
    if (tries === undefined) return NEVER;
    for (const attempt of tries.running.slice()) {
      if (now < tries.dueMs(attempt)) continue;
      attempt.expire(attempt.phase === 'connecting' ? 'connect_timeout' : 'first_token_timeout');
    }
    if (this.phase !== 'attempting') return NEVER;
    let next = Math.min(tries.hedge(now), this.lookAtHold(now));
    for (const attempt of tries.running) next = Math.min(next, tries.dueMs(attempt));
    return next;
  }

  private lookAtHold(now: number): number {
    if (this.request?.body.stream !== true || this.phase === 'ended') return NEVER;
    if (!this.answer.statusGiven) {
      if (now < this.holdUntilMs) return this.holdUntilMs;
      if (!this.answer.commitStatus(now)) this.watchSlowClient();
    } else if (now - this.answer.lastWriteMs >= HEARTBEAT_MS && !this.answer.heartbeat(now)) {
      this.watchSlowClient();
    }
    return this.answer.lastWriteMs + HEARTBEAT_MS;
  }

  private lookAtAnswer(now: number): number {
    if (this.answer.slowSinceMs !== undefined) return this.lookAtSlowClient(now, this.answer.slowSinceMs);
    const idleDueMs = this.idleDueMs();
    if (now >= idleDueMs) {
      this.winner?.expire('idle_timeout');
      return NEVER;
    }
    if (!this.answer.streamed || this.winner?.insideEvent === true) return idleDueMs;
    return Math.min(idleDueMs, this.lookAtHold(now));
  }

  private lookAtSlowClient(now: number, sinceMs: number): number {
    const stallMs = this.request?.profile.clientStallMs ?? 0;
    if (stallMs === 0) return NEVER;
    if (now < sinceMs + stallMs) return sinceMs + stallMs;
    this.core.metrics.streamAborted.add('client_stalled');
    this.stopEverything('client_stalled');
    this.answer.cut();
    this.conclude('client_closed');
    return NEVER;
  }

  private idleDueMs(): number {
    const idleMs = this.request?.profile.deadlines.idleMs ?? 0;
    return idleMs === 0 ? NEVER : this.lastEventMs + idleMs;
  }

  private lookAtTail(now: number): number {
    if (now < this.endedMs + TAIL_MS) return this.endedMs + TAIL_MS;
    for (const attempt of this.tries?.running.slice() ?? []) attempt.cancel('ok');
    return NEVER;
  }

  private totalExpired(): void {
    this.stopEverything('total_timeout');
    this.fail({ code: 'total_timeout', message: 'the request took longer than its deadline' });
  }

  // ---------------------------------------------------------------- endings

  /** No attempt is left: the engine's own error answer if there is one, else ours. */
  private giveUp(): void {
    const { lastFailure, request } = this;
    if (lastFailure === undefined) {
      if (request === undefined) return;
      return this.turnedAway(request.model.refuse('no_ready_replica', this.core.clock.monotonicMs()));
    }
    if (lastFailure.answer === undefined) return this.fail(lastFailure.error);
    this.answer.failAsEngine(lastFailure.answer, lastFailure.error, this.failureExtras());
    this.conclude('engine_error');
  }

  /** Ends the request with an error of ours, in the form that is still possible. */
  private fail(error: GatewayError, retryAfterSeconds?: number): void {
    if (this.phase === 'ended') return;
    if (this.winner !== undefined) this.core.metrics.streamAborted.add(error.code);
    this.answer.fail(error, this.failureExtras(retryAfterSeconds), this.winner?.insideEvent === true);
    this.conclude(error.code);
  }

  private failureExtras(retryAfterSeconds?: number) {
    const sends = this.tries?.sends ?? 0;
    const headers = this.head.explain && sends > 0 ? ['x-llmgw-attempts', String(sends)] : [];
    return { retryAfterSeconds, noRetry: this.facts.allTried === true, headers };
  }

  /** Tokens really used, for the key's limits and for the fair sharing of the queue. */
  private account(): void {
    const { request, winner } = this;
    this.facts.usage = winner?.usage;
    const { promptTokens, completionTokens } = this.facts.usage ?? {};
    const used =
      promptTokens === undefined && completionTokens === undefined
        ? undefined
        : (promptTokens ?? 0) + (completionTokens ?? 0);
    this.grant?.end(used);
    if (used === undefined || request === undefined) return;
    const { fairnessKey, priority, tokens } = this.share(request);
    request.model.queue.correct(fairnessKey, priority, used - tokens);
  }

  private enter(phase: Phase, now: number): void {
    if (this.phase === phase) return;
    this.phase = phase;
    this.trace.entered(phase, now - this.arrivedMs);
  }

  /** Exactly once: from here on the client has nothing more to expect. */
  private conclude(outcome: ApiErrorCode | 'ok' | 'engine_error'): void {
    if (this.phase === 'ended') return;
    const now = this.core.clock.monotonicMs();
    this.endedMs = now;
    this.enter('ended', now);
    if (this.finishedBusiness) this.watch.stop();
    this.letGoOfBody();
    this.budget?.end();
    this.facts.lastTokenMs = this.lastTokenMs;
    if (outcome !== 'ok' && outcome !== 'engine_error') this.trace.error = outcome;
    this.facts.attempts = this.tries?.sends;
    this.account();
    concludeExchange(this.core, this.facts, outcome, now);
    this.core.exchanges.delete(this);
  }
}
