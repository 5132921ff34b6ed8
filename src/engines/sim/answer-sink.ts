import type { Exchange } from '../http1/http1-server.js';

/** Takes an answer as it grows. Events may be held until `flush`. */
export interface AnswerSink {
  /** Sends the head now; otherwise it goes out with the first flush. */
  begin(): void;
  event(text: string): void;
  /** Sends what is held in one write; false = the peer is slow, wait for the exchange's drain. */
  flush(): boolean;
  /** Sends what is held and the end of the body. */
  finish(): void;
  /** Stops everything that is still to be sent. */
  dispose(): void;
}

/** Writes a stream as it should be: one write per flush. */
export class StreamSink implements AnswerSink {
  private held = '';

  constructor(
    private readonly exchange: Exchange,
    private readonly headerLines: string,
  ) {}

  begin(): void {
    if (!this.exchange.started) this.exchange.begin(200, this.headerLines);
  }

  event(text: string): void {
    this.held += text;
  }

  flush(): boolean {
    this.begin();
    const text = this.held;
    this.held = '';
    return this.exchange.chunk(text);
  }

  finish(): void {
    this.begin();
    this.exchange.end(this.held);
    this.held = '';
  }

  dispose(): void {
    this.held = '';
  }
}

/** Gives a whole answer: its one event is the body. */
export class WholeSink implements AnswerSink {
  private body = '';

  constructor(
    private readonly exchange: Exchange,
    private readonly headerLines: string,
  ) {}

  // The head carries the length, so it cannot leave before the body.
  begin(): void {}

  event(text: string): void {
    this.body += text;
  }

  flush(): boolean {
    return true;
  }

  finish(): void {
    this.exchange.respond(200, this.headerLines, this.body);
  }

  dispose(): void {
    this.body = '';
  }
}
