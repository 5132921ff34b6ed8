import type { Clock, Timer } from '../shared/clock.js';

/**
 * Connections that are between being let in and the answer to their hello. Each costs up to a millisecond in every turn of the
 * event loop it moves in, so this many is some tens of milliseconds for whoever else waits; over a network with 50 ms there and
 * back it is 640 agents a second.
 */
export const IN_HAND_MAX = 32;
/** Whoever says nothing for so long holds up nobody else, ms. */
export const IN_HAND_LIMIT_MS = 250;
/** Accepted connections that wait; those beyond are closed and dial again later. */
export const WAITING_MAX = 8_192;

/** An accepted connection of which nothing was read yet. */
export interface Visitor {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  destroy(): unknown;
  once(event: 'close', listener: () => void): unknown;
  off(event: 'close', listener: () => void): unknown;
}

/** One that was let in and had no answer yet. */
interface Guest<V> {
  readonly visitor: V;
  readonly timer: Timer;
  readonly gone: () => void;
}

/**
 * Where connections of agents wait to be let in. After a restart a whole fleet dials at once; taken as they come, all their
 * handshakes and hellos fall into one turn of the event loop, and the requests of users wait for it. They are let in a few at
 * a time instead, the next whenever one has had its answer.
 */
export class Doorstep<V extends Visitor> {
  private readonly waiting: V[] = [];
  private readonly inHand = new Map<string, Guest<V>>();
  private closed = false;

  constructor(
    private readonly clock: Clock,
    private readonly letIn: (visitor: V) => void,
  ) {}

  arrived(visitor: V): void {
    if (this.closed || this.waiting.length >= WAITING_MAX) {
      visitor.destroy();
      return;
    }
    this.waiting.push(visitor);
    this.next();
  }

  /** The agent at `peer` (`host:port`, as gRPC writes it) had its answer, or is gone. Others are of no concern. */
  answered(peer: string): void {
    const guest = this.inHand.get(peer);
    if (guest === undefined) return;
    this.forget(guest);
    this.inHand.delete(peer);
    this.next();
  }

  close(): void {
    this.closed = true;
    for (const visitor of this.waiting.splice(0)) visitor.destroy();
    for (const guest of this.inHand.values()) this.forget(guest);
    this.inHand.clear();
  }

  private forget({ visitor, timer, gone }: Guest<V>): void {
    timer.cancel();
    visitor.off('close', gone);
  }

  private next(): void {
    while (this.inHand.size < IN_HAND_MAX) {
      const visitor = this.waiting.shift();
      if (visitor === undefined) return;
      const peer = `${visitor.remoteAddress}:${visitor.remotePort}`;
      // Agents that gave up while they waited are only noticed now, and must not cost the others time.
      const gone = (): void => this.answered(peer);
      this.inHand.set(peer, { visitor, timer: this.clock.setTimer(IN_HAND_LIMIT_MS, gone), gone });
      visitor.once('close', gone);
      this.letIn(visitor);
    }
  }
}
