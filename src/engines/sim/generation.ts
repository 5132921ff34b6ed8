import type { Exchange } from '../http1/http1-server.js';
import type { AnswerSink } from './answer-sink.js';
import type { AnswerContext, AnswerFormat } from './formats/answer-format.js';
import type { PrefillJob, PrefillLane } from './prefill-lane.js';
import { blockHashes, BYTES_PER_TOKEN, type PrefixCache, tokenCount } from './prefix-cache.js';
import type { Slots, SlotUser } from './slots.js';
import type { SimOutcome, SimRequestRecord, SimStats } from './stats.js';
import { type Due, SLACK_MS, type Ticker } from './ticker.js';
import type { HeaderMoment } from './dialect.js';
import type { SimOptions } from './options.js';

/** The engine's parts that every generation works with. */
export interface EngineParts {
  readonly options: SimOptions;
  readonly slots: Slots;
  readonly lane: PrefillLane;
  readonly ticker: Ticker;
  readonly cache: PrefixCache;
  readonly stats: SimStats;
  readonly nowMs: () => number;
}

export interface GenerationInput {
  readonly exchange: Exchange;
  readonly context: AnswerContext;
  readonly format: AnswerFormat;
  readonly sink: AnswerSink;
  readonly record: SimRequestRecord;
  /** UTF-8 of the rendered prompt. */
  readonly promptBytes: Buffer;
  /** When the head leaves; undefined for a whole answer. */
  readonly headers: HeaderMoment | undefined;
  /** Go on when the client leaves. */
  readonly ignoreDisconnect: boolean;
  /** Send comment lines each so many milliseconds and never a token. */
  readonly commentsEveryMs: number | undefined;
}

type Phase = 'queued' | 'prefill' | 'decode' | 'over';

/** Most bytes of a stream put into one write when tokens cost no time. */
const WRITE_BYTES = 16 * 1024;

/** A whole answer looks at the load again after this many tokens. */
const WHOLE_STEP_TOKENS = 16;

/** One request on its way: queue, prompt, tokens, end. Ends at once when its client leaves, in every phase. */
export class Generation implements SlotUser, PrefillJob, Due {
  dueMs = 0;
  heapIndex = -1;
  costMs = 0;

  private phase: Phase = 'queued';
  private emitted = 0;
  private clientLeft = false;
  /** Of the prompt's full blocks. */
  private hashes: number[] = [];
  /** When the token is due that a slow client holds back. */
  private heldDueMs: number | undefined;
  /** Tokens that the next tick of a whole answer stands for. */
  private wholeStep = 1;
  private pinger: Pinger | undefined;

  constructor(
    private readonly parts: EngineParts,
    private readonly input: GenerationInput,
  ) {}

  /** True once nothing more will come. */
  get over(): boolean {
    return this.phase === 'over';
  }

  /** SGLang's request id, for an abort by id. */
  get rid(): string | undefined {
    return this.input.context.request.rid;
  }

  start(): void {
    const { exchange, sink, headers } = this.input;
    exchange.onGone = () => this.onClientLeft();
    exchange.onDrain = () => this.onDrain();
    if (headers === 'accepted') sink.begin();
    if (exchange.done) return this.end('faulted');
    this.parts.slots.take(this);
  }

  onSlot(): void {
    const { parts, input } = this;
    const { record, context } = input;
    const { options, cache, stats } = parts;
    this.phase = 'prefill';
    record.startedAfterMs = parts.nowMs() - record.receivedAtMs;
    stats.maxRunning = Math.max(stats.maxRunning, parts.slots.running);
    if (input.headers === 'slot') input.sink.begin();
    if (input.exchange.done) return this.end('faulted');
    this.startComments();
    this.hashes = blockHashes(input.promptBytes, options.blockTokens);
    // The last token is always computed, so a whole prompt in the cache still leaves its last block to do.
    const usable = Math.min(
      cache.match(this.hashes),
      Math.floor(Math.max(0, context.promptTokens - 1) / options.blockTokens),
    );
    context.cachedTokens = usable * options.blockTokens;
    record.cachedTokens = context.cachedTokens;
    stats.promptTokens += context.promptTokens;
    stats.cachedTokens += context.cachedTokens;
    this.costMs = (context.promptTokens - context.cachedTokens) * options.prefillMsPerToken * this.slowdown();
    if (this.costMs > 0) parts.lane.add(this);
    else this.onPrefilled(parts.nowMs());
  }

  onPrefilled(nowMs: number): void {
    const { options, cache, ticker } = this.parts;
    this.phase = 'decode';
    cache.touch(this.hashes);
    const firstMs = options.ttftMs * this.slowdown();
    if (this.input.commentsEveryMs !== undefined) return;
    if (firstMs > 0) ticker.schedule(this, nowMs + firstMs);
    else this.onDue(nowMs);
  }

  /** The next token is due; whatever else is due by now goes out in the same write. */
  onDue(nowMs: number): void {
    if (this.phase !== 'decode') return;
    if (this.emitted === 0) this.noteFirstToken(nowMs);
    if (this.input.headers === undefined) this.growWhole(nowMs);
    else this.growStream(nowMs);
  }

  /** Ends it as if its client had left; for `/abort_request`. */
  abort(): void {
    this.input.exchange.cut();
    this.onClientLeft();
  }

  private growStream(nowMs: number): void {
    const { sink, context, format, exchange } = this.input;
    const { options, ticker } = this.parts;
    let dueMs = this.heldDueMs ?? (this.dueMs > 0 ? this.dueMs : nowMs);
    this.heldDueMs = undefined;
    let heldBytes = 0;
    while (this.emitted < context.answer.tokens && dueMs <= nowMs + SLACK_MS) {
      const event = format.token(this.emitted);
      sink.event(event);
      this.countToken();
      dueMs += options.tpotMs * this.slowdown();
      heldBytes += event.length;
      if (heldBytes < WRITE_BYTES) continue;
      heldBytes = 0;
      if (!this.flush()) return this.holdFor(dueMs);
      if (this.over) return;
    }
    if (this.emitted >= context.answer.tokens) return this.finish();
    if (!this.flush()) return this.holdFor(dueMs);
    if (exchange.done && !this.clientLeft) return this.end('faulted');
    ticker.schedule(this, dueMs);
  }

  private holdFor(dueMs: number): void {
    if (!this.over) this.heldDueMs = dueMs;
  }

  private onDrain(): void {
    if (this.heldDueMs === undefined || this.phase !== 'decode') return;
    this.onDue(this.parts.nowMs());
  }

  /** False = wait for the client to read. */
  private flush(): boolean {
    const taken = this.input.sink.flush();
    if (this.input.exchange.done && !this.clientLeft) this.end('faulted');
    return taken || this.clientLeft;
  }

  private growWhole(nowMs: number): void {
    const { answer } = this.input.context;
    const { options, ticker } = this.parts;
    if (options.tpotMs === 0) {
      while (this.emitted < answer.tokens) this.countToken();
      return this.finish();
    }
    const from = this.dueMs > 0 ? this.dueMs : nowMs;
    for (let step = 0; step < this.wholeStep; step++) this.countToken();
    if (this.emitted >= answer.tokens) return this.finish();
    this.wholeStep = Math.min(WHOLE_STEP_TOKENS, answer.tokens - this.emitted);
    ticker.schedule(this, from + this.wholeStep * options.tpotMs * this.slowdown());
  }

  private finish(): void {
    const { sink, format, headers } = this.input;
    if (headers === undefined) sink.event(format.whole());
    else for (const event of format.closing()) sink.event(event);
    sink.finish();
    this.keepAnswerCached();
    this.end(this.clientLeft ? 'aborted' : 'completed');
  }

  /** The next turn of this conversation starts with this prompt and this answer; its blocks are in memory now. */
  private keepAnswerCached(): void {
    const { options, cache } = this.parts;
    const { promptBytes, context } = this.input;
    if (context.answer.toolCall !== undefined || options.cacheBlocks === 0) return;
    const tail = promptBytes.subarray(this.hashes.length * options.blockTokens * BYTES_PER_TOKEN);
    const added = Buffer.concat([tail, Buffer.from(context.answer.text())]);
    const more = blockHashes(added, options.blockTokens, this.hashes.at(-1));
    if (more.length > 0) cache.touch([...this.hashes, ...more]);
  }

  private noteFirstToken(nowMs: number): void {
    const { record, sink, format, headers } = this.input;
    const { stats } = this.parts;
    this.pinger?.stop();
    record.firstTokenAfterMs = nowMs - record.receivedAtMs;
    stats.firstTokens++;
    stats.firstTokenMsSum += record.firstTokenAfterMs;
    if (headers !== undefined) for (const event of format.opening()) sink.event(event);
  }

  private countToken(): void {
    this.emitted++;
    this.parts.stats.tokensGenerated++;
    if (this.clientLeft) this.parts.stats.tokensAfterAbort++;
  }

  /** How many times slower than alone, by how many run: 1 for one, `loadFactor` for all slots. */
  private slowdown(): number {
    const { options, slots } = this.parts;
    if (options.loadFactor === 1 || options.slots === 1) return 1;
    return 1 + ((options.loadFactor - 1) * (slots.running - 1)) / (options.slots - 1);
  }

  private startComments(): void {
    const { options, ticker, nowMs } = this.parts;
    const { commentsEveryMs, exchange, sink, headers } = this.input;
    const everyMs = commentsEveryMs ?? (options.dialect === 'llamacpp' ? options.pingMs : 0);
    if (everyMs <= 0 || headers === undefined) return;
    const text = commentsEveryMs === undefined ? ':\n\n' : ': keep-alive\n\n';
    this.pinger = new Pinger(ticker, nowMs, everyMs, () => {
      sink.begin();
      exchange.chunk(text);
    });
  }

  private onClientLeft(): void {
    if (this.over) return this.input.sink.dispose();
    this.clientLeft = true;
    if (!this.input.exchange.cutByServer) this.parts.stats.abortedByClient++;
    if (this.input.ignoreDisconnect) return this.onDrain();
    this.input.sink.dispose();
    this.end('aborted');
  }

  private end(outcome: SimOutcome): void {
    if (this.over) return;
    const { stats, ticker, lane, slots, nowMs } = this.parts;
    const { record, exchange, context } = this.input;
    this.phase = 'over';
    this.pinger?.stop();
    ticker.cancel(this);
    lane.remove(this);
    record.outcome = record.faults.length > 0 && outcome === 'completed' ? 'faulted' : outcome;
    record.status = exchange.started ? 200 : undefined;
    record.outputTokens = this.emitted;
    record.endedAfterMs = nowMs() - record.receivedAtMs;
    if (outcome === 'completed') stats.completed++;
    stats.longestTokens = Math.max(stats.longestTokens, context.promptTokens + this.emitted);
    slots.leave(this);
  }
}

/** Writes a comment line into a silent stream now and then. */
class Pinger implements Due {
  dueMs = 0;
  heapIndex = -1;

  constructor(
    private readonly ticker: Ticker,
    nowMs: () => number,
    private readonly everyMs: number,
    private readonly ping: () => void,
  ) {
    ticker.schedule(this, nowMs() + everyMs);
  }

  onDue(nowMs: number): void {
    this.ping();
    this.ticker.schedule(this, nowMs + this.everyMs);
  }

  stop(): void {
    this.ticker.cancel(this);
  }
}

/** Tokens of a rendered prompt. */
export function promptTokens(promptBytes: Buffer): number {
  return Math.max(1, tokenCount(promptBytes.length));
}
