import Anthropic from '@anthropic-ai/sdk';
import {
  CLIENT_SECRET,
  LOOKUP_SCHEMA,
  type ClientSetup,
  type Question,
  type TextClient,
  type Told,
} from './client-kind.js';

/** The API demands a limit; long enough for every answer asked for here. */
const MAX_TOKENS = 64;

export function anthropicClient(setup: ClientSetup): Anthropic {
  return new Anthropic({
    baseURL: setup.gateway,
    apiKey: CLIENT_SECRET,
    ...(setup.retries === undefined ? {} : { maxRetries: setup.retries }),
    ...(setup.fetch === undefined ? {} : { fetch: setup.fetch }),
  });
}

function body(model: string, question: Question) {
  const lookup = { name: 'lookup', description: 'looks something up', input_schema: LOOKUP_SCHEMA };
  return {
    model,
    max_tokens: question.maxTokens ?? MAX_TOKENS,
    messages: [{ role: 'user' as const, content: question.prompt }],
    ...(question.tool === true ? { tools: [lookup] } : {}),
  };
}

const options = ({ signal }: Question) => (signal === undefined ? {} : { signal });

function told(message: Anthropic.Message): Told {
  return {
    text: message.content.map((block) => (block.type === 'text' ? block.text : '')).join(''),
    toolCalls: message.content.flatMap((block) =>
      block.type === 'tool_use' ? [{ name: block.name, args: block.input }] : [],
    ),
    usage: { prompt: message.usage.input_tokens, completion: message.usage.output_tokens },
  };
}

async function whole(client: Anthropic, model: string, question: Question): Promise<Told> {
  return told(await client.messages.create(body(model, question), options(question)));
}

/** `create({ stream: true })` and a loop over raw events. */
export function anthropicLoop(setup: ClientSetup): TextClient {
  const client = anthropicClient(setup);
  return {
    whole: (question) => whole(client, setup.model, question),
    async stream(question, onText) {
      let text = '';
      let json = '';
      let name = '';
      let prompt = 0;
      let completion = 0;
      const events = await client.messages.create(
        { ...body(setup.model, question), stream: true },
        options(question),
      );
      for await (const event of events) {
        if (event.type === 'message_start') prompt = event.message.usage.input_tokens;
        if (event.type === 'message_delta') completion = event.usage.output_tokens;
        if (event.type === 'content_block_start' && event.content_block.type === 'tool_use') {
          name = event.content_block.name;
        }
        if (event.type !== 'content_block_delta') continue;
        if (event.delta.type === 'input_json_delta') json += event.delta.partial_json;
        if (event.delta.type !== 'text_delta') continue;
        text += event.delta.text;
        onText?.(event.delta.text);
      }
      const toolCalls = name === '' ? [] : [{ name, args: JSON.parse(json) as unknown }];
      return { text, toolCalls, usage: { prompt, completion } };
    },
  };
}

/** The helper `.stream()`. */
export function anthropicHelper(setup: ClientSetup): TextClient {
  const client = anthropicClient(setup);
  return {
    whole: (question) => whole(client, setup.model, question),
    async stream(question, onText) {
      const stream = client.messages.stream(body(setup.model, question), options(question));
      if (onText !== undefined) stream.on('text', (text) => onText(text));
      return told(await stream.finalMessage());
    },
  };
}
