import type { ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { Clock, Timer } from '../shared/clock.js';

/** Bytes that may wait for a slow reader; beyond it the stream is closed and the reader resumes where it was. */
const BACKLOG_MAX_BYTES = 256 * 1024;
/** A comment this often keeps proxies and impatient clients from closing a quiet stream, ms. */
const HEARTBEAT_MS = 10_000;

/** A long answer to one reader: server-sent events, or plain text. Ends when the reader leaves or falls too far behind. */
export class LongAnswer {
  private readonly raw: ServerResponse;
  private heartbeat: Timer | undefined;
  private ended = false;

  constructor(
    reply: FastifyReply,
    contentType: string,
    private readonly clock: Clock,
    private readonly onEnd: () => void,
  ) {
    // Fastify must not touch the answer any more: what follows is written piece by piece.
    reply.hijack();
    this.raw = reply.raw;
    this.raw.writeHead(200, {
      'content-type': contentType,
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
      connection: 'close',
    });
    this.raw.on('close', () => this.end());
    this.raw.on('error', () => this.end());
    // The head must not wait for the first event: the reader wants to know that it is connected.
    this.raw.flushHeaders();
  }

  /** One event with its id, so that `Last-Event-ID` can resume after it. False: the reader has enough for now. */
  event(id: number, data: unknown): boolean {
    return this.write(`id: ${id}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  /** Calls `goOn` whenever the reader has taken all that waited. */
  whenDrained(goOn: () => void): void {
    this.raw.on('drain', () => {
      if (!this.ended) goOn();
    });
  }

  /** Comments in quiet times; only for event streams. */
  keepAlive(): void {
    this.heartbeat = this.clock.setTimer(HEARTBEAT_MS, () => {
      this.write(': still here\n\n');
      if (!this.ended) this.keepAlive();
    });
  }

  write(chunk: string | Uint8Array): boolean {
    if (this.ended) return false;
    const takesMore = this.raw.write(chunk);
    if (this.raw.writableLength > BACKLOG_MAX_BYTES) {
      this.raw.destroy();
      this.end();
    }
    return takesMore;
  }

  /** Ends the answer without its last word: the reader must not take what it got for the whole. */
  breakOff(): void {
    if (this.ended) return;
    this.raw.socket?.destroySoon();
    this.ended = true;
    this.heartbeat?.cancel();
    this.onEnd();
  }

  /** Ends the answer; harmless when it has ended. */
  end(): void {
    if (this.ended) return;
    this.ended = true;
    this.heartbeat?.cancel();
    this.onEnd();
    if (!this.raw.destroyed) this.raw.end();
  }
}
