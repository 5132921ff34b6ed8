import net from 'node:net';
import tls from 'node:tls';

import { readNow, unsentBytes, writeNow } from '../direct-write.js';
import { isFree, outbox, type Sender } from '../outbox.js';
import type { Enlisted } from '../roster.js';
import { ResponseReader, type ReadState } from './response-reader.js';
import { UpstreamError, type UpstreamErrorKind } from './upstream-error.js';
import type { UpstreamExchange, UpstreamRequest, UpstreamSink } from './upstream-sink.js';

/** Where and how connections of one pool are made. */
export interface UpstreamTarget {
  /** Name or address, without brackets. */
  readonly host: string;
  readonly port: number;
  /** Present for https endpoints; `{}` takes Node's defaults (system roots, host as server name). */
  readonly tls?: tls.SecureContextOptions & { servername?: string; rejectUnauthorized?: boolean };
}

/** What a connection tells the pool that made it. */
export interface ConnectionOwner {
  /** The connection is free for another request; false if the owner has no use for it. */
  release(connection: UpstreamConnection, keepAliveTimeoutMs: number | undefined): boolean;
  /** The connection is closed, or will be without any further call; told once. */
  closed(connection: UpstreamConnection): void;
}

/**
 * One read buffer for all plain connections of the process, and one for all TLS ones: a read is handled completely
 * before the next begins, so a buffer per connection (64 KiB a stream) would buy nothing. TLS has its own because a
 * TLS read may happen while a plain one is being handled.
 */
const SLAB_BYTES = 64 * 1024;
const plainSlab = Buffer.allocUnsafeSlow(SLAB_BYTES);
const tlsSlab = Buffer.allocUnsafeSlow(SLAB_BYTES);

/** Requests up to this size leave in one write (head and body in one packet, mostly). */
const SINGLE_WRITE_MAX_BYTES = 64 * 1024;

/** Larger bodies are handed over in slices, one in flight: back-pressure, and a chance to read an early answer. */
const BODY_SLICE_BYTES = 256 * 1024;

/** One HTTP/1.1 connection to an engine: at most one request at a time, never pipelined. */
export class UpstreamConnection implements Sender, Enlisted {
  rosterPlace = -1;
  /** Monotonic time until which the pool may keep it idle; the pool's own bookkeeping. */
  idleUntilMs = 0;

  readonly #owner: ConnectionOwner;
  readonly #socket: net.Socket;
  readonly #plain: boolean;
  readonly #reader = new ResponseReader();
  #exchange: Exchange | undefined;
  #request: UpstreamRequest | undefined;
  #unsent: BodyCursor | undefined;
  #connected = false;
  #closed = false;
  #bytesSentBefore = 0;
  /** The request is on its way to the socket. */
  #leaving = false;

  constructor(target: UpstreamTarget, owner: ConnectionOwner) {
    this.#owner = owner;
    this.#plain = target.tls === undefined;
    this.#socket = this.#open(target);
    this.#socket.on(target.tls === undefined ? 'connect' : 'secureConnect', () => this.#onConnect());
    this.#socket.on('error', (error) => this.#onClose(error));
    this.#socket.on('end', () => this.#onPeerEnd());
    this.#socket.on('close', () => this.#onClose(undefined));
  }

  /** Starts a request; only on a connection that is new or has been released. */
  start(request: UpstreamRequest, sink: UpstreamSink): UpstreamExchange {
    if (this.#exchange !== undefined) throw new Error('the connection is busy');
    const exchange = new Exchange(this, sink, this.#connected);
    this.#exchange = exchange;
    this.#reader.reset(request.noResponseBody === true);
    this.#bytesSentBefore = this.#socket.bytesWritten;
    if (!this.#connected) {
      this.#request = request;
      return exchange;
    }
    this.#send(request);
    sink.onConnected?.(true);
    return exchange;
  }

  /** Closes at once; a running exchange hears `aborted` if `tell`, else nothing. */
  destroy(tell: boolean): void {
    if (tell && this.#exchange !== undefined) this.#fail('aborted', undefined);
    else {
      this.#exchange?.detach();
      this.#exchange = undefined;
      this.#drop();
    }
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Bytes of the current request that the kernel has accepted. */
  get requestBytesSent(): number {
    return this.#socket.bytesWritten - unsentBytes(this.#socket) - this.#bytesSentBefore;
  }

  #open(target: UpstreamTarget): net.Socket {
    const { host, port } = target;
    const callback = (length: number, slab: Uint8Array) => this.#onRead(slab as Buffer, length);
    if (target.tls === undefined) {
      return net.connect({ host, port, noDelay: true, onread: { buffer: plainSlab, callback } });
    }
    const servername = target.tls.servername ?? (net.isIP(host) === 0 ? host : '');
    const options = { host, port, ALPNProtocols: ['http/1.1'], ...target.tls, servername };
    const socket = tls.connect({
      ...options,
      onread: { buffer: tlsSlab, callback },
    } as tls.ConnectionOptions);
    return socket.setNoDelay(true);
  }

  #onConnect(): void {
    const exchange = this.#exchange;
    this.#connected = true;
    if (this.#plain) readNow(this.#socket, (length) => this.#onRead(plainSlab, length));
    if (exchange === undefined || this.#request === undefined) return this.#drop();
    exchange.connected = true;
    this.#send(this.#request);
    this.#request = undefined;
    exchange.sink.onConnected?.(false);
  }

  #send(request: UpstreamRequest): void {
    let bodyBytes = 0;
    for (const part of request.body) bodyBytes += part.length;
    const headBytes = request.head.length;
    const total = headBytes + bodyBytes;
    if (total > SINGLE_WRITE_MAX_BYTES) {
      this.#unsent = new BodyCursor(request.body);
      this.#socket.write(request.head, 'latin1');
      this.#sendMore();
      return;
    }
    const bytes = outbox.take(total);
    bytes.write(request.head, 0, 'latin1');
    let at = headBytes;
    for (const part of request.body) at += part.copy(bytes, at);
    this.#leaving = true;
    outbox.send(this.#socket, bytes, this);
  }

  /** @internal The request was handed to the socket. */
  sent(): void {
    this.#leaving = false;
  }

  #sendMore(): void {
    const slice = this.#unsent?.next(BODY_SLICE_BYTES);
    if (slice === undefined) {
      this.#unsent = undefined;
      return;
    }
    switch (writeNow(this.#socket, slice)) {
      case 'taken':
        // A turn of the event loop between slices: an early answer is to be read before more is sent.
        return void setImmediate(this.#sendMoreLater);
      case 'waiting':
        return void this.#socket.once('drain', this.#sendMoreLater);
      case 'broken':
        // An engine that refuses a body by its length answers and closes. Its answer is still to be read, and a failed
        // write of Node's stream would throw it away; if there is none, reading tells.
        return;
      case 'refused':
        this.#socket.write(slice, (error) => {
          if (!error) setImmediate(this.#sendMoreLater);
        });
    }
  }

  readonly #sendMoreLater = (): void => {
    if (!this.#closed) this.#sendMore();
  };

  /** Returns false to stop reading until `resume`. */
  #onRead(slab: Buffer, length: number): boolean {
    const exchange = this.#exchange;
    if (exchange === undefined) {
      // An answer nobody asked for: it would be taken for the next request's.
      this.#drop();
      return true;
    }
    exchange.bytesReceived += length;
    const reader = this.#reader;
    const state = reader.push(slab, 0, length);
    if (reader.headReady) {
      exchange.sink.onHead(reader.head);
      if (!exchange.active) return true;
    }
    if (reader.payloadFrom < reader.payloadTo) {
      const more = exchange.sink.onData(reader.payload, reader.payloadFrom, reader.payloadTo);
      if (!exchange.active) return true;
      if (!more) exchange.paused = true;
    }
    this.#settle(state);
    return !exchange.active || !exchange.paused;
  }

  #settle(state: ReadState): void {
    switch (state) {
      case 'more':
        return;
      case 'done':
        return this.#complete(true);
      case 'done_with_extra':
        return this.#complete(false);
      case 'failed':
        return this.#fail('protocol_error', undefined);
    }
  }

  #complete(clean: boolean): void {
    const exchange = this.#exchange as Exchange;
    const head = this.#reader.head;
    // A response that came before the request was out leaves the rest of the request on the wire.
    const sent = this.#unsent === undefined && !this.#leaving && isFree(this.#socket);
    const reusable = clean && sent && head.keepAlive && !this.#closed;
    const paused = exchange.paused;
    this.#exchange = undefined;
    exchange.detach();
    if (!reusable || !this.#owner.release(this, head.keepAliveTimeoutMs)) this.#drop();
    else if (paused) this.#socket.resume();
    exchange.sink.onEnd();
  }

  #onPeerEnd(): void {
    if (this.#exchange === undefined) return this.#drop();
    if (this.#reader.finish() === 'done') this.#complete(false);
    else this.#fail(this.#endedKind(), undefined);
  }

  /** The socket failed or is gone. */
  #onClose(error: Error | undefined): void {
    if (this.#exchange === undefined) return this.#drop();
    this.#fail(this.#connected ? this.#endedKind() : connectErrorKind(error), error);
  }

  #endedKind(): UpstreamErrorKind {
    return (this.#exchange?.bytesReceived ?? 0) === 0 ? 'reset_before_response' : 'reset';
  }

  #fail(kind: UpstreamErrorKind, cause: Error | undefined): void {
    const exchange = this.#exchange as Exchange;
    const problem = this.#reader.problem;
    const error = new UpstreamError(kind, {
      reusedSocket: exchange.reusedSocket,
      bytesReceived: exchange.bytesReceived,
      requestBytesSent: this.requestBytesSent,
      ...(kind === 'protocol_error' && problem !== undefined ? { problem } : {}),
      ...(cause === undefined ? {} : { cause }),
    });
    this.#exchange = undefined;
    exchange.detach();
    this.#drop();
    exchange.sink.onError(error);
  }

  #drop(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#unsent = undefined;
    this.#request = undefined;
    this.#socket.destroy();
    this.#owner.closed(this);
  }
}

/** One request on one connection; outlives the connection's use for it, so that a late `abort` hits nobody else. */
class Exchange implements UpstreamExchange {
  bytesReceived = 0;
  paused = false;
  connected: boolean;
  readonly reusedSocket: boolean;
  readonly sink: UpstreamSink;
  #connection: UpstreamConnection | undefined;
  #finalBytesSent = 0;

  constructor(connection: UpstreamConnection, sink: UpstreamSink, reused: boolean) {
    this.#connection = connection;
    this.sink = sink;
    this.reusedSocket = reused;
    this.connected = reused;
  }

  get active(): boolean {
    return this.#connection !== undefined;
  }

  get requestBytesSent(): number {
    return this.#connection?.requestBytesSent ?? this.#finalBytesSent;
  }

  pause(): void {
    if (this.#connection === undefined || this.paused) return;
    this.paused = true;
    this.#connection.pause();
  }

  resume(): void {
    if (this.#connection === undefined || !this.paused) return;
    this.paused = false;
    this.#connection.resume();
  }

  abort(): void {
    this.#connection?.destroy(false);
  }

  detach(): void {
    this.#finalBytesSent = this.requestBytesSent;
    this.#connection = undefined;
  }
}

/** Walks a body of several buffers in slices, without copying. */
class BodyCursor {
  #part = 0;
  #offset = 0;

  constructor(private readonly parts: readonly Buffer[]) {}

  next(maxBytes: number): Buffer | undefined {
    for (;;) {
      const part = this.parts[this.#part];
      if (part === undefined) return undefined;
      if (this.#offset < part.length) {
        const slice = part.subarray(this.#offset, this.#offset + maxBytes);
        this.#offset += slice.length;
        return slice;
      }
      this.#part++;
      this.#offset = 0;
    }
  }
}

function connectErrorKind(error: Error | undefined): UpstreamErrorKind {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  if (code === 'ECONNREFUSED') return 'connect_refused';
  return code === 'ETIMEDOUT' ? 'connect_timeout' : 'connect_failed';
}
