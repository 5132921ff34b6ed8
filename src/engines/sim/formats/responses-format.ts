import { type AnswerContext, type AnswerFormat, namedEvent } from './answer-format.js';

/** `/v1/responses`: named, numbered events; the last is `response.completed`, there is no end mark. */
export class ResponsesFormat implements AnswerFormat {
  private sequence = 0;
  private readonly itemId: string;

  constructor(private readonly context: AnswerContext) {
    const prefix = context.answer.toolCall === undefined ? 'msg' : 'fc';
    this.itemId = context.id.replace(/^resp/, prefix);
  }

  opening(): string[] {
    const events = [
      this.event('response.created', { response: this.response('in_progress', []) }),
      this.event('response.in_progress', { response: this.response('in_progress', []) }),
      this.event('response.output_item.added', { output_index: 0, item: this.item('in_progress', '') }),
    ];
    if (this.context.answer.toolCall === undefined) {
      events.push(this.event('response.content_part.added', { ...this.place(), part: textPart('') }));
    }
    return events;
  }

  token(index: number): string {
    const piece = this.context.answer.escapedPiece(index);
    const type =
      this.context.answer.toolCall === undefined
        ? 'response.output_text.delta'
        : 'response.function_call_arguments.delta';
    const place = JSON.stringify(this.place()).slice(1, -1);
    const data = `{"type":"${type}","sequence_number":${this.sequence++},${place},"delta":"${piece}"}`;
    return `event: ${type}\ndata: ${data}\n\n`;
  }

  closing(): string[] {
    const { toolCall } = this.context.answer;
    const text = this.context.answer.text();
    const item = this.item('completed', text);
    const ends =
      toolCall === undefined
        ? [
            this.event('response.output_text.done', { ...this.place(), text, logprobs: [] }),
            this.event('response.content_part.done', { ...this.place(), part: textPart(text) }),
          ]
        : [
            this.event('response.function_call_arguments.done', {
              ...this.place(),
              name: toolCall.name,
              arguments: toolCall.argumentPieces.join(''),
            }),
          ];
    return [
      ...ends,
      this.event('response.output_item.done', { output_index: 0, item }),
      this.event(this.finalEvent(), { response: this.response(this.finalStatus(), [item]) }),
    ];
  }

  whole(): string {
    return JSON.stringify(
      this.response(this.finalStatus(), [this.item('completed', this.context.answer.text())]),
    );
  }

  private finalStatus(): string {
    return this.context.answer.finish === 'length' ? 'incomplete' : 'completed';
  }

  private finalEvent(): string {
    return `response.${this.finalStatus()}`;
  }

  private event(type: string, fields: object): string {
    return namedEvent(type, { sequence_number: this.sequence++, ...fields });
  }

  private place() {
    const place = { item_id: this.itemId, output_index: 0 };
    return this.context.answer.toolCall === undefined ? { ...place, content_index: 0 } : place;
  }

  private item(status: string, text: string): object {
    const { toolCall } = this.context.answer;
    if (toolCall === undefined) {
      const content = status === 'completed' ? [textPart(text)] : [];
      return { id: this.itemId, type: 'message', status, role: 'assistant', content };
    }
    const args = status === 'completed' ? toolCall.argumentPieces.join('') : '';
    return {
      id: this.itemId,
      type: 'function_call',
      status,
      call_id: toolCall.id,
      name: toolCall.name,
      arguments: args,
    };
  }

  private response(status: string, output: object[]): object {
    const { id, createdS, model, answer, promptTokens, cachedTokens } = this.context;
    const over = status !== 'in_progress';
    return {
      id,
      object: 'response',
      created_at: createdS,
      status,
      error: null,
      incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      instructions: null,
      model,
      output,
      parallel_tool_calls: true,
      tool_choice: 'auto',
      tools: [],
      metadata: {},
      usage: over
        ? {
            input_tokens: promptTokens,
            input_tokens_details: { cached_tokens: cachedTokens },
            output_tokens: answer.tokens,
            output_tokens_details: { reasoning_tokens: 0 },
            total_tokens: promptTokens + answer.tokens,
          }
        : null,
    };
  }
}

function textPart(text: string): object {
  return { type: 'output_text', text, annotations: [], logprobs: [] };
}
