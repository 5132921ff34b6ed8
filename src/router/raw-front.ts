import type { Socket } from 'node:net';
import { answerHead, framedAnswer, isBodilessStatus } from './answer-framing.js';
import type { ByteRuns } from './byte-runs.js';
import type { AnswerLength, Front, FrontSink, HeaderList } from './front.js';
import { outbox, type Sender } from './outbox.js';

/** The connection an answer goes over. */
export interface AnsweredConnection {
  readonly socket: Socket;
  /** The last lines of an answer's head; what it says about the connection's end will be so. */
  headEnd(): string;
  /** The last bytes of the answer were handed to the socket. */
  answered(): void;
}

/** `Front` of one canonical request: composes the answer and writes it to the socket. */
export class RawFront implements Front, Sender {
  headGiven = false;
  private headSent = false;
  private ended = false;
  private gone = false;
  private chunked = false;
  private bodiless = false;
  private status = 0;
  private headers: HeaderList = NO_HEADERS;
  private length: AnswerLength = 0;
  private sink: FrontSink | undefined = undefined;

  constructor(private readonly connection: AnsweredConnection) {}

  startBody(sink: FrontSink): void {
    this.sink = sink;
  }

  head(status: number, headers: HeaderList, length: AnswerLength): void {
    this.headGiven = true;
    this.status = status;
    this.headers = headers;
    this.length = length;
  }

  give(runs: ByteRuns): boolean {
    if (this.gone || this.ended) return true;
    return outbox.send(this.connection.socket, this.framed(runs, false));
  }

  finish(runs: ByteRuns): void {
    if (this.gone || this.ended) return;
    const last = this.framed(runs, true);
    this.ended = true;
    outbox.send(this.connection.socket, last, this);
  }

  cut(): void {
    if (this.gone) return;
    this.ended = true;
    outbox.flush();
    this.connection.socket.destroy();
  }

  /** The client has all of the answer, as far as this side can give it. */
  get over(): boolean {
    return this.ended;
  }

  /** @internal The last bytes of the answer have left. */
  sent(): void {
    if (!this.gone) this.connection.answered();
  }

  /** @internal */
  bodyBytes(bytes: Buffer, from: number, to: number): void {
    if (this.gone || this.ended || this.sink === undefined) return;
    const piece = Buffer.allocUnsafe(to - from);
    bytes.copy(piece, 0, from, to);
    this.sink.onBody(piece);
  }

  /** @internal */
  bodyEnd(): void {
    if (!this.gone && !this.ended) this.sink?.onBodyEnd();
  }

  /** @internal */
  drained(): void {
    if (!this.gone && !this.ended) this.sink?.onDrain();
  }

  /** @internal */
  closed(): void {
    if (this.gone) return;
    this.gone = true;
    // After the last bytes were handed over, closing is the client's good right and no abort.
    if (!this.ended) this.sink?.onClientGone();
  }

  private framed(runs: ByteRuns, last: boolean): Buffer {
    const head = this.headSent ? '' : this.takeHead();
    return framedAnswer(head, this.bodiless ? runs.clear() : runs, this.chunked, last);
  }

  private takeHead(): string {
    this.headSent = true;
    this.bodiless = isBodilessStatus(this.status);
    this.chunked = !this.bodiless && this.length === 'stream';
    const connectionLines = this.connection.headEnd();
    const length = this.bodiless ? undefined : this.length === 'stream' ? 'chunked' : this.length;
    return answerHead(this.status, this.headers, { length, connectionLines });
  }
}

const NO_HEADERS: HeaderList = [];
