import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { Clock } from '../../shared/clock.js';
import type { Random } from '../../shared/random.js';
import type { JsonObject } from '../json-fields.js';
import { ApiError } from './api-error.js';
import {
  addUsage,
  type AnswerWriter,
  type Choice,
  CompletionWriter,
  type Usage,
} from './completion-writer.js';
import type { EngineMetrics } from './engine-metrics.js';
import { sendJson } from './http-answer.js';
import type { LlamaRuntime, LlamaSlot, Sampling } from './llama-runtime.js';
import { chatRequestOf, MessagesWriter } from './messages-writer.js';
import { SlotAbortedError, type SlotPool, SlotRefusedError } from './slot-pool.js';
import { type Prompt, readMessages, readPrompts, readTextRequest, type TextRequest } from './text-request.js';

export interface TextServiceParts {
  readonly runtime: LlamaRuntime;
  readonly pool: SlotPool<LlamaSlot>;
  readonly metrics: EngineMetrics;
  readonly clock: Clock;
  readonly random: Random;
}

/** One prompt's answer. */
interface Finished {
  readonly choice: Choice;
  readonly usage: Usage;
}

type OnText = (text: string, usage: Usage) => void;

/** The API a request for text came by. */
export type TextApi = 'chat' | 'completions' | 'messages';

/** Answers `/v1/chat/completions`, `/v1/completions` and `/v1/messages`. */
export class TextService {
  constructor(private readonly parts: TextServiceParts) {}

  /**
   * Answers one request under the served name `model`. Throws `ApiError` while that can still be told by a status; rejects with `SlotAbortedError` when
   * `signal` aborted, and then nothing was or will be written.
   */
  async answer(
    received: JsonObject,
    api: TextApi,
    model: string,
    requestId: string | undefined,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const { runtime, random } = this.parts;
    const body = api === 'messages' ? chatRequestOf(received) : received;
    const chat = api !== 'completions';
    const request = readTextRequest(body, chat, random);
    const prompts = chat
      ? [runtime.renderChat(readMessages(body))]
      : readPrompts(body['prompt'], 'prompt').map((prompt) => this.tokensOf(prompt));
    for (const tokens of prompts) this.checkLength(tokens, chat ? 'messages' : 'prompt');
    const writer = this.writerFor(api, requestId ?? randomUUID(), model, request.includeUsage);
    if (request.stream) await this.stream(prompts, request, writer, response, signal);
    else {
      const { choices, usage } = await this.runAll(prompts, request.sampling, signal, () => {});
      sendJson(response, 200, writer.whole(choices, usage));
    }
  }

  private writerFor(api: TextApi, id: string, model: string, includeUsage: boolean): AnswerWriter {
    if (api === 'messages') return new MessagesWriter(`msg_${id}`, model);
    const createdS = Math.floor(this.parts.clock.wallMs() / 1000);
    const chat = api === 'chat';
    return new CompletionWriter(chat, `${chat ? 'chatcmpl' : 'cmpl'}-${id}`, model, createdS, includeUsage);
  }

  /** Tokens of a prompt given as text or as ids. Throws `ApiError` 400 for ids the model does not have. */
  tokensOf(prompt: Prompt): number[] {
    const { runtime } = this.parts;
    if (typeof prompt === 'string') {
      const tokens = runtime.tokenize(prompt);
      if (tokens.length === 0) throw new ApiError(400, 'the prompt is empty', 'prompt');
      return tokens;
    }
    if (!runtime.knowsTokens(prompt))
      throw new ApiError(400, 'the prompt holds an unknown token id', 'prompt');
    return [...prompt];
  }

  private checkLength(tokens: readonly number[], param: string): void {
    const { contextTokens } = this.parts.runtime;
    if (tokens.length < contextTokens) return;
    throw new ApiError(
      400,
      `This model's maximum context length is ${contextTokens} tokens, but the prompt has ${tokens.length} and leaves no room for an answer.`,
      param,
    );
  }

  private async stream(
    prompts: readonly number[][],
    request: TextRequest,
    writer: AnswerWriter,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const opened = new Set<number>();
    const { choices, usage } = await this.runAll(
      prompts,
      request.sampling,
      signal,
      (index, text, running) => {
        // The head leaves with the first token: what fails before it is a real status.
        beginStream(response);
        const opening = opened.has(index) ? '' : writer.opening(index, running);
        opened.add(index);
        const event =
          text === '' ? '' : writer.text(index, text, request.continuousUsage ? running : undefined);
        // Not held back for a slow client: an answer is bounded by the context, and a slot is worth more than that memory.
        if (opening + event !== '') response.write(opening + event);
      },
    );
    // The model may have ended before its first token.
    beginStream(response);
    const closings = choices.map(({ finish }, index) => {
      const opening = opened.has(index) ? '' : writer.opening(index, usage);
      return opening + writer.closing(index, finish, usage);
    });
    response.end(closings.join('') + writer.end(usage));
  }

  /** Runs all prompts; the first failure stops the others. */
  private async runAll(
    prompts: readonly number[][],
    sampling: Sampling,
    signal: AbortSignal,
    onText: (index: number, text: string, usage: Usage) => void,
  ): Promise<{ choices: Choice[]; usage: Usage }> {
    const failed = new AbortController();
    const either = prompts.length === 1 ? signal : AbortSignal.any([signal, failed.signal]);
    const finished = await Promise.all(
      prompts.map((tokens, index) =>
        this.run(tokens, sampling, either, (text, usage) => onText(index, text, usage)).catch(
          (error: unknown) => {
            failed.abort();
            throw error;
          },
        ),
      ),
    );
    const none: Usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
    return {
      choices: finished.map(({ choice }) => choice),
      usage: finished.reduce((sum, { usage }) => addUsage(sum, usage), none),
    };
  }

  private async run(
    tokens: readonly number[],
    sampling: Sampling,
    signal: AbortSignal,
    onText: OnText,
  ): Promise<Finished> {
    const { pool, metrics, clock } = this.parts;
    const arrivedMs = clock.monotonicMs();
    const slot = await acquire(pool, tokens, signal);
    try {
      const cachedTokens = await slot.reuse(tokens);
      metrics.promptTokens += tokens.length;
      metrics.cachedTokens += cachedTokens;
      const texts: string[] = [];
      let seen = 0;
      const usageAt = (completionTokens: number) => ({
        promptTokens: tokens.length,
        cachedTokens,
        completionTokens,
      });
      const result = await slot.generate(tokens, sampling, signal, (text, completionTokens) => {
        if (seen === 0) metrics.observeFirstToken((clock.monotonicMs() - arrivedMs) / 1000);
        metrics.generatedTokens += completionTokens - seen;
        seen = completionTokens;
        texts.push(text);
        onText(text, usageAt(completionTokens));
      });
      if (signal.aborted) throw new SlotAbortedError();
      metrics.finished[result.finish]++;
      return {
        choice: { text: texts.join(''), finish: result.finish },
        usage: usageAt(result.completionTokens),
      };
    } finally {
      if (signal.aborted) metrics.finished.abort++;
      pool.release(slot);
    }
  }
}

function beginStream(response: ServerResponse): void {
  if (response.headersSent) return;
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
}

async function acquire(
  pool: SlotPool<LlamaSlot>,
  tokens: readonly number[],
  signal: AbortSignal,
): Promise<LlamaSlot> {
  try {
    return await pool.acquire(tokens, signal);
  } catch (error) {
    if (error instanceof SlotRefusedError) throw new ApiError(503, error.message);
    throw error;
  }
}
