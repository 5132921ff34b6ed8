import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import {
  generateText,
  streamText,
  tool,
  type LanguageModel,
  type LanguageModelUsage,
  type ToolSet,
} from 'ai';
import { z } from 'zod';
import { CLIENT_SECRET, type ClientSetup, type Question, type TextClient, type Told } from './client-kind.js';

/** `/v1/chat/completions` by @ai-sdk/openai-compatible. */
export function aiSdkChat(setup: ClientSetup): TextClient {
  return aiSdk(setup, ({ usage }) =>
    createOpenAICompatible({
      name: 'llmgw',
      baseURL: `${setup.gateway}/v1`,
      apiKey: CLIENT_SECRET,
      includeUsage: usage === true,
      ...(setup.fetch === undefined ? {} : { fetch: setup.fetch }),
    }).chatModel(setup.model),
  );
}

/** `/v1/responses` by @ai-sdk/openai, which is what that provider uses unless told otherwise. */
export function aiSdkResponses(setup: ClientSetup): TextClient {
  const provider = createOpenAI({
    baseURL: `${setup.gateway}/v1`,
    apiKey: CLIENT_SECRET,
    ...(setup.fetch === undefined ? {} : { fetch: setup.fetch }),
  });
  return aiSdk(setup, () => provider(setup.model));
}

// The library prints a warning for each setting that a provider does not know (a seed for /v1/responses).
(globalThis as { AI_SDK_LOG_WARNINGS?: boolean }).AI_SDK_LOG_WARNINGS = false;

const TOOLS: ToolSet = {
  lookup: tool({
    description: 'looks something up',
    inputSchema: z.object({ query: z.string(), limit: z.number() }),
  }),
};

function settings({ retries }: ClientSetup, model: LanguageModel, question: Question) {
  return {
    model,
    prompt: question.prompt,
    ...(retries === undefined ? {} : { maxRetries: retries }),
    ...(question.maxTokens === undefined ? {} : { maxOutputTokens: question.maxTokens }),
    ...(question.seed === undefined ? {} : { seed: question.seed }),
    ...(question.tool === true ? { tools: TOOLS } : {}),
    ...(question.signal === undefined ? {} : { abortSignal: question.signal }),
  };
}

function counts({ inputTokens, outputTokens }: LanguageModelUsage): Told['usage'] {
  if (inputTokens === undefined || outputTokens === undefined) return undefined;
  return { prompt: inputTokens, completion: outputTokens };
}

/** Errors of the stream's own parts are plain objects. */
function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(JSON.stringify(error));
}

function aiSdk(setup: ClientSetup, modelFor: (question: Question) => LanguageModel): TextClient {
  return {
    async whole(question) {
      const answer = await generateText(settings(setup, modelFor(question), question));
      return {
        text: answer.text,
        toolCalls: answer.toolCalls.map((call) => ({ name: call.toolName, args: call.input as unknown })),
        usage: counts(answer.usage),
      };
    },
    async stream(question, onText) {
      // Without a handler the library prints errors; they are seen as parts here.
      const answer = streamText({ ...settings(setup, modelFor(question), question), onError: () => {} });
      let text = '';
      let usage: Told['usage'];
      const toolCalls: { name: string; args: unknown }[] = [];
      for await (const part of answer.fullStream) {
        if (part.type === 'error') throw asError(part.error);
        if (part.type === 'tool-call') toolCalls.push({ name: part.toolName, args: part.input });
        if (part.type === 'finish') usage = counts(part.totalUsage);
        if (part.type === 'finish' && part.finishReason === 'error')
          throw new Error('finished with an error');
        if (part.type !== 'text-delta') continue;
        text += part.text;
        onText?.(part.text);
      }
      return { text, toolCalls, usage };
    },
  };
}
