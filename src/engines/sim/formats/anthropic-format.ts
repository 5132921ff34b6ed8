import type { FinishReason } from '../answer.js';
import { type AnswerContext, type AnswerFormat, namedEvent } from './answer-format.js';

/** `/v1/messages`: named events, no end mark but `message_stop`. */
export class AnthropicFormat implements AnswerFormat {
  constructor(private readonly context: AnswerContext) {}

  opening(): string[] {
    const { toolCall } = this.context.answer;
    const block =
      toolCall === undefined
        ? { type: 'text', text: '' }
        : { type: 'tool_use', id: toolCall.id, name: toolCall.name, input: {} };
    return [
      namedEvent('message_start', { message: { ...this.message([], null), usage: this.usage(0) } }),
      namedEvent('content_block_start', { index: 0, content_block: block }),
    ];
  }

  token(index: number): string {
    const { answer } = this.context;
    const piece = answer.escapedPiece(index);
    const delta =
      answer.toolCall === undefined
        ? `{"type":"text_delta","text":"${piece}"}`
        : `{"type":"input_json_delta","partial_json":"${piece}"}`;
    return `event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":${delta}}\n\n`;
  }

  closing(): string[] {
    const { answer } = this.context;
    const delta = { stop_reason: STOP_REASONS[answer.finish], stop_sequence: null };
    return [
      namedEvent('content_block_stop', { index: 0 }),
      namedEvent('message_delta', { delta, usage: { output_tokens: answer.tokens } }),
      namedEvent('message_stop'),
    ];
  }

  whole(): string {
    const { answer } = this.context;
    const { toolCall } = answer;
    const block =
      toolCall === undefined
        ? { type: 'text', text: answer.text() }
        : {
            type: 'tool_use',
            id: toolCall.id,
            name: toolCall.name,
            input: JSON.parse(toolCall.argumentPieces.join('')) as unknown,
          };
    return JSON.stringify({
      ...this.message([block], STOP_REASONS[answer.finish]),
      usage: this.usage(answer.tokens),
    });
  }

  private message(content: object[], stopReason: string | null) {
    const { id, model } = this.context;
    return {
      id,
      type: 'message',
      role: 'assistant',
      model,
      content,
      stop_reason: stopReason,
      stop_sequence: null,
    };
  }

  private usage(outputTokens: number) {
    const { promptTokens, cachedTokens } = this.context;
    return {
      input_tokens: promptTokens - cachedTokens,
      output_tokens: outputTokens,
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: cachedTokens,
    };
  }
}

const STOP_REASONS: Readonly<Record<FinishReason, string>> = {
  stop: 'end_turn',
  length: 'max_tokens',
  tool_calls: 'tool_use',
};
