import {
  type AnswerContext,
  type AnswerFormat,
  dataEvent,
  DONE_EVENT,
  openAiUsage,
} from './answer-format.js';

/** `/v1/chat/completions`. */
export class ChatFormat implements AnswerFormat {
  private readonly before: string;
  private readonly after: string;

  constructor(private readonly context: AnswerContext) {
    [this.before, this.after] = splitEvent(this.chunk(tokenDelta(context), null));
  }

  opening(): string[] {
    const { toolCall } = this.context.answer;
    const role = dataEvent(
      this.chunk({ role: 'assistant', content: toolCall === undefined ? '' : null }, null),
    );
    if (toolCall === undefined) return [role];
    const call = {
      index: 0,
      id: toolCall.id,
      type: 'function',
      function: { name: toolCall.name, arguments: '' },
    };
    return [role, dataEvent(this.chunk({ tool_calls: [call] }, null))];
  }

  token(index: number): string {
    return tokenEvent(this.context, this.before, this.after, index);
  }

  closing(): string[] {
    const last = dataEvent(this.chunk({}, this.context.answer.finish));
    return [last, ...usageEvents(this.context, this.base()), DONE_EVENT];
  }

  whole(): string {
    const { answer } = this.context;
    const { toolCall } = answer;
    const message =
      toolCall === undefined
        ? { role: 'assistant', content: answer.text() }
        : {
            role: 'assistant',
            content: null,
            tool_calls: [
              {
                id: toolCall.id,
                type: 'function',
                function: { name: toolCall.name, arguments: toolCall.argumentPieces.join('') },
              },
            ],
          };
    return JSON.stringify({
      ...this.base(),
      object: 'chat.completion',
      choices: [{ index: 0, message, logprobs: null, finish_reason: answer.finish }],
      usage: openAiUsage(this.context, answer.tokens),
    });
  }

  private base() {
    const { id, createdS, model } = this.context;
    return { id, object: 'chat.completion.chunk', created: createdS, model };
  }

  private chunk(delta: object, finish: string | null) {
    return {
      ...this.base(),
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
      ...(this.context.request.includeUsage ? { usage: null } : {}),
    };
  }
}

/** `/v1/completions`. */
export class CompletionFormat implements AnswerFormat {
  private readonly before: string;
  private readonly after: string;

  constructor(private readonly context: AnswerContext) {
    [this.before, this.after] = splitEvent(this.chunk(PIECE, null));
  }

  opening(): string[] {
    return [];
  }

  token(index: number): string {
    return tokenEvent(this.context, this.before, this.after, index);
  }

  closing(): string[] {
    const last = dataEvent(this.chunk('', this.context.answer.finish));
    return [last, ...usageEvents(this.context, this.base()), DONE_EVENT];
  }

  whole(): string {
    const { answer } = this.context;
    const choice = { index: 0, text: answer.text(), logprobs: null, finish_reason: answer.finish };
    return JSON.stringify({
      ...this.base(),
      choices: [choice],
      usage: openAiUsage(this.context, answer.tokens),
    });
  }

  private base() {
    const { id, createdS, model } = this.context;
    return { id, object: 'text_completion', created: createdS, model };
  }

  private chunk(text: string, finish: string | null) {
    return {
      ...this.base(),
      choices: [{ index: 0, text, logprobs: null, finish_reason: finish }],
      ...(this.context.request.includeUsage ? { usage: null } : {}),
    };
  }
}

/** Stands where the piece of text goes; no word and no id can hold it. */
const PIECE = '\u0001piece\u0001';
const PIECE_ESCAPED = JSON.stringify(PIECE).slice(1, -1);
const NO_USAGE = '"usage":null';

function tokenDelta(context: AnswerContext): object {
  if (context.answer.toolCall === undefined) return { content: PIECE };
  return { tool_calls: [{ index: 0, function: { arguments: PIECE } }] };
}

/** What stands before and after the piece in every token's event: made once, so that a token costs one concatenation. */
function splitEvent(event: object): [before: string, after: string] {
  const [before = '', after = ''] = dataEvent(event).split(PIECE_ESCAPED);
  return [before, after];
}

function tokenEvent(context: AnswerContext, before: string, after: string, index: number): string {
  const event = before + context.answer.escapedPiece(index) + after;
  if (!context.request.continuousUsage) return event;
  const place = event.lastIndexOf(NO_USAGE);
  const usage = JSON.stringify(openAiUsage(context, index + 1));
  return `${event.slice(0, place)}"usage":${usage}${event.slice(place + NO_USAGE.length)}`;
}

function usageEvents(context: AnswerContext, base: object): string[] {
  if (!context.request.includeUsage) return [];
  return [dataEvent({ ...base, choices: [], usage: openAiUsage(context, context.answer.tokens) })];
}
