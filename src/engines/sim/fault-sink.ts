import type { Exchange } from '../http1/http1-server.js';
import type { AnswerSink } from './answer-sink.js';
import { DONE_EVENT } from './formats/answer-format.js';
import type { FaultName, FaultSet } from './faults.js';
import type { Due, Ticker } from './ticker.js';

/** Faults that change how an answer is written; the others are played before it or beside it. */
export const WRITING_FAULTS: readonly FaultName[] = [
  'headers-then-reset',
  'reset-after-events',
  'clean-cut-after-events',
  'half-event-then-reset',
  'error-first',
  'error-mid',
  'stall',
  'drip',
  'garbage',
  'split-utf8',
  'giant-event',
  'burst',
  'one-byte',
  'wrong-content-length',
  'no-done',
];

type Step =
  | { readonly kind: 'write'; readonly bytes: Buffer }
  | { readonly kind: 'wait'; readonly ms: number }
  /** Lets the event loop turn, so that the next write is its own segment. */
  | { readonly kind: 'turn' }
  | { readonly kind: 'end'; readonly how: 'finish' | 'cut' | 'reset' };

export interface FaultSinkOptions {
  readonly exchange: Exchange;
  readonly stream: boolean;
  readonly headerLines: string;
  readonly faults: FaultSet;
  readonly ticker: Ticker;
  /** Monotonic milliseconds. */
  readonly nowMs: () => number;
  /** The events that end a stream with an error. */
  readonly errorEvents: () => string[];
}

/**
 * Writes an answer the wrong way. What is to happen on the wire is a queue of steps that one pump carries out in order, so
 * that faults combine: a stall in a stream that drips, a reset in the middle of a burst.
 * A whole answer counts as two events, the halves of its body.
 */
export class FaultSink implements AnswerSink, Due {
  dueMs = 0;
  heapIndex = -1;

  private readonly steps: Step[] = [];
  private pumping = false;
  private events = 0;
  /** The script has ended the answer; what comes after is dropped. */
  private sealed = false;
  private stalled = false;
  private wholeBody = '';

  constructor(private readonly options: FaultSinkOptions) {}

  begin(): void {
    const { exchange, stream, headerLines, faults } = this.options;
    if (exchange.started || !stream) return;
    exchange.begin(200, headerLines);
    if (faults.has('headers-then-reset')) this.seal('reset');
    else if (faults.has('error-first')) this.sealWithError();
  }

  event(text: string): void {
    if (!this.options.stream) {
      this.wholeBody += text;
      return;
    }
    this.begin();
    if (this.options.faults.has('no-done') && text === DONE_EVENT) return;
    this.take(text);
  }

  flush(): boolean {
    this.begin();
    if (!this.options.faults.has('burst')) this.pump();
    return true;
  }

  finish(): void {
    if (!this.options.stream) this.takeWhole();
    this.seal('finish');
  }

  dispose(): void {
    this.steps.length = 0;
    this.sealed = true;
    this.options.ticker.cancel(this);
  }

  onDue(): void {
    this.pumping = false;
    this.pump();
  }

  private takeWhole(): void {
    const { exchange, headerLines, faults } = this.options;
    const body = Buffer.from(faults.has('garbage') ? spoil(this.wholeBody) : this.wholeBody);
    const extra = faults.number('wrong-content-length', 0, 10) ?? 0;
    exchange.beginWithLength(200, headerLines, Math.max(0, body.length + extra));
    if (extra !== 0) exchange.closeAfter = true;
    if (faults.has('headers-then-reset')) return this.seal('reset');
    const half = body.length >> 1;
    this.takeBytes(body.subarray(0, half));
    this.takeBytes(body.subarray(half));
  }

  private take(text: string): void {
    const { faults } = this.options;
    let event = text;
    const garbageAt = faults.number('garbage', 0, -1);
    if (garbageAt !== undefined && (garbageAt < 0 || garbageAt === this.events)) event = spoil(event);
    const giantBytes = faults.number('giant-event', 0, 1_000_000);
    if (giantBytes !== undefined && this.events === 0) event = inflate(event, giantBytes);
    this.takeBytes(Buffer.from(event));
  }

  /** Adds one event's bytes and, where the script says so, what happens after it. */
  private takeBytes(bytes: Buffer): void {
    if (this.sealed) return;
    const { faults, exchange } = this.options;
    if (this.events === faults.number('half-event-then-reset', 0, 1)) {
      this.steps.push({ kind: 'write', bytes: exchange.frame(bytes.subarray(0, bytes.length >> 1)) });
      return this.seal('reset');
    }
    if (!this.checkEnds()) return;
    if (this.events === faults.number('stall', 0, 1)) this.stall();
    this.pushWrites(bytes);
    this.events++;
    // Looked at after the event too: "after 2 events" must not wait for a third.
    if (this.checkEnds() && this.events === faults.number('stall', 0, 1)) this.stall();
  }

  private stall(): void {
    if (this.stalled) return;
    this.stalled = true;
    this.steps.push({ kind: 'wait', ms: this.options.faults.number('stall', 1, 1000) ?? 0 });
  }

  /** False when the answer ends here. */
  private checkEnds(): boolean {
    const { faults } = this.options;
    if (this.events === faults.number('reset-after-events', 0, 1)) this.seal('reset');
    else if (this.events === faults.number('clean-cut-after-events', 0, 1)) {
      this.seal(this.options.stream ? 'finish' : 'cut');
    } else if (this.options.stream && this.events === faults.number('error-mid', 0, 1)) this.sealWithError();
    return !this.sealed;
  }

  private pushWrites(bytes: Buffer): void {
    const { faults, exchange } = this.options;
    const framed = exchange.frame(bytes);
    const dripMs = faults.number('drip', 0, 10);
    if (dripMs !== undefined || faults.has('one-byte')) {
      for (let index = 0; index < framed.length; index++) {
        this.steps.push({ kind: 'write', bytes: framed.subarray(index, index + 1) });
        this.steps.push(dripMs === undefined ? { kind: 'turn' } : { kind: 'wait', ms: dripMs });
      }
    } else if (faults.has('split-utf8')) {
      for (const part of splitInCharacters(framed)) {
        this.steps.push({ kind: 'write', bytes: part }, { kind: 'turn' });
      }
    } else if (faults.has('burst')) {
      const last = this.steps.at(-1);
      if (last?.kind === 'write') this.steps.pop();
      const before = last?.kind === 'write' ? last.bytes : Buffer.alloc(0);
      this.steps.push({ kind: 'write', bytes: Buffer.concat([before, framed]) });
    } else {
      this.steps.push({ kind: 'write', bytes: framed });
    }
  }

  private sealWithError(): void {
    const { exchange } = this.options;
    for (const event of this.options.errorEvents()) {
      this.steps.push({ kind: 'write', bytes: exchange.frame(Buffer.from(event)) });
    }
    this.seal('finish');
  }

  private seal(how: 'finish' | 'cut' | 'reset'): void {
    if (this.sealed) return;
    this.sealed = true;
    this.steps.push({ kind: 'end', how });
    this.pump();
  }

  private pump(): void {
    if (this.pumping) return;
    for (let step = this.steps.shift(); step !== undefined; step = this.steps.shift()) {
      if (this.carryOut(step)) continue;
      this.pumping = true;
      return;
    }
  }

  /** False when the steps after it have to wait. */
  private carryOut(step: Step): boolean {
    const { exchange, ticker, nowMs } = this.options;
    switch (step.kind) {
      case 'write':
        exchange.raw(step.bytes);
        return true;
      case 'wait':
        ticker.schedule(this, nowMs() + step.ms);
        return false;
      case 'turn':
        setImmediate(() => this.onDue());
        return false;
      case 'end':
        if (step.how === 'finish') exchange.end();
        else if (step.how === 'cut') exchange.cut();
        else exchange.reset();
        return true;
    }
  }
}

/** Takes the first `}` out: the JSON no longer closes. Events keep their form, so a reader by events reads on. */
function spoil(event: string): string {
  return event.startsWith('data: [DONE]') ? event : event.replace('}', '');
}

/** Blank space after the opening brace: the event grows, its meaning stays. */
function inflate(event: string, bytes: number): string {
  const missing = bytes - Buffer.byteLength(event);
  return missing <= 0 ? event : event.replace('{', `{${' '.repeat(missing)}`);
}

/** Cuts behind the first byte of every character of more than one byte. */
function splitInCharacters(bytes: Buffer): Buffer[] {
  const parts: Buffer[] = [];
  let start = 0;
  for (let index = 0; index < bytes.length; index++) {
    if ((bytes[index] ?? 0) < 0xc0) continue;
    parts.push(bytes.subarray(start, index + 1));
    start = index + 1;
  }
  parts.push(bytes.subarray(start));
  return parts;
}
