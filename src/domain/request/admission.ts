import { DrainRate, RETRY_AFTER_MAX_SECONDS, clampRetryAfter } from './drain-rate.js';
import { IndexedHeap, type HeapItem } from './indexed-heap.js';

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

/** Departures after which a rate is certain enough to turn somebody away by it: engines end what began together together. */
const RATE_CERTAIN_DEPARTURES = 20;

/**
 * How long after its deadline a request is still served that was not told so yet. Who looks at deadlines may be late, and
 * then the room came in time.
 */
export const SERVED_LATE_MAX_MS = 1_000;

/** Keys whose share is remembered per priority; beyond that those that wait for nothing are forgotten. */
const MAX_REMEMBERED_KEYS = 10_000;

/** Requests that cannot go now and are passed over for one that can, per call: a bound on the work of each release. */
const PASSED_OVER_MAX = 64;

interface MutableTicket<T> extends Ticket<T>, HeapItem {
  state: Ticket<T>['state'];
  readonly flow: Flow<T>;
  /** Order of arrival, which decides between equal shares. */
  readonly sequence: number;
  previous: MutableTicket<T> | undefined;
  next: MutableTicket<T> | undefined;
}

/** One key's line within a priority: a linked list, because clients leave from the middle. */
interface Flow<T> extends HeapItem {
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
  private drain = new DrainRate();
  private waiting = 0;
  private sequence = 0;

  /** @param max most requests waiting at once; made smaller, those who wait already stay */
  constructor(public max: number) {}

  /** Requests waiting. */
  get depth(): number {
    return this.waiting;
  }

  /** Of those that wait; undefined when nobody does. */
  get highestPriority(): number | undefined {
    return this.bands.find(({ waiting }) => waiting > 0)?.priority;
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

  /**
   * Puts a request in line, or says why not: `queue_full`, or `queue_timeout` for one that would wait in vain. A displaced
   * ticket's client is to be refused with `queue_full`.
   */
  enqueue(arrival: Arrival<T>, nowMs: number): EnqueueResult<T> {
    if (this.wouldWaitInVain(arrival, nowMs)) {
      return { ticket: undefined, refusal: this.refuse('queue_timeout', nowMs) };
    }
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
      heapPlace: -1,
      previous: flow.tail,
      next: undefined,
    };
    if (this.waiting === 0) this.drain.began(nowMs);
    this.append(flow, ticket);
    if (arrival.deadlineMs !== undefined) this.deadlines.push(ticket);
    return { ticket, displaced };
  }

  /**
   * Takes the next request out of line, or undefined when nobody waits who can go. One whose deadline has long passed
   * is not served, since work for somebody who is told "too late" is work for nobody; `expire` hands it out.
   * @param canGo of those that cannot go now each keeps its place, and the ones behind it need not wait for it
   */
  next(nowMs: number, canGo: (payload: T) => boolean = () => true): Ticket<T> | undefined {
    const left = { toPassOver: PASSED_OVER_MAX };
    let ticket: Ticket<T> | undefined;
    for (const band of this.bands) {
      ticket = this.nextOf(band, nowMs, canGo, left);
      if (ticket !== undefined || left.toPassOver === 0) break;
    }
    this.noteDepth(nowMs);
    return ticket;
  }

  private nextOf(
    band: Band<T>,
    nowMs: number,
    canGo: (payload: T) => boolean,
    left: { toPassOver: number },
  ): Ticket<T> | undefined {
    const passedOver: Flow<T>[] = [];
    let ticket: Ticket<T> | undefined;
    for (let flow = band.active.peek(); flow !== undefined; flow = band.active.peek()) {
      ticket = this.firstOf(flow, nowMs, canGo, left);
      if (ticket !== undefined || left.toPassOver === 0) break;
      if (band.active.remove(flow)) passedOver.push(flow);
    }
    for (const flow of passedOver) band.active.push(flow);
    return ticket;
  }

  private firstOf(
    flow: Flow<T>,
    nowMs: number,
    canGo: (payload: T) => boolean,
    left: { toPassOver: number },
  ): Ticket<T> | undefined {
    let after: MutableTicket<T> | undefined;
    for (let ticket = flow.head; ticket !== undefined && left.toPassOver > 0; ticket = after) {
      after = ticket.next;
      const { deadlineMs, payload, tokens } = ticket.arrival;
      if (deadlineMs !== undefined && deadlineMs + SERVED_LATE_MAX_MS <= nowMs) {
        this.unlink(ticket, 'timed_out');
        this.overdue.push(ticket);
      } else if (canGo(payload)) {
        this.unlink(ticket, 'admitted');
        this.serve(flow, tokens);
        return ticket;
      } else left.toPassOver -= 1;
    }
    return undefined;
  }

  /** The client left: its place is free at once. False when the ticket no longer waits. */
  leave(ticket: Ticket<T>, nowMs: number): boolean {
    const own = ticket as MutableTicket<T>;
    if (own.state !== 'waiting') return false;
    this.unlink(own, 'left');
    this.noteDepth(nowMs);
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
    this.noteDepth(nowMs);
    return expired;
  }

  /** Takes out everybody, for example when the model is removed or the gateway stops. */
  clear(nowMs: number): Ticket<T>[] {
    const all: Ticket<T>[] = [];
    for (const band of this.bands) {
      for (const flow of band.flows.values()) {
        for (let ticket = flow.head; ticket !== undefined; ticket = flow.head) {
          this.unlink(ticket, 'left');
          all.push(ticket);
        }
      }
    }
    this.noteDepth(nowMs);
    return all;
  }

  private noteDepth(nowMs: number): void {
    if (this.waiting === 0) this.drain.ended(nowMs);
  }

  /** A request of this model ended at an endpoint: measures how fast the queue drains. */
  departed(nowMs: number): void {
    this.drain.departed(nowMs);
  }

  /** Other endpoints serve the model than before, so what was measured says nothing any more. */
  forgetRate(nowMs: number): void {
    this.drain = new DrainRate();
    if (this.waiting > 0) this.drain.began(nowMs);
  }

  /**
   * Whether, at the measured rate, the request's turn comes only after its deadline: then its client learns at once what
   * it would learn at the deadline, and the place is not taken from one that can be served. The first in line may always
   * wait, so that a rate that was measured while engines stood still is measured anew.
   */
  private wouldWaitInVain(arrival: Arrival<T>, nowMs: number): boolean {
    const { deadlineMs } = arrival;
    if (deadlineMs === undefined || this.waiting === 0) return false;
    const perSecond = this.drain.perSecond(nowMs, RATE_CERTAIN_DEPARTURES);
    if (perSecond === undefined) return false;
    const inTime = (perSecond * (deadlineMs - nowMs)) / 1000;
    if (this.waiting < inTime) return false;
    const ahead = this.aheadOf(arrival);
    return ahead > 0 && ahead >= inTime;
  }

  /** Requests that are served before the newcomer: higher priorities, its own key's, and of other keys as many tokens' worth. */
  private aheadOf({ priority, fairnessKey, tokens }: Arrival<T>): number {
    let ahead = 0;
    for (const band of this.bands) {
      if (band.priority > priority) ahead += band.waiting;
      if (band.priority !== priority) continue;
      const own = band.flows.get(fairnessKey);
      const ownTokens = (own?.waitingTokens ?? 0) + tokens;
      for (const flow of band.active) {
        if (flow === own) ahead += flow.waiting;
        else ahead += flow.waiting * Math.min(1, ownTokens / Math.max(1, flow.waitingTokens));
      }
    }
    return ahead;
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
        heapPlace: -1,
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
   * Counted are places, for these are what is short: by tokens, a thousand tiny requests would be a shorter line than
   * one large request, and its key would get in no more.
   */
  private displaceFor(arrival: Arrival<T>): Ticket<T> | undefined {
    const band = this.bands.findLast((candidate) => candidate.waiting > 0);
    if (band === undefined || band.priority > arrival.priority) return undefined;
    const longest = longestLine(band);
    if (longest?.tail === undefined) return undefined;
    if (band.priority === arrival.priority) {
      const own = band.flows.get(arrival.fairnessKey)?.waiting ?? 0;
      if (longest.waiting <= own + 1) return undefined;
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

/** Between lines of as many places, the one with more tokens. */
function longestLine<T>(band: Band<T>): Flow<T> | undefined {
  let longest: Flow<T> | undefined;
  for (const flow of band.active) {
    const further = flow.waiting - (longest?.waiting ?? 0);
    if (further > 0 || (further === 0 && flow.waitingTokens > (longest?.waitingTokens ?? -1))) longest = flow;
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
