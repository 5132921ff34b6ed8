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
  readonly n: number | undefined;
  readonly messages: ByteRange | undefined;
  readonly prompt: ByteRange | undefined;
  readonly input: ByteRange | undefined;
  readonly tools: ByteRange | undefined;
  readonly system: ByteRange | undefined;
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

/** Longest raw form of a key we know: `max_completion_tokens` all in `\uXXXX`. */
const KEY_MAX_BYTES = 6 * 'max_completion_tokens'.length;

const UPPER_MODEL = /^model$/i;

class BodyScanner {
  readonly #body: Buffer;
  readonly #walker: JsonWalker;
  readonly #ranges = new Map<string, ByteRange>();
  #duplicateModelAt = -1;
  #otherCaseModelAt = -1;

  constructor(body: Buffer) {
    this.#body = body;
    this.#walker = new JsonWalker(body);
  }

  scan(): BodyScan {
    const body = this.#body;
    const start = this.#walker.skipSpace(0);
    if (start === body.length) return this.#invalid('empty', start);
    if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) return this.#invalid('byte_order_mark', 0);
    if (body[start] !== JSON_BYTE.OPEN_OBJECT) return this.#notAnObject(start);
    const close = this.#members(start, 0, (key, from, to) => this.#noteMember(key, from, to));
    if (close < 0) return this.#syntax();
    const rest = this.#walker.skipSpace(close);
    if (rest !== body.length) return this.#invalid('syntax', rest);
    if (!isUtf8(body)) return this.#invalid('not_utf8', 0);
    return this.#result(start, close);
  }

  /** Walks an object member by member; returns the index after its closing brace, or -1. */
  #members(open: number, depth: number, note: (key: string, from: number, to: number) => void): number {
    const walker = this.#walker;
    const body = this.#body;
    let at = walker.skipSpace(open + 1);
    if (body[at] === JSON_BYTE.CLOSE_OBJECT) return at + 1;
    for (;;) {
      if (body[at] !== JSON_BYTE.QUOTE) return walker.fail(at);
      const keyEnd = walker.skipString(at);
      if (keyEnd < 0) return -1;
      const key = this.#key(at + 1, keyEnd - 1);
      const valueAt = walker.skipColon(keyEnd);
      if (valueAt < 0) return -1;
      const valueEnd = walker.skipValue(valueAt, depth + 1);
      if (valueEnd < 0) return -1;
      if (key !== undefined) note(key, valueAt, valueEnd);
      at = walker.skipSpace(valueEnd);
      if (body[at] === JSON_BYTE.CLOSE_OBJECT) return at + 1;
      if (body[at] !== JSON_BYTE.COMMA) return walker.fail(at);
      at = walker.skipSpace(at + 1);
    }
  }

  /** The decoded key, undefined if it is too long to be one we look for. */
  #key(from: number, to: number): string | undefined {
    if (to - from > KEY_MAX_BYTES) return undefined;
    const raw = this.#body.toString('latin1', from, to);
    return raw.includes('\\') ? (JSON.parse(`"${raw}"`) as string) : raw;
  }

  #noteMember(key: string, from: number, to: number): void {
    switch (key) {
      case 'model':
        if (this.#ranges.has('model')) this.#duplicateModelAt = from;
        this.#ranges.set(key, { from, to });
        return;
      case 'stream':
      case 'stream_options':
      case 'max_tokens':
      case 'max_completion_tokens':
      case 'n':
      case 'messages':
      case 'prompt':
      case 'input':
      case 'tools':
      case 'system':
        this.#ranges.set(key, { from, to });
        return;
      default:
        if (key.length === 5 && UPPER_MODEL.test(key)) this.#otherCaseModelAt = from;
    }
  }

  #result(start: number, close: number): BodyScan {
    const range = this.#ranges.get('model');
    if (range === undefined) return { ok: false, problem: { kind: 'missing_model' } };
    const duplicateAt = Math.max(this.#duplicateModelAt, this.#otherCaseModelAt);
    if (duplicateAt >= 0) return { ok: false, problem: { kind: 'duplicate_model', at: duplicateAt } };
    const model = this.#model(range);
    if (typeof model !== 'string') return { ok: false, problem: model };
    const ranges = this.#ranges;
    const stream = ranges.get('stream');
    return {
      ok: true,
      model,
      modelRange: range,
      stream: stream !== undefined && this.#is(stream, 'true'),
      streamRange: stream,
      streamOptions: this.#streamOptions(ranges.get('stream_options')),
      maxTokens: this.#number(ranges.get('max_tokens')),
      maxCompletionTokens: this.#number(ranges.get('max_completion_tokens')),
      n: this.#number(ranges.get('n')),
      messages: ranges.get('messages'),
      prompt: ranges.get('prompt'),
      input: ranges.get('input'),
      tools: ranges.get('tools'),
      system: ranges.get('system'),
      afterOpen: start + 1,
      beforeClose: close - 1,
    };
  }

  #model(range: ByteRange): string | BodyProblem {
    const { from, to } = range;
    if (this.#body[from] !== JSON_BYTE.QUOTE)
      return { kind: 'invalid_model', at: from, detail: 'not_a_string' };
    if (to - from === 2) return { kind: 'invalid_model', at: from, detail: 'empty' };
    if (to - from - 2 > MODEL_NAME_MAX_BYTES) return { kind: 'invalid_model', at: from, detail: 'too_long' };
    const text = this.#body.toString('utf8', from, to);
    return text.includes('\\') ? (JSON.parse(text) as string) : text.slice(1, -1);
  }

  #streamOptions(range: ByteRange | undefined): StreamOptionsScan | undefined {
    if (range === undefined) return undefined;
    if (this.#body[range.from] !== JSON_BYTE.OPEN_OBJECT) {
      const kind = this.#is(range, 'null') ? 'null' : 'other';
      return {
        range,
        kind,
        empty: false,
        includeUsage: 'absent',
        includeUsageRange: undefined,
        continuousUsageStats: false,
      };
    }
    let includeUsageRange: ByteRange | undefined;
    let continuous: ByteRange | undefined;
    this.#members(range.from, 1, (key, from, to) => {
      if (key === 'include_usage') includeUsageRange = { from, to };
      else if (key === 'continuous_usage_stats') continuous = { from, to };
    });
    return {
      range,
      kind: 'object',
      empty: this.#walker.skipSpace(range.from + 1) === range.to - 1,
      includeUsage: this.#includeUsage(includeUsageRange),
      includeUsageRange,
      continuousUsageStats: continuous !== undefined && this.#is(continuous, 'true'),
    };
  }

  #includeUsage(range: ByteRange | undefined): IncludeUsage {
    if (range === undefined) return 'absent';
    if (this.#is(range, 'true')) return 'true';
    if (this.#is(range, 'false')) return 'false';
    return this.#is(range, 'null') ? 'null' : 'other';
  }

  #number(range: ByteRange | undefined): number | undefined {
    // 32 digits are far beyond any token count; a number may be as long as the body.
    if (range === undefined || range.to - range.from > 32) return undefined;
    const text = this.#body.toString('latin1', range.from, range.to);
    return /^[-0-9]/.test(text) ? Number(text) : undefined;
  }

  #is(range: ByteRange, word: string): boolean {
    return (
      range.to - range.from === word.length && this.#body.toString('latin1', range.from, range.to) === word
    );
  }

  #syntax(): BodyScan {
    const at = this.#walker.failedAt;
    if (this.#walker.tooDeep) return { ok: false, problem: { kind: 'too_deep', at } };
    return this.#invalid('syntax', at);
  }

  /** Tells `[]` and `"x"`, which are JSON, from what is not. */
  #notAnObject(start: number): BodyScan {
    const end = this.#walker.skipValue(start, 0);
    if (end < 0) return this.#syntax();
    const rest = this.#walker.skipSpace(end);
    return this.#invalid(rest === this.#body.length ? 'not_an_object' : 'syntax', rest);
  }

  #invalid(detail: Extract<BodyProblem, { kind: 'invalid_json' }>['detail'], at: number): BodyScan {
    return { ok: false, problem: { kind: 'invalid_json', at, detail } };
  }
}
