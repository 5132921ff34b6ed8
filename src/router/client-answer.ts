import { giveEngineError, giveError, plainHeaders, streamHeaders } from './answer-heads.js';
import { emptyRuns, oneRun, textRun, type ByteRuns } from './byte-runs.js';
import { dialectOf, type Dialect, type GatewayError } from './dialects.js';
import type { EngineErrorAnswer } from './engine-answer.js';
import type { Front, HeaderList } from './front.js';
import type { DialectName } from './routes.js';
import type { UpstreamHead } from './upstream/response-head.js';

/** Pause after which a comment shows everybody between here and the client that the stream lives, ms. */
export const HEARTBEAT_MS = 10_000;

const EVENT_STREAM = 'text/event-stream';

/**
 * What the client gets, and in which form things can still be said to it: a real status while none is out, an event
 * once a stream has begun, a broken connection when a whole answer has. Knows nothing of engines or attempts.
 */
export class ClientAnswer {
  /** The answer is an event stream. */
  streamed = false;
  /** Status given, or that an error in the stream stands for. */
  status: number | undefined;
  bytes = 0;
  /** Data events given. */
  events = 0;
  lastWriteMs = 0;
  /** Since when the client takes no more bytes; undefined while it does. */
  slowSinceMs: number | undefined;
  /** Until when a stream's status waits for its first event. */
  private holdUntilMs = Number.POSITIVE_INFINITY;
  private begun = false;
  private finished = false;
  private readonly words: Dialect;

  constructor(
    private readonly front: Front,
    private readonly dialect: DialectName,
    private readonly common: string[],
  ) {
    this.words = dialectOf(dialect);
  }

  /** A status is out. */
  get statusGiven(): boolean {
    return this.front.headGiven;
  }

  addHeaders(headers: HeaderList): void {
    for (const text of headers) this.common.push(text);
  }

  /** The header says that `value`; undefined takes it away. Too late once a status is out. */
  setHeader(name: string, value: string | undefined): void {
    const at = this.common.indexOf(name);
    if (at >= 0) this.common.splice(at, 2);
    if (value !== undefined) this.common.push(name, value);
  }

  /** The status cannot wait any longer: an event stream begins that has no event yet. */
  commitStatus(nowMs: number): boolean {
    this.status = 200;
    this.streamed = true;
    this.front.head(200, streamHeaders(this.common, EVENT_STREAM), 'stream');
    return this.heartbeat(nowMs);
  }

  /** From `untilMs` on, or from before, a stream's status does not wait for its first event. Returns when that is. */
  hold(untilMs: number): number {
    if (this.statusGiven) return Number.POSITIVE_INFINITY;
    return (this.holdUntilMs = Math.min(this.holdUntilMs, untilMs));
  }

  /** Shows a silent stream's client that it lives: a status when it is held no longer, then comments. Returns when to ask again. */
  showLife(nowMs: number): number {
    if (!this.statusGiven) {
      if (nowMs < this.holdUntilMs) return this.holdUntilMs;
      this.commitStatus(nowMs);
    } else if (nowMs - this.lastWriteMs >= HEARTBEAT_MS) this.heartbeat(nowMs);
    return this.lastWriteMs + HEARTBEAT_MS;
  }

  /** A comment (or ping) between two events; false when the client is slow. */
  heartbeat(nowMs: number): boolean {
    return this.give(textRun(this.words.heartbeat), nowMs);
  }

  /** The engine's answer begins. False when a stream was promised and this is none. */
  begin(head: UpstreamHead, streamed: boolean, extra: HeaderList, nowMs: number): boolean {
    if (this.statusGiven) {
      this.begun = streamed;
      return streamed;
    }
    this.begun = true;
    this.lastWriteMs = nowMs;
    this.status = head.status;
    this.streamed = streamed;
    const common = extra.length === 0 ? this.common : [...this.common, ...extra];
    if (streamed) {
      this.front.head(head.status, streamHeaders(common, head.contentType ?? EVENT_STREAM), 'stream');
    } else {
      this.front.head(head.status, plainHeaders(common, head), bodyLength(head));
    }
    return true;
  }

  /** False when the client is slow. */
  give(runs: ByteRuns, nowMs: number): boolean {
    this.bytes += runs.length;
    this.lastWriteMs = nowMs;
    if (this.front.give(runs)) return true;
    this.slowSinceMs ??= nowMs;
    return false;
  }

  /** The last bytes and the end. */
  finish(runs: ByteRuns): void {
    if (this.finished) return;
    this.finished = true;
    this.bytes += runs.length;
    this.front.finish(runs);
  }

  /** The end, when it is not out yet. */
  complete(): void {
    if (!this.finished) this.finish(emptyRuns());
  }

  /** Breaks the connection. */
  cut(): void {
    this.finished = true;
    this.front.cut();
  }

  /** Says an error of the gateway in the form that is left. `halfEvent`: the client has a part of an event. */
  fail(error: GatewayError, extra: FailureExtras, halfEvent: boolean): void {
    if (this.finished) return;
    if (!this.statusGiven) {
      this.finished = true;
      const common = extra.headers === undefined ? this.common : [...this.common, ...extra.headers];
      this.status = giveError(this.front, this.dialect, common, error, extra);
    } else if (this.begun && !this.streamed) {
      this.cut();
    } else {
      this.endWith(this.words.errorEvent(error, this.events), halfEvent);
    }
  }

  /** Relays an engine's error answer, as an event where a stream has begun already. */
  failAsEngine(answer: EngineErrorAnswer, meaning: GatewayError, extra: FailureExtras): void {
    if (this.finished) return;
    this.status = answer.status;
    if (this.statusGiven) {
      const json = answer.json ? answer.body.toString('utf8') : '';
      this.endWith(this.words.engineErrorEvent(json, meaning, this.events), false);
      return;
    }
    this.finished = true;
    const common = extra.headers === undefined ? this.common : [...this.common, ...extra.headers];
    giveEngineError(this.front, this.dialect, common, answer, extra.noRetry === true);
  }

  private endWith(event: string, halfEvent: boolean): void {
    // A half-sent line is closed first, or the event would become part of it.
    const bytes = Buffer.from(halfEvent ? `\n\n${event}` : event);
    this.finish(oneRun(bytes, 0, bytes.length));
  }
}

/** What may accompany an error while there still is a head to put it in. */
export interface FailureExtras {
  readonly retryAfterSeconds?: number | undefined;
  /** Every replica was tried: the client's own retries would only repeat ours. */
  readonly noRetry?: boolean;
  readonly headers?: HeaderList | undefined;
}

function bodyLength(head: UpstreamHead): number | 'stream' {
  switch (head.framing) {
    case 'length':
      return head.contentLength ?? 0;
    case 'none':
      return 0;
    case 'chunked':
    case 'close':
      return 'stream';
  }
}
