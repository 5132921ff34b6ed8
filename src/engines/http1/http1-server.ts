import net from 'node:net';
import type { Clock, Timer } from '../../shared/clock.js';
import { type Http1Request, Http1ReadError, RequestReader } from './request-reader.js';

export interface Http1ServerOptions {
  readonly clock: Clock;
  /** An idle connection is closed after this long, milliseconds; 0 = never. */
  readonly keepAliveMs: number;
  readonly maxBodyBytes?: number;
  readonly handler: (exchange: Exchange) => void;
}

const REASONS: Readonly<Record<number, string>> = {
  200: 'OK',
  307: 'Temporary Redirect',
  400: 'Bad Request',
  404: 'Not Found',
  405: 'Method Not Allowed',
  413: 'Payload Too Large',
  429: 'Too Many Requests',
  431: 'Request Header Fields Too Large',
  500: 'Internal Server Error',
  501: 'Not Implemented',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
};

/**
 * A lean HTTP/1.1 server on plain sockets: one write per answer or event, no stream objects, and every way of breaking
 * an answer at hand. For programs on loopback or a private network that must own their bytes; not for the open internet.
 */
export class Http1Server {
  private readonly connections = new Set<Connection>();
  private server: net.Server | undefined;

  constructor(readonly options: Http1ServerOptions) {}

  /** Connections open now. */
  get openConnections(): number {
    return this.connections.size;
  }

  /** Starts to listen; resolves with the port. Rejects when the address cannot be had. */
  listen(port: number, host: string): Promise<number> {
    return new Promise((resolve, reject) => {
      const server = net.createServer({ noDelay: true }, (socket) => this.accept(socket));
      server.once('error', reject);
      server.listen({ port, host, backlog: 1024 }, () => {
        this.server = server;
        resolve((server.address() as net.AddressInfo).port);
      });
    });
  }

  /** Stops listening: new connections are refused, open ones live on. */
  stopListening(): void {
    this.server?.close();
    this.server = undefined;
  }

  /** Stops listening and destroys every connection. */
  close(): void {
    this.stopListening();
    for (const connection of this.connections) connection.destroy();
  }

  private accept(socket: net.Socket): void {
    const connection = new Connection(socket, this.options, () => this.connections.delete(connection));
    this.connections.add(connection);
  }
}

/** One socket: reads requests one at a time and hands each to the handler once the one before is answered. */
class Connection {
  private readonly reader: RequestReader;
  private exchange: Exchange | undefined;
  private idleTimer: Timer | undefined;
  private served = 0;

  constructor(
    readonly socket: net.Socket,
    private readonly options: Http1ServerOptions,
    private readonly onClosed: () => void,
  ) {
    const { maxBodyBytes } = options;
    this.reader = new RequestReader(maxBodyBytes === undefined ? {} : { maxBodyBytes });
    this.reader.onExpectContinue = () => socket.write('HTTP/1.1 100 Continue\r\n\r\n');
    socket.on('data', (bytes) => this.onData(bytes));
    socket.on('drain', () => this.exchange?.onDrain?.());
    // An engine takes the peer's FIN as its leaving, as uvicorn and llama.cpp do.
    socket.on('end', () => this.exchange?.noteGone());
    socket.on('error', () => this.exchange?.noteGone());
    socket.on('close', () => {
      this.idleTimer?.cancel();
      this.onClosed();
      this.exchange?.noteGone();
    });
    this.armIdle();
  }

  destroy(): void {
    if (this.exchange !== undefined) this.exchange.cutByServer = true;
    this.socket.destroy();
  }

  private onData(bytes: Buffer): void {
    this.reader.push(bytes);
    this.advance();
    // A peer that pipelines is read no further than the kernel's buffer until its turn comes.
    if (this.exchange !== undefined && !this.reader.idle) this.socket.pause();
  }

  private advance(): void {
    if (this.exchange !== undefined || this.socket.destroyed) return;
    let request: Http1Request | undefined;
    try {
      request = this.reader.next();
    } catch (error) {
      if (!(error instanceof Http1ReadError)) throw error;
      this.idleTimer?.cancel();
      const body = JSON.stringify({
        error: { message: error.message, type: 'BadRequestError', code: error.status },
      });
      this.socket.end(renderHead(error.status, 'connection: close\r\n', body.length) + body);
      return;
    }
    if (request === undefined) return;
    this.idleTimer?.cancel();
    this.exchange = new Exchange(request, this.socket, this.served++, () => this.finished());
    this.options.handler(this.exchange);
  }

  private finished(): void {
    const { exchange } = this;
    this.exchange = undefined;
    if (this.socket.destroyed || exchange === undefined) return;
    if (exchange.closeAfter) {
      this.socket.end();
      return;
    }
    this.armIdle();
    if (this.socket.isPaused()) this.socket.resume();
    // Not from within the answer's own call: a peer that pipelines thousands of requests must not grow the stack.
    if (!this.reader.idle) setImmediate(() => this.advance());
  }

  private armIdle(): void {
    const { keepAliveMs, clock } = this.options;
    if (keepAliveMs <= 0) return;
    this.idleTimer = clock.setTimer(keepAliveMs, () => this.socket.destroy());
  }
}

/** One request and the pen for its answer. Everything written after the peer has gone is dropped. */
export class Exchange {
  /** Called once when the peer leaves before the answer is complete. */
  onGone: (() => void) | undefined;
  /** Called when a write that returned false has been taken by the kernel. */
  onDrain: (() => void) | undefined;
  /** Ends the connection after this answer, and says so in the head when set before it. */
  closeAfter: boolean;
  /** The peer left before the answer was complete. */
  gone = false;
  /** It was not the peer that left: the server was closed. Set before `onGone` is called. */
  cutByServer = false;
  /** The answer is complete, or was cut on purpose. */
  done = false;
  /** A head has been written. */
  started = false;

  private chunked = true;

  constructor(
    readonly request: Http1Request,
    private readonly socket: net.Socket,
    /** How many requests this connection carried before. */
    readonly indexOnConnection: number,
    private readonly onDone: () => void,
  ) {
    const connection = request.headers.get('connection')?.toLowerCase();
    this.closeAfter = request.version === '1.0' ? connection !== 'keep-alive' : connection === 'close';
  }

  /** True while the kernel has not taken what was written: the peer reads too slowly. */
  get blocked(): boolean {
    return this.socket.writableNeedDrain;
  }

  noteGone(): void {
    if (this.done || this.gone) return;
    this.gone = true;
    this.onGone?.();
  }

  /** A whole answer in one write. `headerLines` are complete lines, each ending in CRLF. */
  respond(status: number, headerLines: string, body: string | Buffer): void {
    if (this.gone || this.done) return;
    const bytes = typeof body === 'string' ? Buffer.byteLength(body) : body.length;
    const head = renderHead(status, this.connectionLine() + headerLines, bytes);
    this.started = true;
    if (this.request.method === 'HEAD') this.socket.write(head);
    else if (typeof body === 'string') this.socket.write(head + body);
    else {
      this.socket.cork();
      this.socket.write(head);
      this.socket.write(body);
      this.socket.uncork();
    }
    this.complete();
  }

  /** The head of an answer whose length is not known; HTTP/1.0 peers get it framed by the close. */
  begin(status: number, headerLines: string): void {
    if (this.gone || this.started) return;
    this.started = true;
    this.chunked = this.request.version === '1.1';
    if (!this.chunked) this.closeAfter = true;
    const framing = this.chunked ? 'transfer-encoding: chunked\r\n' : '';
    this.socket.write(
      `HTTP/1.1 ${status} ${REASONS[status] ?? 'X'}\r\n${this.connectionLine()}${headerLines}${framing}\r\n`,
    );
  }

  /** Bytes of the body, as one chunk in one write; false = wait for `onDrain`. */
  chunk(text: string): boolean {
    if (this.gone || this.done || text === '') return true;
    if (!this.chunked) return this.socket.write(text);
    return this.socket.write(`${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`);
  }

  /** The head of an answer that announces `bodyBytes`, whatever then follows: for answers that are to break that promise too. */
  beginWithLength(status: number, headerLines: string, bodyBytes: number): void {
    if (this.gone || this.started) return;
    this.started = true;
    this.chunked = false;
    this.socket.write(renderHead(status, this.connectionLine() + headerLines, bodyBytes));
  }

  /** `bytes` of the body as they have to stand on the wire in this answer's framing. */
  frame(bytes: Buffer): Buffer {
    if (!this.chunked) return bytes;
    return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]);
  }

  /** The last bytes of the body and its end, in one write. */
  end(text = ''): void {
    if (this.gone || this.done) return;
    if (!this.chunked) this.socket.write(text);
    else {
      const last = text === '' ? '' : `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
      this.socket.write(`${last}0\r\n\r\n`);
    }
    this.complete();
  }

  /** Bytes as they are, outside any framing; the callback runs when the kernel has them. */
  raw(bytes: string | Buffer, onSent?: () => void): void {
    if (this.gone || this.done) return;
    this.started = true;
    this.socket.write(bytes, onSent);
  }

  /** Cuts the connection with a TCP reset, after what was written has left. */
  reset(): void {
    if (this.done) return;
    this.done = true;
    if (this.socket.writableLength === 0) this.socket.resetAndDestroy();
    else this.socket.write('', () => this.socket.resetAndDestroy());
  }

  /** Ends the connection in order (FIN) with the answer as it stands, complete or not. */
  cut(): void {
    if (this.done) return;
    this.done = true;
    this.socket.end();
  }

  private connectionLine(): string {
    return this.closeAfter ? 'connection: close\r\n' : '';
  }

  private complete(): void {
    this.done = true;
    this.onDone();
  }
}

function renderHead(status: number, headerLines: string, bodyBytes: number): string {
  return `HTTP/1.1 ${status} ${REASONS[status] ?? 'X'}\r\n${headerLines}content-length: ${bodyBytes}\r\n\r\n`;
}
