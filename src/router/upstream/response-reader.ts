import { ChunkedReader } from './chunked-reader.js';
import { parseResponseHead, UpstreamHead, type ResponseProblem } from './response-head.js';

/**
 * Bytes of one response head, and of all interim heads before it together. Twice Node's own limit;
 * engines send under 1 KiB, and an endless head would otherwise fill memory.
 */
export const HEAD_MAX_BYTES = 32 * 1024;

/** 1xx answers skipped before the final one; real servers send one (100) or a few (103). */
export const INTERIM_MAX = 8;

/** What a push has brought the reader to. */
export type ReadState =
  /** Waiting for more bytes. */
  | 'more'
  /** The response is complete and no byte followed it. */
  | 'done'
  /** The response is complete but bytes followed it: the connection must not be used again. */
  | 'done_with_extra'
  /** Refused; see `problem`. */
  | 'failed';

const EMPTY = Buffer.alloc(0);

type Phase = 'head' | 'length' | 'chunked' | 'close' | 'done' | 'failed';

/**
 * Reads one HTTP/1.1 response from bytes in any split; knows nothing of sockets. Reusable: `reset` starts the next.
 *
 * After each `push`: `headReady` is true if the head became complete in this push, `payloadFrom`..`payloadTo`
 * is the payload it brought, in `payload` (usually the pushed buffer itself; chunk framing is squeezed out **in
 * place**, so the pushed bytes are overwritten), and the returned state tells how things stand. A push that fails
 * half-way still reports the head and the payload before the fault.
 */
export class ResponseReader {
  /** The head; meaningful once `headReady` was true. */
  head: UpstreamHead = new UpstreamHead();
  headReady = false;
  payload: Buffer = EMPTY;
  payloadFrom = 0;
  payloadTo = 0;
  problem: ResponseProblem | undefined;

  readonly #chunks = new ChunkedReader();
  #phase: Phase = 'done';
  #noBody = false;
  #left = 0;
  #interim = 0;
  #headBytes = 0;
  #partial: Buffer = EMPTY;
  #partialBytes = 0;

  /** Starts on a new response. `noBody`: the request was a HEAD. */
  reset(noBody: boolean): void {
    this.#phase = 'head';
    this.#noBody = noBody;
    this.#interim = 0;
    this.#headBytes = 0;
    this.#forgetPartial();
    this.problem = undefined;
    this.headReady = false;
  }

  /** True between responses: nothing is expected, and any byte would be a fault. */
  get idle(): boolean {
    return this.#phase === 'done' || this.#phase === 'failed';
  }

  push(buffer: Buffer, from: number, to: number): ReadState {
    this.headReady = false;
    this.payload = buffer;
    this.payloadFrom = this.payloadTo = to;
    let at = from;
    if (this.#phase === 'head') {
      at = this.#readHead(buffer, from, to);
      if (at < 0) return this.#state();
    }
    return this.#readBody(this.payload, at, this.payload === buffer ? to : this.payload.length);
  }

  /** The peer has ended its side. `done` if that is a legal end of the response, `more` if it cuts it short. */
  finish(): ReadState {
    if (this.#phase === 'close') this.#phase = 'done';
    return this.#state();
  }

  /** Index of the first body byte, or -1 when the head is not complete (or refused). */
  #readHead(buffer: Buffer, from: number, to: number): number {
    let bytes = buffer;
    let start = from;
    let end = to;
    let searchFrom = from;
    if (this.#partialBytes > 0) {
      searchFrom = Math.max(0, this.#partialBytes - 3);
      this.#appendPartial(buffer, from, to);
      bytes = this.#partial.subarray(0, this.#partialBytes);
      start = 0;
      end = bytes.length;
      this.payload = bytes;
      this.payloadFrom = this.payloadTo = end;
    }
    for (;;) {
      const blank = endOfHead(bytes, searchFrom, end);
      if (blank < 0) return this.#keepPartialHead(bytes, start, searchFrom, end);
      this.#headBytes += blank + 4 - start;
      if (this.#headBytes > HEAD_MAX_BYTES) return this.#fail('head_too_large');
      const head = parseResponseHead(bytes.toString('latin1', start, blank), this.#noBody);
      if (!(head instanceof UpstreamHead)) return this.#fail(head);
      start = searchFrom = blank + 4;
      if (head.status >= 200) return this.#begin(head, start);
      // Nothing here asks to leave HTTP/1.1: after a 101 the bytes would be somebody else's protocol.
      if (head.status === 101) return this.#fail('unexpected_upgrade');
      if (++this.#interim > INTERIM_MAX) return this.#fail('too_many_interim_responses');
    }
  }

  #keepPartialHead(bytes: Buffer, start: number, newFrom: number, end: number): number {
    if (this.#headBytes + (end - start) > HEAD_MAX_BYTES) return this.#fail('head_too_large');
    // Refuse at once what can never become a head (a TLS alert, another protocol) instead of waiting for its end.
    if (!startsLikeHttp(bytes, start, end)) return this.#fail('bad_status_line');
    // Lines that end in LF alone are refused as well, and the end of such a head would never be found.
    if (hasLoneLf(bytes, newFrom, end)) return this.#fail('bad_line_ending');
    if (this.#partialBytes === 0) this.#appendPartial(bytes, start, end);
    else {
      // The bytes are in place already; interim heads before them fall away.
      this.#partial = this.#partial.subarray(start);
      this.#partialBytes = end - start;
    }
    return -1;
  }

  /** Grows by doubling: a head that comes byte by byte must not be copied for each byte. */
  #appendPartial(bytes: Buffer, from: number, to: number): void {
    const length = this.#partialBytes + (to - from);
    if (length > this.#partial.length) {
      const larger = Buffer.allocUnsafe(Math.max(1024, 2 * length));
      this.#partial.copy(larger, 0, 0, this.#partialBytes);
      this.#partial = larger;
    }
    bytes.copy(this.#partial, this.#partialBytes, from, to);
    this.#partialBytes = length;
  }

  #forgetPartial(): void {
    this.#partial = EMPTY;
    this.#partialBytes = 0;
  }

  #begin(head: UpstreamHead, bodyAt: number): number {
    this.#forgetPartial();
    this.head = head;
    this.headReady = true;
    switch (head.framing) {
      case 'none':
        this.#phase = 'done';
        break;
      case 'length':
        this.#left = head.contentLength ?? 0;
        this.#phase = 'length';
        break;
      case 'chunked':
        this.#chunks.reset();
        this.#phase = 'chunked';
        break;
      case 'close':
        this.#phase = 'close';
        break;
    }
    return bodyAt;
  }

  #readBody(buffer: Buffer, from: number, to: number): ReadState {
    this.payloadFrom = this.payloadTo = from;
    switch (this.#phase) {
      case 'length': {
        const taken = Math.min(this.#left, to - from);
        this.payloadTo = from + taken;
        this.#left -= taken;
        if (this.#left > 0) return 'more';
        this.#phase = 'done';
        return from + taken < to ? 'done_with_extra' : 'done';
      }
      case 'chunked':
        return this.#readChunks(buffer, from, to);
      case 'close':
        this.payloadTo = to;
        return 'more';
      case 'done':
        return from < to ? 'done_with_extra' : 'done';
      case 'head':
      case 'failed':
        return this.#state();
    }
  }

  #readChunks(buffer: Buffer, from: number, to: number): ReadState {
    const chunks = this.#chunks;
    const next = chunks.push(buffer, from, to);
    this.payloadFrom = chunks.payloadFrom;
    this.payloadTo = chunks.payloadTo;
    if (chunks.problem !== undefined) {
      this.#fail(chunks.problem);
      return 'failed';
    }
    if (!chunks.done) return 'more';
    this.#phase = 'done';
    return next < to ? 'done_with_extra' : 'done';
  }

  #fail(problem: ResponseProblem): number {
    this.problem = problem;
    this.#phase = 'failed';
    return -1;
  }

  #state(): ReadState {
    if (this.#phase === 'done') return 'done';
    return this.#phase === 'failed' ? 'failed' : 'more';
  }
}

const CR = 13;
const LF = 10;

/** Index of the CR LF CR LF that ends a head, or -1. */
function endOfHead(bytes: Buffer, from: number, to: number): number {
  // A byte loop stops at the head's end; indexOf would search a whole slab of body behind a partial head.
  for (let at = from + 3; at < to; at++) {
    if (bytes[at] === LF && bytes[at - 1] === CR && bytes[at - 2] === LF && bytes[at - 3] === CR)
      return at - 3;
  }
  return -1;
}

function hasLoneLf(bytes: Buffer, from: number, to: number): boolean {
  for (let at = bytes.indexOf(LF, from); at >= 0 && at < to; at = bytes.indexOf(LF, at + 1)) {
    if (bytes[at - 1] !== CR) return true;
  }
  return false;
}

const HTTP_PREFIX = 'HTTP/1.';

function startsLikeHttp(bytes: Buffer, from: number, to: number): boolean {
  const length = Math.min(HTTP_PREFIX.length, to - from);
  for (let i = 0; i < length; i++) if (bytes[from + i] !== HTTP_PREFIX.charCodeAt(i)) return false;
  return true;
}
