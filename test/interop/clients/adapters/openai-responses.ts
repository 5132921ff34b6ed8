import type OpenAI from 'openai';
import { LOOKUP_SCHEMA, type ClientSetup, type Question, type TextClient, type Told } from './client-kind.js';
import { openaiClient } from './openai-chat.js';

type Response = OpenAI.Responses.Response;

function body(model: string, question: Question) {
  const lookup = {
    type: 'function' as const,
    name: 'lookup',
    description: 'looks something up',
    parameters: LOOKUP_SCHEMA,
    strict: false,
  };
  return {
    model,
    input: question.prompt,
    ...(question.maxTokens === undefined ? {} : { max_output_tokens: question.maxTokens }),
    ...(question.tool === true ? { tools: [lookup] } : {}),
  };
}

function told(response: Response): Told {
  const { usage } = response;
  return {
    text: response.output_text,
    toolCalls: response.output.flatMap((item) =>
      item.type === 'function_call' ? [{ name: item.name, args: JSON.parse(item.arguments) as unknown }] : [],
    ),
    usage: usage === undefined ? undefined : { prompt: usage.input_tokens, completion: usage.output_tokens },
  };
}

const options = ({ signal }: Question) => (signal === undefined ? {} : { signal });

/** `/v1/responses` by the openai library: the stream by its helper, which fails when the final response is missing. */
export function openaiResponses(Library: typeof OpenAI, setup: ClientSetup): TextClient {
  const client = openaiClient(Library, setup);
  return {
    async whole(question) {
      return told(await client.responses.create(body(setup.model, question), options(question)));
    },
    async stream(question, onText) {
      const stream = client.responses.stream(body(setup.model, question), options(question));
      let text = '';
      for await (const event of stream) {
        if (event.type !== 'response.output_text.delta') continue;
        text += event.delta;
        onText?.(event.delta);
      }
      return { ...told(await stream.finalResponse()), text };
    },
  };
}
