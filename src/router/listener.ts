import { createServer, type Server, type ServerResponse } from 'node:http';
import { Server as NetServer, type AddressInfo, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { API_ERRORS, type ApiErrorCode } from '../shared/errors.js';
import type { Clock } from '../shared/clock.js';
import { dialectOf } from './dialects.js';
import { FrontRequest, FrontResponse, NodeFront, watchDrain, type FrontEnvironment } from './node-front.js';
import { outbox } from './outbox.js';
import { REQUEST_HEADERS_MAX } from './request-head.js';

/** Bytes of a request's head; node answers 431 beyond. */
const HEAD_MAX_BYTES = 16 * 1024;
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
}

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
    this.server.on('clientError', refuseBroken);
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
    let open = true;
    const sweep = () => {
      if (!open) return;
      this.server.closeIdleConnections();
      if (clock.monotonicMs() - startedMs > CLOSE_SILENT_AFTER_MS) this.closeSilent();
      clock.setTimer(CLOSE_IDLE_EVERY_MS, sweep);
    };
    sweep();
    await this.lastClosed;
    open = false;
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
}

/** Answers what node's parser refused; the connection is unusable after it. */
function refuseBroken(error: NodeJS.ErrnoException, socket: Duplex): void {
  outbox.flush();
  const { _httpMessage: running } = socket as Socket & { _httpMessage?: ServerResponse };
  // In the middle of another answer a second head would be read as part of it.
  if (!socket.writable || error.code === 'ECONNRESET' || running?.headersSent === true) {
    socket.destroy();
    return;
  }
  const code = brokenCode(error);
  const status = API_ERRORS[code].status;
  const body = dialectOf('openai').errorBody({ code, message: BROKEN_MESSAGES[code] });
  socket.end(
    `HTTP/1.1 ${status} ${status === 431 ? 'Request Header Fields Too Large' : 'Bad Request'}\r\n` +
      `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}

type BrokenCode = Extract<ApiErrorCode, 'bad_request' | 'header_fields_too_large'>;

const BROKEN_MESSAGES: Record<BrokenCode, string> = {
  bad_request: 'the request is not valid HTTP/1.1',
  header_fields_too_large: `the request head is larger than ${HEAD_MAX_BYTES / 1024} KiB`,
};

function brokenCode(error: NodeJS.ErrnoException): BrokenCode {
  return error.code === 'HPE_HEADER_OVERFLOW' ? 'header_fields_too_large' : 'bad_request';
}
