import { BodyBuffer, type BodyRefusal } from './body-buffer.js';
import type { GatewayError } from './dialects.js';
import type { RouterCore } from './exchange-account.js';
import { readBody, type ReadBody } from './request-body.js';
import type { RequestHead } from './request-head.js';
import type { EngineRoute } from './routes.js';

/** Longest pause in the middle of a request's body, ms; whoever sends slower holds memory for nothing. */
const BODY_STALL_MS = 60_000;
/**
 * Time for all of a body, ms, and how much more each byte of it gains: a large one over a slow line takes long, while one
 * that is sent a byte a minute would never be over.
 */
const BODY_TOTAL_MS = 300_000;
const BODY_BYTES_PER_MS = 16;
/** A body from this size on is read in a turn of its own. */
const LARGE_BODY_BYTES = 1024 * 1024;

/** Who is told what became of a body. */
export interface IntakeOwner {
  bodyRead(body: ReadBody, bytes: number): void;
  bodyRefused(error: GatewayError): void;
}

/** Takes a request's body in: bounded, in its time, and read once it is whole. */
export class BodyIntake {
  /** When the body's next bytes must be there, monotonic. */
  dueMs: number;
  private readonly buffer: BodyBuffer;
  private over = false;

  constructor(
    private readonly core: RouterCore,
    announcedBytes: number,
    private readonly owner: IntakeOwner,
    private readonly startedMs: number,
  ) {
    this.buffer = new BodyBuffer(core.config.bodyLimit, core.bodies, announcedBytes);
    this.dueMs = startedMs + BODY_STALL_MS;
  }

  push(bytes: Buffer, nowMs: number): void {
    if (this.over) return;
    const refusal = this.buffer.push(bytes);
    const totalMs = BODY_TOTAL_MS + this.buffer.length / BODY_BYTES_PER_MS;
    this.dueMs = Math.min(nowMs + BODY_STALL_MS, this.startedMs + totalMs);
    if (refusal !== undefined) this.refuse(refusal);
  }

  end(head: RequestHead, route: EngineRoute): void {
    if (this.over) return;
    if (this.buffer.length < LARGE_BODY_BYTES) this.read(head, route);
    else this.core.turns.add(() => this.read(head, route));
  }

  expire(): void {
    this.over = true;
    this.owner.bodyRefused({ code: 'bad_request', message: 'the body did not arrive in time' });
  }

  refuse(refusal: BodyRefusal): void {
    this.over = true;
    this.owner.bodyRefused(
      refusal === 'too_large'
        ? {
            code: 'request_too_large',
            message: `the body is larger than ${this.core.config.bodyLimit} bytes`,
          }
        : { code: 'queue_full', message: 'too many large requests are being held' },
    );
  }

  /** The bytes are needed no more. */
  release(): void {
    this.over = true;
    this.buffer.release();
  }

  private read(head: RequestHead, route: EngineRoute): void {
    // The client may have left while this waited for its turn.
    if (this.over) return;
    this.over = true;
    const bytes = this.buffer.take();
    const reading = readBody(bytes, head.contentType, route);
    if (reading.ok) this.owner.bodyRead(reading.body, bytes.length);
    else this.owner.bodyRefused(reading.error);
  }
}
