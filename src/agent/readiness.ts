/**
 * Is the engine ready? An open port, `/health` 200 and a listed model are each seen long before an engine answers, so
 * Ready needs all of it and one token that was really generated.
 */
import type { EngineAddress, EngineHttp, HttpAnswer } from './engine-http.js';
import type { AgentTimings } from './limits.js';

export type ReadyAnswer =
  | { readonly state: 'ready'; readonly recipe: GenerationRecipe }
  | { readonly state: 'notListening' }
  /** It answers, but not yet with work. */
  | { readonly state: 'loading'; readonly detail: string }
  /** No answer in time: at a start that is loading, later it is load. */
  | { readonly state: 'busy'; readonly detail: string }
  /** Another model is served there. */
  | { readonly state: 'mismatch'; readonly message: string };

export interface ReadyTarget {
  readonly address: EngineAddress;
  readonly model: string;
}

/** A smallest piece of real work, for engines of several trades. */
export interface GenerationRecipe {
  readonly path: string;
  body(model: string): unknown;
  /** True when the answer shows work done. */
  done(answer: Record<string, unknown>): boolean;
}

const nonEmptyList = (value: unknown): boolean => Array.isArray(value) && value.length > 0;

export const GENERATION_RECIPES: readonly GenerationRecipe[] = [
  {
    // Plain completion first: base models have no chat template and refuse a chat.
    path: '/v1/completions',
    body: (model) => ({ model, prompt: 'Hello', max_tokens: 1, temperature: 0 }),
    done: (answer) => nonEmptyList(answer['choices']),
  },
  {
    path: '/v1/chat/completions',
    body: (model) => ({
      model,
      messages: [{ role: 'user', content: 'Hello' }],
      max_tokens: 1,
      temperature: 0,
    }),
    done: (answer) => nonEmptyList(answer['choices']),
  },
  {
    path: '/v1/embeddings',
    body: (model) => ({ model, input: 'Hello' }),
    done: (answer) => nonEmptyList(answer['data']),
  },
  {
    path: '/v1/rerank',
    body: (model) => ({ model, query: 'Hello', documents: ['Hello'] }),
    done: (answer) => nonEmptyList(answer['results']),
  },
];

export class ReadinessProbe {
  constructor(
    private readonly http: EngineHttp,
    private readonly timings: Pick<AgentTimings, 'probeTimeoutMs' | 'tokenTimeoutMs'>,
  ) {}

  /** One look, cheapest question first; `onGenerate` is called when all that is left is the token. */
  async look(target: ReadyTarget, signal: AbortSignal, onGenerate?: () => void): Promise<ReadyAnswer> {
    const health = await this.get(target, '/health', signal);
    // A server without the path is asked the next question.
    if (!(health.kind === 'answer' && (health.status === 404 || health.status === 405))) {
      const problem = notServing(health, '/health');
      if (problem !== undefined) return problem;
    }
    const served = await this.servedModel(target, signal);
    if (served !== undefined) return served;
    onGenerate?.();
    return this.generate(target, GENERATION_RECIPES, signal);
  }

  /** One token by recipes that are known to work, or by all. */
  async generate(
    target: ReadyTarget,
    recipes: readonly GenerationRecipe[],
    signal: AbortSignal,
  ): Promise<ReadyAnswer> {
    let refusal = 'no route takes work';
    for (const recipe of recipes) {
      const answer = await this.http.ask(target.address, recipe.path, {
        timeoutMs: this.timings.tokenTimeoutMs,
        body: recipe.body(target.model),
        signal,
      });
      if (answer.kind === 'answer' && answer.status === 200 && recipe.done(parseObject(answer.body)))
        return { state: 'ready', recipe };
      if (answer.kind !== 'answer' || answer.status === 503 || answer.status === 429)
        return (
          notServing(answer, recipe.path) ?? { state: 'loading', detail: `${recipe.path} gave no answer` }
        );
      refusal = `${recipe.path} answered ${answer.status}`;
    }
    return { state: 'loading', detail: refusal };
  }

  /** Undefined when the right model is served, or the engine does not tell. */
  private async servedModel(target: ReadyTarget, signal: AbortSignal): Promise<ReadyAnswer | undefined> {
    const answer = await this.get(target, '/v1/models', signal);
    if (answer.kind === 'answer' && (answer.status === 404 || answer.status === 405)) return undefined;
    const problem = notServing(answer, '/v1/models');
    if (problem !== undefined || answer.kind !== 'answer') return problem;
    const ids = modelIds(answer.body);
    if (ids === undefined) return { state: 'loading', detail: '/v1/models answered without a list' };
    if (ids.includes(target.model)) return undefined;
    return {
      state: 'mismatch',
      message: `expected model ${target.model}, the engine serves ${ids.join(', ')}`,
    };
  }

  private get(target: ReadyTarget, path: string, signal: AbortSignal): Promise<HttpAnswer> {
    return this.http.ask(target.address, path, { timeoutMs: this.timings.probeTimeoutMs, signal });
  }
}

/** What an answer other than success means; undefined for success. */
function notServing(answer: HttpAnswer, path: string): ReadyAnswer | undefined {
  switch (answer.kind) {
    case 'refused':
      return { state: 'notListening' };
    case 'timeout':
      return { state: 'busy', detail: `${path} gave no answer in time` };
    case 'broken':
      return { state: 'loading', detail: `${path}: ${answer.message}` };
    case 'answer':
      return answer.status === 200
        ? undefined
        : { state: 'loading', detail: `${path} answered ${answer.status}` };
  }
}

function modelIds(body: string): string[] | undefined {
  const { data } = parseObject(body);
  if (!Array.isArray(data) || data.length === 0) return undefined;
  return data
    .map((entry) => (entry as { id?: unknown } | null)?.id)
    .filter((id): id is string => typeof id === 'string');
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
