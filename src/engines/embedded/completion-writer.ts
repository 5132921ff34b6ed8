import type { GenerationResult } from './llama-runtime.js';

/** Token counts of one answer. */
export interface Usage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

export function addUsage(a: Usage, b: Usage): Usage {
  return {
    promptTokens: a.promptTokens + b.promptTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    completionTokens: a.completionTokens + b.completionTokens,
  };
}

function openAiUsage({ promptTokens, cachedTokens, completionTokens }: Usage) {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

/** One finished choice. */
export interface Choice {
  readonly text: string;
  readonly finish: GenerationResult['finish'];
}

/** Writes answers in the form of one API, whole or as events. */
export interface AnswerWriter {
  /** What opens a choice; `usage` at its first token. */
  opening(index: number, usage: Usage): string;
  /** `usage` only when running usage was asked for. */
  text(index: number, text: string, usage?: Usage): string;
  closing(index: number, finish: GenerationResult['finish'], usage: Usage): string;
  /** The end of the stream. */
  end(usage: Usage): string;
  whole(choices: readonly Choice[], usage: Usage): string;
}

/** Writes OpenAI's answers, chat or plain, whole or as events. */
export class CompletionWriter implements AnswerWriter {
  constructor(
    private readonly chat: boolean,
    private readonly id: string,
    private readonly model: string,
    private readonly createdS: number,
    private readonly includeUsage: boolean,
  ) {}

  /** The event that opens a choice; plain completions have none. */
  opening(index: number): string {
    return this.chat ? this.event(index, { delta: { role: 'assistant', content: '' } }, null) : '';
  }

  text(index: number, text: string, usage?: Usage): string {
    return this.event(index, this.chat ? { delta: { content: text } } : { text }, null, usage);
  }

  closing(index: number, finish: GenerationResult['finish']): string {
    return this.event(index, this.chat ? { delta: {} } : { text: '' }, finish);
  }

  /** The end of the stream: usage when asked for, then the end mark. */
  end(usage: Usage): string {
    const last = this.includeUsage
      ? `data: ${JSON.stringify({ ...this.base(true), choices: [], usage: openAiUsage(usage) })}\n\n`
      : '';
    return `${last}data: [DONE]\n\n`;
  }

  whole(choices: readonly Choice[], usage: Usage): string {
    return JSON.stringify({
      ...this.base(false),
      choices: choices.map(({ text, finish }, index) => ({
        index,
        ...(this.chat ? { message: { role: 'assistant', content: text } } : { text }),
        logprobs: null,
        finish_reason: finish,
      })),
      usage: openAiUsage(usage),
    });
  }

  private event(index: number, content: object, finish: string | null, usage?: Usage): string {
    const choices = [{ index, ...content, logprobs: null, finish_reason: finish }];
    const running = this.includeUsage ? { usage: usage === undefined ? null : openAiUsage(usage) } : {};
    return `data: ${JSON.stringify({ ...this.base(true), choices, ...running })}\n\n`;
  }

  private base(streamed: boolean) {
    const chatObject = streamed ? 'chat.completion.chunk' : 'chat.completion';
    return {
      id: this.id,
      object: this.chat ? chatObject : 'text_completion',
      created: this.createdS,
      model: this.model,
    };
  }
}
