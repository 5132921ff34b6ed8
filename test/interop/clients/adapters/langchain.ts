import type { AIMessageChunk } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import {
  CLIENT_SECRET,
  LOOKUP_SCHEMA,
  type ClientSetup,
  type Question,
  type TextClient,
  type Told,
} from './client-kind.js';

function model(setup: ClientSetup, question: Question) {
  return new ChatOpenAI({
    model: setup.model,
    apiKey: CLIENT_SECRET,
    configuration: {
      baseURL: `${setup.gateway}/v1`,
      ...(setup.fetch === undefined ? {} : { fetch: setup.fetch }),
    },
    streamUsage: question.usage === true,
    ...(setup.retries === undefined ? {} : { maxRetries: setup.retries }),
    ...(question.maxTokens === undefined ? {} : { maxTokens: question.maxTokens }),
    ...(question.seed === undefined ? {} : { modelKwargs: { seed: question.seed } }),
  });
}

function runnable(setup: ClientSetup, question: Question) {
  const chat = model(setup, question);
  if (question.tool !== true) return chat;
  const lookup = {
    type: 'function' as const,
    function: { name: 'lookup', description: 'looks something up', parameters: LOOKUP_SCHEMA },
  };
  return chat.bindTools([lookup]);
}

const options = ({ signal }: Question) => (signal === undefined ? {} : { signal });

interface Message {
  readonly text: string;
  readonly tool_calls?: readonly { readonly name: string; readonly args: unknown }[] | undefined;
  readonly usage_metadata?: { readonly input_tokens: number; readonly output_tokens: number } | undefined;
}

function told(message: Message): Told {
  const { usage_metadata: usage } = message;
  return {
    text: message.text,
    toolCalls: (message.tool_calls ?? []).map((call) => ({ name: call.name, args: call.args })),
    usage: usage === undefined ? undefined : { prompt: usage.input_tokens, completion: usage.output_tokens },
  };
}

/** `ChatOpenAI` of @langchain/openai. */
export function langchain(setup: ClientSetup): TextClient {
  return {
    async whole(question) {
      return told(await runnable(setup, question).invoke(question.prompt, options(question)));
    },
    async stream(question, onText) {
      const chunks: AIMessageChunk[] = [];
      for await (const chunk of await runnable(setup, question).stream(question.prompt, options(question))) {
        chunks.push(chunk);
        if (chunk.text !== '') onText?.(chunk.text);
      }
      // Without a first value: a stream of no chunk is an error here too.
      return told(chunks.reduce((before, chunk) => before.concat(chunk)));
    },
  };
}
