type Json = Record<string, unknown>;

/**
 * True if a stream event reports a failure, in any dialect: an `error` member (OpenAI, vLLM, llama.cpp), the flat
 * form (`"object":"error"`, SGLang), an event named or typed `error` (Anthropic, Responses), `response.failed`.
 */
export function isErrorEvent(name: string, json: unknown): boolean {
  if (name === 'error' || name === 'response.failed') return true;
  if (!isObject(json)) return false;
  if (json['error'] !== undefined && json['error'] !== null) return true;
  return json['object'] === 'error' || json['type'] === 'error' || json['type'] === 'response.failed';
}

/** True for the chunk that `stream_options.include_usage` adds: usage and not a single choice. */
export function isUsageChunk(json: unknown): boolean {
  if (!isObject(json) || !isObject(json['usage'])) return false;
  const choices = json['choices'];
  if (Array.isArray(choices)) return choices.length === 0;
  // Some engines leave the empty list out. Events of the other dialects never have one, but a type.
  return (choices === undefined || choices === null) && typeof json['type'] !== 'string';
}

/**
 * True if a stream event brings something generated, as opposed to a prelude (the role, an item opened), a usage
 * report or an end: text, reasoning, a tool call, in any dialect.
 */
export function carriesToken(json: unknown): boolean {
  if (!isObject(json)) return false;
  const choices = json['choices'];
  if (Array.isArray(choices)) return choices.some(choiceCarriesToken);
  const type = json['type'];
  if (typeof type !== 'string') return false;
  if (type === 'content_block_delta')
    return isObject(json['delta']) && Object.entries(json['delta']).some(isDeltaText);
  return type.endsWith('.delta') && isFilled(json['delta']);
}

/** Members of a chat delta that are generated. */
const GENERATED = [
  'content',
  'reasoning_content',
  'reasoning',
  'tool_calls',
  'function_call',
  'refusal',
  'audio',
];

function choiceCarriesToken(choice: unknown): boolean {
  if (!isObject(choice)) return false;
  if (isFilled(choice['text'])) return true;
  const delta = choice['delta'];
  return isObject(delta) && GENERATED.some((key) => isFilled(delta[key]));
}

/** Anthropic deltas: `text`, `thinking`, `partial_json` …; their `type` says only which. */
function isDeltaText([key, value]: [string, unknown]): boolean {
  return key !== 'type' && isFilled(value);
}

function isFilled(value: unknown): boolean {
  if (typeof value === 'string' || Array.isArray(value)) return value.length > 0;
  return isObject(value);
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
