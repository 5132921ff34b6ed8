import type { UpstreamHead } from './response-head.js';
import type { UpstreamError } from './upstream-error.js';

/**
 * Who listens to one attempt. Calls come in the order `onConnected`, `onHead`, `onData`*, then exactly one of
 * `onEnd` and `onError`, or nothing more at all after `abort()`.
 */
export interface UpstreamSink {
  /**
   * The connection stands and the request is being written. On a reused connection this comes **before**
   * `UpstreamPool.send` returns (no other call does).
   */
  onConnected?(reused: boolean): void;
  /** The final head; 1xx heads have been skipped. */
  onHead(head: UpstreamHead): void;
  /**
   * The next payload bytes, chunk framing removed, valid only during the call (the buffer is reused at once, and
   * may be written to by the sink). Return false to pause reading; what was already read may still follow (on TLS
   * several calls, together at most a few records), then nothing until `resume()`.
   */
  onData(slab: Buffer, from: number, to: number): boolean;
  /** The response is complete. The connection is already back in the pool or closed. */
  onEnd(): void;
  onError(error: UpstreamError): void;
}

/** What is to be sent. The caller builds the head; nothing is added to it. */
export interface UpstreamRequest {
  /** Request line, headers and the empty line, as latin1 text; `content-length` must match the body. */
  head: string;
  /** The body in pieces; may be empty. The buffers must not change until the attempt ends. */
  body: readonly Buffer[];
  /** True for HEAD, whose answer has no payload whatever its head says. */
  noResponseBody?: boolean;
  /** True to open a new connection even if a kept-alive one is idle: the retry after a stale socket. */
  fresh?: boolean;
}

/** The caller's hold on one running attempt. Harmless after the attempt ended. */
export interface UpstreamExchange {
  /** True if a kept-alive connection serves this attempt. */
  readonly reusedSocket: boolean;
  /** True once the connection stands. */
  readonly connected: boolean;
  /** True until `onEnd`, `onError` or `abort()`. */
  readonly active: boolean;
  /** Bytes of the response so far, head and framing included. */
  readonly bytesReceived: number;
  /** Bytes of the request accepted by the kernel so far. */
  readonly requestBytesSent: number;
  /** Stops reading from the engine, so that its own send buffer fills. */
  pause(): void;
  resume(): void;
  /** Closes the engine's connection now; the sink hears nothing more. */
  abort(): void;
}
