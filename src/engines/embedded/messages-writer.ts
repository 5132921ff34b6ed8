import type { JsonObject } from '../json-fields.js';
import { ApiError } from './api-error.js';
import type { AnswerWriter, Choice, Usage } from './completion-writer.js';
import type { GenerationResult } from './llama-runtime.js';

const STOP_REASONS: Readonly<Record<GenerationResult['finish'], string>> = {
  stop: 'end_turn',
  length: 'max_tokens',
};

/** Writes Anthropic's answers: named events, with `message_stop` as the end mark. */
export class MessagesWriter implements AnswerWriter {
  constructor(
    private readonly id: string,
    private readonly model: string,
  ) {}

  opening(_index: number, usage: Usage): string {
    const message = { ...this.message([], null), usage: messageUsage({ ...usage, completionTokens: 0 }) };
    return (
      event('message_start', { message }) +
      event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }) +
      event('ping')
    );
  }

  text(_index: number, text: string): string {
    return event('content_block_delta', { index: 0, delta: { type: 'text_delta', text } });
  }

  closing(_index: number, finish: GenerationResult['finish'], usage: Usage): string {
    const delta = { stop_reason: STOP_REASONS[finish], stop_sequence: null };
    return (
      event('content_block_stop', { index: 0 }) +
      event('message_delta', { delta, usage: { output_tokens: usage.completionTokens } })
    );
  }

  end(): string {
    return event('message_stop');
  }

  whole([choice]: readonly Choice[], usage: Usage): string {
    const content = [{ type: 'text', text: choice?.text ?? '' }];
    const reason = choice === undefined ? null : STOP_REASONS[choice.finish];
    return JSON.stringify({ ...this.message(content, reason), usage: messageUsage(usage) });
  }

  private message(content: object[], stopReason: string | null) {
    const { id, model } = this;
    return {
      ...{ id, type: 'message', role: 'assistant', model, content },
      ...{ stop_reason: stopReason, stop_sequence: null },
    };
  }
}

/** Anthropic counts what came out of the cache beside the input, not in it. */
function messageUsage({ promptTokens, cachedTokens, completionTokens }: Usage) {
  return {
    input_tokens: promptTokens - cachedTokens,
    output_tokens: completionTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
  };
}

const event = (type: string, data: object = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;

/**
 * A request of `/v1/messages` as one for chat: the system's voice first among the messages, the stops under their other
 * name. Throws `ApiError` 400 for a request without `max_tokens`, which this API demands.
 */
export function chatRequestOf(body: JsonObject): JsonObject {
  if (typeof body['max_tokens'] !== 'number')
    throw new ApiError(400, 'max_tokens: Field required', 'max_tokens');
  return withSystem({ ...body, stop: body['stop_sequences'] });
}

/** The messages with the system's voice among them. */
export function withSystem(body: JsonObject): JsonObject {
  const { system, messages } = body;
  if (system === undefined || !Array.isArray(messages)) return body;
  return { ...body, messages: [{ role: 'system', content: system }, ...(messages as unknown[])] };
}
