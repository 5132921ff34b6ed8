import type { Attempt } from './attempt.js';
import type { ByteRuns } from './byte-runs.js';
import { HEARTBEAT_MS, type ClientAnswer } from './client-answer.js';
import type { DeadlineWatch } from './deadline-watch.js';
import type { EventStream } from './event-stream.js';
import type { ExchangeFacts } from './exchange-account.js';
import type { RoutedRequest } from './tries.js';

const NEVER = Number.POSITIVE_INFINITY;

/** What became of an answer that is being given: `idle` the engine, `stalled` the client is too slow. */
export type RelayVerdict = { readonly due: 'idle' | 'stalled' } | { readonly nextMs: number };

/** An answer on its way from the attempt that won to the client: what passed, when, and who is the slow one. */
export class RelayProgress {
  private lastEventMs: number;
  private lastTokenMs: number;

  constructor(
    private readonly request: RoutedRequest,
    private readonly attempt: Attempt,
    private readonly answer: ClientAnswer,
    private readonly facts: ExchangeFacts,
    /** Told when something becomes due earlier than before. */
    private readonly watch: DeadlineWatch,
    /** When the first token had to be there, monotonic. */
    private readonly firstTokenDueMs: number,
    nowMs: number,
  ) {
    this.lastEventMs = nowMs;
    this.lastTokenMs = nowMs;
    watch.by(this.dueMs);
    if (answer.streamed) watch.by(nowMs + HEARTBEAT_MS);
  }

  /** Bytes of a whole answer; false when the client is slow. */
  bytes(runs: ByteRuns, nowMs: number): boolean {
    this.lastEventMs = nowMs;
    return this.answer.give(runs, nowMs);
  }

  /** Counts what the last push of a stream brought. */
  events(stream: EventStream, nowMs: number): void {
    if (stream.events === 0) return;
    this.answer.events += stream.events;
    this.lastEventMs = nowMs;
    if (stream.error !== undefined) this.facts.engineError = true;
    if (stream.tokens === 0) return;
    this.facts.tokenEvents += stream.tokens;
    if (this.facts.firstTokenMs === undefined) this.firstToken(nowMs);
    else this.request.model.series.interToken.observe((nowMs - this.lastTokenMs) / 1000);
    this.lastTokenMs = nowMs;
    this.facts.lastTokenMs = nowMs;
  }

  private firstToken(nowMs: number): void {
    const { attempt } = this;
    this.facts.firstTokenMs = nowMs - attempt.sentAtMs;
    attempt.endpoint.rates.firstToken(attempt.tokensAhead, this.facts.firstTokenMs / 1000);
    // Until now the first token was waited for, which may take longer than the pause to the next one.
    this.watch.by(this.dueMs);
  }

  /** The client takes bytes again. The engine could not send while it was paused; its time starts anew. */
  drained(nowMs: number): void {
    this.answer.slowSinceMs = undefined;
    this.lastEventMs = nowMs;
    this.attempt.resume();
  }

  /** When the engine's or the client's patience ends, monotonic. */
  get dueMs(): number {
    const { slowSinceMs } = this.answer;
    const { clientStallMs, deadlines } = this.request.profile;
    // While the client is the slow one the engine cannot be.
    if (slowSinceMs !== undefined) return clientStallMs === 0 ? NEVER : slowSinceMs + clientStallMs;
    if (deadlines.idleMs === 0) return NEVER;
    const idleDueMs = this.lastEventMs + deadlines.idleMs;
    // A chunk that only names the role may come long before the prompt is read.
    const waitsForToken = this.answer.streamed && this.facts.firstTokenMs === undefined;
    return waitsForToken && this.firstTokenDueMs !== NEVER
      ? Math.max(idleDueMs, this.firstTokenDueMs)
      : idleDueMs;
  }

  /** What is due now; keeps a silent stream alive with comments. */
  look(nowMs: number): RelayVerdict {
    const { dueMs, answer } = this;
    const slow = answer.slowSinceMs !== undefined;
    if (nowMs >= dueMs) return { due: slow ? 'stalled' : 'idle' };
    if (slow || !answer.streamed || this.attempt.insideEvent) return { nextMs: dueMs };
    if (nowMs - answer.lastWriteMs >= HEARTBEAT_MS) answer.heartbeat(nowMs);
    return { nextMs: Math.min(this.dueMs, answer.lastWriteMs + HEARTBEAT_MS) };
  }
}
