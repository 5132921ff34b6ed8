import type { ResponseProblem } from './response-head.js';

/**
 * How an attempt on an engine ended without a complete response:
 * - `connect_refused` nobody listens: the engine is down or still loading; nothing was sent
 * - `connect_timeout` the operating system gave up connecting (the caller's own, shorter deadline uses `abort`)
 * - `connect_failed` any other failure before the connection stood (name, route, TLS)
 * - `reset_before_response` the connection ended after it stood and before any byte of a response came; whether
 *   the engine began to work is unknown unless `requestBytesSent` is 0
 * - `reset` the connection ended, by reset or by an early clean end, inside the response
 * - `protocol_error` the response was refused as malformed, see `problem`
 * - `aborted` this side gave up: the pool was destroyed
 */
export type UpstreamErrorKind =
  | 'connect_refused'
  | 'connect_timeout'
  | 'connect_failed'
  | 'reset_before_response'
  | 'reset'
  | 'protocol_error'
  | 'aborted';

/** What is known about a failed attempt besides its kind. */
export interface UpstreamErrorFacts {
  /** True if the request went out on a kept-alive connection, where a reset may only mean that it was stale. */
  reusedSocket: boolean;
  /** Bytes of the response that had arrived, head and framing included. */
  bytesReceived: number;
  /** Bytes of the request that the kernel (or TLS layer) had accepted. */
  requestBytesSent: number;
  problem?: ResponseProblem;
  cause?: unknown;
}

/** The one error a sink is told. Its message names no address: what a client sees may quote it. */
export class UpstreamError extends Error {
  override readonly name = 'UpstreamError';
  readonly reusedSocket: boolean;
  readonly bytesReceived: number;
  readonly requestBytesSent: number;
  /** Set for `protocol_error`. */
  readonly problem: ResponseProblem | undefined;

  constructor(
    readonly kind: UpstreamErrorKind,
    facts: UpstreamErrorFacts,
  ) {
    super(MESSAGES[kind], facts.cause === undefined ? undefined : { cause: facts.cause });
    this.reusedSocket = facts.reusedSocket;
    this.bytesReceived = facts.bytesReceived;
    this.requestBytesSent = facts.requestBytesSent;
    this.problem = facts.problem;
  }
}

const MESSAGES: Record<UpstreamErrorKind, string> = {
  connect_refused: 'the engine refused the connection',
  connect_timeout: 'connecting to the engine timed out',
  connect_failed: 'the connection to the engine could not be made',
  reset_before_response: 'the engine closed the connection before it answered',
  reset: 'the engine closed the connection in the middle of its answer',
  protocol_error: 'the engine sent a malformed HTTP response',
  aborted: 'the attempt was given up',
};
