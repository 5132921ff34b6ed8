import type { Clock, Timer } from '../shared/clock.js';
import { writeLines, type Logger } from '../shared/logger.js';

/** Longest a finished line waits for others to leave with it. */
const FLUSH_AFTER_MS = 100;
/** Memory for waiting lines; when it is full they leave at once. */
const BUFFER_BYTES = 64 * 1024;
/** Room a line needs at most: ids and names are bounded, so this is several times the longest. */
const LINE_MAX_BYTES = 16 * 1024;

/** One finished request, as its log line shows it. Never any text of a prompt, an answer or a credential. */
export interface AccessRecord {
  readonly requestId: string;
  readonly method: string;
  readonly route: string;
  /** The model that had the request. */
  readonly model: string | undefined;
  /** The model the client asked for, where another one had the request. */
  readonly insteadOf?: string | undefined;
  readonly status: number;
  /** `ok`, or the code of what went wrong. */
  readonly outcome: string;
  readonly durationMs: number;
  readonly queueMs?: number | undefined;
  readonly firstTokenMs?: number | undefined;
  readonly stream?: boolean | undefined;
  readonly endpoint?: string | undefined;
  readonly attempts?: number | undefined;
  readonly promptTokens?: number | undefined;
  readonly completionTokens?: number | undefined;
  readonly cachedTokens?: number | undefined;
  readonly bytesIn?: number | undefined;
  readonly bytesOut?: number | undefined;
  readonly key?: string | undefined;
  readonly profile?: string | undefined;
  /** What the client's SDK says about its own retries. */
  readonly clientRetries?: string | undefined;
  /** The engine's failure in the gateway's own words; for people, so it may name what a client must not see. */
  readonly detail?: string | undefined;
}

/** One line a request, written in batches: a write per line costs more than the rest of the accounting. */
export class AccessLog {
  private readonly buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  private used = 0;
  private secondMs = Number.NaN;
  private secondText = '';
  private timer: Timer | undefined;

  constructor(
    private readonly logger: Logger,
    private readonly clock: Clock,
  ) {}

  write(record: AccessRecord): void {
    if (!this.logger.isLevelEnabled('info')) return;
    // Written down at once: text put together from thirty pieces must not live until the others are there.
    this.used += this.buffer.write(this.render(record), this.used, 'latin1');
    if (this.used > BUFFER_BYTES - LINE_MAX_BYTES) this.flush();
    else this.timer ??= this.clock.setTimer(FLUSH_AFTER_MS, this.flush);
  }

  /** Writes what is waiting; at shutdown, and in tests that look at the log. */
  readonly flush = (): void => {
    this.timer?.cancel();
    this.timer = undefined;
    if (this.used === 0) return;
    const lines = this.buffer.toString('latin1', 0, this.used);
    this.used = 0;
    writeLines(this.logger, lines);
  };

  /** As `toISOString`, which is asked once a second. */
  private timeNow(): string {
    const now = Math.floor(this.clock.wallMs());
    const millis = ((now % 1000) + 1000) % 1000;
    if (now - millis !== this.secondMs) {
      this.secondMs = now - millis;
      this.secondText = new Date(this.secondMs).toISOString().slice(0, -4);
    }
    return `${this.secondText}${millis < 10 ? '00' : millis < 100 ? '0' : ''}${millis}Z`;
  }

  private render(record: AccessRecord): string {
    let line = `{"level":"info","time":"${this.timeNow()}","component":"access","requestId":${quoted(record.requestId)}`;
    line += `,"method":${quoted(record.method)},"route":${quoted(record.route)}`;
    line += text('model', record.model) + text('insteadOf', record.insteadOf);
    line += `,"status":${record.status},"outcome":${quoted(record.outcome)}`;
    line += number('durationMs', record.durationMs) + number('queueMs', record.queueMs);
    line += number('firstTokenMs', record.firstTokenMs);
    if (record.stream !== undefined) line += `,"stream":${record.stream}`;
    line += text('endpoint', record.endpoint) + number('attempts', record.attempts);
    line += number('promptTokens', record.promptTokens) + number('completionTokens', record.completionTokens);
    line += number('cachedTokens', record.cachedTokens);
    line += number('bytesIn', record.bytesIn) + number('bytesOut', record.bytesOut);
    line += text('key', record.key) + text('profile', record.profile);
    line += text('clientRetries', record.clientRetries) + text('detail', record.detail);
    return `${line},"msg":"request"}\n`;
  }
}

const text = (name: string, value: string | undefined): string =>
  value === undefined ? '' : `,"${name}":${quoted(value)}`;

const number = (name: string, value: number | undefined): string =>
  value === undefined ? '' : `,"${name}":${Math.round(value * 10) / 10}`;

const NEEDS_ESCAPE = /[^ !#-[\]-~]/;
const NOT_ASCII = /[^ -~]/g;

/** Nearly nothing that is logged needs escapes; what does takes the long way. All of a line is plain ASCII. */
const quoted = (value: string): string => (NEEDS_ESCAPE.test(value) ? escaped(value) : `"${value}"`);

const escaped = (value: string): string =>
  JSON.stringify(value).replace(
    NOT_ASCII,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
