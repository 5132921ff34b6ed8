import type { Agent } from 'undici';
import type { RouterConfig } from '../config/server-config.js';
import { API_ERRORS } from '../shared/errors.js';
import type { Clock } from '../shared/clock.js';
import type { Random } from '../shared/random.js';
import type { AccessLog } from './access-log.js';
import type { Attempt } from './attempt.js';
import type { Usage } from './bytes/usage.js';
import type { ClientAnswer } from './client-answer.js';
import { keyOf, type Authoriser, type Grant, type Principal } from './authoriser.js';
import { usedTokens, type Outcome } from './used-tokens.js';
import type { BodyBudget } from './body-buffer.js';
import type { EndpointTable } from './endpoint-table.js';
import type { ExplainRing } from './explain-ring.js';
import type { RequestTrace } from './request-trace.js';
import type { ModelState } from './model-state.js';
import type { QueuePlace } from './queue-place.js';
import type { RequestHead } from './request-head.js';
import type { Enlisted, Roster } from './roster.js';
import type { RouterMetrics } from './router.metrics.js';
import type { EngineRoute } from './routes.js';
import type { RoutingProfile, RoutingProfiles } from './routing-profiles.js';
import type { Turns } from './turns.js';

/** What runs and must be ended when the router stops. */
export interface Stoppable extends Enlisted {
  shutDown(): void;
}

/** What every request needs of the router. */
export interface RouterCore {
  readonly clock: Clock;
  readonly random: Random;
  readonly config: RouterConfig;
  readonly table: EndpointTable;
  readonly profiles: RoutingProfiles;
  readonly metrics: RouterMetrics;
  readonly accessLog: AccessLog;
  readonly explain: ExplainRing;
  readonly authoriser: Authoriser;
  readonly exchanges: Roster<Stoppable>;
  readonly bodies: BodyBudget;
  readonly turns: Turns;
  /** Connections to engines beside the data path. */
  readonly sideAgent: Agent;
}

/** What is known of a request, filled in as it goes; read once, at its end. */
export class ExchangeFacts {
  // All set from the start: an object that grows member by member is moved again and again.
  model: ModelState | undefined = undefined;
  profile: RoutingProfile | undefined = undefined;
  winner: Attempt | undefined = undefined;
  attempts: number | undefined = undefined;
  /** The request's place in its model's queue, and its hold on its key's limits. */
  place: QueuePlace | undefined = undefined;
  grant: Grant | undefined = undefined;
  firstTokenMs: number | undefined = undefined;
  /** When the last token passed, monotonic. */
  lastTokenMs: number | undefined = undefined;
  usage: Usage | undefined = undefined;
  bytesIn: number | undefined = undefined;
  /** Bytes of prompt text, and how many tokens they are likely to be. */
  promptBytes: number | undefined = undefined;
  promptTokens: number | undefined = undefined;
  /** Answers asked for at once. */
  choices = 1;
  /** Events of a stream that carried something generated. */
  tokenEvents = 0;
  /** An error event of the engine passed. */
  engineError = false;
  /** Every endpoint that might have answered was tried. */
  allTried = false;
  /** The last failure in words, for the log. */
  detail: string | undefined = undefined;

  constructor(
    readonly head: RequestHead,
    readonly route: EngineRoute,
    readonly principal: Principal,
    readonly arrivedMs: number,
    readonly trace: RequestTrace,
    /** What the client was given. */
    readonly answer: ClientAnswer,
  ) {
    trace.key = keyOf(principal);
  }
}

/** Metrics, trace and log line of a request that is over. */
export function concludeExchange(
  core: RouterCore,
  facts: ExchangeFacts,
  outcome: Outcome,
  nowMs: number,
): void {
  const { head, route, model, trace } = facts;
  const shown = outcome === 'ok' && facts.engineError === true ? 'engine_error' : outcome;
  const status = finalStatus(facts, outcome);
  const durationMs = nowMs - facts.arrivedMs;
  facts.usage = facts.winner?.usage;
  settleShares(facts, outcome);
  const series = model?.series ?? core.metrics.unknown;
  const counted = series.route(route.index);
  counted.codes.add(String(status));
  counted.duration.observe(durationMs / 1000);
  const queueMs = facts.place?.waitedMs;
  // Most do not wait at all, and quantiles that left them out would show a queue where there is none.
  if (facts.place !== undefined) series.queue.observe((queueMs ?? 0) / 1000);
  if (facts.firstTokenMs !== undefined && facts.answer.streamed) {
    series.firstToken.observe(facts.firstTokenMs / 1000);
    model?.traffic.firstToken(facts.firstTokenMs);
    facts.winner?.endpoint.traffic.firstToken(facts.firstTokenMs);
  }
  if (facts.winner !== undefined && model !== undefined) countTokens(core, facts, model, nowMs);
  // One that was cancelled, or broke off, was counted when that happened.
  const whole = outcome === 'ok' || outcome === 'engine_error';
  if (facts.winner !== undefined && whole) {
    series.attempts.add(shown);
    facts.winner.record.endedMs = durationMs;
  }
  if (!whole) trace.error = outcome;
  trace.status = status;
  trace.endedMs = durationMs;
  if (facts.allTried === true) trace.allTried = true;
  core.accessLog.write({
    requestId: head.requestId,
    method: head.method,
    route: route.label,
    model: model?.name,
    insteadOf: trace.insteadOf,
    status,
    outcome: shown,
    durationMs,
    queueMs,
    firstTokenMs: facts.firstTokenMs,
    stream: trace.stream,
    endpoint: facts.winner?.endpoint.id ?? trace.lastEndpoint,
    attempts: facts.attempts,
    promptTokens: facts.usage?.promptTokens,
    completionTokens: facts.usage?.completionTokens,
    cachedTokens: facts.usage?.cachedTokens,
    bytesIn: facts.bytesIn,
    bytesOut: facts.answer.bytes,
    key: keyOf(facts.principal),
    profile: facts.profile?.name,
    clientRetries: head.clientRetries,
    detail: outcome === 'ok' ? undefined : facts.detail,
  });
}

/** Tells the key's limits and the fair sharing of the queue what the request really used. */
function settleShares(facts: ExchangeFacts, outcome: Outcome): void {
  const { winner, grant, place } = facts;
  const tokens = usedTokens(facts, outcome);
  // What failed before anybody answered was no service: a client that is told to come back must be able to.
  const counts = winner !== undefined || outcome === 'engine_error' || outcome === 'client_closed';
  grant?.end({ tokens, counts });
  place?.settle(tokens);
}

/** Tokens of an answer: for the metrics, and for what is learned from them about model and endpoint. */
function countTokens(core: RouterCore, facts: ExchangeFacts, model: ModelState, nowMs: number): void {
  const { usage, winner, trace } = facts;
  const { series } = model;
  if (usage === undefined) {
    if (facts.route.reportsUsage) series.usageMissing += 1;
    return;
  }
  const { promptTokens, completionTokens, cachedTokens } = usage;
  trace.usage = usage;
  series.promptTokens += promptTokens ?? 0;
  series.completionTokens += completionTokens ?? 0;
  series.cachedTokens += cachedTokens ?? 0;
  model.traffic.used(promptTokens, completionTokens, cachedTokens);
  winner?.endpoint.traffic.used(promptTokens, completionTokens, cachedTokens);
  const { reuse, endpoint } = winner ?? {};
  // Engines that do not say what was cached teach nothing: silence is no miss.
  if (
    reuse !== undefined &&
    endpoint !== undefined &&
    promptTokens !== undefined &&
    cachedTokens !== undefined
  ) {
    const delivered = { promptTokens, cachedTokens, completionTokens: completionTokens ?? 0 };
    core.table.prefixes.learn(endpoint, reuse, delivered);
  }
  if (completionTokens === undefined || !facts.route.generates) return;
  const ofOne = completionTokens / facts.choices;
  model.sizes.answered(facts.promptBytes ?? 0, promptTokens ?? 0, ofOne);
  if (!facts.answer.streamed || facts.firstTokenMs === undefined || winner === undefined) return;
  const decodeMs = (facts.lastTokenMs ?? nowMs) - winner.sentAtMs - facts.firstTokenMs;
  winner.endpoint.rates.decoded(ofOne - 1, decodeMs / 1000);
}

/** The status as metrics count it: an answer that broke off after its 200 counts as what broke it. */
function finalStatus(facts: ExchangeFacts, outcome: Outcome): number {
  if (outcome === 'ok' || outcome === 'engine_error') return facts.answer.status ?? 200;
  return API_ERRORS[outcome].status;
}
