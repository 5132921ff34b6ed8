import { createServer, type Server, type ServerResponse } from 'node:http';
import { Server as NetServer, type AddressInfo, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock, Timer } from '../shared/clock.js';
import { ConnectionLines } from './answer-framing.js';
import {
  HEAD_MAX_BYTES,
  NO_TUNNEL,
  refusalBytes,
  refusalOf,
  unreadableCredential,
  type ParserError,
  type Refusal,
  type UnreadableCredential,
} from './broken-request.js';
import { CanonicalReader } from './bytes/canonical-request.js';
import {
  FrontRequest,
  FrontResponse,
  type FrontSocket,
  LINGER_MS,
  NodeFront,
  watchConnection,
  type FrontEnvironment,
} from './node-front.js';
import { outbox } from './outbox.js';
import { HEAD_TIMEOUT_MS, RawConnection, type RawEnvironment } from './raw-connection.js';
import type { RawFront } from './raw-front.js';
import { HEADERS_READ, REQUEST_HEADERS_MAX } from './request-head.js';
import { Roster, type Enlisted } from './roster.js';
import { ENGINE_ROUTES } from './routes.js';

/** Connections the kernel holds for us while the loop is busy; node's 511 drops some at a burst of a thousand. */
const BACKLOG = 4_096;
/** How often connections that became idle are looked for while the listener closes. */
const CLOSE_IDLE_EVERY_MS = 50;
/** How long a connection that has sent nothing yet may do so while the listener closes. node does not count it as idle. */
const CLOSE_SILENT_AFTER_MS = 1_000;
/** How often connections are looked at whose time may be over; their limits are seconds. */
const EXPIRE_EVERY_MS = 500;

/**
 * For how long connections are served on at least when the socket is held by somebody else. A client that uses its
 * connection has asked again by then and was told to close it; one that has not is unlikely to do so just when we close.
 */
const HELD_SOCKET_WIND_DOWN_MS = 2_000;

/** Where to listen: an address of our own, or a socket that somebody else bound, holds and hands to the next process. */
export type ListenAt = { readonly host: string; readonly port: number } | { readonly fd: number };

/** A connection, whoever reads it. */
interface OpenSocket extends Enlisted {
  readonly socket: Socket;
}

export interface ListenerOptions {
  readonly clock: Clock;
  /** How long an idle kept-alive connection stays; longer than the 60 s of common load balancers in front. */
  readonly keepAliveTimeoutMs: number;
  /** Canonical requests are read here, everything else by Node; see `RawConnection`. */
  readonly fastPath: boolean;
  /** Each request that Node's parser has read, once its head is complete. */
  readonly onRequest: (request: FrontRequest, front: NodeFront) => void;
  /** Each canonical one; `canonical` holds its head until this returns. */
  readonly onCanonical: (canonical: CanonicalReader, clientAddress: string, front: RawFront) => void;
  /** The answer to a credential that could not even be read; undefined where none is needed. */
  readonly refuseUnreadable: (credential: UnreadableCredential) => Refusal | undefined;
  /** Bytes that were no request are answered so; gives the id under which. */
  readonly onRefused: (refusal: Refusal) => string;
}

/**
 * The client-facing socket. Its own node:http server rather than a framework's: the pipeline needs the socket's true
 * state for back-pressure and cancellation, and its shutdown is not the application's.
 */
export class Listener implements FrontEnvironment, RawEnvironment {
  readonly clock: Clock;
  closing = false;
  keepAliveMs: number;
  readonly reader = new CanonicalReader(
    ENGINE_ROUTES.map((route) => route.path),
    HEADERS_READ,
    REQUEST_HEADERS_MAX,
  );
  private fastPath: boolean;
  private readonly connectionLines = new ConnectionLines();
  /** Connections that Node's parser has not got. */
  private readonly raw = new Roster<RawConnection>();
  private expiry: Timer | undefined;
  private readonly server: Server<typeof FrontRequest, typeof FrontResponse>;
  private readonly nodeTakes: readonly ((socket: Socket) => void)[];
  private readonly sockets = new Roster<OpenSocket>();
  /** Somebody else holds the socket: connections that we do not accept wait for our successor. */
  private socketIsHeld = false;
  private accepting = false;
  private readonly lastClosed: Promise<void>;
  private stopped: Promise<void> | undefined;
  /** Connections that cannot be read any further, and have or await their last answer. */
  private readonly refused = new WeakSet<Duplex>();

  constructor(private readonly options: ListenerOptions) {
    this.clock = options.clock;
    this.keepAliveMs = options.keepAliveTimeoutMs;
    this.fastPath = options.fastPath;
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
    // Node's own way to take a connection, which comes second here.
    this.nodeTakes = this.server.listeners('connection') as ((socket: Socket) => void)[];
    this.server.removeAllListeners('connection');
    this.server.on('connection', (socket) => this.accept(socket));
    this.lastClosed = new Promise((resolve) => this.server.once('close', resolve));
    this.server.on('request', (request, response) => this.take(request, response, false));
    this.server.on('checkContinue', (request, response) => this.take(request, response, true));
    // Whoever expects something else is served as if it had not: node's own 417 has no body.
    this.server.on('checkExpectation', (request, response) => this.take(request, response, false));
    this.server.on('connect', (_request, socket) => this.refuse(NO_TUNNEL, socket as FrontSocket));
    this.server.on('clientError', (error, socket) => this.broken(error, socket as FrontSocket));
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
    this.keepAliveMs = ms;
    this.server.keepAliveTimeout = ms;
  }

  /** For connections accepted from now on. */
  setFastPath(on: boolean): void {
    this.fastPath = on;
  }

  /** Open connections, by who reads their requests. */
  get connections(): { readonly fast: number; readonly node: number } {
    return { fast: this.raw.size, node: this.sockets.size - this.raw.size };
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
    // Not node's closeAllConnections: it knows none that its parser has given up, and those linger.
    for (const { socket } of this.sockets) socket.destroy();
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
      for (const connection of this.raw) connection.closeIdle();
      if (clock.monotonicMs() - startedMs > CLOSE_SILENT_AFTER_MS) this.closeSilent();
      timer = clock.setTimer(CLOSE_IDLE_EVERY_MS, sweep);
    };
    sweep();
    await this.lastClosed;
    timer?.cancel();
    // The last connection says so itself only a tick after the server did.
    this.stopExpiry();
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
    for (const { socket } of this.sockets) if (socket.bytesRead === 0) socket.destroy();
  }

  private accept(accepted: Socket): void {
    if (!this.fastPath || !RawConnection.takes(accepted)) {
      this.track(accepted);
      return this.handOver(accepted);
    }
    const connection = new RawConnection(accepted, this);
    this.track(connection.socket);
    this.raw.add(connection);
    this.expiry ??= this.clock.setTimer(EXPIRE_EVERY_MS, this.expire);
  }

  private track(socket: Socket): void {
    const open: OpenSocket = { socket, rosterPlace: -1 };
    this.sockets.add(open);
    socket.once('close', () => this.sockets.delete(open));
  }

  private readonly expire = (): void => {
    this.expiry = this.clock.setTimer(EXPIRE_EVERY_MS, this.expire);
    // A loop that was busy runs its timers before it reads what has come meanwhile.
    setImmediate(this.expireDue);
  };

  private readonly expireDue = (): void => {
    const now = this.clock.monotonicMs();
    for (const connection of this.raw) if (connection.dueMs <= now) connection.expire();
  };

  // ---------------------------------------------------------------- RawEnvironment

  headEnd(last: boolean): string {
    return this.connectionLines.text(this.clock.wallMs(), this.keepAliveMs, last);
  }

  onCanonical(front: RawFront, connection: RawConnection): void {
    this.options.onCanonical(this.reader, connection.clientAddress, front);
  }

  handOver(socket: Socket): void {
    watchConnection(socket);
    for (const take of this.nodeTakes) take.call(this.server, socket);
  }

  left(connection: RawConnection): void {
    this.raw.delete(connection);
    if (this.raw.size === 0) this.stopExpiry();
  }

  private stopExpiry(): void {
    this.expiry?.cancel();
    this.expiry = undefined;
  }

  // ---------------------------------------------------------------- node:http

  private take(request: FrontRequest, response: ServerResponse, expectsContinue: boolean): void {
    this.options.onRequest(request, new NodeFront(request, response as FrontResponse, this, expectsContinue));
  }

  /** The parser did not take what came, and takes nothing more on this connection. */
  private broken(error: ParserError, socket: FrontSocket): void {
    // What still comes after the first refusal is thrown away here.
    if (this.refused.has(socket)) return;
    // A connection on which nothing was ever sent waits for no answer.
    const mute = socket.bytesRead === 0;
    // Whoever ends its side in the middle of a body has left.
    const left = error.code === 'ECONNRESET' || (error.code === 'HPE_INVALID_EOF_STATE' && isBusy(socket));
    // One that was answered early and ends before its body does has all it will get: a second answer belongs to no request.
    const answered = error.code === 'HPE_INVALID_EOF_STATE' && socket.front?.isBodyMissing === true;
    if (mute || left || !socket.writable) socket.destroy();
    else if (answered) socket.destroySoon();
    else this.refuse(this.refusalFor(error), socket);
  }

  private refusalFor(error: ParserError): Refusal {
    const credential = unreadableCredential(error);
    const refusal = credential === undefined ? undefined : this.options.refuseUnreadable(credential);
    return refusal ?? refusalOf(error);
  }

  /** Gives the last answer on a connection, behind those that are still running there. */
  private refuse(refusal: Refusal, socket: FrontSocket): void {
    if (this.refused.has(socket)) return;
    this.refused.add(socket);
    outbox.flush();
    this.refuseInTurn(refusal, socket);
  }

  private refuseInTurn(refusal: Refusal, socket: FrontSocket): void {
    if (!socket.writable) return void socket.destroy();
    const { _httpMessage: running } = socket;
    if (running === undefined || running === null) return this.lastWords(refusal, socket);
    // A refusal in front of the answer would be read as the answer.
    if (running.req.complete) running.once('finish', () => this.refuseInTurn(refusal, socket));
    else running.front?.bodyBroken(refusal.error);
  }

  /** The client is told that nothing follows, and then has time to read it before a reset can overtake it. */
  lastWords(refusal: Refusal, socket: Socket): void {
    const timer = this.clock.setTimer(LINGER_MS, () => socket.destroy());
    socket.once('close', () => timer.cancel());
    socket.end(refusalBytes(refusal, this.options.onRefused(refusal)));
    socket.resume();
  }
}

const isBusy = (socket: FrontSocket): boolean =>
  socket._httpMessage !== undefined && socket._httpMessage !== null;
