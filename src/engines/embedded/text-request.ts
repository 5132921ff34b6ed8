import { arrayOf, isObject, type JsonObject, numberOf, objectOf, stringOf } from '../json-fields.js';
import type { Random } from '../../shared/random.js';
import { ApiError } from './api-error.js';
import type { ChatMessage, Sampling } from './llama-runtime.js';

/** A request for text, read and checked. */
export interface TextRequest {
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly continuousUsage: boolean;
  readonly sampling: Sampling;
}

/** A prompt of `/v1/completions`: text or token ids. */
export type Prompt = string | readonly number[];

const MAX_STOPS = 4;

/** Output length of `/v1/completions` when none is asked for; chat goes on until the model ends or the context does. */
const COMPLETION_MAX_TOKENS = 16;

/** Most prompts in one request. */
const MAX_PROMPTS = 64;

/** Members that would change the answer and that this engine does not know: refused, because a silent drop would be a lie. */
const UNSUPPORTED: readonly { readonly name: string; readonly isSet: (value: unknown) => boolean }[] = [
  { name: 'logprobs', isSet: (value) => value === true || typeof value === 'number' },
  { name: 'top_logprobs', isSet: (value) => typeof value === 'number' && value > 0 },
  { name: 'echo', isSet: (value) => value === true },
  { name: 'suffix', isSet: (value) => typeof value === 'string' && value !== '' },
  { name: 'best_of', isSet: (value) => typeof value === 'number' && value > 1 },
  { name: 'tools', isSet: (value) => arrayOf(value).length > 0 },
  { name: 'functions', isSet: (value) => arrayOf(value).length > 0 },
  { name: 'response_format', isSet: (value) => isObject(value) && value['type'] !== 'text' },
];

/** Reads what all requests for text share. Throws `ApiError` 400. */
export function readTextRequest(body: JsonObject, chat: boolean, random: Random): TextRequest {
  for (const { name, isSet } of UNSUPPORTED) {
    if (isSet(body[name])) throw new ApiError(400, `${name} is not supported by the embedded engine`, name);
  }
  if ((numberOf(body['n']) ?? 1) !== 1) throw new ApiError(400, 'n must be 1', 'n');
  const options = objectOf(body['stream_options']);
  const includeUsage = options['include_usage'] === true;
  const maxTokens = readNumber(body, 'max_completion_tokens', 1) ?? readNumber(body, 'max_tokens', 1);
  if (maxTokens !== undefined && !Number.isInteger(maxTokens)) {
    throw new ApiError(400, 'max_tokens must be a whole number', 'max_tokens');
  }
  return {
    stream: body['stream'] === true,
    includeUsage,
    continuousUsage: includeUsage && options['continuous_usage_stats'] === true,
    sampling: {
      maxTokens: maxTokens ?? (chat ? undefined : COMPLETION_MAX_TOKENS),
      temperature: readNumber(body, 'temperature', 0) ?? 0.8,
      topP: readNumber(body, 'top_p', 0, 1) ?? 0.95,
      // -1 is vLLM's way to say "all", 0 is llama.cpp's.
      topK: Math.max(0, readNumber(body, 'top_k', -1) ?? 40),
      minP: readNumber(body, 'min_p', 0, 1) ?? 0,
      seed: readSeed(body, random),
      stops: readStops(body['stop']),
      ignoreEnd: body['ignore_eos'] === true,
    },
  };
}

function readNumber(body: JsonObject, name: string, min: number, max = Infinity): number | undefined {
  const value = body[name];
  if (value === undefined || value === null) return undefined;
  const number = numberOf(value);
  if (number === undefined || number < min || number > max) {
    const range = max === Infinity ? `at least ${min}` : `between ${min} and ${max}`;
    throw new ApiError(400, `${name} must be a number of ${range}`, name);
  }
  return number;
}

/** The engine takes 32 bits; any whole number is folded into them. */
function readSeed(body: JsonObject, random: Random): number {
  const seed = body['seed'];
  if (seed === undefined || seed === null) return Math.floor(random() * 0x1_0000_0000);
  const number = numberOf(seed);
  if (number === undefined || !Number.isInteger(number))
    throw new ApiError(400, 'seed must be a whole number', 'seed');
  return ((number % 0x1_0000_0000) + 0x1_0000_0000) % 0x1_0000_0000;
}

function readStops(stop: unknown): string[] {
  if (stop === undefined || stop === null) return [];
  const list: readonly unknown[] = typeof stop === 'string' ? [stop] : arrayOf(stop);
  if ((typeof stop !== 'string' && !Array.isArray(stop)) || !list.every((item) => typeof item === 'string')) {
    throw new ApiError(400, 'stop must be a string or a list of strings', 'stop');
  }
  if (list.length > MAX_STOPS) throw new ApiError(400, `stop holds more than ${MAX_STOPS} strings`, 'stop');
  return list.filter((item) => item !== '');
}

/** The messages of a chat request. Throws `ApiError` 400 for what a text model cannot take. */
export function readMessages(body: JsonObject): ChatMessage[] {
  const messages = arrayOf(body['messages']);
  if (messages.length === 0)
    throw new ApiError(400, 'messages must be a list with at least one message', 'messages');
  return messages.map((message, index) => {
    const where = `messages[${index}]`;
    if (!isObject(message)) throw new ApiError(400, `${where} must be an object`, 'messages');
    return { role: readRole(message['role'], where), text: readContent(message['content'], where) };
  });
}

function readRole(role: unknown, where: string): ChatMessage['role'] {
  if (role === 'user' || role === 'assistant' || role === 'system') return role;
  // OpenAI's newer name for the system's voice.
  if (role === 'developer') return 'system';
  throw new ApiError(400, `${where}.role must be system, developer, user or assistant`, 'messages');
}

function readContent(content: unknown, where: string): string {
  if (typeof content === 'string') return content;
  if (content === null || content === undefined) return '';
  return arrayOf(content)
    .map((part) => {
      const text = stringOf(objectOf(part)['text']);
      if (text === undefined)
        throw new ApiError(400, `${where}.content holds a part that is not text`, 'messages');
      return text;
    })
    .join('');
}

/** One or more prompts: text, texts, token ids, or lists of token ids. Throws `ApiError` 400. */
export function readPrompts(value: unknown, param: string): Prompt[] {
  if (typeof value === 'string') return [value];
  const list = arrayOf(value);
  if (list.length > 0 && list.every((item) => typeof item === 'number')) return [list];
  const prompts = list.map((item): Prompt | undefined => {
    if (typeof item === 'string') return item;
    const tokens = arrayOf(item);
    return tokens.length > 0 && tokens.every((token) => typeof token === 'number') ? tokens : undefined;
  });
  if (prompts.length === 0 || !prompts.every((prompt) => prompt !== undefined)) {
    throw new ApiError(400, `${param} must be text, a list of texts, or token ids`, param);
  }
  if (prompts.length > MAX_PROMPTS)
    throw new ApiError(400, `${param} holds more than ${MAX_PROMPTS} entries`, param);
  return prompts;
}
