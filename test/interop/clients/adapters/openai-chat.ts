import type OpenAI from 'openai';
import {
  CLIENT_SECRET,
  LOOKUP_SCHEMA,
  type ClientSetup,
  type Question,
  type TextClient,
  type Told,
} from './client-kind.js';

type Completion = OpenAI.Chat.ChatCompletion;
type Chunk = OpenAI.Chat.ChatCompletionChunk;

/** A client of the openai library, of whichever version `Library` is. */
export function openaiClient(Library: typeof OpenAI, setup: ClientSetup): OpenAI {
  return new Library({
    baseURL: `${setup.gateway}/v1`,
    apiKey: CLIENT_SECRET,
    ...(setup.retries === undefined ? {} : { maxRetries: setup.retries }),
    ...(setup.fetch === undefined ? {} : { fetch: setup.fetch }),
  });
}

function body(model: string, question: Question) {
  const lookup = {
    type: 'function' as const,
    function: { name: 'lookup', description: 'looks something up', parameters: LOOKUP_SCHEMA },
  };
  return {
    model,
    messages: [{ role: 'user' as const, content: question.prompt }],
    ...(question.maxTokens === undefined ? {} : { max_tokens: question.maxTokens }),
    ...(question.seed === undefined ? {} : { seed: question.seed }),
    ...(question.tool === true ? { tools: [lookup] } : {}),
  };
}

function streamBody(model: string, question: Question) {
  return {
    ...body(model, question),
    stream: true as const,
    ...(question.usage === true ? { stream_options: { include_usage: true } } : {}),
  };
}

const options = ({ signal }: Question) => (signal === undefined ? {} : { signal });

function counts(usage: OpenAI.CompletionUsage | null | undefined): Told['usage'] {
  return usage ? { prompt: usage.prompt_tokens, completion: usage.completion_tokens } : undefined;
}

function told(completion: Completion): Told {
  const message = completion.choices[0]?.message;
  return {
    text: message?.content ?? '',
    toolCalls: (message?.tool_calls ?? []).flatMap((call) =>
      call.type === 'function'
        ? [{ name: call.function.name, args: JSON.parse(call.function.arguments) as unknown }]
        : [],
    ),
    usage: counts(completion.usage),
  };
}

async function whole(client: OpenAI, model: string, question: Question): Promise<Told> {
  return told(await client.chat.completions.create(body(model, question), options(question)));
}

/** The everyday use: `create({ stream: true })` and a loop over chunks. */
export function openaiLoop(Library: typeof OpenAI, setup: ClientSetup): TextClient {
  const client = openaiClient(Library, setup);
  return {
    whole: (question) => whole(client, setup.model, question),
    async stream(question, onText) {
      const assembled = new Assembled();
      const chunks = await client.chat.completions.create(
        streamBody(setup.model, question),
        options(question),
      );
      for await (const chunk of chunks) {
        assembled.take(chunk);
        const text = chunk.choices[0]?.delta.content;
        if (text) onText?.(text);
      }
      return assembled.told();
    },
  };
}

/** The helper `.stream()`, which assembles the answer itself and checks that it is whole. */
export function openaiHelper(Library: typeof OpenAI, setup: ClientSetup): TextClient {
  const client = openaiClient(Library, setup);
  return {
    whole: (question) => whole(client, setup.model, question),
    async stream(question, onText) {
      const stream = client.chat.completions.stream(streamBody(setup.model, question), options(question));
      let chunksWithoutChoice = 0;
      stream.on('chunk', (chunk) => (chunksWithoutChoice += chunk.choices.length === 0 ? 1 : 0));
      if (onText !== undefined) stream.on('content', (text) => onText(text));
      return { ...told(await stream.finalChatCompletion()), chunksWithoutChoice };
    },
  };
}

/** Puts deltas together as an application does. */
class Assembled {
  private text = '';
  private usage: Told['usage'];
  private chunksWithoutChoice = 0;
  private readonly calls: { name: string; json: string }[] = [];

  take(chunk: Chunk): void {
    if (chunk.choices.length === 0) this.chunksWithoutChoice++;
    this.usage = counts(chunk.usage) ?? this.usage;
    const delta = chunk.choices[0]?.delta;
    this.text += delta?.content ?? '';
    for (const part of delta?.tool_calls ?? []) {
      const call = (this.calls[part.index] ??= { name: '', json: '' });
      call.name += part.function?.name ?? '';
      call.json += part.function?.arguments ?? '';
    }
  }

  told(): Told {
    const { text, usage, chunksWithoutChoice } = this;
    const toolCalls = this.calls.map(({ name, json }) => ({ name, args: JSON.parse(json) as unknown }));
    return { text, toolCalls, usage, chunksWithoutChoice };
  }
}
