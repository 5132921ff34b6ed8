import type { Clock, Timer } from '../shared/clock.js';
import { writeLines, type Logger } from '../shared/logger.js';

/** Longest a finished line waits for others to leave with it. */
const FLUSH_AFTER_MS = 100;
/** Lines that leave at once, waiting or not. */
const FLUSH_AT_LINES = 256;

/** One finished request, as its log line shows it. Never any text of a prompt, an answer or a credential. */
export interface AccessRecord {
  readonly requestId: string;
  readonly method: string;
  readonly route: string;
  readonly model: string | undefined;
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
  private lines: string[] = [];
  private timer: Timer | undefined;

  constructor(
    private readonly logger: Logger,
    private readonly clock: Clock,
  ) {}

  write(record: AccessRecord): void {
    if (!this.logger.isLevelEnabled('info')) return;
    this.lines.push(this.render(record));
    if (this.lines.length >= FLUSH_AT_LINES) this.flush();
    else this.timer ??= this.clock.setTimer(FLUSH_AFTER_MS, () => this.flush());
  }

  /** Writes what is waiting; at shutdown, and in tests that look at the log. */
  flush(): void {
    this.timer?.cancel();
    this.timer = undefined;
    if (this.lines.length === 0) return;
    const lines = this.lines;
    this.lines = [];
    writeLines(this.logger, lines);
  }

  private render(record: AccessRecord): string {
    const time = new Date(this.clock.wallMs()).toISOString();
    const { durationMs, queueMs, firstTokenMs, ...rest } = record;
    return `${JSON.stringify({
      level: 'info',
      time,
      component: 'access',
      ...rest,
      durationMs: rounded(durationMs),
      queueMs: rounded(queueMs),
      firstTokenMs: rounded(firstTokenMs),
      msg: 'request',
    })}\n`;
  }
}

const rounded = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Math.round(ms * 10) / 10;
