import { hasEscapedLetter } from './escaped-letter.js';

/**
 * Token counts as an engine reported them. What was not reported stays undefined: missing is not zero.
 * The dialects' differences are gone here: `promptTokens` always includes the cached ones.
 */
export interface Usage {
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
  /** Prompt tokens that came out of the engine's cache; part of `promptTokens`. */
  readonly cachedTokens: number | undefined;
}

/** Bytes of a JSON answer's end that are kept to look for its usage; engines put it last or nearly so. */
export const USAGE_TAIL_MAX_BYTES = 16 * 1024;

type Json = Record<string, unknown>;

/**
 * Usage out of one JSON value an engine sent: a whole non-streamed answer, or the data of one stream event.
 * Knows OpenAI chat and completions (vLLM's running usage too), Anthropic messages (`message_start` carries it inside
 * `message`) and Responses (inside `response`). Undefined if it carries none.
 */
export function usageOf(json: unknown): Usage | undefined {
  if (!isObject(json)) return undefined;
  for (const holder of [json, json['message'], json['response']]) {
    if (!isObject(holder)) continue;
    const usage = isObject(holder['usage']) ? countsOf(holder['usage']) : undefined;
    if (usage !== undefined) return usage;
  }
  return undefined;
}

/** Later counts over earlier ones: Anthropic splits them over two events, vLLM's running ones replace each other. */
export function mergeUsage(before: Usage | undefined, later: Usage): Usage {
  if (before === undefined) return later;
  return {
    promptTokens: later.promptTokens ?? before.promptTokens,
    completionTokens: later.completionTokens ?? before.completionTokens,
    cachedTokens: later.cachedTokens ?? before.cachedTokens,
  };
}

/** The counts of one `usage` object, undefined if it holds none that we know. */
function countsOf(usage: Json): Usage | undefined {
  const cacheRead = count(usage['cache_read_input_tokens']);
  const cacheWritten = count(usage['cache_creation_input_tokens']);
  const details = usage['prompt_tokens_details'] ?? usage['input_tokens_details'];
  const cachedTokens = (isObject(details) ? count(details['cached_tokens']) : undefined) ?? cacheRead;
  const completionTokens = count(usage['completion_tokens']) ?? count(usage['output_tokens']);
  const input = count(usage['input_tokens']);
  // Anthropic's input_tokens leaves out what was read from or written to the cache; Responses' does not.
  const wholeInput = input === undefined ? undefined : input + (cacheRead ?? 0) + (cacheWritten ?? 0);
  const promptTokens = count(usage['prompt_tokens']) ?? wholeInput;
  if (promptTokens === undefined && completionTokens === undefined) return undefined;
  return { promptTokens, completionTokens, cachedTokens };
}

function count(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : undefined;
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Keeps the end of a non-streamed JSON answer while it passes, and reads the usage out of it afterwards: answers may
 * be large (embeddings), and neither holding nor parsing them whole would be right on the way.
 */
export class UsageTail {
  #tail = NOTHING;
  #length = 0;
  #whole = true;

  /** Starts on a new answer. */
  reset(): void {
    this.#tail = NOTHING;
    this.#length = 0;
    this.#whole = true;
  }

  push(chunk: Buffer, from: number, to: number): void {
    const length = to - from;
    if (length >= USAGE_TAIL_MAX_BYTES) {
      this.#whole = this.#whole && this.#length === 0 && length === USAGE_TAIL_MAX_BYTES;
      this.#grow(USAGE_TAIL_MAX_BYTES);
      chunk.copy(this.#tail, 0, to - USAGE_TAIL_MAX_BYTES, to);
      this.#length = USAGE_TAIL_MAX_BYTES;
      return;
    }
    if (this.#length + length > USAGE_TAIL_MAX_BYTES)
      this.#dropOldest(this.#length + length - USAGE_TAIL_MAX_BYTES);
    this.#grow(this.#length + length);
    chunk.copy(this.#tail, this.#length, from, to);
    this.#length += length;
  }

  /** Usage of the answer that passed, undefined if there is none or it is not in the kept end. */
  read(): Usage | undefined {
    return usageIn(this.#tail, 0, this.#length, this.#whole);
  }

  /** Nothing shows that the JSON goes on: a short answer parses, the last byte of a long one closes something. */
  get closes(): boolean {
    if (this.#whole) return parsed(this.#tail.toString('latin1', 0, this.#length)) !== undefined;
    let last = this.#length - 1;
    while (last >= 0 && (this.#tail[last] as number) <= SPACE) last--;
    return this.#tail[last] === CLOSE_BRACE || this.#tail[last] === CLOSE_BRACKET;
  }

  #dropOldest(bytes: number): void {
    this.#tail.copyWithin(0, bytes, this.#length);
    this.#length -= bytes;
    this.#whole = false;
  }

  #grow(length: number): void {
    if (length <= this.#tail.length) return;
    const larger = Buffer.allocUnsafe(Math.min(USAGE_TAIL_MAX_BYTES, Math.max(2048, 2 * length)));
    this.#tail.copy(larger, 0, 0, this.#length);
    this.#tail = larger;
  }
}

const NOTHING: Buffer = Buffer.alloc(0);

/** Usage of a whole answer at hand; looks as far back from its end as `UsageTail` does. */
export function usageOfAnswer(bytes: Buffer, from: number, to: number): Usage | undefined {
  const start = Math.max(from, to - USAGE_TAIL_MAX_BYTES);
  return usageIn(bytes, start, to, start === from);
}

/** Usage of an answer that lies in `from`..`to`: `whole`, or only its end. */
function usageIn(bytes: Buffer, from: number, to: number, whole: boolean): Usage | undefined {
  if (to - from < KEY_BYTES.length) return undefined;
  const last = bytes.lastIndexOf(KEY_BYTES, to - KEY_BYTES.length);
  // Parsing an answer that has no such word anywhere would be for nothing.
  if (last < from) return whole ? escapedUsageIn(bytes, from, to) : undefined;
  // With one such word there is nothing to tell apart, and only its own object need be parsed.
  const once = bytes[from] === OPEN_BRACE && !(last > from && bytes.lastIndexOf(KEY_BYTES, last - 1) >= from);
  // Names and numbers are ASCII; what else the text holds may be read as anything.
  if (whole && !once) return usageOf(parsed(bytes.toString('latin1', from, to)));
  return lastUsageIn(bytes.toString('latin1', once ? last : from, to));
}

/** The word may stand there in escapes. */
function escapedUsageIn(bytes: Buffer, from: number, to: number): Usage | undefined {
  return hasEscapedLetter(bytes, from, to) ? usageOf(parsed(bytes.toString('latin1', from, to))) : undefined;
}

/**
 * The last `usage` object in a piece of JSON text whose beginning is missing. `"usage"` with a colon behind it can
 * only be a key: inside a string its quotes would have backslashes before them.
 */
function lastUsageIn(text: string): Usage | undefined {
  for (let at = text.lastIndexOf(KEY); at >= 0; at = at === 0 ? -1 : text.lastIndexOf(KEY, at - 1)) {
    const open = objectAfter(text, at + KEY.length);
    if (open < 0) continue;
    const usage = parsed(text.slice(open, closingBrace(text, open) + 1));
    const counts = isObject(usage) ? countsOf(usage) : undefined;
    if (counts !== undefined) return counts;
  }
  return undefined;
}

const KEY = '"usage"';
const KEY_BYTES = Buffer.from(KEY);
const QUOTE = 34;
const BACKSLASH = 92;
const COLON = 58;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const CLOSE_BRACKET = 93;
const SPACE = 32;

/** Index of the brace that opens the value of a key that ends at `from`; -1 if it is no key or its value no object. */
function objectAfter(text: string, from: number): number {
  const colon = afterBlanks(text, from);
  if (text.charCodeAt(colon) !== COLON) return -1;
  const open = afterBlanks(text, colon + 1);
  return text.charCodeAt(open) === OPEN_BRACE ? open : -1;
}

function afterBlanks(text: string, from: number): number {
  let at = from;
  while (text.charCodeAt(at) <= SPACE) at++;
  return at;
}

/** Index of the brace that closes the one at `open`; the end of the text if none does. */
function closingBrace(text: string, open: number): number {
  let depth = 0;
  for (let at = open; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) at = endOfString(text, at);
    else if (char === OPEN_BRACE) depth++;
    else if (char === CLOSE_BRACE && --depth === 0) return at;
  }
  return text.length;
}

function endOfString(text: string, open: number): number {
  let at = open + 1;
  for (; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) break;
    if (char === BACKSLASH) at++;
  }
  return at;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
