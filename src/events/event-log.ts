import type { Reason } from '../domain/cluster.js';
import type { Clock } from '../shared/clock.js';
import type { StateStore, StoreOp } from '../store/ports.js';
import type { Term } from '../store/term.js';
import type { ClusterEvent, EventSubject, EventSubjectKind } from './event.js';

/** Events kept, in memory and on disk; older ones go. A busy cluster makes some hundred a day. */
export const EVENTS_MAX = 5_000;

/** Numbers set aside at a time for events that are told before they are stored. */
const NUMBERS_AHEAD = 1_000;
/** Key in the `meta` collection of the highest number that may have been told. */
const NUMBERS_KEY = 'eventNumbers';

export interface EventInput {
  /** What happened, in UpperCamelCase, e.g. `NodeLost`. */
  readonly type: string;
  readonly severity?: ClusterEvent['severity'];
  readonly subject: EventSubject;
  readonly reason: Reason;
  readonly actor: string;
  readonly related?: readonly EventSubject[];
}

export interface EventFilter {
  /** Only events after this sequence. */
  readonly after?: number;
  readonly kind?: EventSubjectKind;
  readonly id?: string;
  readonly type?: string;
  /** The newest so many. */
  readonly limit?: number;
}

/**
 * The timeline: what happened, why, by whom. Bounded, stored, and followed live. Events are written together with the
 * decision they tell of, in one transaction, so that neither is ever there without the other.
 */
export class EventLog {
  private events: ClusterEvent[];
  private readonly followers = new Set<(event: ClusterEvent) => void>();
  /** Index in `events` of the first one that is not stored yet. */
  private storedUpTo: number;
  /** Keys of stored events that have left memory. */
  private readonly expired: string[] = [];
  private sequence: number;
  /** Numbers up to here may have been told; the next start begins above. */
  private setAside: number;
  private readonly firstOfThisRun: number;

  constructor(
    private readonly store: StateStore,
    private readonly term: Term,
    private readonly clock: Clock,
  ) {
    this.events = store.list<ClusterEvent>('events').map((entry) => entry.value);
    this.storedUpTo = this.events.length;
    this.setAside = store.get<number>('meta', NUMBERS_KEY) ?? 0;
    // What a server told before it was killed and could not store has a number all the same: given out again, a follower
    // that goes on after it would miss whatever has it now.
    this.sequence = Math.max(this.events.at(-1)?.sequence ?? 0, this.setAside);
    this.firstOfThisRun = this.sequence + 1;
  }

  /** The number of the newest event, 0 before the first. */
  get newest(): number {
    return this.sequence;
  }

  /**
   * Where a follower goes on that has seen everything up to `sequence`. A number we never gave is of a state that is gone:
   * of that nothing is known but that all of this run is new.
   */
  resumeAfter(sequence: number): number {
    return sequence > this.sequence ? this.firstOfThisRun - 1 : sequence;
  }

  /** Stores what is not stored yet, and that no number beyond was told: the next start goes on with the next number. */
  close(): void {
    const nothingNew = this.storedUpTo === this.events.length && [0, this.sequence].includes(this.setAside);
    if (nothingNew) return;
    this.write([], [], this.sequence);
  }

  /** Takes an event into the timeline; it reaches the disk with the next {@link commit}. */
  append(input: EventInput): ClusterEvent {
    const event = this.make(input, this.sequence + 1);
    this.take([event]);
    return event;
  }

  /**
   * Stores `ops`, the events that tell of them and every event not yet stored, all or nothing. Throws StoreError; then
   * what `ops` would have done has not happened, so its events are not told either.
   */
  commit(ops: readonly StoreOp[], inputs: readonly EventInput[] = []): void {
    const events = inputs.map((input, index) => this.make(input, this.sequence + 1 + index));
    const used = this.sequence + events.length;
    // Half a lot is left when the next one is taken: what is told between two writes must find enough.
    const runsOut = this.setAside - used < NUMBERS_AHEAD / 2;
    this.write(ops, events, runsOut ? used + NUMBERS_AHEAD : this.setAside);
  }

  private write(ops: readonly StoreOp[], events: readonly ClusterEvent[], setAside: number): void {
    const puts = [...this.events.slice(this.storedUpTo), ...events].map((event): StoreOp => ({
      op: 'put',
      collection: 'events',
      key: eventKey(event.sequence),
      value: event,
    }));
    const old = this.expired.map((key): StoreOp => ({ op: 'delete', collection: 'events', key }));
    const moved = setAside !== this.setAside;
    // Numbers alone are worth a write only when they are given back.
    if (ops.length + puts.length + old.length === 0 && setAside >= this.setAside) return;
    const numbers: StoreOp[] = moved
      ? [{ op: 'put', collection: 'meta', key: NUMBERS_KEY, value: setAside }]
      : [];
    this.store.txn({ term: this.term.current() }, [...ops, ...puts, ...old, ...numbers]);
    this.setAside = setAside;
    this.storedUpTo = this.events.length;
    this.expired.length = 0;
    this.take(events, true);
  }

  private make(input: EventInput, sequence: number): ClusterEvent {
    return {
      sequence,
      at: new Date(this.clock.wallMs()).toISOString(),
      type: input.type,
      severity: input.severity ?? 'info',
      subject: input.subject,
      reason: input.reason,
      actor: input.actor,
      related: input.related ?? [],
    };
  }

  private take(events: readonly ClusterEvent[], stored = false): void {
    for (const event of events) {
      this.sequence = event.sequence;
      this.events.push(event);
    }
    if (stored) this.storedUpTo = this.events.length;
    this.expire();
    for (const event of events) for (const follower of this.followers) follower(event);
  }

  /** Those after `sequence`, oldest first, one by one. */
  *since(sequence: number): Generator<ClusterEvent> {
    let low = 0;
    for (let high = this.events.length; low < high;) {
      const middle = (low + high) >> 1;
      if ((this.events[middle]?.sequence ?? 0) <= sequence) low = middle + 1;
      else high = middle;
    }
    yield* this.events.slice(low);
  }

  /** Oldest first. */
  list(filter: EventFilter = {}): readonly ClusterEvent[] {
    const found = this.events.filter((event) => matches(event, filter));
    return filter.limit === undefined ? found : found.slice(Math.max(0, found.length - filter.limit));
  }

  /** Calls `listener` for each new event until the returned function is called. */
  follow(listener: (event: ClusterEvent) => void): () => void {
    this.followers.add(listener);
    return () => this.followers.delete(listener);
  }

  /** Whether a listing with this filter has the event. */
  matches(event: ClusterEvent, filter: EventFilter): boolean {
    return matches(event, filter);
  }

  private expire(): void {
    const surplus = this.events.length - EVENTS_MAX;
    if (surplus <= 0) return;
    for (const event of this.events.splice(0, surplus)) {
      // One that was never stored needs no deletion.
      if (this.storedUpTo > 0) {
        this.expired.push(eventKey(event.sequence));
        this.storedUpTo -= 1;
      }
    }
  }
}

/** Zero-padded, so that key order is the order of time. */
function eventKey(sequence: number): string {
  return String(sequence).padStart(12, '0');
}

function matches(event: ClusterEvent, filter: EventFilter): boolean {
  if (filter.after !== undefined && event.sequence <= filter.after) return false;
  if (filter.type !== undefined && event.type !== filter.type) return false;
  if (filter.kind === undefined && filter.id === undefined) return true;
  return [event.subject, ...event.related].some(
    (one) =>
      (filter.kind === undefined || one.kind === filter.kind) &&
      (filter.id === undefined || one.id === filter.id),
  );
}

/** Token under which the timeline is injected. */
export const EVENT_LOG = Symbol('EventLog');
