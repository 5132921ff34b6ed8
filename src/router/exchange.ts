import type { AdmissionRefusal } from '../domain/request/admission.js';
import { othersMayDo, type AttemptFailure, type RetryDecision } from '../domain/request/retry.js';
import type { BudgetPass } from '../domain/request/retry-budget.js';
import type { Clock } from '../shared/clock.js';
import type { ApiErrorCode } from '../shared/errors.js';
import type { Attempt, AttemptOwner } from './attempt.js';
import { isRefusal, WRONG_CREDENTIAL, type Principal } from './authoriser.js';
import { BodyIntake, type IntakeOwner } from './body-intake.js';
import type { ByteRuns } from './byte-runs.js';
import { ClientAnswer } from './client-answer.js';
import { DeadlineWatch, type Watcher } from './deadline-watch.js';
import type { GatewayError } from './dialects.js';
import { isEventStream, type EngineErrorAnswer } from './engine-answer.js';
import type { EndpointState } from './endpoint-state.js';
import { abortAtEngine } from './engine-abort.js';
import type { EventStream } from './event-stream.js';
import { concludeExchange, ExchangeFacts, type RouterCore, type Stoppable } from './exchange-account.js';
import type { RequestTrace } from './request-trace.js';
import { errorOfBreak, errorOfFailure, errorOfRefusal } from './failure-words.js';
import type { Front, FrontSink } from './front.js';
import type { Waiting } from './model-state.js';
import { QueuePlace } from './queue-place.js';
import { RelayProgress } from './relay-progress.js';
import type { ReadBody } from './request-body.js';
import type { RequestHead } from './request-head.js';
import type { EngineRoute } from './routes.js';
import { findAllowed } from './resolve-model.js';
import { StandIns } from './stand-ins.js';
import { Tries, type RoutedRequest } from './tries.js';
import type { UpstreamHead } from './upstream/response-head.js';

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
export class Exchange implements FrontSink, IntakeOwner, AttemptOwner, Waiting, Watcher, Stoppable {
  readonly clock: Clock;
  rosterPlace = -1;
  private phase: Phase = 'body';
  private readonly arrivedMs: number;
  private readonly watch: DeadlineWatch;
  private readonly answer: ClientAnswer;
  private readonly facts: ExchangeFacts;
  private readonly trace: RequestTrace;
  private readonly standIns: StandIns;
  private readonly intake: BodyIntake;

  /** Set once the body is read and the model known; so are `tries`. */
  private request: RoutedRequest | undefined;
  private tries: Tries | undefined;
  private budget: BudgetPass | undefined;

  private winner: Attempt | undefined;
  private lastFailure:
    { readonly error: GatewayError; readonly answer: EngineErrorAnswer | undefined } | undefined;
  /** Set with `winner`. */
  private progress: RelayProgress | undefined;
  private endedMs = 0;

  constructor(
    private readonly core: RouterCore,
    private readonly front: Front,
    private readonly head: RequestHead,
    readonly route: EngineRoute,
    private readonly principal: Principal,
    common: string[],
  ) {
    this.clock = core.clock;
    this.arrivedMs = core.clock.monotonicMs();
    this.watch = new DeadlineWatch(core.clock, this);
    this.intake = new BodyIntake(core, head.contentLength, this, this.arrivedMs);
    this.answer = new ClientAnswer(front, route.dialect, common);
    this.trace = core.explain.begin(head.requestId, core.clock.wallMs(), route.path);
    this.facts = new ExchangeFacts(head, route, principal, this.arrivedMs, this.trace, this.answer);
    this.standIns = new StandIns(core, this.facts);
    core.exchanges.add(this);
  }

  start(): void {
    if (this.head.contentLength > this.core.config.bodyLimit) return this.intake.refuse('too_large');
    this.watch.by(this.intake.dueMs);
    this.front.startBody(this);
  }

  onBody(bytes: Buffer): void {
    this.intake.push(bytes, this.clock.monotonicMs());
  }

  onBodyEnd(): void {
    this.intake.end(this.head, this.route);
  }

  bodyRefused(error: GatewayError): void {
    this.fail(error);
  }

  /** There will be no other attempt. */
  private letGoOfBody(): void {
    this.request?.body.release();
    this.intake.release();
  }

  bodyRead(body: ReadBody, bytes: number): void {
    const { trace } = this;
    this.facts.bytesIn = trace.bodyBytes = bytes;
    trace.stream = body.stream;
    const found = findAllowed(this.core.table, body.model, this.principal);
    if (found.model === undefined) return this.fail(found.error);
    if (body.model !== found.model.name) trace.alias = body.model;
    this.enroll(this.standIns.begin(found.model, body));
  }

  /** Takes the request's share of what is limited, and lets it in. */
  private enroll(request: RoutedRequest): void {
    const { core, arrivedMs } = this;
    const { profile, route, promptTokens, outputTokens } = request;
    const grant = core.authoriser.grant(this.principal, promptTokens + (route.generates ? outputTokens : 0));
    if (grant.headers !== undefined) this.answer.addHeaders(grant.headers);
    if (isRefusal(grant)) return this.fail(grant, grant.retryAfterSeconds);
    this.facts.grant = grant;
    this.budget = profile.retryBudget.begin();
    profile.hedgeBudget.earn();
    this.request = request;
    this.tries = new Tries(core, this, this.request, this.trace, this.budget);
    const now = core.clock.monotonicMs();
    this.facts.place = new QueuePlace(this.request, this.facts, this, now);
    const { totalMs } = profile.deadlines;
    if (totalMs > 0) this.watch.by(arrivedMs + totalMs);
    this.admit(now);
  }

  // ---------------------------------------------------------------- admission

  /** @param turn those before it in the queue had theirs */
  private admit(now: number, turn = false): void {
    const { request, tries } = this;
    const { place } = this.facts;
    if (request === undefined || tries === undefined || place === undefined) return;
    const { model } = request;
    if (!turn && model.ready && model.queue.depth > 0) {
      model.pump(now);
      if (model.prospect(tries.tried, now) === 'later') return this.wait(request, place, now);
    }
    const choice = tries.choose(now);
    if (choice.endpoint !== undefined) {
      place.skip();
      const kind = tries.begun ? 'retry' : tries.sends > 0 ? 'fallback' : 'first';
      this.enter('attempting', now);
      return this.sent(tries.dispatch(choice, kind, now), now);
    }
    switch (choice.because) {
      case 'at_capacity':
        return this.wait(request, place, now);
      case 'no_endpoint':
        return this.holdOrGiveUp(request, now) ? undefined : this.wait(request, place, now);
      case 'all_tried':
        return this.giveUp();
    }
  }

  /** Nothing of the model is there: the request waits for what is on its way, where that can be in time. */
  private holdOrGiveUp({ model, profile }: RoutedRequest, now: number): boolean {
    const decision = model.holdFor(profile.deadlines.queueMs);
    if (decision?.hold === true) return false;
    if (decision === undefined) this.giveUp();
    else if (!this.fallBack(now)) this.turnedAway(decision.refusal);
    return true;
  }

  /** Another model takes the request, where one may. The client has nothing yet, and the body is still here. */
  private fallBack(now: number): boolean {
    const { request, tries, facts } = this;
    if (request === undefined || tries === undefined) return false;
    const next = this.standIns.next(request, this.lastFailure !== undefined);
    if (next === undefined) return false;
    this.request = next;
    tries.moveTo(next);
    facts.place?.settle(0);
    facts.place = new QueuePlace(next, facts, this, now, facts.place?.waitedMs);
    this.admit(now);
    return true;
  }

  private wait(request: RoutedRequest, place: QueuePlace, now: number): void {
    this.enter('queued', now);
    const refusal = place.enter(now);
    if (refusal !== undefined) return this.turnedAway(refusal);
    this.core.table.awaitRoom();
    this.watch.by(place.deadlineMs);
    if (request.body.stream) this.watch.by(this.answer.hold(now + QUEUED_HOLD_MS));
  }

  get tried(): readonly string[] {
    return this.tries?.tried ?? [];
  }

  proceed(): void {
    const now = this.clock.monotonicMs();
    this.facts.place?.leave(now);
    if (this.phase === 'queued' && this.principal.revoked === true) this.fail(WRONG_CREDENTIAL);
    else if (this.phase === 'queued') this.admit(now, true);
  }

  turnedAway(refusal: AdmissionRefusal): void {
    this.facts.place?.leave(this.clock.monotonicMs());
    this.fail(errorOfRefusal(refusal, this.request?.model.coming), refusal.retryAfterSeconds);
  }

  // ---------------------------------------------------------------- attempts

  private sent(attempt: Attempt, now: number): void {
    const { request, tries } = this;
    if (request === undefined || tries === undefined || !attempt.active) return;
    const { deadlines, hedge } = request.profile;
    if (request.body.stream) this.watch.by(this.answer.hold(now + deadlines.holdHeadersMs));
    this.watch.by(tries.dueMs(attempt));
    if (hedge.afterMs > 0) this.watch.by(now + hedge.afterMs);
  }

  get stripsUsage(): boolean {
    return this.request?.body.stripUsage === true;
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
    const now = this.clock.monotonicMs();
    this.facts.detail = detail;
    const decision = tries.failed(attempt, failure, this.winner !== undefined, now);
    if (this.phase === 'ended') return;
    if (this.winner === attempt) return this.fail(errorOfBreak(failure));
    this.lastFailure = { error: errorOfFailure(failure), answer };
    if (tries.running.some((other) => other !== attempt && other.active)) {
      // The other one of a hedged pair may still do it, unless it is the request that is at fault.
      if (decision.action !== 'relay' || decision.because !== 'not_retryable') return;
      tries.settle(attempt, now);
    }
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
        return othersMayDo(decision.because) ? this.giveUp() : this.answerFailure();
    }
  }

  abortAtEngine(endpoint: EndpointState, abortId: string): Promise<void> {
    return abortAtEngine(endpoint, abortId, this.core.sideAgent);
  }

  released(attempt: Attempt): void {
    this.tries?.remove(attempt);
    if (this.phase === 'ended' && this.tries?.running.length === 0) this.watch.stop();
    this.core.table.released(attempt.endpoint, this.clock.monotonicMs());
  }

  // ---------------------------------------------------------------- the answer

  begins(attempt: Attempt, head: UpstreamHead): boolean {
    const { request, tries, answer, facts, watch } = this;
    if (this.phase !== 'attempting' || request === undefined || tries === undefined) return false;
    const now = this.clock.monotonicMs();
    tries.settle(attempt, now);
    const extra = this.head.explain ? tries.explainHeaders(attempt.endpoint.id) : [];
    if (!this.answer.begin(head, isEventStream(head), extra, now)) {
      tries.drop(attempt, 'not_a_stream', now);
      this.fail({ code: 'upstream_protocol_error', message: 'the engine did not answer with a stream' });
      return false;
    }
    this.winner = this.facts.winner = attempt;
    this.letGoOfBody();
    this.enter('relaying', now);
    attempt.record.firstEventMs = now - this.arrivedMs;
    this.progress = new RelayProgress(request, attempt, answer, facts, watch, tries.dueMs(attempt), now);
    return true;
  }

  relay(runs: ByteRuns): boolean {
    const { progress } = this;
    if (this.phase !== 'relaying' || progress === undefined) return true;
    return this.watchClient(progress.bytes(runs, this.clock.monotonicMs()));
  }

  relayWhole(runs: ByteRuns): void {
    if (this.phase === 'relaying') this.answer.finish(runs);
  }

  relayEvents(stream: EventStream): boolean {
    if (this.phase !== 'relaying') return true;
    const now = this.clock.monotonicMs();
    this.progress?.events(stream, now);
    if (stream.done) {
      this.answer.finish(stream.runs);
      this.conclude('ok');
      this.watch.by(now + TAIL_MS);
      return true;
    }
    return stream.runs.length === 0 || this.watchClient(this.answer.give(stream.runs, now));
  }

  engineErred(): void {
    this.facts.engineError = true;
  }

  /** A client that takes no more bytes has its own, shorter patience to be watched. */
  private watchClient(accepted: boolean): boolean {
    const { slowSinceMs } = this.answer;
    const stallMs = this.request?.profile.clientStallMs ?? 0;
    if (slowSinceMs !== undefined && stallMs > 0) this.watch.by(slowSinceMs + stallMs);
    return accepted;
  }

  answered(): void {
    if (this.phase !== 'relaying') return;
    this.answer.complete();
    this.conclude('ok');
  }

  onDrain(): void {
    if (this.answer.slowSinceMs === undefined) return;
    this.answer.slowSinceMs = undefined;
    if (this.progress === undefined) return;
    this.progress.drained(this.clock.monotonicMs());
    this.watch.by(this.progress.dueMs);
  }

  onClientGone(): void {
    this.stopEverything('client_closed');
    this.conclude('client_closed');
  }

  /** The gateway's own grace is over. */
  shutDown(): void {
    this.end({ code: 'shutting_down', message: 'the gateway is being stopped' });
  }

  /** Ends the request in whatever phase it is. */
  private end(error: GatewayError): void {
    if (this.phase === 'ended') return;
    this.stopEverything(error.code);
    this.fail(error);
  }

  private stopEverything(outcome: string): void {
    const now = this.clock.monotonicMs();
    this.facts.place?.leave(now);
    this.tries?.cancelAll(outcome, now);
  }

  // ---------------------------------------------------------------- time

  /** Acts on what is due; returns when to look again. */
  look(now: number): number {
    const totalMs = this.request?.profile.deadlines.totalMs ?? 0;
    const totalDueMs = totalMs === 0 ? NEVER : this.arrivedMs + totalMs;
    if (now >= totalDueMs)
      this.end({ code: 'total_timeout', message: 'the request took longer than its deadline' });
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
        if (now >= this.intake.dueMs) this.intake.expire();
        return this.intake.dueMs;
      case 'queued':
        this.request?.model.expire(now);
        return Math.min(this.facts.place?.deadlineMs ?? NEVER, this.lookAtHold(now));
      case 'attempting':
        return this.lookAtAttempts(now);
      case 'relaying':
        return this.lookAtAnswer(now);
      case 'ended':
        return this.tries?.endTails(now, this.endedMs + TAIL_MS) ?? NEVER;
    }
  }

  private lookAtAttempts(now: number): number {
    const { tries } = this;
    if (tries === undefined) return NEVER;
    tries.expireDue(now);
    if (this.phase !== 'attempting') return NEVER;
    return Math.min(tries.hedge(now), this.lookAtHold(now), tries.nextDueMs());
  }

  private lookAtHold(now: number): number {
    if (this.request?.body.stream !== true || this.phase === 'ended') return NEVER;
    const next = this.answer.showLife(now);
    this.watchClient(true);
    return next;
  }

  private lookAtAnswer(now: number): number {
    const verdict = this.progress?.look(now);
    if (verdict === undefined) return NEVER;
    if ('nextMs' in verdict) return verdict.nextMs;
    if (verdict.due === 'idle') {
      this.winner?.expire('idle_timeout');
      return NEVER;
    }
    this.core.metrics.streamAborted.add('client_stalled');
    this.stopEverything('client_stalled');
    this.answer.cut();
    this.conclude('client_closed');
    return NEVER;
  }

  // ---------------------------------------------------------------- endings

  /** No attempt is left: the engine's own error answer if there is one, else ours. */
  private giveUp(): void {
    if (!this.fallBack(this.clock.monotonicMs())) this.answerFailure();
  }

  private answerFailure(): void {
    const { lastFailure, request } = this;
    if (request === undefined) return;
    if (lastFailure === undefined) {
      return this.turnedAway(request.model.refuse('no_ready_replica', this.clock.monotonicMs()));
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
    const headers = this.head.explain ? this.tries?.explainHeaders() : undefined;
    return { retryAfterSeconds, noRetry: this.tries?.inVain === true, headers };
  }

  private enter(phase: Phase, now: number): void {
    if (this.phase === phase) return;
    this.phase = phase;
    this.trace.entered(phase, now - this.arrivedMs);
  }

  /** Exactly once: from here on the client has nothing more to expect. */
  private conclude(outcome: ApiErrorCode | 'ok' | 'engine_error'): void {
    if (this.phase === 'ended') return;
    const now = this.clock.monotonicMs();
    this.endedMs = now;
    this.enter('ended', now);
    if (this.finishedBusiness) this.watch.stop();
    this.letGoOfBody();
    this.budget?.end();
    this.facts.attempts = this.tries?.sends;
    this.facts.allTried = outcome !== 'ok' && this.tries?.inVain === true;
    concludeExchange(this.core, this.facts, outcome, now);
    this.core.exchanges.delete(this);
  }
}
