import { DrainRate, RETRY_AFTER_MAX_SECONDS, clampRetryAfter } from './drain-rate.js';
import { IndexedHeap } from './indexed-heap.js';

/** Why a request was turned away, or its wait ended without an endpoint. */
export type AdmissionRefusalReason = 'queue_full' | 'queue_timeout' | 'no_ready_replica';

/** A refusal as the client will see it. */
export interface AdmissionRefusal {
  readonly refused: AdmissionRefusalReason;
  /** Whole seconds, 1 to 60. */
  readonly retryAfterSeconds: number;
}

/** What a request brings to the queue. */
export interface Arrival<T> {
  /** Who shares fairly: the API key's id, or the client's address where keys are off. */
  readonly fairnessKey: string;
  /** Higher goes first, always; within one priority keys share by tokens. */
  readonly priority: number;
  /** Estimated prompt and output tokens. */
  readonly tokens: number;
  /** Monotonic time at which waiting ends with `queue_timeout`; undefined waits as long as the client does. */
  readonly deadlineMs: number | undefined;
  readonly payload: T;
}

/** A place in the queue. `state` is `waiting` until it leaves it once and for all. */
export interface Ticket<T> {
  readonly arrival: Arrival<T>;
  readonly enqueuedAtMs: number;
  readonly state: 'waiting' | 'admitted' | 'left' | 'timed_out' | 'displaced';
}

/** Result of `ModelQueue.enqueue`. */
export type EnqueueResult<T> =
  | { readonly ticket: Ticket<T>; readonly displaced: Ticket<T> | undefined }
  | { readonly ticket: undefined; readonly refusal: AdmissionRefusal };

/** Keys whose share is remembered per priority; beyond that the longest idle are forgotten, which costs them nothing. */
const MAX_REMEMBERED_KEYS = 10_000;

interface MutableTicket<T> extends Ticket<T> {
  state: Ticket<T>['state'];
  readonly flow: Flow<T>;
  /** Order of arrival, which decides between equal shares. */
  readonly sequence: number;
  previous: MutableTicket<T> | undefined;
  next: MutableTicket<T> | undefined;
}

/** One key's line within a priority: a linked list, because clients leave from the middle. */
interface Flow<T> {
  readonly key: string;
  readonly band: Band<T>;
  /** Virtual time at which this key has had its share so far, tokens. */
  virtualTokens: number;
  head: MutableTicket<T> | undefined;
  tail: MutableTicket<T> | undefined;
  waiting: number;
  waitingTokens: number;
}

/** All keys of one priority. */
interface Band<T> {
  readonly priority: number;
  /** Start of the share served last: where a key begins that comes or comes back. */
  virtualTokens: number;
  readonly flows: Map<string, Flow<T>>;
  readonly active: IndexedHeap<Flow<T>>;
  waiting: number;
}

/**
 * The bounded queue of one model: priority first, then keys share by tokens (start-time fair queueing), then order of
 * arrival. One key that sends a thousand requests delays itself, not the others; when the queue is full it is also
 * the one that loses its newest place to a newcomer of a shorter line.
 *
 * Pure: it holds no timer and knows no endpoint. The caller asks for the `next` whenever an endpoint has room, takes
 * out clients that leave, and calls `expire` at `nextDeadlineMs`.
 */
export class ModelQueue<T> {
  private readonly bands: Band<T>[] = [];
  private readonly deadlines = new IndexedHeap<MutableTicket<T>>(
    (a, b) => a.arrival.deadlineMs! < b.arrival.deadlineMs!,
  );
  private readonly overdue: MutableTicket<T>[] = [];
  private readonly drain = new DrainRate();
  private waiting = 0;
  private sequence = 0;

  /** @param max most requests waiting at once; made smaller, those who wait already stay */
  constructor(public max: number) {}

  /** Requests waiting. */
  get depth(): number {
    return this.waiting;
  }

  /** When `expire` next has something to do; undefined when nobody waiting has a deadline. */
  get nextDeadlineMs(): number | undefined {
    return (this.overdue[0] ?? this.deadlines.peek())?.arrival.deadlineMs;
  }

  /**
   * Counts a request that goes straight to an endpoint, so that a key's share includes what it got without waiting.
   * Only right while nobody waits: otherwise it would be jumping the queue.
   */
  admitDirect(arrival: Pick<Arrival<T>, 'fairnessKey' | 'priority' | 'tokens'>): void {
    const flow = this.flowOf(arrival.priority, arrival.fairnessKey);
    this.serve(flow, arrival.tokens);
  }

  /** Puts a request in line, or says `queue_full`. A displaced ticket's client is to be refused with `queue_full`. */
  enqueue(arrival: Arrival<T>, nowMs: number): EnqueueResult<T> {
    let displaced: Ticket<T> | undefined;
    if (this.waiting >= this.max) {
      displaced = this.displaceFor(arrival);
      if (displaced === undefined) return { ticket: undefined, refusal: this.refuse('queue_full', nowMs) };
    }
    const flow = this.flowOf(arrival.priority, arrival.fairnessKey);
    const ticket: MutableTicket<T> = {
      arrival,
      enqueuedAtMs: nowMs,
      state: 'waiting',
      flow,
      sequence: this.sequence++,
      previous: flow.tail,
      next: undefined,
    };
    this.append(flow, ticket);
    if (arrival.deadlineMs !== undefined) this.deadlines.push(ticket);
    return { ticket, displaced };
  }

  /**
   * Takes the next request out of line, or undefined when nobody waits. One whose deadline has passed is not served,
   * since work for somebody who is told "too late" is work for nobody; `expire` hands it out.
   */
  next(nowMs: number): Ticket<T> | undefined {
    for (const band of this.bands) {
      for (let flow = band.active.peek(); flow !== undefined; flow = band.active.peek()) {
        const ticket = flow.head!;
        if (ticket.arrival.deadlineMs !== undefined && ticket.arrival.deadlineMs <= nowMs) {
          this.unlink(ticket, 'timed_out');
          this.overdue.push(ticket);
          continue;
        }
        this.unlink(ticket, 'admitted');
        this.serve(flow, ticket.arrival.tokens);
        return ticket;
      }
    }
    return undefined;
  }

  /** The client left: its place is free at once. False when the ticket no longer waits. */
  leave(ticket: Ticket<T>): boolean {
    const own = ticket as MutableTicket<T>;
    if (own.state !== 'waiting') return false;
    this.unlink(own, 'left');
    return true;
  }

  /** Takes out all whose deadline has passed; each is to be refused with `queue_timeout`. */
  expire(nowMs: number): Ticket<T>[] {
    const expired: Ticket<T>[] = this.overdue.splice(0);
    for (let ticket = this.deadlines.peek(); ticket !== undefined; ticket = this.deadlines.peek()) {
      if (ticket.arrival.deadlineMs! > nowMs) break;
      this.unlink(ticket, 'timed_out');
      expired.push(ticket);
    }
    return expired;
  }

  /** Takes out everybody, for example when the model is removed or the gateway stops. */
  clear(): Ticket<T>[] {
    const all: Ticket<T>[] = [];
    for (const band of this.bands) {
      for (const flow of band.flows.values()) {
        for (let ticket = flow.head; ticket !== undefined; ticket = flow.head) {
          this.unlink(ticket, 'left');
          all.push(ticket);
        }
      }
    }
    return all;
  }

  /** A request of this model ended at an endpoint: measures how fast the queue drains. */
  departed(nowMs: number): void {
    this.drain.departed(nowMs);
  }

  /**
   * Corrects a key's share by what its request really used; `tokens` is real minus estimated and may be negative.
   */
  correct(key: string, priority: number, tokens: number): void {
    const flow = this.bands.find((band) => band.priority === priority)?.flows.get(key);
    if (flow === undefined) return;
    flow.virtualTokens = Math.max(flow.band.virtualTokens, flow.virtualTokens + tokens);
    flow.band.active.update(flow);
  }

  /** A refusal with the wait that the measured drain rate suggests. */
  refuse(reason: AdmissionRefusalReason, nowMs: number): AdmissionRefusal {
    return { refused: reason, retryAfterSeconds: this.drain.retryAfterSeconds(this.waiting, nowMs) };
  }

  private flowOf(priority: number, key: string): Flow<T> {
    const band = this.bandOf(priority);
    let flow = band.flows.get(key);
    if (flow === undefined) {
      if (band.flows.size >= MAX_REMEMBERED_KEYS) forgetIdle(band);
      flow = {
        key,
        band,
        virtualTokens: band.virtualTokens,
        head: undefined,
        tail: undefined,
        waiting: 0,
        waitingTokens: 0,
      };
      band.flows.set(key, flow);
    }
    return flow;
  }

  private bandOf(priority: number): Band<T> {
    const known = this.bands.find((band) => band.priority === priority);
    if (known !== undefined) return known;
    const band: Band<T> = {
      priority,
      virtualTokens: 0,
      flows: new Map(),
      active: new IndexedHeap(goesBefore),
      waiting: 0,
    };
    this.bands.push(band);
    this.bands.sort((a, b) => b.priority - a.priority);
    return band;
  }

  /** Moves a key's share on by one served request. */
  private serve(flow: Flow<T>, tokens: number): void {
    const { band } = flow;
    // A key that was away starts where the others are: unused share is not saved up, nor is idle capacity owed.
    const start = Math.max(flow.virtualTokens, band.virtualTokens);
    band.virtualTokens = start;
    flow.virtualTokens = start + Math.max(1, tokens);
    band.active.update(flow);
  }

  private append(flow: Flow<T>, ticket: MutableTicket<T>): void {
    if (flow.tail === undefined) flow.head = ticket;
    else flow.tail.next = ticket;
    flow.tail = ticket;
    flow.waiting += 1;
    flow.waitingTokens += ticket.arrival.tokens;
    flow.band.waiting += 1;
    this.waiting += 1;
    if (flow.waiting > 1) return;
    flow.virtualTokens = Math.max(flow.virtualTokens, flow.band.virtualTokens);
    flow.band.active.push(flow);
  }

  private unlink(ticket: MutableTicket<T>, state: Exclude<Ticket<T>['state'], 'waiting'>): void {
    const { flow } = ticket;
    if (ticket.previous === undefined) flow.head = ticket.next;
    else ticket.previous.next = ticket.next;
    if (ticket.next === undefined) flow.tail = ticket.previous;
    else ticket.next.previous = ticket.previous;
    ticket.previous = undefined;
    ticket.next = undefined;
    ticket.state = state;
    flow.waiting -= 1;
    flow.waitingTokens = flow.waiting === 0 ? 0 : flow.waitingTokens - ticket.arrival.tokens;
    flow.band.waiting -= 1;
    this.waiting -= 1;
    this.deadlines.remove(ticket);
    if (flow.waiting === 0) flow.band.active.remove(flow);
    else flow.band.active.update(flow);
  }

  /**
   * In a full queue a newcomer may take a place of a lower priority, or within its own priority the newest place of
   * the longest line if its own line stays the shorter one. Otherwise one key that fills the queue locks out all others.
   */
  private displaceFor(arrival: Arrival<T>): Ticket<T> | undefined {
    const band = this.bands.findLast((candidate) => candidate.waiting > 0);
    if (band === undefined || band.priority > arrival.priority) return undefined;
    const longest = longestLine(band);
    if (longest?.tail === undefined) return undefined;
    if (band.priority === arrival.priority) {
      const own = band.flows.get(arrival.fairnessKey)?.waitingTokens ?? 0;
      if (longest.waitingTokens <= own + arrival.tokens) return undefined;
      if (longest.key === arrival.fairnessKey || longest.waiting < 2) return undefined;
    }
    const victim = longest.tail;
    this.unlink(victim, 'displaced');
    return victim;
  }
}

function goesBefore<T>(a: Flow<T>, b: Flow<T>): boolean {
  if (a.virtualTokens !== b.virtualTokens) return a.virtualTokens < b.virtualTokens;
  return (a.head?.sequence ?? 0) < (b.head?.sequence ?? 0);
}

function longestLine<T>(band: Band<T>): Flow<T> | undefined {
  let longest: Flow<T> | undefined;
  for (const flow of band.active) {
    if (flow.waitingTokens > (longest?.waitingTokens ?? -1)) longest = flow;
  }
  return longest;
}

function forgetIdle<T>(band: Band<T>): void {
  for (const [key, flow] of band.flows) if (flow.waiting === 0) band.flows.delete(key);
}

/** What is known of a model when a request for it arrives and nothing can take it. */
export interface ModelOutlook {
  /** Replicas or static endpoints that could take requests now or once they have room. */
  readonly readyEndpoints: number;
  /** Replicas that are starting. */
  readonly replicasOnTheWay: number;
  /** Learned time until the first of them is Ready, milliseconds; undefined while unknown. */
  readonly expectedReadyInMs: number | undefined;
}

/** Whether waiting makes sense. */
export type HoldDecision =
  | { readonly hold: true; readonly expectedReadyInMs: number | undefined }
  | { readonly hold: false; readonly refusal: AdmissionRefusal };

/**
 * A model that is known but has nothing Ready holds its requests while a replica is on its way, unless that is known
 * to take longer than the request may wait: then the client learns now how long, instead of after a futile wait.
 */
export function decideHold(outlook: ModelOutlook, queueDeadlineMs: number | undefined): HoldDecision {
  if (outlook.readyEndpoints > 0) return { hold: true, expectedReadyInMs: undefined };
  const { expectedReadyInMs } = outlook;
  if (outlook.replicasOnTheWay === 0) {
    return {
      hold: false,
      refusal: { refused: 'no_ready_replica', retryAfterSeconds: RETRY_AFTER_MAX_SECONDS },
    };
  }
  const tooLate =
    expectedReadyInMs !== undefined && queueDeadlineMs !== undefined && expectedReadyInMs > queueDeadlineMs;
  if (!tooLate) return { hold: true, expectedReadyInMs };
  const retryAfterSeconds = clampRetryAfter(expectedReadyInMs / 1000);
  return { hold: false, refusal: { refused: 'no_ready_replica', retryAfterSeconds } };
}
