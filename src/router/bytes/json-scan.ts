import { isUtf8 } from 'node:buffer';

import { JSON_BYTE, JsonWalker } from './json-walker.js';

/** A run of bytes in a body: `from` inclusive, `to` exclusive. */
export interface ByteRange {
  readonly from: number;
  readonly to: number;
}

/** Longest model name, in bytes between the quotes as sent. Names beyond it name nothing; decoding them is waste. */
export const MODEL_NAME_MAX_BYTES = 1024;

/** What a request body says about `stream_options.include_usage`; `other` is any value but a boolean, null apart. */
export type IncludeUsage = 'true' | 'false' | 'absent' | 'null' | 'other';

/** The `stream_options` member of a body. */
export interface StreamOptionsScan {
  /** The whole value. */
  readonly range: ByteRange;
  /** `object` can take another member, `null` can be replaced, `other` is the engine's to refuse. */
  readonly kind: 'object' | 'null' | 'other';
  /** True for `{}`. */
  readonly empty: boolean;
  readonly includeUsage: IncludeUsage;
  /** The value of `include_usage`, undefined when absent. */
  readonly includeUsageRange: ByteRange | undefined;
  /** True only for a literal `true`. */
  readonly continuousUsageStats: boolean;
}

/**
 * What a scan found in a body that can be routed. Ranges are of values (quotes included). Of a member that occurs
 * twice the last counts, as it does for JSON.parse and the engines; only `model` may not occur twice.
 */
export interface ScannedBody {
  readonly ok: true;
  /** Decoded. */
  readonly model: string;
  readonly modelRange: ByteRange;
  /** True only for a literal `true`; the engine's content-type has the last word on what it made of `1` or `"true"`. */
  readonly stream: boolean;
  readonly streamRange: ByteRange | undefined;
  readonly streamOptions: StreamOptionsScan | undefined;
  /** Undefined when absent or not a number; not checked further. */
  readonly maxTokens: number | undefined;
  readonly maxCompletionTokens: number | undefined;
  readonly maxOutputTokens: number | undefined;
  readonly n: number | undefined;
  readonly messages: ByteRange | undefined;
  readonly prompt: ByteRange | undefined;
  readonly input: ByteRange | undefined;
  readonly tools: ByteRange | undefined;
  readonly system: ByteRange | undefined;
  readonly instructions: ByteRange | undefined;
  /** Bytes of strings inside containers that are no text but pictures, sound or files, and how many there are. */
  readonly blobBytes: number;
  readonly blobs: number;
  /** Where a first member can be inserted (with a comma after it: a routable body is never empty). */
  readonly afterOpen: number;
  /** Where a last member can be inserted (with a comma before it). */
  readonly beforeClose: number;
}

/** Why a body cannot be routed. `at` is a byte offset, for the log and the message. */
export type BodyProblem =
  | {
      readonly kind: 'invalid_json';
      readonly at: number;
      readonly detail: 'empty' | 'byte_order_mark' | 'not_utf8' | 'not_an_object' | 'syntax';
    }
  | { readonly kind: 'too_deep'; readonly at: number }
  | { readonly kind: 'missing_model' }
  | {
      readonly kind: 'invalid_model';
      readonly at: number;
      readonly detail: 'not_a_string' | 'empty' | 'too_long';
    }
  /** Two members that some engine would take for `model`: what is authorised must be what is forwarded. */
  | { readonly kind: 'duplicate_model'; readonly at: number };

export type BodyScan = ScannedBody | { readonly ok: false; readonly problem: BodyProblem };

/**
 * Finds what routing needs in a JSON request body, in one pass over its bytes and without building objects.
 *
 * The whole grammar is checked, to the last byte, because llama.cpp answers broken JSON with a 500 that would look
 * like a sick engine. Accepted is what `JSON.parse(body.toString())` accepts as an object, except that
 * - bytes that are not UTF-8 are refused (toString would quietly replace them, engines differ),
 * - containers nested deeper than JSON_DEPTH_MAX are refused,
 * - a second `model` is refused, also one written with escapes or in other letter case (`Model`), which engines
 *   written in Go take for the same member.
 * A byte order mark is refused, as JSON.parse does.
 */
export function scanBody(body: Buffer): BodyScan {
  return new BodyScanner(body).scan();
}

const KEYS = [
  'model',
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
  'n',
  'messages',
  'prompt',
  'input',
  'tools',
  'system',
  'max_output_tokens',
  'instructions',
] as const;
const OPTION_KEYS = ['include_usage', 'continuous_usage_stats'] as const;

/** Positions in KEYS, for the slots of a scanner. */
const MODEL = 0;
const STREAM = 1;
const STREAM_OPTIONS = 2;
const MAX_TOKENS = 3;
const MAX_COMPLETION_TOKENS = 4;
const N = 5;
const MESSAGES = 6;
const PROMPT = 7;
const INPUT = 8;
const TOOLS = 9;
const SYSTEM = 10;
const MAX_OUTPUT_TOKENS = 11;
const INSTRUCTIONS = 12;
/** Any other spelling of `model`. */
const OTHER_CASE_MODEL = 13;

/** Longest raw form of a key we know: `max_completion_tokens` all in `\uXXXX`. */
const KEY_MAX_BYTES = 6 * 'max_completion_tokens'.length;

class BodyScanner {
  readonly #body: Buffer;
  readonly #walker: JsonWalker;
  /** Start and end of the value per key, 0 when absent (no value starts at 0). */
  readonly #from = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
  readonly #to = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
  #duplicateModelAt = 0;

  constructor(body: Buffer) {
    this.#body = body;
    this.#walker = new JsonWalker(body);
  }

  scan(): BodyScan {
    const body = this.#body;
    const start = this.#walker.skipSpace(0);
    if (start === body.length) return invalid('empty', start);
    if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) return invalid('byte_order_mark', 0);
    if (body[start] !== JSON_BYTE.OPEN_OBJECT) return this.#notAnObject(start);
    const close = this.#members(start);
    if (close < 0) return this.#syntax();
    const rest = this.#walker.skipSpace(close);
    if (rest !== body.length) return invalid('syntax', rest);
    if (!isUtf8(body)) return invalid('not_utf8', 0);
    return this.#result(start, close);
  }

  /** Walks the outermost object member by member; returns the index after its closing brace, or -1. */
  #members(open: number): number {
    const walker = this.#walker;
    const body = this.#body;
    let at = walker.skipSpace(open + 1);
    if (body[at] === JSON_BYTE.CLOSE_OBJECT) return at + 1;
    for (;;) {
      if (body[at] !== JSON_BYTE.QUOTE) return walker.fail(at);
      const escapes = walker.escapes;
      const keyEnd = walker.skipString(at);
      if (keyEnd < 0) return -1;
      const key = this.#keyAt(at + 1, keyEnd - 1, walker.escapes !== escapes);
      const valueAt = walker.skipColon(keyEnd);
      if (valueAt < 0) return -1;
      const valueEnd = walker.skipValue(valueAt, 1);
      if (valueEnd < 0) return -1;
      if (key >= 0) this.#note(key, valueAt, valueEnd);
      at = walker.skipSpace(valueEnd);
      if (body[at] === JSON_BYTE.CLOSE_OBJECT) return at + 1;
      if (body[at] !== JSON_BYTE.COMMA) return walker.fail(at);
      at = walker.skipSpace(at + 1);
    }
  }

  /** Position in KEYS of the key whose raw text is `from`..`to`, OTHER_CASE_MODEL, or -1. */
  #keyAt(from: number, to: number, escaped: boolean): number {
    const length = to - from;
    if (escaped && length <= KEY_MAX_BYTES) {
      const key = JSON.parse(this.#body.toString('utf8', from - 1, to + 1)) as string;
      const known = (KEYS as readonly string[]).indexOf(key);
      return known < 0 && key.toLowerCase() === 'model' ? OTHER_CASE_MODEL : known;
    }
    return this.#plainKeyAt(from, length);
  }

  #plainKeyAt(from: number, length: number): number {
    switch (length) {
      case 1:
        return this.#equals(from, 'n') ? N : -1;
      case 5:
        if (this.#equals(from, 'model')) return MODEL;
        if (this.#equals(from, 'input')) return INPUT;
        if (this.#equals(from, 'tools')) return TOOLS;
        return this.#body.toString('latin1', from, from + 5).toLowerCase() === 'model'
          ? OTHER_CASE_MODEL
          : -1;
      case 6:
        if (this.#equals(from, 'stream')) return STREAM;
        if (this.#equals(from, 'prompt')) return PROMPT;
        return this.#equals(from, 'system') ? SYSTEM : -1;
      case 8:
        return this.#equals(from, 'messages') ? MESSAGES : -1;
      case 10:
        return this.#equals(from, 'max_tokens') ? MAX_TOKENS : -1;
      case 12:
        return this.#equals(from, 'instructions') ? INSTRUCTIONS : -1;
      case 14:
        return this.#equals(from, 'stream_options') ? STREAM_OPTIONS : -1;
      case 17:
        return this.#equals(from, 'max_output_tokens') ? MAX_OUTPUT_TOKENS : -1;
      case 21:
        return this.#equals(from, 'max_completion_tokens') ? MAX_COMPLETION_TOKENS : -1;
      default:
        return -1;
    }
  }

  #note(key: number, from: number, to: number): void {
    if (key === MODEL && this.#from[MODEL] !== 0) this.#duplicateModelAt = from;
    this.#from[key] = from;
    this.#to[key] = to;
  }

  #result(start: number, close: number): BodyScan {
    const range = this.#range(MODEL);
    if (range === undefined) return refused({ kind: 'missing_model' });
    const duplicateAt = Math.max(this.#duplicateModelAt, this.#from[OTHER_CASE_MODEL] as number);
    if (duplicateAt > 0) return refused({ kind: 'duplicate_model', at: duplicateAt });
    const model = this.#model(range);
    if (typeof model !== 'string') return refused(model);
    const stream = this.#range(STREAM);
    return {
      ok: true,
      model,
      modelRange: range,
      stream: stream !== undefined && this.#is(stream, 'true'),
      streamRange: stream,
      streamOptions: this.#streamOptions(this.#range(STREAM_OPTIONS)),
      maxTokens: this.#number(MAX_TOKENS),
      maxCompletionTokens: this.#number(MAX_COMPLETION_TOKENS),
      maxOutputTokens: this.#number(MAX_OUTPUT_TOKENS),
      n: this.#number(N),
      messages: this.#range(MESSAGES),
      prompt: this.#range(PROMPT),
      input: this.#range(INPUT),
      tools: this.#range(TOOLS),
      system: this.#range(SYSTEM),
      instructions: this.#range(INSTRUCTIONS),
      blobBytes: this.#walker.blobBytes,
      blobs: this.#walker.blobs,
      afterOpen: start + 1,
      beforeClose: close - 1,
    };
  }

  #range(key: number): ByteRange | undefined {
    const from = this.#from[key] as number;
    return from === 0 ? undefined : { from, to: this.#to[key] as number };
  }

  #model({ from, to }: ByteRange): string | BodyProblem {
    if (this.#body[from] !== JSON_BYTE.QUOTE)
      return { kind: 'invalid_model', at: from, detail: 'not_a_string' };
    if (to - from === 2) return { kind: 'invalid_model', at: from, detail: 'empty' };
    if (to - from - 2 > MODEL_NAME_MAX_BYTES) return { kind: 'invalid_model', at: from, detail: 'too_long' };
    const text = this.#body.toString('utf8', from + 1, to - 1);
    return text.includes('\\') ? (JSON.parse(`"${text}"`) as string) : text;
  }

  #streamOptions(range: ByteRange | undefined): StreamOptionsScan | undefined {
    if (range === undefined) return undefined;
    if (this.#body[range.from] !== JSON_BYTE.OPEN_OBJECT) {
      return { ...NO_STREAM_OPTIONS, range, kind: this.#is(range, 'null') ? 'null' : 'other' };
    }
    const [includeUsageRange, continuous] = this.#optionRanges(range);
    return {
      range,
      kind: 'object',
      empty: this.#walker.skipSpace(range.from + 1) === range.to - 1,
      includeUsage: this.#includeUsage(includeUsageRange),
      includeUsageRange,
      continuousUsageStats: continuous !== undefined && this.#is(continuous, 'true'),
    };
  }

  /** The values of OPTION_KEYS in an object whose grammar is known to be right. */
  #optionRanges(object: ByteRange): (ByteRange | undefined)[] {
    // A walker goes forward only, and the body's has passed this place.
    const walker = new JsonWalker(this.#body.subarray(0, object.to));
    const ranges: (ByteRange | undefined)[] = [undefined, undefined];
    let at = walker.skipSpace(object.from + 1);
    while (at < object.to - 1) {
      const keyEnd = walker.skipString(at);
      const raw = keyEnd - at > KEY_MAX_BYTES ? '""' : this.#body.toString('utf8', at, keyEnd);
      const key = (OPTION_KEYS as readonly string[]).indexOf(JSON.parse(raw) as string);
      const from = walker.skipColon(keyEnd);
      const to = walker.skipValue(from, 2);
      if (key >= 0) ranges[key] = { from, to };
      at = walker.skipSpace(to);
      if (this.#body[at] === JSON_BYTE.COMMA) at = walker.skipSpace(at + 1);
    }
    return ranges;
  }

  #includeUsage(range: ByteRange | undefined): IncludeUsage {
    if (range === undefined) return 'absent';
    if (this.#is(range, 'true')) return 'true';
    if (this.#is(range, 'false')) return 'false';
    return this.#is(range, 'null') ? 'null' : 'other';
  }

  #number(key: number): number | undefined {
    const from = this.#from[key] as number;
    const to = this.#to[key] as number;
    // 32 digits are far beyond any token count; a number may be as long as the body.
    if (from === 0 || to - from > 32) return undefined;
    let value = 0;
    for (let at = from; at < to; at++) {
      const digit = (this.#body[at] as number) - ZERO;
      if (digit < 0 || digit > 9 || at - from > 14) return numberOf(this.#body.toString('latin1', from, to));
      value = value * 10 + digit;
    }
    return value;
  }

  #is(range: ByteRange, word: string): boolean {
    return range.to - range.from === word.length && this.#equals(range.from, word);
  }

  #equals(from: number, word: string): boolean {
    for (let i = 0; i < word.length; i++) if (this.#body[from + i] !== word.charCodeAt(i)) return false;
    return true;
  }

  #syntax(): BodyScan {
    const at = this.#walker.failedAt;
    return this.#walker.tooDeep ? refused({ kind: 'too_deep', at }) : invalid('syntax', at);
  }

  /** Tells `[]` and `"x"`, which are JSON, from what is not. */
  #notAnObject(start: number): BodyScan {
    const end = this.#walker.skipValue(start, 0);
    if (end < 0) return this.#syntax();
    const rest = this.#walker.skipSpace(end);
    return invalid(rest === this.#body.length ? 'not_an_object' : 'syntax', rest);
  }
}

const ZERO = 48;

/** The number a JSON value is, undefined for a value of another type. */
function numberOf(value: string): number | undefined {
  return /^[-0-9]/.test(value) ? Number(value) : undefined;
}

const NO_STREAM_OPTIONS = {
  empty: false,
  includeUsage: 'absent',
  includeUsageRange: undefined,
  continuousUsageStats: false,
} as const;

function refused(problem: BodyProblem): BodyScan {
  return { ok: false, problem };
}

function invalid(detail: Extract<BodyProblem, { kind: 'invalid_json' }>['detail'], at: number): BodyScan {
  return refused({ kind: 'invalid_json', at, detail });
}
