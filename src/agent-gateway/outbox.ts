import type { WireServerMessage } from '../agent-protocol/wire.js';

/** Commands and requests that wait for a slow stream; a stream that takes none for long is closed by its heartbeat. */
export const OUTBOX_MAX = 256;

/** The part of a stream an outbox needs. */
export interface MessageSink {
  /** False asks to wait for `drain`. */
  write(message: WireServerMessage): boolean;
  on(event: 'drain', listener: () => void): unknown;
}

/**
 * Messages on their way to one agent. Bounded: a stream that takes no bytes must not fill the memory. Commands are never
 * dropped silently (`send` says no and the next pass decides anew); of acknowledgements and pings only the newest counts.
 */
export class Outbox {
  private readonly queue: WireServerMessage[] = [];
  private ack: WireServerMessage | undefined;
  private ping: WireServerMessage | undefined;
  private blocked = false;
  private closed = false;

  constructor(private readonly sink: MessageSink) {
    sink.on('drain', () => this.flush());
  }

  /** Messages waiting. */
  get waiting(): number {
    return this.queue.length + (this.ack === undefined ? 0 : 1) + (this.ping === undefined ? 0 : 1);
  }

  /** Sends now or as soon as the stream takes bytes; false when too much waits already. */
  send(message: WireServerMessage): boolean {
    if (this.closed || this.queue.length >= OUTBOX_MAX) return false;
    this.queue.push(message);
    this.writeWaiting();
    return true;
  }

  /** Sends, replacing a message of the same kind that still waits. */
  sendLatest(kind: 'ack' | 'ping', message: WireServerMessage): void {
    if (this.closed) return;
    this[kind] = message;
    this.writeWaiting();
  }

  close(): void {
    this.closed = true;
    this.queue.length = 0;
    this.ack = undefined;
    this.ping = undefined;
  }

  private flush(): void {
    this.blocked = false;
    this.writeWaiting();
  }

  private writeWaiting(): void {
    while (!this.blocked && !this.closed) {
      const message = this.next();
      if (message === undefined) return;
      this.blocked = !this.sink.write(message);
    }
  }

  /** Commands first: a stop must not wait behind acknowledgements. */
  private next(): WireServerMessage | undefined {
    const command = this.queue.shift();
    if (command !== undefined) return command;
    const kind = this.ping === undefined ? 'ack' : 'ping';
    const message = this[kind];
    this[kind] = undefined;
    return message;
  }
}
