import { createServer, type Server, type ServerResponse } from 'node:http';
import { Server as NetServer, type AddressInfo, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { API_ERRORS } from '../shared/errors.js';
import type { Clock, Timer } from '../shared/clock.js';
import {
  HEAD_MAX_BYTES,
  NO_TUNNEL,
  refusalBytes,
  refusalOf,
  type ParserError,
  type Refusal,
} from './broken-request.js';
import {
  FrontRequest,
  FrontResponse,
  LINGER_MS,
  NodeFront,
  watchDrain,
  type FrontEnvironment,
} from './node-front.js';
import { outbox } from './outbox.js';
import { REQUEST_HEADERS_MAX } from './request-head.js';

/** Time to send a request's head. The body has its own, per pause between bytes. */
const HEAD_TIMEOUT_MS = 60_000;
/** Connections the kernel holds for us while the loop is busy; node's 511 drops some at a burst of a thousand. */
const BACKLOG = 4_096;
/** How often connections that became idle are looked for while the listener closes. */
const CLOSE_IDLE_EVERY_MS = 50;
/** How long a connection that has sent nothing yet may do so while the listener closes. node does not count it as idle. */
const CLOSE_SILENT_AFTER_MS = 1_000;

/**
 * For how long connections are served on at least when the socket is held by somebody else. A client that uses its
 * connection has asked again by then and was told to close it; one that has not is unlikely to do so just when we close.
 */
const HELD_SOCKET_WIND_DOWN_MS = 2_000;

/** Where to listen: an address of our own, or a socket that somebody else bound, holds and hands to the next process. */
export type ListenAt = { readonly host: string; readonly port: number } | { readonly fd: number };

export interface ListenerOptions {
  readonly clock: Clock;
  /** How long an idle kept-alive connection stays; longer than the 60 s of common load balancers in front. */
  readonly keepAliveTimeoutMs: number;
  /** Each request, once its head is complete. */
  readonly onRequest: (request: FrontRequest, front: NodeFront) => void;
  /** Bytes that were no request were answered with `status`. */
  readonly onRefused: (status: number) => void;
}

/** A connection with the answer node has running on it, which is not in its types. */
type BusySocket = Socket & { readonly _httpMessage?: FrontResponse<FrontRequest> | null };

/**
 * The client-facing socket. Its own node:http server rather than a framework's: the pipeline needs the socket's true
 * state for back-pressure and cancellation, and its shutdown is not the application's.
 */
export class Listener implements FrontEnvironment {
  readonly clock: Clock;
  closing = false;
  private readonly server: Server<typeof FrontRequest, typeof FrontResponse>;
  private readonly sockets = new Set<Socket>();
  /** Somebody else holds the socket: connections that we do not accept wait for our successor. */
  private socketIsHeld = false;
  private accepting = false;
  private readonly lastClosed: Promise<void>;
  private stopped: Promise<void> | undefined;
  /** Connections that cannot be read any further, and have or await their last answer. */
  private readonly refused = new WeakSet<Duplex>();

  constructor(private readonly options: ListenerOptions) {
    this.clock = options.clock;
    this.server = createServer({
      IncomingMessage: FrontRequest,
      ServerResponse: FrontResponse,
      maxHeaderSize: HEAD_MAX_BYTES,
      headersTimeout: HEAD_TIMEOUT_MS,
      // Generations take as long as they take; the pipeline has deadlines of its own.
      requestTimeout: 0,
      keepAliveTimeout: options.keepAliveTimeoutMs,
      noDelay: true,
      // It is looked for with the other header lines; node's own refusal has no body.
      requireHostHeader: false,
    });
    // Beyond its limit node drops header lines silently; a few more than we take, so that we see and refuse them.
    this.server.maxHeadersCount = REQUEST_HEADERS_MAX + 8;
    this.server.on('connection', (socket) => {
      watchDrain(socket);
      this.sockets.add(socket);
      socket.once('close', () => this.sockets.delete(socket));
    });
    this.lastClosed = new Promise((resolve) => this.server.once('close', resolve));
    this.server.on('request', (request, response) => this.take(request, response, false));
    this.server.on('checkContinue', (request, response) => this.take(request, response, true));
    // Whoever expects something else is served as if it had not: node's own 417 has no body.
    this.server.on('checkExpectation', (request, response) => this.take(request, response, false));
    this.server.on('connect', (_request, socket) => this.refuse(NO_TUNNEL, socket as BusySocket));
    this.server.on('clientError', (error, socket) => this.broken(error, socket as BusySocket));
  }

  /** Starts listening; rejects with the reason when the address cannot be bound or the socket is none. */
  listen(at: ListenAt): Promise<AddressInfo> {
    this.socketIsHeld = 'fd' in at;
    const where = 'fd' in at ? `the socket handed over as descriptor ${at.fd}` : `${at.host}:${at.port}`;
    return new Promise((resolve, reject) => {
      const failed = (cause: Error) =>
        reject(new Error(`cannot listen on ${where}: ${cause.message}`, { cause }));
      this.server.once('error', failed);
      this.server.listen({ ...at, backlog: BACKLOG }, () => {
        this.server.off('error', failed);
        this.accepting = true;
        resolve(this.server.address() as AddressInfo);
      });
    });
  }

  /** For connections that become idle from now on. */
  setKeepAliveTimeout(ms: number): void {
    this.server.keepAliveTimeout = ms;
  }

  /** Where it listens, or undefined before and after. */
  get address(): AddressInfo | undefined {
    return (this.server.address() as AddressInfo | null) ?? undefined;
  }

  /**
   * Serves on for `forMs`, but each answer ends its connection, so that clients come back somewhere else. A socket that
   * somebody else holds is accepted from no more: its new connections wait for the successor, and the time ends early
   * when the last connection is gone.
   *
   * An idle connection is left alone meanwhile: its client may be sending the next request just now, and closing would
   * lose it.
   */
  async windDown(forMs: number): Promise<void> {
    this.closing = true;
    if (!this.accepting) return;
    if (this.socketIsHeld) await this.stopAccepting();
    await new Promise<void>((resolve) => {
      const timer = this.options.clock.setTimer(forMs, resolve);
      void this.lastClosed.then(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  /** How long `windDown` should last at least. */
  get windDownMs(): number {
    return this.socketIsHeld ? HELD_SOCKET_WIND_DOWN_MS : 0;
  }

  /**
   * Stops accepting and closes idle connections; requests that run go on, and their connections close after them.
   * Settles when the last connection is gone.
   */
  stop(): Promise<void> {
    this.stopped ??= this.stopOnce();
    return this.stopped;
  }

  /** Breaks every connection that is left. */
  destroyAll(): void {
    outbox.flush();
    this.server.closeAllConnections();
  }

  private async stopOnce(): Promise<void> {
    this.closing = true;
    const { clock } = this.options;
    if (!this.accepting && !this.socketIsHeld) return;
    await this.stopAccepting();
    const startedMs = clock.monotonicMs();
    // A kept-alive connection becomes idle only after its answer; node's close() looks once and then waits for its timeout.
    let timer: Timer | undefined;
    const sweep = () => {
      this.server.closeIdleConnections();
      if (clock.monotonicMs() - startedMs > CLOSE_SILENT_AFTER_MS) this.closeSilent();
      timer = clock.setTimer(CLOSE_IDLE_EVERY_MS, sweep);
    };
    sweep();
    await this.lastClosed;
    timer?.cancel();
  }

  /** Ends accepting and nothing else: http's own close() would end idle connections with it. */
  private async stopAccepting(): Promise<void> {
    if (!this.accepting) return;
    this.accepting = false;
    // Connections that the kernel completed are reset when the socket closes: take what this turn of the loop brings.
    await new Promise((resolve) => setImmediate(resolve));
    NetServer.prototype.close.call(this.server);
  }

  private closeSilent(): void {
    for (const socket of this.sockets) if (socket.bytesRead === 0) socket.destroy();
  }

  private take(request: FrontRequest, response: ServerResponse, expectsContinue: boolean): void {
    this.options.onRequest(request, new NodeFront(request, response as FrontResponse, this, expectsContinue));
  }

  /** The parser did not take what came, and takes nothing more on this connection. */
  private broken(error: ParserError, socket: BusySocket): void {
    // What still comes after the first refusal is thrown away here.
    if (this.refused.has(socket)) return;
    // A connection on which nothing was ever sent waits for no answer.
    const mute = socket.bytesRead === 0;
    // Whoever ends its side in the middle of a body has left.
    const left = error.code === 'ECONNRESET' || (error.code === 'HPE_INVALID_EOF_STATE' && isBusy(socket));
    if (mute || left || !socket.writable) socket.destroy();
    else this.refuse(refusalOf(error), socket);
  }

  /** Gives the last answer on a connection, behind those that are still running there. */
  private refuse(refusal: Refusal, socket: BusySocket): void {
    if (this.refused.has(socket)) return;
    this.refused.add(socket);
    outbox.flush();
    this.refuseInTurn(refusal, socket);
  }

  private refuseInTurn(refusal: Refusal, socket: BusySocket): void {
    if (!socket.writable) return void socket.destroy();
    const { _httpMessage: running } = socket;
    if (running === undefined || running === null) return this.lastWords(refusal, socket);
    // A refusal in front of the answer would be read as the answer.
    if (running.req.complete) running.once('finish', () => this.refuseInTurn(refusal, socket));
    else running.front?.bodyBroken(refusal.error);
  }

  /** The client is told that nothing follows, and then has time to read it before a reset can overtake it. */
  private lastWords(refusal: Refusal, socket: BusySocket): void {
    const timer = this.clock.setTimer(LINGER_MS, () => socket.destroy());
    socket.once('close', () => timer.cancel());
    socket.end(refusalBytes(refusal));
    socket.resume();
    this.options.onRefused(API_ERRORS[refusal.error.code].status);
  }
}

const isBusy = (socket: BusySocket): boolean =>
  socket._httpMessage !== undefined && socket._httpMessage !== null;
