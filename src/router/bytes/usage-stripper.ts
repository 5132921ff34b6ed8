import { memberCuts } from './splice.js';
import {
  EVENT_HELD_MAX_BYTES,
  SseScanner,
  type SseEvent,
  type SsePosition,
  type SseVisitor,
} from './sse-scanner.js';

/** Where relayed bytes go; they are valid only during the call. */
export interface StreamOutput {
  onBytes(buffer: Buffer, from: number, to: number): void;
}

/**
 * Passes on an OpenAI stream whose usage the gateway asked for by itself: without the usage chunk, and without a
 * `usage` member in the other chunks, since the client asked for none. Everything else leaves byte for byte.
 *
 * Events leave whole, several in one call where they came together. The beginning of an unfinished one is held back
 * (up to EVENT_HELD_MAX_BYTES, beyond that it passes unexamined), because only its end tells whether it may leave:
 * a stream that breaks leaves the client at an event boundary. The observer sees every event, dropped ones included.
 */
export class UsageStripper implements SseVisitor {
  readonly #scanner: SseScanner;
  readonly #output: StreamOutput;
  readonly #observer: SseVisitor;
  #chunk: Buffer = NOTHING;
  /** Bytes `runFrom`..`runTo` of the chunk are to leave. */
  #runFrom = 0;
  #runTo = 0;
  #lastWasDropped = false;
  #passingOversized = false;
  #stopped = false;

  readonly #strip: boolean;

  /** @param strip false passes usage on too: only the holding back of half events is left */
  constructor(output: StreamOutput, observer: SseVisitor, heldMaxBytes = EVENT_HELD_MAX_BYTES, strip = true) {
    this.#scanner = new SseScanner(heldMaxBytes);
    this.#output = output;
    this.#observer = observer;
    this.#strip = strip;
  }

  push(chunk: Buffer, from: number, to: number): void {
    this.#chunk = chunk;
    this.#runFrom = this.#runTo = from;
    // A LF may still belong to the last event; it shares that event's fate.
    if (this.#scanner.lfMayFollow && !this.#stopped && from < to && chunk[from] === LF) {
      this.#runTo++;
      if (this.#lastWasDropped) this.#runFrom++;
    }
    this.#scanner.push(chunk, from, to, this);
    if (this.#passingOversized) this.#runTo = to;
    this.#sendRun();
    this.#chunk = NOTHING;
  }

  /** The engine's stream ended in order: an event without its blank line leaves too. */
  end(): void {
    this.#scanner.end(this);
  }

  /** Nothing behind the event at hand is passed on any more. To be called while the observer is told of it. */
  stop(): void {
    this.#stopped = true;
  }

  /** Puts bytes in front of the event at hand. To be called while the observer is told of it. */
  insert(bytes: Buffer): void {
    this.#sendRun();
    this.#output.onBytes(bytes, 0, bytes.length);
  }

  /** Where the client's stream stands. */
  get position(): SsePosition {
    return this.#passingOversized ? this.#scanner.position : 'boundary';
  }

  onEvent(event: SseEvent): void {
    if (this.#stopped) return;
    this.#observer.onEvent(event);
    this.#lastWasDropped = this.#strip && event.isUsageChunk();
    this.#passingOversized = false;
    const asItLies = !event.startedEarlier || event.oversized;
    if (asItLies && !this.#lastWasDropped && !(this.#strip && event.mentionsUsage)) {
      this.#runTo = event.chunkTo;
      return;
    }
    this.#sendRun();
    this.#runFrom = this.#runTo = event.chunkTo;
    if (!this.#lastWasDropped) this.#sendWithoutUsage(event);
  }

  onOversized(buffer: Buffer, from: number, to: number): void {
    if (this.#stopped) return;
    this.#sendRun();
    this.#passingOversized = true;
    if (from < to) this.#output.onBytes(buffer, from, to);
  }

  #sendRun(): void {
    if (this.#runFrom < this.#runTo) this.#output.onBytes(this.#chunk, this.#runFrom, this.#runTo);
    this.#runFrom = this.#runTo;
  }

  #sendWithoutUsage(event: SseEvent): void {
    const { buffer, dataFrom, dataTo } = event;
    let at = event.from;
    // Data over several lines is no engine's; its usage would stay.
    const cuts =
      this.#strip && event.mentionsUsage ? memberCuts(buffer.subarray(dataFrom, dataTo), 'usage') : [];
    for (const cut of cuts) {
      if (at < dataFrom + cut.from) this.#output.onBytes(buffer, at, dataFrom + cut.from);
      at = dataFrom + cut.to;
    }
    if (at < event.to) this.#output.onBytes(buffer, at, event.to);
  }
}

const NOTHING: Buffer = Buffer.alloc(0);
const LF = 10;
