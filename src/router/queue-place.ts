import type { AdmissionRefusal, Ticket } from '../domain/request/admission.js';
import { keyOf } from './authoriser.js';
import type { ExchangeFacts } from './exchange-account.js';
import type { Waiting } from './model-state.js';
import type { RoutedRequest } from './tries.js';

/** One request's place in its model's queue, and its share of what the queue hands out. */
export class QueuePlace {
  /** When waiting is over, monotonic; Infinity where it has no end. */
  readonly deadlineMs: number;
  /** Time spent waiting, undefined for a request that never did. */
  waitedMs: number | undefined;
  private ticket: Ticket<Waiting> | undefined;
  /** It has been charged to its key: once, however often it queues up and wherever it is tried. */
  private charged = false;
  private readonly share: {
    readonly fairnessKey: string;
    readonly priority: number;
    readonly tokens: number;
  };

  constructor(
    private readonly request: RoutedRequest,
    private readonly facts: Pick<ExchangeFacts, 'principal' | 'trace'>,
    private readonly waiting: Waiting,
    nowMs: number,
    waitedBeforeMs?: number,
  ) {
    this.waitedMs = waitedBeforeMs;
    const { profile, head, promptTokens, outputTokens } = request;
    const { principal } = facts;
    const { queueMs } = profile.deadlines;
    this.deadlineMs = queueMs === 0 ? Number.POSITIVE_INFINITY : nowMs + queueMs;
    this.share = {
      // Without keys, addresses are the only thing that tells clients apart.
      fairnessKey: keyOf(principal) ?? head.clientAddress,
      priority: principal.priority ?? profile.priority,
      tokens: promptTokens + outputTokens,
    };
  }

  /** The request goes straight to an endpoint. */
  skip(): void {
    if (!this.charged) this.request.model.queue.admitDirect(this.share);
    this.charged = true;
  }

  /** Takes a place at the end, or says why there is none. */
  enter(nowMs: number): AdmissionRefusal | undefined {
    const { model } = this.request;
    this.facts.trace.queuedBehind = model.queue.depth;
    const deadlineMs = this.deadlineMs === Number.POSITIVE_INFINITY ? undefined : this.deadlineMs;
    const share = this.charged ? { ...this.share, tokens: 0 } : this.share;
    const result = model.queue.enqueue({ ...share, deadlineMs, payload: this.waiting }, nowMs);
    if (result.ticket === undefined) return result.refusal;
    this.ticket = result.ticket;
    result.displaced?.arrival.payload.turnedAway(model.refuse('queue_full', nowMs));
    return undefined;
  }

  /** Waiting is over, whichever way; the place is free for others. */
  leave(nowMs: number): void {
    if (this.ticket === undefined) return;
    if (this.ticket.state === 'admitted') this.charged = true;
    this.request.model.queue.leave(this.ticket, nowMs);
    this.waitedMs = (this.waitedMs ?? 0) + (nowMs - this.ticket.enqueuedAtMs);
    this.ticket = undefined;
  }

  /** What the request really used takes the place of what it was charged. */
  settle(usedTokens: number): void {
    if (!this.charged) return;
    const { fairnessKey, priority, tokens } = this.share;
    this.request.model.queue.correct(fairnessKey, priority, usedTokens - tokens);
  }
}
