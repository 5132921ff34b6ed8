import { indexWithin, positionOf } from './byte-search.js';
import { hasEscapedLetter } from './escaped-letter.js';
import { carriesToken, isErrorEvent, isUsageChunk } from './event-meaning.js';
import { usageOf, type Usage } from './usage.js';

/**
 * Bytes of one event that are held while it arrives in pieces. A larger event passes on unexamined: final Responses
 * events of long answers stay below, and no stream may make the router hold more than this.
 */
export const EVENT_HELD_MAX_BYTES = 256 * 1024;

/** Held memory is given back after an event that needed more than this; most pieces of events are small. */
const HELD_KEPT_BYTES = 4 * 1024;

/**
 * What an event is to a client: `comment` nothing (comment lines, blank lines, fields without data), `data` something,
 * `done` the `[DONE]` of the OpenAI dialect.
 */
export type SseEventKind = 'comment' | 'data' | 'done';

/** Where a stream stands after the bytes so far; only at a `boundary` may something be put in between. */
export type SsePosition =
  | 'boundary'
  /** Lines of an unfinished event have passed, the last of them complete. */
  | 'mid_event'
  /** In the middle of a line. */
  | 'mid_line';

/**
 * One event, as the scanner shows it to a visitor: valid only during the call. Everything that costs (parsing) is done
 * when asked for, once, and only after a search over the bytes says that it may pay.
 */
export interface SseEvent {
  readonly kind: SseEventKind;
  /** The `event:` field, empty when there is none. */
  readonly name: string;
  /** Where the whole event lies, its blank line included: in the pushed chunk, or in the scanner's own memory. */
  readonly buffer: Buffer;
  readonly from: number;
  readonly to: number;
  /** The part of it that lies in the pushed chunk; the part before came with earlier chunks. */
  readonly chunkFrom: number;
  readonly chunkTo: number;
  readonly startedEarlier: boolean;
  /** Larger than the scanner may hold, so only its end is known; it is `data` without a name, and means nothing. */
  readonly oversized: boolean;
  /** The stream ended without the blank line; clients take such an event all the same. */
  readonly unterminated: boolean;
  /** Where the only data line's value lies, in `buffer`; from === to if there is no data line or several. */
  readonly dataFrom: number;
  readonly dataTo: number;
  /** A member called `usage` may be in the data, whatever its value. By bytes. */
  readonly mentionsUsage: boolean;
  /** Letters are written as escapes in it, so that searches by bytes may miss a key. */
  readonly escaped: boolean;
  /** The data as text, of several lines too. */
  text(): string;
  /** The data as JSON, undefined if it is none. */
  json(): unknown;
  isError(): boolean;
  usage(): Usage | undefined;
  /** The chunk that include_usage adds: usage, no choices. */
  isUsageChunk(): boolean;
  /** Something generated, see `carriesToken`. Parses: ask only until the first one was seen. */
  carriesToken(): boolean;
}

/** Who is told of each event. */
export interface SseVisitor {
  onEvent(event: SseEvent): void;
  /**
   * An unfinished event has grown beyond what is held: `buffer[from..to)` is what earlier pushes brought of it.
   * Only who holds events back must care: these bytes come no more, neither in an event.
   */
  onOversized?(buffer: Buffer, from: number, to: number): void;
}

/**
 * Reads server-sent events out of the bytes of a stream as they pass, in any split, with any of the three line ends,
 * without changing or copying them (but for an event that comes in pieces) and without an object per event.
 * One scanner per stream; `reset` makes it good for the next.
 *
 *     onData(slab, from, to) { scanner.push(slab, from, to, this); out.write(slab, from, to); }
 *     onEvent(event) { if (event.isError()) … }
 *
 * Between pushes `position` tells whether something may be put into the stream.
 */
export class SseScanner implements SseEvent {
  kind: SseEventKind = 'comment';
  buffer: Buffer = NOTHING;
  from = 0;
  to = 0;
  chunkFrom = 0;
  chunkTo = 0;
  startedEarlier = false;
  oversized = false;
  unterminated = false;
  dataFrom = 0;
  dataTo = 0;

  #held: Buffer = NOTHING;
  #heldBytes = 0;
  #lineEmpty = true;
  #afterCr = false;
  #lfMayFollow = false;
  #atStart = true;
  /** A CR has ended a line of this stream; until then none is looked for inside lines. */
  #usesCr = false;

  /** End of what is being pushed. */
  #pushTo = 0;
  /** Where the next backslash lies in what is being pushed, at or after the last place it was looked for from. */
  #nextBackslash = -1;
  /** The last line whose end was found in what is being pushed. */
  #lastLineFrom = -1;
  #lastLineTo = 0;

  #linesFrom = 0;
  #nameFrom = 0;
  #nameTo = 0;
  #dataLines = 0;
  #keysSearched = false;
  #usageKey = false;
  #usageObject = false;
  #errorWord = false;
  /** Letters are written as escapes, so that searches by bytes find nothing. */
  #escaped = false;
  #parsed = false;
  #json: unknown;

  constructor(private readonly heldMaxBytes = EVENT_HELD_MAX_BYTES) {}

  /** Starts on a new stream. */
  reset(): void {
    this.#releaseHeld(0);
    this.#lineEmpty = true;
    this.#afterCr = this.#lfMayFollow = this.oversized = this.#usesCr = false;
    this.#atStart = true;
  }

  /** Reads `from`..`to` of a chunk and shows each event that ends in it. */
  push(chunk: Buffer, from: number, to: number, visitor: SseVisitor): void {
    let at = from;
    if (this.#lfMayFollow && at < to) {
      this.#lfMayFollow = false;
      if (chunk[at] === LF) at++;
    }
    let start = at;
    this.#pushTo = to;
    this.#nextBackslash = this.#lastLineFrom = -1;
    // One search for all lines: streams with CR line ends are rare, and this one finds none in the others.
    let nextCr = -1;
    while (at < to) {
      if (this.#afterCr) {
        this.#afterCr = false;
        if (chunk[at] === LF) at++;
        if (at === to) break;
      }
      const byte = chunk[at] as number;
      if (this.#lineEmpty && (byte === LF || byte === CR)) {
        at++;
        if (byte === CR) {
          this.#usesCr = true;
          if (at === to) this.#lfMayFollow = true;
          else if (chunk[at] === LF) at++;
        }
        this.#finish(chunk, start, at, visitor);
        start = at;
        continue;
      }
      if (nextCr < at) nextCr = positionOf(chunk, CR, at);
      const lf = chunk.indexOf(LF, at);
      const end = Math.min(lf < 0 ? to : lf, nextCr, to);
      if (end === to) {
        this.#lineEmpty = false;
        break;
      }
      this.#lineEmpty = true;
      this.#lastLineFrom = at;
      this.#lastLineTo = end;
      if (end === nextCr) this.#afterCr = this.#usesCr = true;
      at = end + 1;
    }
    if (start < to) this.#hold(chunk, start, to, visitor);
  }

  /** The stream has ended: what is left is shown as an event of its own. */
  end(visitor: SseVisitor): void {
    if (this.position === 'boundary') return;
    this.unterminated = true;
    this.#afterCr = false;
    this.#finish(NOTHING, 0, 0, visitor);
    this.unterminated = false;
  }

  get position(): SsePosition {
    if (this.#heldBytes === 0 && !this.oversized) return 'boundary';
    return this.#lineEmpty ? 'mid_event' : 'mid_line';
  }

  /** Bytes of the unfinished event that are held. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** The last event ended with a CR at the end of a push: a LF that begins the next one belongs to it, too. */
  get lfMayFollow(): boolean {
    return this.#lfMayFollow;
  }

  get name(): string {
    return this.#nameFrom === this.#nameTo ? '' : this.buffer.toString('utf8', this.#nameFrom, this.#nameTo);
  }

  get mentionsUsage(): boolean {
    this.#searchKeys();
    return this.#usageKey || this.#escaped;
  }

  get escaped(): boolean {
    this.#searchKeys();
    return this.#escaped;
  }

  text(): string {
    if (this.#dataLines !== 1) return this.#joinedData();
    return this.buffer.toString('utf8', this.dataFrom, this.dataTo);
  }

  json(): unknown {
    if (this.#parsed) return this.#json;
    this.#parsed = true;
    this.#json = undefined;
    if (this.kind !== 'data' || this.oversized) return undefined;
    try {
      this.#json = JSON.parse(this.text());
    } catch {
      // Not JSON: the client's to judge.
    }
    return this.#json;
  }

  isError(): boolean {
    if (this.kind !== 'data') return false;
    this.#searchKeys();
    // The word stands in every form of failure, as a key or a value; response.failed may be only the event's name.
    const mayBe =
      this.#errorWord || this.#escaped || this.#nameIs('error') || this.#nameIs('response.failed');
    if (!mayBe) return false;
    return isErrorEvent(this.name, this.json());
  }

  usage(): Usage | undefined {
    this.#searchKeys();
    return this.#usageObject || this.#escaped ? usageOf(this.json()) : undefined;
  }

  isUsageChunk(): boolean {
    this.#searchKeys();
    return (this.#usageObject || this.#escaped) && isUsageChunk(this.json());
  }

  carriesToken(): boolean {
    return this.kind === 'data' && carriesToken(this.json());
  }

  /** An event ends at `end` of the chunk; shows it. */
  #finish(chunk: Buffer, start: number, end: number, visitor: SseVisitor): void {
    this.#lineEmpty = true;
    this.chunkFrom = start;
    this.chunkTo = end;
    this.startedEarlier = this.#heldBytes > 0 || this.oversized;
    if (this.#heldBytes === 0) {
      this.buffer = chunk;
      this.from = start;
      this.to = end;
    } else if (!this.oversized && this.#append(chunk, start, end)) {
      this.buffer = this.#held;
      this.from = 0;
      this.to = this.#heldBytes;
    } else {
      this.#giveUpHolding(visitor);
      this.buffer = chunk;
      this.from = start;
      this.to = end;
    }
    this.#classify();
    visitor.onEvent(this);
    this.#releaseHeld(HELD_KEPT_BYTES);
    this.oversized = false;
    this.#atStart = false;
  }

  /** Keeps the beginning of an event whose end is still to come. */
  #hold(chunk: Buffer, start: number, end: number, visitor: SseVisitor): void {
    if (this.oversized || this.#append(chunk, start, end)) return;
    this.#giveUpHolding(visitor);
  }

  /** False if that would be more than may be held. */
  #append(chunk: Buffer, from: number, to: number): boolean {
    const length = this.#heldBytes + (to - from);
    if (length > this.heldMaxBytes) return false;
    if (length > this.#held.length) {
      const larger = Buffer.allocUnsafe(Math.max(1024, 2 * length));
      this.#held.copy(larger, 0, 0, this.#heldBytes);
      this.#held = larger;
    }
    chunk.copy(this.#held, this.#heldBytes, from, to);
    this.#heldBytes = length;
    return true;
  }

  #giveUpHolding(visitor: SseVisitor): void {
    if (!this.oversized) visitor.onOversized?.(this.#held, 0, this.#heldBytes);
    this.oversized = true;
    this.#releaseHeld(0);
  }

  #releaseHeld(keepBytes: number): void {
    this.#heldBytes = 0;
    if (this.#held.length > keepBytes) this.#held = NOTHING;
  }

  /** Finds kind, name and data of the event at hand. */
  #classify(): void {
    this.#keysSearched = this.#parsed = false;
    this.#usageKey = this.#usageObject = this.#errorWord = this.#escaped = false;
    this.#nameFrom = this.#nameTo = this.#dataLines = 0;
    this.dataFrom = this.dataTo = 0;
    this.kind = 'comment';
    if (this.oversized) {
      this.kind = 'data';
      return;
    }
    this.#linesFrom = this.#atStart && this.#startsWithMark() ? this.from + 3 : this.from;
    for (let at = this.#linesFrom; at < this.to;) {
      const end = this.#lineEnd(at);
      if (end > at) this.#readLine(at, end);
      at = end + 1;
    }
    if (this.#dataLines === 0) return;
    this.kind = this.#dataLines === 1 && this.#isDone() ? 'done' : 'data';
    if (this.#dataLines > 1) this.dataFrom = this.dataTo = 0;
  }

  /** A stream may begin with a byte order mark, which belongs to no field. */
  #startsWithMark(): boolean {
    const { buffer, from } = this;
    return buffer[from] === 0xef && buffer[from + 1] === 0xbb && buffer[from + 2] === 0xbf;
  }

  /** Index of the CR or LF that ends the line, or the event's end. */
  #lineEnd(from: number): number {
    const { buffer, to } = this;
    if (buffer[from] === LF) return from;
    // Most events have one line, and its end is known since the event's was looked for.
    if (from === this.#lastLineFrom && !this.startedEarlier) return this.#lastLineTo;
    const lf = buffer.indexOf(LF, from);
    const end = lf < 0 || lf > to ? to : lf;
    if (!this.#usesCr) return end;
    const cr = buffer.indexOf(CR, from);
    return cr >= 0 && cr < end ? cr : end;
  }

  #readLine(from: number, end: number): void {
    if (this.#isField(from, end, 'data')) {
      this.#dataLines++;
      this.dataFrom = this.#valueFrom(from + 4, end);
      this.dataTo = end;
    } else if (this.#isField(from, end, 'event')) {
      this.#nameFrom = this.#valueFrom(from + 5, end);
      this.#nameTo = end;
    }
  }

  /** The line's field name is `name`: it ends with a colon or with the line. */
  #isField(from: number, end: number, name: string): boolean {
    const nameEnd = from + name.length;
    if (nameEnd > end || (nameEnd < end && this.buffer[nameEnd] !== COLON)) return false;
    for (let i = 0; i < name.length; i++) if (this.buffer[from + i] !== name.charCodeAt(i)) return false;
    return true;
  }

  /** After the colon and the one blank that may follow it. */
  #valueFrom(colon: number, end: number): number {
    const from = Math.min(colon + 1, end);
    return from < end && this.buffer[from] === SPACE ? from + 1 : from;
  }

  /** Clients look at the beginning only, and no JSON begins like that: whatever follows, to them it is the end. */
  #isDone(): boolean {
    let from = this.dataFrom;
    while (from < this.dataTo && (this.buffer[from] === SPACE || this.buffer[from] === TAB)) from++;
    if (this.dataTo - from < DONE.length) return false;
    for (let i = 0; i < DONE.length; i++) if (this.buffer[from + i] !== DONE.charCodeAt(i)) return false;
    return true;
  }

  #joinedData(): string {
    const lines: string[] = [];
    for (let at = this.#linesFrom; at < this.to;) {
      const end = this.#lineEnd(at);
      if (this.#isField(at, end, 'data'))
        lines.push(this.buffer.toString('utf8', this.#valueFrom(at + 4, end), end));
      at = end + 1;
    }
    return lines.join('\n');
  }

  /**
   * Looks for `"usage"` as a key and `"error"` in any role. Both are seven bytes long, so one search finds both: it
   * looks at the last byte of a window of seven and moves on by as much as that byte allows.
   */
  #searchKeys(): void {
    if (this.#keysSearched) return;
    this.#keysSearched = true;
    if (this.kind !== 'data' || this.oversized) return;
    const { buffer, to } = this;
    const from = this.#dataLines === 1 ? this.dataFrom : this.from;
    this.#escaped = this.#mayHaveBackslash(from, to) && hasEscapedLetter(buffer, from, to);
    for (let last = from + 6; last < to;) {
      const byte = buffer[last] as number;
      if (byte === QUOTE && buffer[last - 6] === QUOTE) {
        if (buffer[last - 5] === LOWER_U) this.#noteUsage(last);
        else if (buffer[last - 5] === LOWER_E) this.#errorWord ||= this.#isWord(last - 5, 'error');
      }
      last += KEY_SHIFT[byte] as number;
    }
  }

  /** False only if there is none; one search of a chunk does for many events. */
  #mayHaveBackslash(from: number, to: number): boolean {
    if (this.startedEarlier || this.unterminated) return true;
    if (this.#nextBackslash < from) {
      this.#nextBackslash = indexWithin(this.buffer, BACKSLASH, from, this.#pushTo);
    }
    return this.#nextBackslash < to;
  }

  #noteUsage(closingQuote: number): void {
    if (!this.#isWord(closingQuote - 5, 'usage')) return;
    const colon = this.#afterBlanks(closingQuote + 1);
    // Of several data lines the rest may stand on the next one, behind a field name.
    const several = this.#dataLines !== 1;
    if (this.buffer[colon] !== COLON && !several) return;
    this.#usageKey = true;
    this.#usageObject ||= several || this.buffer[this.#afterBlanks(colon + 1)] === OPEN_BRACE;
  }

  #isWord(from: number, word: string): boolean {
    for (let i = 1; i < word.length; i++) if (this.buffer[from + i] !== word.charCodeAt(i)) return false;
    return true;
  }

  #nameIs(name: string): boolean {
    return (
      this.#nameTo - this.#nameFrom === name.length &&
      this.#isWord(this.#nameFrom, name) &&
      this.buffer[this.#nameFrom] === name.charCodeAt(0)
    );
  }

  #afterBlanks(from: number): number {
    let at = from;
    while (at < this.to && (this.buffer[at] as number) <= SPACE) at++;
    return at;
  }
}

const NOTHING: Buffer = Buffer.alloc(0);
const DONE = '[DONE]';
const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
const QUOTE = 34;
const COLON = 58;
const BACKSLASH = 92;
const OPEN_BRACE = 123;
const LOWER_E = 101;
const LOWER_U = 117;

/** How far the window of the key search may move, by its last byte (Horspool's table for both words). */
const KEY_SHIFT = new Uint8Array(256).fill(7);
for (const word of ['"usage', '"error']) {
  for (let i = 0; i < word.length; i++) {
    const byte = word.charCodeAt(i);
    KEY_SHIFT[byte] = Math.min(KEY_SHIFT[byte] as number, 6 - i);
  }
}
