import type { Balancer } from '../domain/balancing/balancer.js';
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
import { clampRetryAfter } from '../domain/request/drain-rate.js';
import type { EndpointState } from './endpoint-state.js';
import type { RouteModel } from './ports.js';
import { ModelSeries } from './router.metrics.js';
import type { RoutingProfile } from './routing-profiles.js';

/** A request waiting for an endpoint. */
export interface Waiting {
  /** Its turn: an endpoint has room. */
  proceed(): void;
  /** Its place went to a request of a shorter line, or its time is over. */
  turnedAway(refusal: AdmissionRefusal): void;
}

/** What the router keeps of one model from table to table. */
export class ModelState {
  readonly series = new ModelSeries();
  /** Endpoints that serve it now, draining ones left out. */
  endpoints: EndpointState[] = [];
  readonly queue: ModelQueue<Waiting>;
  /** How long its prompts and answers are, learned from what engines report. */
  readonly sizes = new LearnedSizes();
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
    const { expectedReadyMs } = this.info;
    if (this.ready || expectedReadyMs === undefined) return refusal;
    return { ...refusal, retryAfterSeconds: clampRetryAfter(expectedReadyMs / 1000) };
  }

  /** Lets waiting requests go while there is room. */
  pump(nowMs: number): void {
    // Bounded: one that finds no endpoint after all (it tried them) queues up again behind the others.
    for (let left = this.queue.depth; left > 0 && this.hasRoom; left--) {
      const ticket = this.queue.next(nowMs);
      if (ticket === undefined) return;
      ticket.arrival.payload.proceed();
    }
  }
}
