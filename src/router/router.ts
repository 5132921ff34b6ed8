import type { AddressInfo } from 'node:net';
import type { ServerConfig } from '../config/server-config.js';
import type { ReuseTotals } from '../domain/balancing/prefix-index.js';
import type { DataPathEvidence } from '../domain/snapshot.js';
import { systemClock, type Clock, type Timer } from '../shared/clock.js';
import { API_ERRORS } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import { systemRandom, type Random } from '../shared/random.js';
import { AccessLog } from './access-log.js';
import { BodyBudget } from './body-buffer.js';
import { allowAll, isRefusal, keyOf, type Authoriser } from './authoriser.js';
import { commonHeaders, giveBody, giveError, preflightHeaders } from './answer-heads.js';
import type { GatewayError } from './dialects.js';
import { EndpointTable } from './endpoint-table.js';
import type { EndpointState, EvidenceTurn } from './endpoint-state.js';
import { Exchange } from './exchange.js';
import type { RouterCore, Stoppable } from './exchange-account.js';
import { ExplainRing } from './explain-ring.js';
import type { RequestExplanation } from './explanation.js';
import type { Front } from './front.js';
import { Listener } from './listener.js';
import { mediaProblem } from './media-type.js';
import { ModelList } from './model-list.js';
import type { FrontRequest, NodeFront } from './node-front.js';
import { Patrol } from './patrol.js';
import type { EndpointStatus, RouterPort, RoutingTable } from './ports.js';
import { canonicalRequestHead, readRequestHead, RequestHead } from './request-head.js';
import { findAllowed } from './resolve-model.js';
import {
  HEALTH_ROUTE_INDEX,
  MODELS_ROUTE_INDEX,
  OTHER_ROUTE_INDEX,
  RouterMetrics,
  type LiveGauges,
} from './router.metrics.js';
import { Roster } from './roster.js';
import { matchRoute, type DialectName, type EngineRoute, type RouteMatch } from './routes.js';
import { RoutingProfiles } from './routing-profiles.js';
import { sideAgent } from './prober.js';
import { staticTable, withStatic } from './static-table.js';
import type { ModelTraffic } from './traffic.js';
import { Turns } from './turns.js';

export interface RouterOptions {
  readonly config: ServerConfig;
  readonly logger: Logger;
  readonly clock?: Clock;
  readonly random?: Random;
  /** Makes request ids where clients bring none. */
  readonly ids?: () => string;
  readonly authoriser?: Authoriser;
  /** Period of probes in ms instead of the engine kinds' own; `false` sends none. */
  readonly probes?: number | false;
}

/**
 * The data plane: a listener for clients, the pipeline behind it, and the table it routes by. Knows nothing of Nest
 * and nothing of the control plane.
 */
export class Router implements RouterPort, RouterCore, LiveGauges {
  readonly clock: Clock;
  readonly random: Random;
  config: ServerConfig['router'];
  readonly profiles: RoutingProfiles;
  readonly table: EndpointTable;
  readonly metrics = new RouterMetrics();
  readonly explain = new ExplainRing();
  readonly accessLog: AccessLog;
  readonly authoriser: Authoriser;
  readonly exchanges = new Roster<Stoppable>();
  readonly bodies = new BodyBudget();
  readonly turns: Turns;
  readonly sideAgent = sideAgent();
  private fixed: Omit<RoutingTable, 'version'>;
  /** As last published, without the static endpoints. */
  private published: RoutingTable = { version: 0, models: [], endpoints: [] };
  private readonly models_: ModelList;
  private readonly listener: Listener;
  private readonly ids: () => string;
  private readonly logger: Logger;
  private readonly evidenceListeners = new Set<() => void>();
  private readonly patrol: Patrol | undefined;
  private stopping = false;
  /** Runs from the end of the last requests until their bytes must have left. */
  private lastBytes: Timer | undefined;

  constructor(options: RouterOptions) {
    const { config } = options;
    this.clock = options.clock ?? systemClock;
    this.random = options.random ?? systemRandom;
    this.ids = options.ids ?? requestIds(this.random);
    this.config = config.router;
    this.turns = new Turns(this.clock);
    this.logger = options.logger;
    this.authoriser = options.authoriser ?? allowAll;
    this.accessLog = new AccessLog(options.logger, this.clock);
    this.profiles = new RoutingProfiles(config.router);
    this.table = new EndpointTable({
      clock: this.clock,
      random: this.random,
      profiles: this.profiles,
      probed: options.probes !== false,
      evidenceTurned: (endpoint, turn) => this.evidenceTurned(endpoint, turn),
    });
    this.fixed = staticTable(config);
    this.table.apply(withStatic(this.published, this.fixed));
    this.models_ = new ModelList(this.table, Math.floor(this.clock.wallMs() / 1000));
    if (options.probes !== false) {
      this.patrol = new Patrol({
        clock: this.clock,
        random: this.random,
        logger: options.logger,
        agent: this.sideAgent,
        endpoints: () => this.table.published(),
        ...(options.probes === undefined ? {} : { everyMs: options.probes }),
      });
    }
    this.listener = new Listener({
      clock: this.clock,
      keepAliveTimeoutMs: config.router.keepAliveTimeout,
      fastPath: config.router.fastPath,
      onRequest: (request, front) => this.take(request, front),
      onCanonical: (canonical, clientAddress, front) =>
        this.answer(canonicalRequestHead(canonical, clientAddress, this.ids), front),
      refuseUnreadable: ({ dialect, requestId }) => {
        const error = this.authoriser.authenticate('');
        return isRefusal(error) ? { error, dialect, requestId } : undefined;
      },
      onRefused: ({ error, requestId = this.ids() }) => {
        this.logUnread(requestId, error);
        return requestId;
      },
    });
  }

  // ---------------------------------------------------------------- life

  /**
   * Starts to serve clients on `host:port` (`[::1]:8080` for IPv6), or on the listening socket of a descriptor; rejects
   * when that cannot be.
   */
  async listen(at: string | { readonly fd: number }): Promise<AddressInfo> {
    // So that the first question what can be served finds an answer.
    await this.patrol?.start();
    const bound = await this.listener.listen(typeof at === 'string' ? hostAndPort(at) : at);
    return bound;
  }

  /** Where clients are served. */
  get address(): AddressInfo | undefined {
    return this.listener.address;
  }

  /** Listening and not on its way out. */
  get ready(): boolean {
    return this.listener.address !== undefined && !this.listener.closing;
  }

  /**
   * Stops. For `delayMs` everything is served on connections that end with their answers. Then: no new connection, new
   * requests on kept ones are refused, running ones have `graceMs`, then each gets an error in its own form. Settles
   * when all connections are gone.
   */
  async close(graceMs: number, delayMs = 0): Promise<void> {
    const servingOnMs = Math.max(delayMs, this.listener.windDownMs);
    if (servingOnMs > 0) await this.listener.windDown(servingOnMs);
    this.stopping = true;
    const stopped = this.listener.stop();
    const timer = this.clock.setTimer(graceMs, () => this.endAll());
    await stopped;
    timer.cancel();
    this.lastBytes?.cancel();
    this.patrol?.stop();
    await this.sideAgent.destroy();
    this.table.destroy();
    this.accessLog.flush();
  }

  /** Gives every request that runs an error in its own form, and takes none any more. Settles when these have left. */
  endNow(): Promise<void> {
    this.stopping = true;
    this.endAll();
    return new Promise((resolve) => this.clock.setTimer(LAST_BYTES_MS, resolve));
  }

  private endAll(): void {
    this.table.close();
    for (const exchange of this.exchanges) exchange.shutDown();
    // The last bytes leave in this turn of the loop; whoever does not take them now never will.
    this.lastBytes?.cancel();
    this.lastBytes = this.clock.setTimer(LAST_BYTES_MS, () => this.listener.destroyAll());
  }

  private evidenceTurned(endpoint: EndpointState, turn: EvidenceTurn): void {
    const { id, generation } = endpoint;
    const fields = { endpoint: id, generation, ...endpoint.evidenceView() };
    switch (turn) {
      case 'ejected': {
        const reason = endpoint.health.ejectedBecause;
        this.logger.warn({ ...fields, reason }, 'the endpoint is taken out for a while');
        break;
      }
      case 'returned':
        this.logger.info(fields, 'the endpoint works again');
        break;
      case 'kept_last':
        this.logger.debug(fields, 'the endpoint fails, but nothing else serves its model');
    }
    this.evidenceListeners.forEach((listener) => listener());
  }

  // ---------------------------------------------------------------- RouterPort

  /**
   * Takes another configuration: static endpoints, routing profiles, limits. Requests that run keep what they began with. Throws,
   * with nothing changed, when the key file of an endpoint cannot be read.
   */
  reconfigure(config: ServerConfig): void {
    const fixed = staticTable(config);
    this.config = config.router;
    this.profiles.replace(config.router);
    this.listener.setKeepAliveTimeout(config.router.keepAliveTimeout);
    this.listener.setFastPath(config.router.fastPath);
    this.fixed = fixed;
    this.table.apply(withStatic(this.published, fixed));
  }

  applyTable(table: RoutingTable): void {
    this.published = table;
    this.table.apply(withStatic(table, this.fixed));
  }

  inflight(): ReadonlyMap<string, number> {
    return new Map(this.table.all().map((endpoint) => [endpoint.key, endpoint.inflight]));
  }

  evidence(): ReadonlyMap<string, DataPathEvidence> {
    return new Map(this.table.all().map((endpoint) => [endpoint.key, endpoint.evidenceView()]));
  }

  abortInflight(id: string, generation: number, reason: 'shutting_down' | 'upstream_aborted'): number {
    const running = [...(this.table.get(id, generation)?.running ?? [])];
    for (const attempt of running) attempt.abandon(reason);
    return running.length;
  }

  onEvidence(listener: () => void): void {
    this.evidenceListeners.add(listener);
  }

  endpoints(): EndpointStatus[] {
    const now = this.clock.monotonicMs();
    return this.table.all().map((endpoint) => endpoint.status(now));
  }

  traffic(): ReadonlyMap<string, ModelTraffic> {
    return new Map([...this.table.models()].map((model) => [model.name, model.trafficView()]));
  }

  /** Everything known of one of the last requests. */
  explainRequest(requestId: string): RequestExplanation | undefined {
    return this.explain.get(requestId);
  }

  /** Ids of last requests that begin so, the newest first. */
  requestIds(beginning: string): readonly string[] {
    return this.explain.idsWith(beginning);
  }

  // ---------------------------------------------------------------- LiveGauges

  prefixTotals(): ReuseTotals {
    return this.table.prefixes.totals;
  }

  prefixBytes(): number {
    return this.table.prefixes.bytes;
  }

  clientConnections(): ReturnType<LiveGauges['clientConnections']> {
    return this.listener.connections;
  }

  *modelGauges(): ReturnType<LiveGauges['modelGauges']> {
    for (const model of this.table.models()) {
      yield { name: model.name, series: model.series, queueDepth: model.queue.depth };
    }
  }

  *endpointGauges(): ReturnType<LiveGauges['endpointGauges']> {
    const now = this.clock.monotonicMs();
    for (const endpoint of this.table.published()) {
      const { state } = endpoint.status(now);
      const up = state === 'up' || state === 'coolingDown';
      yield { id: endpoint.id, inflight: endpoint.inflight, up, ejections: endpoint.ejections };
    }
  }

  // ---------------------------------------------------------------- requests

  private take(request: FrontRequest, front: NodeFront): void {
    const head = readRequestHead(request, this.ids);
    if (!(head instanceof RequestHead)) {
      // Nothing of a malformed head is trusted, not even how long its body is.
      front.announcedBodyBytes = Number.POSITIVE_INFINITY;
      const requestId = this.ids();
      const path = (request.url ?? '').split(/[?#]/, 1)[0] as string;
      const dialect = dialectFor(matchRoute(request.method ?? '', path));
      giveError(front, dialect, ['x-request-id', requestId], head);
      return this.logUnread(requestId, head);
    }
    front.announcedBodyBytes = head.chunkedBody ? Number.POSITIVE_INFINITY : head.contentLength;
    this.answer(head, front);
  }

  private answer(head: RequestHead, front: Front): void {
    const match = matchRoute(head.method, head.path);
    const common = commonHeaders(head, this.config.cors);
    if (this.stopping) this.refuse(front, head, match, common, SHUTTING_DOWN);
    else if (match.kind === 'engine') this.toEngine(match.route, head, front, common);
    else this.answerHere(match, head, front, common);
  }

  private toEngine(route: EngineRoute, head: RequestHead, front: Front, common: string[]): void {
    const principal = this.authoriser.authenticate(head.credential);
    const match: RouteMatch = { kind: 'engine', route };
    if (isRefusal(principal)) return this.refuse(front, head, match, common, principal);
    const problem = mediaProblem(route, head);
    if (problem !== undefined) {
      return this.refuse(front, head, match, common, problem, { key: keyOf(principal) });
    }
    new Exchange(this, front, head, route, principal, common).start();
  }

  private answerHere(match: RouteMatch, head: RequestHead, front: Front, common: string[]): void {
    switch (match.kind) {
      case 'models':
      case 'model':
        return this.answerModels(match, head, front, common);
      case 'health':
        return this.answerHealth(front, common);
      case 'preflight':
        giveBody(front, 204, ['allow', match.allow, ...preflightHeaders(head, this.config.cors)], NOTHING);
        return this.countLocal(OTHER_ROUTE_INDEX, 204);
      case 'methodNotAllowed': {
        const message = `this path takes ${match.allow}`;
        const error: GatewayError = { code: 'method_not_allowed', message };
        return this.refuse(front, head, match, common, error, { allow: match.allow });
      }
      case 'notFound':
        return this.refuse(front, head, match, common, {
          code: 'not_found',
          message: 'this path is not part of the API',
        });
      case 'engine':
        return;
    }
  }

  private answerModels(
    match: Extract<RouteMatch, { kind: 'models' | 'model' }>,
    head: RequestHead,
    front: Front,
    common: string[],
  ): void {
    const principal = this.authoriser.authenticate(head.credential);
    if (isRefusal(principal)) return this.refuse(front, head, match, common, principal);
    const key = keyOf(principal);
    const all = new URLSearchParams(head.query).get('all') === 'true';
    if (match.kind === 'models') {
      this.giveJson(front, common, 200, this.models_.list(principal, all), MODELS_ROUTE_INDEX);
      return this.log(head, match, 200, 'ok', key);
    }
    const found = findAllowed(this.table, match.id, principal);
    if (found.model === undefined) return this.refuse(front, head, match, common, found.error, { key });
    if (!found.model.servable && !all) {
      const error = { code: 'no_ready_replica', message: 'no replica of the model is ready' } as const;
      const { retryAfterSeconds } = found.model.refuse(error.code, this.clock.monotonicMs());
      return this.refuse(front, head, match, common, error, { key, retryAfterSeconds });
    }
    const entry = this.models_.entry(match.id, found.model, all);
    this.giveJson(front, common, 200, entry, MODELS_ROUTE_INDEX);
    this.log(head, match, 200, 'ok', key);
  }

  private answerHealth(front: Front, common: string[]): void {
    let healthy = false;
    for (const model of this.table.models()) healthy ||= model.servable;
    const body = { status: healthy ? 'ok' : 'unavailable' };
    this.giveJson(front, common, healthy ? 200 : 503, body, HEALTH_ROUTE_INDEX);
  }

  private giveJson(front: Front, common: string[], status: number, body: object, routeIndex: number): void {
    giveBody(
      front,
      status,
      [...common, 'content-type', 'application/json'],
      Buffer.from(JSON.stringify(body)),
    );
    this.countLocal(routeIndex, status);
  }

  private countLocal(routeIndex: number, status: number): void {
    this.metrics.unknown.route(routeIndex).codes.add(String(status));
  }

  private refuse(
    front: Front,
    head: RequestHead,
    match: RouteMatch,
    common: string[],
    error: GatewayError,
    about: {
      readonly allow?: string;
      readonly key?: string | undefined;
      readonly retryAfterSeconds?: number;
    } = {},
  ): void {
    const status = giveError(front, dialectFor(match), common, error, about);
    this.countLocal(routeIndexOf(match), status);
    this.log(head, match, status, error.code, about.key);
  }

  /** The same for a request of which nothing is known, since it could not be read. */
  private logUnread(requestId: string, { code }: GatewayError): void {
    const { status } = API_ERRORS[code];
    this.countLocal(OTHER_ROUTE_INDEX, status);
    const local = { method: 'other', route: 'unread', model: undefined, durationMs: 0 };
    this.accessLog.write({ ...local, requestId, status, outcome: code });
  }

  /** One line for what was answered here; health checks have none, they come every few seconds for ever. */
  private log(head: RequestHead, match: RouteMatch, status: number, outcome: string, key?: string): void {
    this.accessLog.write({
      requestId: head.requestId,
      method: METHODS.has(head.method) ? head.method : 'other',
      route: match.kind === 'engine' ? match.route.label : match.kind,
      model: undefined,
      status,
      outcome,
      durationMs: 0,
      key,
    });
  }
}

/** Time the error events of a shutdown have to leave the process, ms. */
const LAST_BYTES_MS = 100;
const NOTHING = Buffer.alloc(0);
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
const SHUTTING_DOWN: GatewayError = { code: 'shutting_down', message: 'the gateway is being stopped' };

function dialectFor(match: RouteMatch): DialectName {
  if (match.kind === 'engine') return match.route.dialect;
  return match.kind === 'methodNotAllowed' || match.kind === 'notFound' ? match.dialect : 'openai';
}

function routeIndexOf(match: RouteMatch): number {
  switch (match.kind) {
    case 'engine':
      return match.route.index;
    case 'models':
    case 'model':
      return MODELS_ROUTE_INDEX;
    case 'health':
      return HEALTH_ROUTE_INDEX;
    case 'preflight':
    case 'methodNotAllowed':
    case 'notFound':
      return OTHER_ROUTE_INDEX;
  }
}

function hostAndPort(address: string): { readonly host: string; readonly port: number } {
  const at = address.lastIndexOf(':');
  return { host: address.slice(0, at).replace(/^\[(.*)\]$/, '$1'), port: Number(address.slice(at + 1)) };
}

/** Ids that are unique within this process and unlikely to meet those of another. */
function requestIds(random: Random): () => string {
  const process = Math.floor(random() * 2 ** 32).toString(16);
  let count = 0;
  return () => `req-${process.padStart(8, '0')}-${(++count).toString(36)}`;
}
