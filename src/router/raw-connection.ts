import { Socket, type SocketConstructorOpts } from 'node:net';
import type { Clock } from '../shared/clock.js';
import { refusalOf, type Refusal } from './broken-request.js';
import type { CanonicalReader } from './bytes/canonical-request.js';
import { readNow } from './direct-write.js';
import { outbox } from './outbox.js';
import type { Enlisted } from './roster.js';
import { RawFront, type AnsweredConnection } from './raw-front.js';

/** Time to send a request's head. The body has its own, per pause between bytes. */
export const HEAD_TIMEOUT_MS = 60_000;
/** How long a client that was answered early, on a connection that ends, may go on sending its request. */
const LINGER_MS = 5_000;
/** How long a client may pause while it fetches the last of its answer; a slow line with full buffers shows nothing for long. */
const FETCH_PAUSE_MS = 60_000;
/** Bytes kept of requests sent ahead of their turn; from there on the connection is not read until it has come. */
const AHEAD_MAX_BYTES = 64 * 1024;
/** For how long it is not. A connection that nobody reads does not show that its client has left. */
const AHEAD_PAUSE_MS = 1_000;
/** Reads in which a head may come; a client that sends it in more pieces than that is another parser's. */
const HEAD_PIECES_MAX = 4;

const NEVER = Number.POSITIVE_INFINITY;

/**
 * One read buffer for all clients: a read is handled completely before the next begins. A buffer per read, as sockets
 * get it from Node, costs 64 KiB of garbage for each small request.
 */
const slab = Buffer.allocUnsafeSlow(64 * 1024);

/** What connections share. */
export interface RawEnvironment {
  readonly clock: Clock;
  readonly reader: CanonicalReader;
  /** How long an idle connection stays. */
  readonly keepAliveMs: number;
  /** True while the listener stops: answers end their connections. */
  readonly closing: boolean;
  /** The last lines of an answer's head. */
  headEnd(last: boolean): string;
  /** A request's head; `reader` holds it until this returns. */
  onCanonical(front: RawFront, connection: RawConnection): void;
  /** Node's parser goes on with the connection, whose unread bytes are back in its socket. */
  handOver(socket: Socket): void;
  /** Gives the last answer on a connection that will not be read any more. */
  lastWords(refusal: Refusal, socket: Socket): void;
  /** The connection is closed, or somebody else's. */
  left(connection: RawConnection): void;
}

/** A client's connection with the way to what it belongs to. */
interface RawSocket extends Socket {
  raw: RawConnection;
}

/**
 * A client's connection as long as nothing comes over it but canonical requests; what is anything else goes to node:http
 * together with the connection. One request at a time: what was sent ahead waits, so answers are in order.
 */
export class RawConnection implements AnsweredConnection, Enlisted {
  rosterPlace = -1;
  readonly socket: Socket;
  /** When `expire` is due, monotonic. */
  dueMs: number;
  private front: RawFront | undefined = undefined;
  /** The answer to `front` has left, perhaps before all of its request has come. */
  private isAnswered = false;
  private bodyLeft = 0;
  /** What came and is not used up: the beginning of a head, or requests sent ahead. */
  private kept: Buffer | undefined = undefined;
  private headPieces = 0;
  /** The requests sent ahead have their turn in the next turn of the loop. */
  private goingOn = false;
  private paused = false;
  /** Bytes of the answer that had not left when its time was last looked at. */
  private unsent = NEVER;
  /** The client asked for the connection's end behind this answer. */
  private lastAsked = false;
  /** The connection ends, and the client was told so if there was an answer to tell it in. */
  private last = false;
  private requests = 0;
  /** It is closed, or Node's parser has it. */
  private over = false;
  private handedOver = false;
  private address: string | undefined = undefined;
  /** Gives the reading back to Node. */
  private readonly readAsStream: () => void;

  /** @param accepted as Node gives it; given up for one that reads into the common buffer */
  constructor(
    accepted: Socket,
    private readonly environment: RawEnvironment,
  ) {
    const onRead = (length: number) => this.onRead(length);
    this.socket = readingInto(slab, accepted, onRead);
    this.readAsStream = readNow(this.socket, onRead);
    (this.socket as RawSocket).raw = this;
    this.socket.on('error', onError).on('end', onEnd).on('close', onClose).on('drain', onDrain);
    this.dueMs = environment.clock.monotonicMs() + HEAD_TIMEOUT_MS;
  }

  /** Whether connections like `accepted` can be served so. */
  static takes(accepted: Socket): boolean {
    return typeof (accepted as AcceptedSocket)._handle?.useUserBuffer === 'function';
  }

  get clientAddress(): string {
    return (this.address ??= this.socket.remoteAddress ?? '');
  }

  /** Ends the connection if nothing is going on there and something was; what is still on its way to the client gets there. */
  closeIdle(): void {
    if (this.last || this.front !== undefined || this.kept !== undefined) return;
    if (this.requests > 0) this.endSoon();
  }

  /** Called when `dueMs` has passed. */
  expire(): void {
    if (this.paused) return this.forgetAhead();
    if (this.isFetched()) return;
    const inHead = this.front === undefined && this.kept !== undefined && !this.last;
    if (inHead) this.refuse('ERR_HTTP_REQUEST_TIMEOUT');
    else this.socket.destroy();
  }

  // ---------------------------------------------------------------- reading

  private onRead(length: number): boolean {
    // Whoever has the connection now and reads it as a stream gets a stream.
    if (this.handedOver) return this.socket.push(Buffer.from(slab.subarray(0, length)));
    this.read(slab, 0, length);
    return true;
  }

  private read(bytes: Buffer, from: number, to: number): void {
    let at = from;
    if (this.bodyLeft > 0 && !this.over) at = this.takeBody(bytes, at, to);
    if (at === to || this.over || this.last) return;
    if (this.front !== undefined || this.goingOn) return this.keepAhead(bytes, at, to);
    if (this.kept === undefined) return this.begin(bytes, at, to);
    const joined = Buffer.concat([this.kept, bytes.subarray(at, to)]);
    this.kept = undefined;
    this.begin(joined, 0, joined.length);
  }

  private begin(bytes: Buffer, from: number, to: number): void {
    const { environment } = this;
    const { reader } = environment;
    switch (reader.read(bytes, from, to)) {
      case 'more':
        return this.awaitHead(bytes, from, to);
      case 'other':
        return this.handOver(bytes, from, to);
      case 'canonical':
    }
    const { bodyFrom, contentLength, keepAlive } = reader;
    const front = new RawFront(this);
    this.front = front;
    this.isAnswered = this.last = false;
    this.lastAsked = !keepAlive;
    this.headPieces = 0;
    this.requests += 1;
    this.bodyLeft = contentLength;
    this.dueMs = NEVER;
    environment.onCanonical(front, this);
    if (bodyFrom < to) this.read(bytes, bodyFrom, to);
  }

  /** The beginning of a head: it has its time from its first byte on. */
  private awaitHead(bytes: Buffer, from: number, to: number): void {
    if (++this.headPieces > HEAD_PIECES_MAX) return this.handOver(bytes, from, to);
    if (this.headPieces === 1) this.dueMs = this.environment.clock.monotonicMs() + HEAD_TIMEOUT_MS;
    this.kept = Buffer.from(bytes.subarray(from, to));
  }

  /** Gives what there is of the body to the front; returns where it ends. */
  private takeBody(bytes: Buffer, from: number, to: number): number {
    const { front } = this;
    const end = Math.min(to, from + this.bodyLeft);
    this.bodyLeft -= end - from;
    front?.bodyBytes(bytes, from, end);
    if (this.bodyLeft === 0) {
      front?.bodyEnd();
      this.settle();
    }
    return end;
  }

  private keepAhead(bytes: Buffer, from: number, to: number): void {
    const piece = bytes.subarray(from, to);
    this.kept = this.kept === undefined ? Buffer.from(piece) : Buffer.concat([this.kept, piece]);
    if (this.kept.length < AHEAD_MAX_BYTES || this.paused) return;
    this.paused = true;
    this.dueMs = this.environment.clock.monotonicMs() + AHEAD_PAUSE_MS;
    this.socket.pause();
  }

  /** What was sent ahead has waited too long: it is dropped, and the connection ends with the answer that is due. */
  private forgetAhead(): void {
    this.kept = undefined;
    this.paused = false;
    this.lastAsked = this.last = true;
    this.dueMs = NEVER;
    this.socket.resume();
  }

  private readonly goOn = (): void => {
    this.goingOn = false;
    const { kept } = this;
    this.kept = undefined;
    if (this.over || this.last || kept === undefined) return;
    if (this.paused) {
      this.paused = false;
      this.socket.resume();
    }
    this.begin(kept, 0, kept.length);
  };

  // ---------------------------------------------------------------- answering

  headEnd(): string {
    this.last = this.lastAsked || this.environment.closing;
    return this.environment.headEnd(this.last);
  }

  answered(): void {
    this.isAnswered = true;
    this.unsent = NEVER;
    if (this.bodyLeft > 0) {
      const patienceMs = this.last ? LINGER_MS : HEAD_TIMEOUT_MS;
      this.dueMs = this.environment.clock.monotonicMs() + patienceMs;
    } else this.settle();
  }

  /** The exchange is over once all of the request is read and all of the answer given. */
  private settle(): void {
    if (this.front === undefined || !this.isAnswered) return;
    this.front = undefined;
    if (this.last) return this.endSoon();
    const { clock, keepAliveMs } = this.environment;
    this.dueMs = clock.monotonicMs() + keepAliveMs;
    if (this.kept === undefined || this.goingOn) return;
    this.goingOn = true;
    setImmediate(this.goOn);
  }

  /** The client is still taking its answer, however slowly: neither idle nor gone. */
  private isFetched(): boolean {
    const { socket } = this;
    const unsent = socket.writableLength + ((socket as AcceptedSocket)._handle?.writeQueueSize ?? 0);
    const fewer = this.isAnswered && unsent > 0 && unsent < this.unsent;
    this.unsent = unsent;
    if (!fewer) return false;
    this.dueMs = this.environment.clock.monotonicMs() + FETCH_PAUSE_MS;
    return true;
  }

  // ---------------------------------------------------------------- the end

  /** Node's parser goes on from here, and judges. */
  private handOver(bytes: Buffer, from: number, to: number): void {
    const { socket } = this;
    const unread = Buffer.from(bytes.subarray(from, to));
    this.over = this.handedOver = true;
    this.readAsStream();
    socket.off('error', onError).off('end', onEnd).off('close', onClose).off('drain', onDrain);
    this.environment.left(this);
    // Held until the parser listens, or the bytes would go to nobody.
    socket.pause();
    socket.unshift(unread);
    this.environment.handOver(socket);
    socket.resume();
  }

  private refuse(code: 'ERR_HTTP_REQUEST_TIMEOUT' | 'HPE_INVALID_EOF_STATE'): void {
    this.last = true;
    this.dueMs = NEVER;
    this.environment.lastWords(refusalOf(Object.assign(new Error(code), { code })), this.socket);
  }

  /** Ends the connection when the client has fetched what it was given. */
  private endSoon(): void {
    this.last = true;
    this.dueMs = this.environment.clock.monotonicMs() + FETCH_PAUSE_MS;
    this.socket.destroySoon();
  }

  /** The client's side has ended: it has left, unless there is nothing more to do than to let its answer go. */
  ended(): void {
    if (this.over) return;
    const { front } = this;
    if (front !== undefined && !front.over) return void this.socket.destroy();
    if (this.last) return;
    if (front === undefined && this.kept !== undefined && !this.goingOn) {
      return this.refuse('HPE_INVALID_EOF_STATE');
    }
    outbox.flush();
    this.endSoon();
  }

  closed(): void {
    this.over = true;
    this.kept = undefined;
    this.environment.left(this);
    this.front?.closed();
  }

  drained(): void {
    this.front?.drained();
  }
}

/** What Node keeps of a socket beside its types; both have been there since its first versions. */
type AcceptedSocket = {
  -readonly [K in keyof Socket]: Socket[K];
} & {
  /** The system's side of it. */
  _handle: { readonly useUserBuffer?: unknown; readonly writeQueueSize?: number } | null;
  /** The server that counts it. */
  _server: unknown;
  server: unknown;
};

/**
 * The same connection as a socket that reads into `buffer`. Node offers that for connections that are made, not for those
 * that are accepted; the options are those with which its own server makes sockets.
 */
function readingInto(buffer: Buffer, accepted: Socket, onRead: (length: number) => boolean): Socket {
  const old = accepted as AcceptedSocket;
  const options = {
    handle: old._handle,
    allowHalfOpen: true,
    onread: { buffer, callback: onRead },
  } as SocketConstructorOpts;
  const socket = new Socket(options);
  const made = socket as unknown as AcceptedSocket;
  made.server = made._server = old._server;
  old._handle = null;
  return socket;
}

function onError(): void {
  // `close` follows, and says all there is to say.
}
function onEnd(this: Socket): void {
  (this as RawSocket).raw.ended();
}
function onClose(this: Socket): void {
  (this as RawSocket).raw.closed();
}
function onDrain(this: Socket): void {
  (this as RawSocket).raw.drained();
}
