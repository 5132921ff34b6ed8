import { systemClock, type Clock, type Timer } from '../../shared/clock.js';
import { Roster } from '../roster.js';
import { UpstreamConnection, type ConnectionOwner, type UpstreamTarget } from './upstream-connection.js';
import type { UpstreamExchange, UpstreamRequest, UpstreamSink } from './upstream-sink.js';

/**
 * Longest time a connection is kept idle. uvicorn engines close theirs at 5 s without a word; reusing one in that
 * instant costs a reset, so this side lets go first.
 */
export const IDLE_MAX_MS = 4_000;

/** Taken off an engine's announced `Keep-Alive: timeout`, for the same race. */
const IDLE_MARGIN_MS = 1_000;

/** Idle connections kept per endpoint; the oldest goes first. */
export const IDLE_MAX_CONNECTIONS = 256;

export interface UpstreamPoolOptions extends UpstreamTarget {
  /** Lowers IDLE_MAX_MS; a larger value has no effect. 0 keeps nothing. */
  idleMs?: number;
  maxIdle?: number;
  clock?: Clock;
}

/** How many connections a pool has: `open` = `idle` + `active` (connecting ones are active). */
export interface UpstreamCounts {
  open: number;
  idle: number;
  active: number;
}

/**
 * The connections to one endpoint. Grows with the requests in flight and sets no limit of its own: admission
 * decides how many that may be. Sets no deadlines either; the caller's clocks end in `exchange.abort()`.
 */
export class UpstreamPool implements ConnectionOwner {
  readonly #target: UpstreamTarget;
  readonly #idleMs: number;
  readonly #maxIdle: number;
  readonly #clock: Clock;
  readonly #open = new Roster<UpstreamConnection>();
  /** In the order of release: the most recently used, last, is taken first and least likely to be stale. */
  readonly #idle: UpstreamConnection[] = [];
  #evictTimer: Timer | undefined;
  #destroyed = false;

  constructor(options: UpstreamPoolOptions) {
    this.#target = { ...options, host: options.host.replace(/^\[(.*)\]$/, '$1') };
    this.#idleMs = Math.min(options.idleMs ?? IDLE_MAX_MS, IDLE_MAX_MS);
    this.#maxIdle = options.maxIdle ?? IDLE_MAX_CONNECTIONS;
    this.#clock = options.clock ?? systemClock;
  }

  /** Sends a request on an idle connection, or on a new one. Throws only after `destroy()`. */
  send(request: UpstreamRequest, sink: UpstreamSink): UpstreamExchange {
    if (this.#destroyed) throw new Error('the pool is destroyed');
    const idle = request.fresh === true ? undefined : this.#takeIdle();
    if (idle !== undefined) return idle.start(request, sink);
    const connection = new UpstreamConnection(this.#target, this);
    this.#open.add(connection);
    return connection.start(request, sink);
  }

  get counts(): UpstreamCounts {
    const open = this.#open.size;
    const idle = this.#idle.length;
    return { open, idle, active: open - idle };
  }

  /** Closes the idle connections, for instance after one of them proved stale or the engine restarted. */
  closeIdle(): void {
    for (const connection of this.#idle.slice()) connection.destroy(false);
  }

  /** Closes everything; running exchanges hear `aborted`. */
  destroy(): void {
    this.#destroyed = true;
    for (const connection of this.#open) connection.destroy(true);
    this.#stopTimer();
  }

  release(connection: UpstreamConnection, keepAliveTimeoutMs: number | undefined): boolean {
    const announced = keepAliveTimeoutMs === undefined ? Infinity : keepAliveTimeoutMs - IDLE_MARGIN_MS;
    const idleMs = Math.min(this.#idleMs, announced);
    if (this.#destroyed || idleMs <= 0 || this.#maxIdle === 0) return false;
    if (this.#idle.length >= this.#maxIdle) this.#idle[0]?.destroy(false);
    connection.idleUntilMs = this.#clock.monotonicMs() + idleMs;
    this.#idle.push(connection);
    this.#evictTimer ??= this.#clock.setTimer(idleMs, this.#evict);
    return true;
  }

  closed(connection: UpstreamConnection): void {
    this.#open.delete(connection);
    const index = this.#idle.lastIndexOf(connection);
    if (index >= 0) this.#idle.splice(index, 1);
    if (this.#idle.length === 0) this.#stopTimer();
  }

  #takeIdle(): UpstreamConnection | undefined {
    for (;;) {
      const connection = this.#idle.pop();
      // The timer may be late on a busy loop; the clock is asked so that it need not be on time.
      if (connection === undefined || connection.idleUntilMs > this.#clock.monotonicMs()) return connection;
      connection.destroy(false);
    }
  }

  readonly #evict = (): void => {
    this.#evictTimer = undefined;
    const now = this.#clock.monotonicMs();
    for (const connection of this.#idle.slice()) if (connection.idleUntilMs <= now) connection.destroy(false);
    let next = Infinity;
    for (const connection of this.#idle) next = Math.min(next, connection.idleUntilMs);
    if (next !== Infinity) this.#evictTimer = this.#clock.setTimer(next - now, this.#evict);
  };

  #stopTimer(): void {
    this.#evictTimer?.cancel();
    this.#evictTimer = undefined;
  }
}
