import type { Candidate } from '../domain/balancing/candidate.js';
import { EndpointLoad, type ScrapedLoad } from '../domain/balancing/endpoint-load.js';
import { replicaKey } from '../domain/cluster.js';
import type { DataPathEvidence } from '../domain/snapshot.js';
import { EndpointHealth, type EvidenceOutcome } from '../domain/request/ejection.js';
import { LearnedRates } from '../domain/request/learned-rates.js';
import type { Clock } from '../shared/clock.js';
import type { Random } from '../shared/random.js';
import type { EndpointStatus, RouteEndpoint } from './ports.js';
import { Roster, type Enlisted } from './roster.js';
import type { EngineRoute } from './routes.js';
import { Traffic } from './traffic.js';
import { UpstreamPool } from './upstream/upstream-pool.js';

/** What an endpoint may end while it runs; attempts are these. */
export interface RunningAttempt extends Enlisted {
  /** The endpoint is taken away under it. */
  abandon(reason: 'shutting_down' | 'upstream_aborted'): void;
}

/** What endpoint states share. */
export interface EndpointContext {
  readonly clock: Clock;
  readonly random: Random;
  /** Somebody asks endpoints whether they live, so what is not known will be. */
  readonly probed: boolean;
  /** Endpoints in good standing beside this one: the smallest number over its models. */
  othersServing(endpoint: EndpointState): number;
  /** Evidence changed so much that others should look. */
  evidenceTurned(endpoint: EndpointState, turn: EvidenceTurn): void;
}

/** How evidence turned: `kept_last` would have been taken out, were it not the last of a model. */
export type EvidenceTurn = 'ejected' | 'kept_last' | 'returned';

/** Engines that serve tokenize and detokenize without the version prefix. */
const BARE_PATH_ENGINES: ReadonlySet<string> = new Set(['vllm', 'sglang', 'llamacpp']);

/** Failed probes in a row after which an endpoint is not advertised. */
const PROBES_TO_SEEM_DOWN = 3;

/** Longest pause an engine's own "busy" earns it, ms: its queue moves on much faster than clients are told to wait. */
const COOL_DOWN_MAX_MS = 5_000;
const COOL_DOWN_MS = 1_000;

/**
 * One generation of one endpoint, from its first publication until its last request is over: counts, evidence and
 * connections. A restarted replica is another generation and starts from nothing.
 */
export class EndpointState implements Candidate {
  readonly key: string;
  readonly id: string;
  readonly generation: number;
  readonly load = new EndpointLoad();
  readonly rates = new LearnedRates();
  readonly health = new EndpointHealth();
  readonly traffic = new Traffic();
  readonly upstream: UpstreamPool;
  /** In the table no more; finishes what it has. */
  draining = false;
  readonly running = new Roster<RunningAttempt>();
  requestsTotal = 0;
  failuresTotal = 0;
  ejections = 0;
  engineRunning: number | undefined;
  engineWaiting: number | undefined;
  private modelSet: ReadonlySet<string>;
  private lastByteMs: number | undefined;
  private timeoutsInARow = 0;
  private failuresInARow = 0;
  private probesFailedInARow = 0;
  /** It answered once, or whoever published it saw it answer: what the configuration merely names may not be there. */
  private proved: boolean;
  /** Request line and what follows it, by route; the same for every request without a query. */
  private readonly requestHeads: string[] = [];

  constructor(
    private route: RouteEndpoint,
    private readonly context: EndpointContext,
  ) {
    this.id = route.id;
    this.generation = route.generation;
    this.key = replicaKey(route.id, route.generation);
    this.modelSet = new Set(route.models);
    this.proved = route.generation > 0 || !context.probed;
    this.upstream = new UpstreamPool({
      host: route.host,
      port: route.port,
      clock: context.clock,
      ...(route.protocol === 'https' ? { tls: {} } : {}),
    });
  }

  get models(): ReadonlySet<string> {
    return this.modelSet;
  }
  get pool(): string {
    return this.route.pool;
  }
  get weight(): number {
    return this.route.weight;
  }
  get maxConcurrency(): number {
    return this.route.maxConcurrency ?? Number.POSITIVE_INFINITY;
  }
  get endpoint(): RouteEndpoint {
    return this.route;
  }
  get inflight(): number {
    return this.running.size;
  }
  get hasRoom(): boolean {
    return !this.draining && this.weight > 0 && this.load.requests < this.maxConcurrency;
  }

  /** Whether `route` is the same engine at the same place, so that its connections and evidence stay true. */
  isAt(route: RouteEndpoint): boolean {
    const { host, port, protocol } = this.route;
    return host === route.host && port === route.port && protocol === route.protocol;
  }

  /** Takes over settings that can change under one generation: models, weight, limits, key. */
  update(route: RouteEndpoint): void {
    this.route = route;
    this.requestHeads.length = 0;
    this.modelSet = new Set(route.models);
    this.draining = false;
  }

  /** Request line, Host and the endpoint's own credential. */
  requestHead(route: EngineRoute, query: string): string {
    if (query !== '') return this.composeRequestHead(route, query);
    return (this.requestHeads[route.index] ??= this.composeRequestHead(route, ''));
  }

  private composeRequestHead(route: EngineRoute, query: string): string {
    const { basePath, host, port, apiKey, engine } = this.route;
    const bare = route.bareEnginePath !== undefined && BARE_PATH_ENGINES.has(engine);
    const path = bare ? route.bareEnginePath : route.path;
    const authority = host.includes(':') && !host.startsWith('[') ? `[${host}]:${port}` : `${host}:${port}`;
    const credential = apiKey === undefined ? '' : `authorization: Bearer ${apiKey}\r\n`;
    return `POST ${basePath}${path}${query} HTTP/1.1\r\nhost: ${authority}\r\n${credential}`;
  }

  began(attempt: RunningAttempt): void {
    this.running.add(attempt);
    this.requestsTotal += 1;
  }

  /** True the first time. */
  ended(attempt: RunningAttempt): boolean {
    return this.running.delete(attempt);
  }

  /** The engine answered: it works, whatever it said. */
  worked(nowMs: number): void {
    this.proved = true;
    this.lastByteMs = nowMs;
    this.timeoutsInARow = 0;
    this.failuresInARow = 0;
    this.probesFailedInARow = 0;
    if (this.health.worked(nowMs)) this.context.evidenceTurned(this, 'returned');
  }

  /** Bytes of an answer came; called per read. */
  showedLife(nowMs: number): void {
    this.lastByteMs = nowMs;
    this.timeoutsInARow = 0;
    this.health.showedLife(nowMs);
  }

  /** An attempt failed and the endpoint is to blame. */
  faulted(nowMs: number, trial: boolean): void {
    this.failuresTotal += 1;
    this.failuresInARow += 1;
    this.note(this.health.faulted(this.evidence(nowMs, trial)));
  }

  /** No first token came in time for a request sent at `sentAtMs`. */
  timedOut(sentAtMs: number, nowMs: number, trial: boolean): void {
    this.failuresTotal += 1;
    if (this.lastByteMs === undefined || this.lastByteMs < sentAtMs) this.timeoutsInARow += 1;
    this.note(this.health.timedOut(sentAtMs, this.evidence(nowMs, trial)));
  }

  /** The engine said it is full. */
  busy(nowMs: number, retryAfterMs: number | undefined): void {
    this.health.busy(nowMs, Math.min(COOL_DOWN_MAX_MS, retryAfterMs ?? COOL_DOWN_MS));
  }

  /** Bytes of an answer came since `sinceMs`. */
  provedLifeSince(sinceMs: number): boolean {
    return (
      this.lastByteMs !== undefined && this.lastByteMs >= sinceMs && this.health.ejectedBecause === undefined
    );
  }

  /** Nobody knows yet whether anybody is there. */
  get isUnknown(): boolean {
    return !this.proved && this.probesFailedInARow + this.failuresInARow === 0;
  }

  /**
   * Probably nobody is there: every probe of late failed and nothing else speaks for it. Requests still go there when
   * nothing better is left; it only is not advertised.
   */
  get seemsDown(): boolean {
    if (!this.proved) return !this.isUnknown;
    return this.probesFailedInARow >= PROBES_TO_SEEM_DOWN;
  }

  /** As far as is known somebody is there. */
  get seemsUp(): boolean {
    return !this.isUnknown && !this.seemsDown;
  }

  scraped(load: ScrapedLoad, nowMs: number): void {
    this.load.scraped(load, nowMs);
    this.engineRunning = load.runningRequests;
    this.engineWaiting = load.waitingRequests;
  }

  probed(healthy: boolean, nowMs: number): void {
    this.proved ||= healthy;
    if (healthy) this.probesFailedInARow = 0;
    // A busy engine is judged by its work.
    else if (this.inflight === 0) this.probesFailedInARow += 1;
    this.note(this.health.probed(healthy, this.inflight, this.evidence(nowMs, false)));
  }

  status(nowMs: number): EndpointStatus {
    const { engineRunning, engineWaiting } = this;
    const state = this.stateAt(nowMs);
    const standing = state === 'down' ? 'no_answer' : this.health.ejectedBecause;
    const reason = this.draining ? 'draining' : standing;
    return {
      endpoint: this.route,
      inflight: this.inflight,
      outstandingTokens: Math.round(this.load.outstandingTokens),
      state,
      ...(reason === undefined ? {} : { reason }),
      evidence: this.evidenceView(),
      requestsTotal: this.requestsTotal,
      failuresTotal: this.failuresTotal,
      traffic: this.traffic.view(),
      ...(engineRunning === undefined ? {} : { engineRunning }),
      ...(engineWaiting === undefined ? {} : { engineWaiting }),
    };
  }

  evidenceView(): DataPathEvidence {
    return {
      ...(this.lastByteMs === undefined ? {} : { lastByteMs: this.lastByteMs }),
      firstTokenTimeouts: this.timeoutsInARow,
      consecutiveFailures: this.failuresInARow,
    };
  }

  private stateAt(nowMs: number): EndpointStatus['state'] {
    switch (this.health.verdict(nowMs)) {
      case 'serving':
        if (this.seemsDown) return 'down';
        return this.isUnknown ? 'unknown' : 'up';
      case 'cooling_down':
        return 'coolingDown';
      case 'ejected':
        return 'ejected';
      case 'trial_due':
      case 'trial_running':
        return 'trial';
    }
  }

  private evidence(nowMs: number, trial: boolean) {
    return { nowMs, random: this.context.random(), othersServing: this.context.othersServing(this), trial };
  }

  private note(outcome: EvidenceOutcome): void {
    if (outcome.outcome === 'ejected') this.ejections += 1;
    if (outcome.outcome === 'ejected' || outcome.outcome === 'kept_last') {
      this.context.evidenceTurned(this, outcome.outcome);
    }
  }
}
