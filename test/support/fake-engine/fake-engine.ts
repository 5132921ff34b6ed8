import { createHash } from 'node:crypto';
import net from 'node:net';
import {
  type Http1Request,
  Http1ReadError,
  RequestReader,
} from '../../../src/engines/http1/request-reader.js';
import { waitFor, type WaitOptions } from '../wait-for.js';
import { type ConnectionEnding, type RecordedConnection, Wire } from './wire.js';

/** One request as the engine saw it. Everything is copied: nothing keeps a socket's read buffer alive. */
export interface RecordedRequest {
  /** Counted from 0 in the order the requests were complete. */
  readonly index: number;
  readonly method: string;
  readonly target: string;
  readonly headers: ReadonlyMap<string, string>;
  /** In the order and case they arrived. */
  readonly headerLines: readonly (readonly [name: string, value: string])[];
  readonly headBytes: Buffer;
  readonly body: Buffer;
  readonly bodySha256: string;
  readonly connection: RecordedConnection;
  /** The connection had carried a request before. */
  readonly reusedSocket: boolean;
  /** Monotonic milliseconds at which the whole request was here. */
  readonly atMs: number;
}

/** Answers one request by writing on the wire. A rejection destroys the connection and is kept in `failures`. */
export type RequestHandler = (request: RecordedRequest, wire: Wire) => void | Promise<void>;

/** Sees a connection before any byte; returning `true` keeps the engine from reading requests on it. */
export type ConnectionHandler = (wire: Wire) => void | boolean;

/**
 * A byte-scripted engine on loopback. It speaks only what a test writes and records what came in: heads in order and case,
 * bodies, which socket carried what, when each socket ended and how.
 */
export class FakeEngine {
  readonly requests: RecordedRequest[] = [];
  readonly connections: RecordedConnection[] = [];
  /** Errors thrown by handlers, and protocol errors of the peer; a test that expects none checks that it is empty. */
  readonly failures: unknown[] = [];
  /** Sockets open now. */
  openSockets = 0;

  private readonly sockets = new Set<net.Socket>();
  private readonly server: net.Server;
  private readonly once: RequestHandler[] = [];
  private handler: RequestHandler = (_request, wire) => wire.respond(200, '{}');
  private connectionHandler: ConnectionHandler = () => false;

  private constructor() {
    // Half-open: a peer's FIN must not make this side end by itself, the script decides.
    this.server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.accept(socket));
  }

  /** Starts an engine on 127.0.0.1; port 0 picks a free one. */
  static async listen(port = 0): Promise<FakeEngine> {
    const engine = new FakeEngine();
    await engine.startListening(port);
    return engine;
  }

  get port(): number {
    return (this.server.address() as net.AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** The handler of every request that no `onNextRequest` takes. */
  onRequest(handler: RequestHandler): this {
    this.handler = handler;
    return this;
  }

  /** Handles one coming request, in the order of the calls. */
  onNextRequest(handler: RequestHandler): this {
    this.once.push(handler);
    return this;
  }

  onConnection(handler: ConnectionHandler): this {
    this.connectionHandler = handler;
    return this;
  }

  /** The newest request; fails when there was none. */
  get lastRequest(): RecordedRequest {
    const last = this.requests.at(-1);
    if (last === undefined) throw new Error('the engine got no request');
    return last;
  }

  /** Waits until `condition`, given this engine, is truthy. */
  waitFor<T>(
    condition: (engine: this) => T | Promise<T>,
    options: WaitOptions | number = {},
  ): Promise<unknown> {
    return waitFor(() => condition(this), typeof options === 'number' ? { deadlineMs: options } : options);
  }

  /** Waits for request number `index` and gives it. */
  async request(index = 0, options: WaitOptions = {}): Promise<RecordedRequest> {
    return await waitFor(() => this.requests[index], {
      what: `request ${index} at the fake engine`,
      ...options,
    });
  }

  /** Waits until no socket is open. */
  async waitIdle(options: WaitOptions = {}): Promise<void> {
    await waitFor(() => this.openSockets === 0, {
      what: 'all sockets of the fake engine to be closed',
      ...options,
    });
  }

  /** Stops listening, so that new connections are refused; open ones live on. `listenAgain` brings the same port back. */
  async refuseConnections(): Promise<() => Promise<void>> {
    const { port } = this;
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    // close() settles only with the last connection; not listening any more is what counts here.
    if (this.openSockets === 0) await closed;
    return () => this.startListening(port);
  }

  /** Destroys every connection and stops listening. */
  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    if (!this.server.listening) return;
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  private startListening(port: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(port, '127.0.0.1', () => {
        this.server.off('error', reject);
        resolve();
      });
    });
  }

  private accept(socket: net.Socket): void {
    const connection: RecordedConnection = {
      id: this.connections.length + 1,
      openedAtMs: performance.now(),
      requests: 0,
      endedAtMs: undefined,
      ending: 'open',
      closed: false,
    };
    this.connections.push(connection);
    this.sockets.add(socket);
    this.openSockets++;
    const note = (ending: ConnectionEnding) => {
      if (connection.ending !== 'open') return;
      connection.ending = ending;
      connection.endedAtMs = performance.now();
    };
    socket.on('error', () => note('peer-rst'));
    socket.on('end', () => {
      note('peer-fin');
      // Nothing more can be asked on it, and a script that waits for the close must not wait for itself.
      socket.end();
    });
    socket.on('close', () => {
      note('engine');
      connection.closed = true;
      this.sockets.delete(socket);
      this.openSockets--;
    });
    const wire = new Wire(socket, connection);
    if (this.connectionHandler(wire) === true) socket.resume();
    else this.read(socket, wire);
  }

  private read(socket: net.Socket, wire: Wire): void {
    const reader = new RequestReader();
    reader.onExpectContinue = () => socket.write('HTTP/1.1 100 Continue\r\n\r\n');
    socket.on('data', (bytes) => {
      try {
        reader.push(bytes);
        for (let request = reader.next(); request !== undefined; request = reader.next()) {
          this.dispatch(request, wire);
        }
      } catch (error) {
        this.failures.push(error);
        if (error instanceof Http1ReadError) wire.destroy();
        else throw error;
      }
    });
  }

  private dispatch(request: Http1Request, wire: Wire): void {
    const { connection } = wire;
    const body = Buffer.from(request.body);
    const recorded: RecordedRequest = {
      index: this.requests.length,
      method: request.method,
      target: request.target,
      headers: request.headers,
      headerLines: request.headerLines,
      headBytes: Buffer.from(request.head),
      body,
      bodySha256: createHash('sha256').update(body).digest('hex'),
      connection,
      reusedSocket: connection.requests > 0,
      atMs: performance.now(),
    };
    connection.requests++;
    this.requests.push(recorded);
    const handler = this.once.shift() ?? this.handler;
    Promise.resolve()
      .then(() => handler(recorded, wire))
      .catch((error: unknown) => {
        this.failures.push(error);
        wire.destroy();
      });
  }
}
