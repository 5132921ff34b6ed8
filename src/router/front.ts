import type { ByteRuns } from './byte-runs.js';
import type { GatewayError } from './dialects.js';

/** Name, value, name, value … of response headers. */
export type HeaderList = readonly string[];

/** How the client will know where the body ends; `stream` = when it is over. */
export type AnswerLength = number | 'stream';

/**
 * The client's side of one exchange, as the pipeline sees it: give a head, give bytes, end or cut. Whatever reads the
 * request (node:http now, a leaner reader for canonical requests later) stays behind it.
 *
 * Calls are synchronous and never throw. After the client has left they do nothing.
 */
export interface Front {
  /** True once a head was given. */
  readonly headGiven: boolean;
  /** Status and headers; they leave together with the first bytes given in the same turn of the loop. */
  head(status: number, headers: HeaderList, length: AnswerLength): void;
  /**
   * The next bytes of the body, in one write; copied where they cannot be sent at once.
   * False: the client is slow; stop reading from the engine until `FrontSink.onDrain`.
   */
  give(runs: ByteRuns): boolean;
  /** The last bytes, if any, and the end of the answer, in one write. */
  finish(runs: ByteRuns): void;
  /** Breaks the connection, so that no reader can take what it has for a whole answer. */
  cut(): void;
  /** Asks for the body; until then nothing of it is read. */
  startBody(sink: FrontSink): void;
}

/** What the pipeline is told by the client's side. */
export interface FrontSink {
  /** Bytes of the body, the sink's to keep. */
  onBody(bytes: Buffer): void;
  /** The body is complete. */
  onBodyEnd(): void;
  /** The rest of the body will not come. */
  bodyRefused(error: GatewayError): void;
  /** The client takes bytes again. */
  onDrain(): void;
  /** The client left before the answer was complete. Nothing follows. */
  onClientGone(): void;
}
