import {
  arrayOf,
  isObject,
  type JsonObject,
  numberOf,
  objectOf,
  stringOf,
  stringsOf,
} from '../json-fields.js';

/** The four ways to ask for text. */
export type Route = 'chat' | 'completions' | 'responses' | 'messages';

/** What the simulated engine understands of a request for text, whatever API it came by. */
export interface GenerationRequest {
  readonly route: Route;
  /** As the client named it; answers carry this name. */
  readonly model: string | undefined;
  readonly stream: boolean;
  /** The rendered prompt, fault directives taken out: a request with a fault gets the text of the one without. */
  readonly prompt: string;
  /** Fault directives of the last message, `[@name:]spec` each. */
  readonly directives: readonly string[];
  readonly maxTokens: number | undefined;
  readonly stop: readonly string[];
  readonly seed: number;
  readonly n: number;
  readonly includeUsage: boolean;
  readonly continuousUsage: boolean;
  /** Name of the tool the last message asks to call. */
  readonly toolName: string | undefined;
  /** SGLang's own request id, by which `/abort_request` ends it. */
  readonly rid: string | undefined;
}

/** `[[fault:SPEC]]` or `[[fault@NAME:SPEC]]`. A prompt passes every gateway; an unknown header may not. */
const DIRECTIVE = /\[\[fault((?:@[^\]:]+)?:[^\]]*)\]\]/g;

/** What a last message has to hold for the answer to be a tool call. */
const CALL_TOOL = 'call tool';

/** Reads a body. `problem` says, in the engine's voice, which member is missing or wrong. */
export function readGenerationRequest(
  route: Route,
  body: JsonObject,
): { readonly request: GenerationRequest } | { readonly problem: string } {
  const prompt = renderPrompt(route, body);
  if (prompt === undefined) return { problem: `field required: ${PROMPT_FIELD[route]}` };
  const streamOptions = objectOf(body['stream_options']);
  const maxTokens = body['max_completion_tokens'] ?? body['max_tokens'] ?? body['max_output_tokens'];
  if (maxTokens !== undefined && maxTokens !== null && (numberOf(maxTokens) ?? 0) < 1) {
    return { problem: 'max_tokens must be at least 1' };
  }
  const includeUsage = streamOptions['include_usage'] === true;
  return {
    request: {
      route,
      model: stringOf(body['model']),
      stream: body['stream'] === true,
      prompt: prompt.text.includes('[[fault') ? prompt.text.replaceAll(DIRECTIVE, '') : prompt.text,
      directives: prompt.last.includes('[[fault')
        ? [...prompt.last.matchAll(DIRECTIVE)].map((match) => match[1] ?? '')
        : [],
      maxTokens: numberOf(maxTokens),
      stop: stringsOf(body['stop'] ?? body['stop_sequences']),
      seed: numberOf(body['seed']) ?? 0,
      n: numberOf(body['n']) ?? 1,
      includeUsage,
      continuousUsage: includeUsage && streamOptions['continuous_usage_stats'] === true,
      toolName: prompt.last.includes(CALL_TOOL) ? firstToolName(body) : undefined,
      rid: stringOf(body['rid']),
    },
  };
}

const PROMPT_FIELD: Readonly<Record<Route, string>> = {
  chat: 'messages',
  completions: 'prompt',
  responses: 'input',
  messages: 'messages',
};

interface Rendered {
  readonly text: string;
  /** The last message alone. */
  readonly last: string;
}

function renderPrompt(route: Route, body: JsonObject): Rendered | undefined {
  switch (route) {
    case 'completions':
      return renderPlain(body['prompt']);
    case 'chat':
      return renderMessages(body['messages'], undefined, body['tools']);
    case 'messages':
      return renderMessages(body['messages'], body['system'], body['tools']);
    case 'responses': {
      const input = body['input'];
      const messages = typeof input === 'string' ? [{ role: 'user', content: input }] : input;
      return renderMessages(messages, body['instructions'], body['tools']);
    }
  }
}

/** A completion prompt: text, a list of one text, or token ids (four bytes of text each, see `/tokenize`). */
function renderPlain(prompt: unknown): Rendered | undefined {
  if (typeof prompt === 'string') return { text: prompt, last: prompt };
  if (!Array.isArray(prompt) || prompt.length === 0) return undefined;
  const list: readonly unknown[] = prompt;
  if (list.length === 1) return renderPlain(list[0]);
  if (!list.every((item) => typeof item === 'number')) return undefined;
  const text = list.join(' ');
  return { text, last: text };
}

/**
 * Renders a conversation the way chat templates do: each message with its role, then the assistant's turn opened.
 * What an answer adds to it is byte for byte what the next turn's prompt holds there, so its blocks stay cached.
 */
export function renderMessages(messages: unknown, system: unknown, tools: unknown): Rendered | undefined {
  if (!Array.isArray(messages) || messages.length === 0) return undefined;
  const list: readonly unknown[] = messages;
  let text = tools === undefined || tools === null ? '' : `<|tools|>\n${JSON.stringify(tools)}\n`;
  const instructions = renderContent(system);
  if (instructions !== '') text += `<|system|>\n${instructions}\n`;
  let last = '';
  for (const message of list) {
    const fields = objectOf(message);
    last = renderContent(fields['content'] ?? fields['output']);
    const calls = fields['tool_calls'];
    text += `<|${stringOf(fields['role']) ?? 'user'}|>\n${last}${calls === undefined ? '' : JSON.stringify(calls)}\n`;
  }
  return { text: `${text}<|assistant|>\n`, last };
}

function renderContent(content: unknown): string {
  if (typeof content === 'string') return content;
  return arrayOf(content)
    .map((part) => {
      const fields = objectOf(part);
      return stringOf(fields['text']) ?? (isObject(part) ? JSON.stringify(part) : '');
    })
    .join('');
}

function firstToolName(body: JsonObject): string | undefined {
  const tool = objectOf(arrayOf(body['tools'])[0]);
  return stringOf(objectOf(tool['function'])['name']) ?? stringOf(tool['name']);
}
