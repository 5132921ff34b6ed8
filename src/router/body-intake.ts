import { BodyBuffer, type BodyRefusal } from './body-buffer.js';
import type { GatewayError } from './dialects.js';
import type { RouterCore } from './exchange-account.js';
import { readBody, type ReadBody } from './request-body.js';
import type { RequestHead } from './request-head.js';
import type { EngineRoute } from './routes.js';

/** Longest pause in the middle of a request's body, ms; whoever sends slower holds memory for nothing. */
const BODY_STALL_MS = 60_000;
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
    nowMs: number,
  ) {
    this.buffer = new BodyBuffer(core.config.bodyLimit, core.bodies, announcedBytes);
    this.dueMs = nowMs + BODY_STALL_MS;
  }

  push(bytes: Buffer, nowMs: number): void {
    if (this.over) return;
    this.dueMs = nowMs + BODY_STALL_MS;
    const refusal = this.buffer.push(bytes);
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
