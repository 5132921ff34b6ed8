import { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock, Timer } from '../shared/clock.js';
import type { ByteRuns } from './byte-runs.js';
import type { GatewayError } from './dialects.js';
import type { AnswerLength, Front, FrontSink, HeaderList } from './front.js';
import { framedAnswer, isBodilessStatus } from './answer-framing.js';
import { outbox, type Sender } from './outbox.js';

/** How long an answered client may go on sending the body it began, so that it reads the answer instead of a reset. */
export const LINGER_MS = 5_000;
/** And how much of it is read and thrown away. */
const LINGER_MAX_BYTES = 256 * 1024 * 1024;
/** A body announced no larger than this is read to its end and thrown away, and the connection lives on. */
const DISCARD_MAX_BYTES = 1024 * 1024;
/** Time in which it has to come, ms. */
const DISCARD_MAX_MS = 60_000;
/** Answers kept on one connection behind one that is still to be given; whoever has more waiting there is cut off. */
export const AHEAD_ANSWERS_MAX_BYTES = 4 * 1024 * 1024;

/**
 * node:http's request, whose body goes straight from the parser to its front: as a stream it would cost events, ticks
 * and a buffer more per request. Nothing else reads it.
 */
export class FrontRequest extends IncomingMessage {
  front: NodeFront | undefined;

  /** Called by node's parser with each piece of the body, and with null at its end. */
  override push(piece: Buffer | null): boolean {
    if (piece === null) {
      (this.socket as FrontSocket).restTimer?.cancel();
      this.front?.bodyEnd();
    } else this.front?.bodyBytes(piece);
    return true;
  }

  /** Called by node when the connection is gone. Of answers that wait behind another one nobody else is told. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    super._destroy(error, done);
    this.front?.closed();
  }

  /** Called by node when the answer is out before the body was read; what comes then is dropped by `push`. */
  _dump(): void {}
}

// Node lets go of a request only once it was read to its end, and asks the stream whether it was.
Object.defineProperty(FrontRequest.prototype, 'readableEnded', {
  get(this: FrontRequest) {
    return this.complete;
  },
});

/** node:http's response with the way back to its front. */
export class FrontResponse<R extends IncomingMessage = IncomingMessage> extends ServerResponse<R> {
  front: NodeFront | undefined;
}

/** A client's connection with the way to the front that writes on it. */
export interface FrontSocket extends Socket {
  front?: NodeFront;
  /** The time of a body that is thrown away. */
  restTimer?: Timer;
  /** Bytes of answers that wait behind another one. */
  aheadBytes?: number;
  /** The answer that node has running on it, which is not in its types. */
  readonly _httpMessage?: FrontResponse<FrontRequest> | null;
}

/** For each new connection: listeners for all the answers that will go over it. */
export function watchConnection(socket: Socket): void {
  socket.on('drain', onSocketDrain).on('close', onSocketClose);
}

/** What a front shares with all others of its listener. */
export interface FrontEnvironment {
  readonly clock: Clock;
  /** True while the listener stops: answers end their connections. */
  readonly closing: boolean;
}

/** `Front` over node:http. The chunk framing is written here: node's own costs three buffers per write. */
export class NodeFront implements Front, Sender {
  headGiven = false;
  /** Bytes of the body as announced, Infinity where its length is not known. An early answer must not cut it off. */
  announcedBodyBytes = 0;
  private headSent = false;
  private ended = false;
  private gone = false;
  private chunked = false;
  /** HTTP/1.0 knows no chunks: the end of the connection ends the body. */
  private untilClose = false;
  private status = 0;
  private headers: HeaderList = [];
  private length: AnswerLength = 0;
  private sink: FrontSink | undefined;
  /** The client was asked for the body it holds back. */
  private continued = false;
  /** The rest of the connection cannot be read: the body broke off into something that is none. */
  private unreadable = false;
  /** Its answer waits behind another one's. */
  private queued = false;
  private lingered = 0;
  private lingerTimer: Timer | undefined;

  constructor(
    private readonly request: FrontRequest,
    private readonly response: FrontResponse,
    private readonly environment: FrontEnvironment,
    /** The client waits for `100 Continue` before it sends the body. */
    private readonly expectsContinue: boolean,
  ) {
    request.front = this;
    response.front = this;
    response.on('close', onResponseClose);
  }

  startBody(sink: FrontSink): void {
    this.sink = sink;
    this.continued = this.expectsContinue;
    if (this.continued) this.response.writeContinue();
  }

  head(status: number, headers: HeaderList, length: AnswerLength): void {
    this.headGiven = true;
    this.status = status;
    this.headers = headers;
    this.length = length;
  }

  give(runs: ByteRuns): boolean {
    if (this.dead) return true;
    return this.write(this.framed(runs, false));
  }

  finish(runs: ByteRuns): void {
    if (this.dead) return;
    const last = this.framed(runs, true);
    this.ended = true;
    this.write(last, this);
  }

  /** @internal The last bytes of the answer have left. */
  sent(): void {
    if (this.gone) return;
    if (this.unreadable) this.endGently();
    else if (this.mustLinger) this.linger();
    else {
      if (!this.request.complete) this.awaitRest();
      this.response.end();
    }
  }

  cut(): void {
    if (this.gone) return;
    this.ended = true;
    outbox.flush();
    // A request sent behind another one on its connection has no socket of its own yet.
    const socket = this.response.socket ?? this.request.socket;
    // Without chunks or a length an orderly end would look like the end of the answer.
    if (this.untilClose) socket.resetAndDestroy();
    else socket.destroy();
  }

  /**
   * The client is still sending a body too large to be read for nothing, or holds one back and may send it or not: the
   * connection ends, but gently.
   */
  private get mustLinger(): boolean {
    if (this.request.complete) return false;
    return this.announcedBodyBytes > DISCARD_MAX_BYTES || (this.expectsContinue && !this.continued);
  }

  /** The answer is out, and the rest of the body it did not wait for is not there. */
  get isBodyMissing(): boolean {
    return this.ended && !this.request.complete;
  }

  private get dead(): boolean {
    return this.gone || this.ended;
  }

  /** The head as node composes it, to leave in one write with the first bytes: clients measure the first token by it. */
  private takeHead(): string {
    this.headSent = true;
    const response = this.response as FrontResponse & ComposedHead;
    const headers = [...this.headers];
    if (!isBodilessStatus(this.status)) this.pushFraming(headers);
    const last = this.environment.closing || this.unreadable || this.mustLinger;
    if (this.untilClose || last) headers.push('connection', 'close');
    response.writeHead(this.status, headers);
    response.chunkedEncoding = false;
    const composed = response._header;
    // Where no body may follow node leaves out what is written, so the head must be its own to send.
    if (composed === null || this.bodiless) return '';
    response._headerSent = true;
    return composed;
  }

  private get bodiless(): boolean {
    return isBodilessStatus(this.status) || this.request.method === 'HEAD';
  }

  private pushFraming(headers: string[]): void {
    if (typeof this.length === 'number') {
      headers.push('content-length', String(this.length));
    } else if (this.request.httpVersionMinor >= 1) {
      headers.push('transfer-encoding', 'chunked');
      this.chunked = true;
    } else {
      this.untilClose = true;
    }
  }

  private framed(runs: ByteRuns, last: boolean): Buffer {
    const head = this.headSent ? '' : this.takeHead();
    return framedAnswer(head, runs, this.chunked, last);
  }

  /**
   * Past node's response object and to the socket: the response would cork it until the next tick, and then neither the
   * kernel's answer is known nor the memory free again.
   */
  private write(buffer: Buffer, sender?: Sender): boolean {
    const { response } = this;
    const socket = response.socket as FrontSocket | null;
    const bytes = this.bodiless ? NOTHING : buffer;
    if (socket === null) return this.queue(bytes, sender);
    socket.front = this;
    return outbox.send(socket, bytes, sender);
  }

  /** A request sent behind another one on its connection: node keeps the bytes until it is its turn. */
  private queue(bytes: Buffer, sender?: Sender): boolean {
    this.queued ||= this.countAhead();
    const accepted = bytes.length === 0 || this.response.write(Buffer.from(bytes));
    if (!accepted) this.response.once('drain', onResponseDrain);
    sender?.sent();
    return accepted;
  }

  /**
   * From 16 KiB of waiting answers on node reads such a connection no more, so that nobody would see its client leave
   * while an engine works for it. They are counted here instead, and bounded.
   */
  private countAhead(): boolean {
    const socket = this.request.socket as FrontSocket;
    // Behind one that is all given they leave in the next turns, and node's way is right.
    if (socket._httpMessage?.front?.ended !== false) return true;
    (this.response as FrontResponse & QueuedAnswer)._onPendingData = (bytes) => {
      socket.aheadBytes = (socket.aheadBytes ?? 0) + bytes;
      if (socket.aheadBytes > AHEAD_ANSWERS_MAX_BYTES) socket.destroy();
    };
    return true;
  }

  private awaitRest(): void {
    const socket = this.request.socket as FrontSocket;
    socket.restTimer = this.environment.clock.setTimer(DISCARD_MAX_MS, () => socket.destroy());
  }

  /** Closing with unread bytes resets the connection, and the reset overtakes the answer: read on for a while. */
  private linger(): void {
    this.lingerTimer = this.environment.clock.setTimer(LINGER_MS, () => this.stopLingering());
  }

  /** Says that nothing follows; what still comes is thrown away by the listener. */
  private endGently(): void {
    const { socket } = this.request;
    this.lingerTimer = this.environment.clock.setTimer(LINGER_MS, () => socket.destroy());
    socket.end();
  }

  /** The parser cannot go on in the middle of the body. */
  bodyBroken(error: GatewayError): void {
    outbox.flush();
    if (this.ended) return this.stopLingering();
    this.unreadable = true;
    if (this.sink === undefined || this.headGiven) this.cut();
    else this.sink.bodyRefused(error);
  }

  private stopLingering(): void {
    this.lingerTimer?.cancel();
    this.lingerTimer = undefined;
    if (!this.gone) this.response.end();
  }

  /** @internal */
  bodyBytes(bytes: Buffer): void {
    if (!this.dead) return this.sink?.onBody(bytes);
    if (this.lingerTimer === undefined) return;
    this.lingered += bytes.length;
    if (this.lingered > LINGER_MAX_BYTES) this.stopLingering();
  }

  /** @internal */
  bodyEnd(): void {
    if (!this.dead) this.sink?.onBodyEnd();
    else if (this.lingerTimer !== undefined) this.stopLingering();
  }

  /** @internal */
  drained(): void {
    if (!this.dead) this.sink?.onDrain();
  }

  /** @internal */
  closed(): void {
    this.lingerTimer?.cancel();
    if (this.gone) return;
    this.gone = true;
    // After the last bytes were handed over, closing is the client's good right and no abort.
    if (!this.ended) this.sink?.onClientGone();
  }
}

/** What node keeps of a head it has composed. Long-standing, though not in its types. */
interface ComposedHead {
  _header: string | null;
  _headerSent: boolean;
}

/** Where node counts the bytes of answers that wait behind another one; negative when their turn has come. */
interface QueuedAnswer {
  _onPendingData: (bytes: number) => void;
}

const NOTHING = Buffer.alloc(0);

function onResponseClose(this: ServerResponse): void {
  (this as FrontResponse).front?.closed();
}
function onResponseDrain(this: ServerResponse): void {
  (this as FrontResponse).front?.drained();
}
function onSocketDrain(this: Socket): void {
  (this as FrontSocket).front?.drained();
}
function onSocketClose(this: Socket): void {
  (this as FrontSocket).restTimer?.cancel();
}
