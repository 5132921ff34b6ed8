import type { Answer } from '../answer.js';
import type { GenerationRequest } from '../generation-request.js';

/** What a format needs to know of one answer. */
export interface AnswerContext {
  /** Response id, with the API's own prefix. */
  readonly id: string;
  /** Seconds since the epoch. */
  readonly createdS: number;
  readonly model: string;
  readonly request: GenerationRequest;
  readonly answer: Answer;
  readonly promptTokens: number;
  /** Known when the prompt has been read. */
  cachedTokens: number;
}

/** How one API writes an answer. Each string of a stream is one whole event, its blank line included. */
export interface AnswerFormat {
  /** Events that come with the first token. */
  opening(): string[];
  token(index: number): string;
  /** Events after the last token, the API's end mark last. */
  closing(): string[];
  /** The answer in one piece. */
  whole(): string;
}

/** Token counts as OpenAI names them. */
export function openAiUsage(context: AnswerContext, completionTokens: number) {
  return {
    prompt_tokens: context.promptTokens,
    completion_tokens: completionTokens,
    total_tokens: context.promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: context.cachedTokens },
  };
}

/** A nameless event. */
export function dataEvent(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

/** An event with a name; the payload carries the name as its `type` too. */
export function namedEvent(type: string, fields: object = {}): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`;
}

export const DONE_EVENT = 'data: [DONE]\n\n';
