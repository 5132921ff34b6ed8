import { prospectOf, type Balancer, type Prospect } from '../domain/balancing/balancer.js';
import { CanarySplit } from '../domain/balancing/canary.js';
import type { PrefixIndex } from '../domain/balancing/prefix-index.js';
import { createBalancer } from '../domain/balancing/policies.js';
import {
  decideHold,
  ModelQueue,
  type AdmissionRefusal,
  type HoldDecision,
} from '../domain/request/admission.js';
import { LearnedSizes } from '../domain/request/learned-sizes.js';
import { clampRetryAfter, RETRY_AFTER_MAX_SECONDS } from '../domain/request/drain-rate.js';
import type { EndpointState } from './endpoint-state.js';
import type { RouteModel } from './ports.js';
import { ModelSeries } from './router.metrics.js';
import type { RoutingProfile } from './routing-profiles.js';
import { Traffic, type ModelTraffic } from './traffic.js';

/** A request waiting for an endpoint. */
export interface Waiting {
  /** Endpoints it does not go to again. */
  readonly tried: readonly string[];
  /** Its turn: an endpoint has room for it, or there will never be one. */
  proceed(): void;
  /** Its place went to a request of a shorter line, or its time is over. */
  turnedAway(refusal: AdmissionRefusal): void;
}

/** What the router keeps of one model from table to table. */
export class ModelState {
  readonly series = new ModelSeries();
  readonly traffic = new Traffic();
  private serving: readonly EndpointState[] = [];
  readonly queue: ModelQueue<Waiting>;
  /** How long its prompts and answers are, learned from what engines report. */
  readonly sizes = new LearnedSizes();
  /** When those that wait for it had their turn last, among models that share endpoints; the lowest is the longest ago. */
  lastTurn = 0;
  /** How its requests are shared out while it has canaries. */
  split: CanarySplit | undefined;
  private readonly balancers = new Map<string, Balancer>();
  private known: RouteModel;

  constructor(
    info: RouteModel,
    queueMax: number,
    private readonly prefixes: PrefixIndex,
  ) {
    this.queue = new ModelQueue(queueMax);
    this.known = info;
    this.info = info;
  }

  get info(): RouteModel {
    return this.known;
  }
  set info(info: RouteModel) {
    this.known = info;
    this.split = info.canary === undefined ? undefined : new CanarySplit(info.canary);
  }

  /** Endpoints that serve it now, draining ones left out. */
  get endpoints(): readonly EndpointState[] {
    return this.serving;
  }

  /** Other endpoints serve it from now on. */
  serveWith(endpoints: readonly EndpointState[], nowMs: number): void {
    // While nothing is there nobody departs, however fast those that come next will be.
    if (this.ready !== endpoints.length > 0) this.queue.forgetRate(nowMs);
    this.serving = endpoints;
  }

  get name(): string {
    return this.info.name;
  }

  /** The balancer of one routing profile; each has its own memory. */
  balancer(profile: RoutingProfile): Balancer {
    let balancer = this.balancers.get(profile.name);
    if (balancer?.policy !== profile.policy) {
      balancer = createBalancer(profile.policy, this.prefixes);
      this.balancers.set(profile.name, balancer);
    }
    return balancer;
  }

  get hasRoom(): boolean {
    for (const endpoint of this.endpoints) if (endpoint.hasRoom) return true;
    return false;
  }

  /** Whether a request that has tried these endpoints would find another one. */
  prospect(tried: readonly string[], nowMs: number): Prospect {
    const facts = { model: this.name, closedPools: this.split?.closedPools };
    return prospectOf(this.serving, facts, { nowMs, tried });
  }

  /** Something is published for it. */
  get ready(): boolean {
    return this.endpoints.length > 0;
  }

  /** What is known of the replica that is on its way, while nothing is there. */
  get coming(): { readonly expectedReadyMs?: number } | undefined {
    return !this.ready && this.known.outlook === 'coming' ? this.known : undefined;
  }

  /** Whether a request may wait for what is on its way; undefined when nothing is. `queueMs`: its deadline, 0 = none. */
  holdFor(queueMs: number): HoldDecision | undefined {
    const { outlook, expectedReadyMs } = this.known;
    if (outlook !== 'coming') return undefined;
    return decideHold(
      { readyEndpoints: 0, replicasOnTheWay: 1, expectedReadyInMs: expectedReadyMs },
      queueMs === 0 ? undefined : queueMs,
    );
  }

  /** As far as is known, it can be served now. */
  get servable(): boolean {
    for (const endpoint of this.endpoints) if (endpoint.seemsUp && endpoint.weight > 0) return true;
    return false;
  }

  trafficView(): ModelTraffic {
    const { requests, failures } = this.series.requestCounts();
    return {
      requestsTotal: requests,
      failuresTotal: failures,
      queueDepth: this.queue.depth,
      ...this.traffic.view(),
    };
  }

  /** Refuses those whose time in the queue is over. */
  expire(nowMs: number): void {
    for (const ticket of this.queue.expire(nowMs)) {
      ticket.arrival.payload.turnedAway(
        this.refuse(this.ready ? 'queue_timeout' : 'no_ready_replica', nowMs),
      );
    }
  }

  /** A refusal with the wait that is likely to help. */
  refuse(reason: AdmissionRefusal['refused'], nowMs: number): AdmissionRefusal {
    const refusal = this.queue.refuse(reason, nowMs);
    if (this.ready) return refusal;
    const { expectedReadyMs, outlook } = this.known;
    if (expectedReadyMs !== undefined) {
      return { ...refusal, retryAfterSeconds: clampRetryAfter(expectedReadyMs / 1000) };
    }
    // Nothing comes by itself, so nothing is gained by asking again soon.
    return outlook === 'none' ? { ...refusal, retryAfterSeconds: RETRY_AFTER_MAX_SECONDS } : refusal;
  }

  /** Lets waiting requests go while there is room. */
  pump(nowMs: number): void {
    // Bounded: one that finds no endpoint after all queues up again behind the others.
    for (let left = this.queue.depth; left > 0 && this.letOneGo(nowMs); left--);
  }

  /** Lets one of those that wait go; false when there is no room that is of use to any of them. */
  letOneGo(nowMs: number): boolean {
    // Where one that has tried nothing would find nothing now, nobody does.
    if (!this.hasRoom || this.prospect(NOTHING_TRIED, nowMs) === 'later') return false;
    const ticket = this.queue.next(nowMs, ({ tried }) => this.prospect(tried, nowMs) !== 'later');
    ticket?.arrival.payload.proceed();
    return ticket !== undefined;
  }
}

const NOTHING_TRIED: readonly string[] = [];
