import { emptyRuns } from './byte-runs.js';
import type { DialectName } from './routes.js';

/** A half-received event held back longer than this passes as it is: a picture in one event must not fill memory. */
const HELD_MAX_BYTES = 256 * 1024;

const LF = 10;
const CR = 13;
const COLON = 58;

/**
 * Reads an engine's event stream on the side. Whole events are handed on, exactly as they came; a half-received one is
 * held back until its end is there, so that an engine that dies in the middle of a line leaves no broken line behind.
 * Clients lose nothing by it: no reader acts on half an event.
 */
export class EventStream {
  /** What the last push released: whole events. */
  readonly runs = emptyRuns();
  /** Data events among them. */
  events = 0;
  /** Those that carry a token of any kind. */
  tokens = 0;
  /** The marker after which nothing of the answer follows was among them. */
  done = false;
  /** The data of the first error event among them. */
  error: string | undefined;
  /** The very first data event was an error: the answer is one, whatever its status says. */
  startsWithError = false;
  /** Every data event so far. */
  totalEvents = 0;
  private held: Buffer | undefined;
  private searched = 0;

  constructor(private readonly dialect: DialectName) {}

  /** True while a part of an event that was too large to hold back has already been handed on. */
  passedHalf = false;

  push(slab: Buffer, from: number, to: number): void {
    this.events = 0;
    this.tokens = 0;
    this.error = undefined;
    let bytes = slab;
    let start = from;
    let end = to;
    if (this.held !== undefined) {
      bytes = Buffer.concat([this.held, slab.subarray(from, to)]);
      start = 0;
      end = bytes.length;
      this.held = undefined;
    }
    const whole = this.walk(bytes, start, end);
    this.runs.clear().add(bytes, start, whole);
    if (whole === end) return;
    if (end - whole > HELD_MAX_BYTES) {
      this.passedHalf = true;
      this.runs.add(bytes, whole, end);
    } else {
      this.held = Buffer.from(bytes.subarray(whole, end));
    }
  }

  /** Index after the last whole event. */
  private walk(bytes: Buffer, from: number, to: number): number {
    let eventStart = from;
    let lineStart = from;
    for (;;) {
      const lineEnd = bytes.indexOf(LF, lineStart);
      if (lineEnd < 0 || lineEnd >= to) return eventStart;
      const blank = lineEnd === lineStart || (lineEnd === lineStart + 1 && bytes[lineStart] === CR);
      lineStart = lineEnd + 1;
      if (!blank) continue;
      this.note(bytes, eventStart, lineStart);
      this.passedHalf = false;
      eventStart = lineStart;
    }
  }

  private note(bytes: Buffer, from: number, to: number): void {
    if (bytes[from] === COLON && bytes.indexOf('\ndata:', from, 'latin1') < 0) return;
    const dataAt = bytes.subarray(from, to).indexOf('data:', 0, 'latin1');
    if (dataAt < 0) return;
    this.events += 1;
    this.totalEvents += 1;
    const event = bytes.toString('latin1', from, Math.min(to, from + HEAD_OF_EVENT));
    if (isDone(event, this.dialect)) this.done = true;
    else if (isError(event)) {
      this.error ??= dataOf(bytes.toString('utf8', from, to));
      if (this.totalEvents === 1) this.startsWithError = true;
    } else this.tokens += 1;
  }
}

const HEAD_OF_EVENT = 128;

function isDone(event: string, dialect: DialectName): boolean {
  switch (dialect) {
    case 'openai':
      return /(?:^|\n)data: ?\[DONE\]/.test(event);
    case 'anthropic':
      return /(?:^|\n)event: ?message_stop/.test(event);
    case 'responses':
      return /(?:^|\n)event: ?response\.(?:completed|failed|incomplete)/.test(event);
  }
}

function isError(event: string): boolean {
  return (
    /(?:^|\n)event: ?error\b/.test(event) ||
    /(?:^|\n)data: ?\{\s*"(?:error"\s*:\s*[{"]|object"\s*:\s*"error")/.test(event)
  );
}

function dataOf(event: string): string {
  return event
    .split(/\r?\n/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart())
    .join('\n');
}
