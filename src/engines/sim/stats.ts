import type { SimOptions } from './options.js';

/** What one simulated engine did so far. Counters grow until `reset`; gauges are of this moment. */
export interface SimStats {
  readonly name: string;
  readonly dialect: string;
  readonly models: readonly string[];
  readonly ready: boolean;
  /** Requests for text that got past parsing. */
  requests: number;
  completed: number;
  /** Requests whose client left before the answer was complete, queued ones included. */
  abortedByClient: number;
  /** Requests refused: full queue, unknown model, too long, malformed. */
  rejected: number;
  /** Requests that met a scripted fault. */
  faulted: number;
  running: number;
  waiting: number;
  /** Most requests that ever ran at once. */
  maxRunning: number;
  promptTokens: number;
  cachedTokens: number;
  tokensGenerated: number;
  /** Tokens made for clients that had left: 0 unless `ignore-disconnect` is at work. */
  tokensAfterAbort: number;
  /** Most tokens of one request, prompt and answer. */
  longestTokens: number;
  firstTokens: number;
  firstTokenMsSum: number;
  readonly blockTokens: number;
  cacheBlocks: number;
  readonly cacheCapacityBlocks: number;
  openConnections: number;
}

/** Stats of an engine that has done nothing yet. */
export function freshStats({ name, dialect, models, blockTokens, cacheBlocks }: SimOptions): SimStats {
  return {
    name,
    dialect,
    models,
    ready: false,
    requests: 0,
    completed: 0,
    abortedByClient: 0,
    rejected: 0,
    faulted: 0,
    running: 0,
    waiting: 0,
    maxRunning: 0,
    promptTokens: 0,
    cachedTokens: 0,
    tokensGenerated: 0,
    tokensAfterAbort: 0,
    longestTokens: 0,
    firstTokens: 0,
    firstTokenMsSum: 0,
    blockTokens,
    cacheBlocks: 0,
    cacheCapacityBlocks: cacheBlocks,
    openConnections: 0,
  };
}

/** How one request came to its end. */
export type SimOutcome = 'running' | 'completed' | 'aborted' | 'rejected' | 'faulted';

/** One line of the request log. */
export interface SimRequestRecord {
  /** Grows by one per request. */
  readonly number: number;
  /** The `X-Request-Id` it came with, empty when none. */
  readonly requestId: string;
  readonly path: string;
  readonly model: string;
  readonly stream: boolean;
  /** Names of the request's headers, lower case, as sent in order; values stay out. */
  readonly headerNames: readonly string[];
  readonly receivedAtMs: number;
  readonly promptTokens: number;
  cachedTokens: number;
  outputTokens: number;
  /** Milliseconds after arrival; undefined when it never came to that. */
  startedAfterMs: number | undefined;
  firstTokenAfterMs: number | undefined;
  endedAfterMs: number | undefined;
  outcome: SimOutcome;
  status: number | undefined;
  faults: readonly string[];
}

/** The newest requests, a bounded number of them. */
export class RequestLog {
  private readonly records: SimRequestRecord[] = [];
  private oldest = 0;

  constructor(private readonly capacity: number) {}

  add(record: SimRequestRecord): void {
    if (this.records.length < this.capacity) this.records.push(record);
    else {
      this.records[this.oldest] = record;
      this.oldest = (this.oldest + 1) % this.capacity;
    }
  }

  /** Oldest first; with an id only its requests, attempts (`<id>-<n>`) included. */
  list(requestId?: string): SimRequestRecord[] {
    const all = [...this.records.slice(this.oldest), ...this.records.slice(0, this.oldest)];
    if (requestId === undefined) return all;
    return all.filter(
      (record) => record.requestId === requestId || record.requestId.startsWith(`${requestId}-`),
    );
  }

  clear(): void {
    this.records.length = 0;
    this.oldest = 0;
  }
}
