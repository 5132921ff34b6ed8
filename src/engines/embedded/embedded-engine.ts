import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Clock, systemClock } from '../../shared/clock.js';
import { type Random, systemRandom } from '../../shared/random.js';
import { type JsonObject, parseJsonObject, stringOf } from '../json-fields.js';
import { ApiError } from './api-error.js';
import { EngineMetrics } from './engine-metrics.js';
import { readBody, send, sendError, sendJson } from './http-answer.js';
import { LlamaRuntime, type LlamaSlot } from './llama-runtime.js';
import { withSystem } from './messages-writer.js';
import { DEFAULT_EMBEDDED_OPTIONS, type EmbeddedOptions } from './options.js';
import { SlotAbortedError, SlotPool } from './slot-pool.js';
import { readMessages, readPrompts } from './text-request.js';
import { type TextApi, TextService } from './text-service.js';

/** How often a stop looks whether the last request has ended, milliseconds. */
const STOP_POLL_MS = 10;

interface Loaded {
  readonly runtime: LlamaRuntime;
  readonly pool: SlotPool<LlamaSlot>;
  readonly text: TextService;
}

export interface EmbeddedEngineParts {
  readonly clock?: Clock;
  readonly random?: Random;
  /** Gets a line about what the engine cannot tell its client. */
  readonly log?: (line: string) => void;
}

/**
 * llama.cpp in this process behind an OpenAI-compatible API. It listens at once and answers 503 until the model is loaded.
 * A client that leaves frees its slot, or its place in the queue, at once.
 */
export class EmbeddedEngine {
  readonly options: EmbeddedOptions;
  /** Settles when the model is loaded; rejects with `ModelLoadError` when it cannot be. Set by `start`. */
  loaded: Promise<void> = Promise.reject(new Error('not started'));

  private readonly server: http.Server;
  private readonly metrics = new EngineMetrics();
  private readonly running = new Set<AbortController>();
  private readonly clock: Clock;
  private readonly random: Random;
  private readonly log: (line: string) => void;
  private model: Loaded | undefined;
  private stopping = false;

  constructor(
    options: Pick<EmbeddedOptions, 'modelFile' | 'models'> & Partial<EmbeddedOptions>,
    { clock = systemClock, random = systemRandom, log = () => {} }: EmbeddedEngineParts = {},
  ) {
    this.options = { ...DEFAULT_EMBEDDED_OPTIONS, ...options };
    this.clock = clock;
    this.random = random;
    this.log = log;
    this.loaded.catch(() => {});
    this.server = http.createServer(
      { noDelay: true },
      (request, response) => void this.serve(request, response),
    );
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  get ready(): boolean {
    return this.model !== undefined && !this.stopping;
  }

  /** Listens, starts to load, and resolves with the port. Rejects when the address cannot be had. */
  async start({ port = 0, host = '127.0.0.1' }: { port?: number; host?: string } = {}): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(port, host, () => {
        this.server.off('error', reject);
        resolve();
      });
    });
    this.loaded = this.load();
    this.loaded.catch(() => {});
    return this.port;
  }

  /** Refuses new requests, lets running ones go on for `graceMs`, then cuts them and frees the model. */
  async stop(graceMs = 0): Promise<void> {
    this.stopping = true;
    this.model?.pool.close();
    this.server.close();
    this.server.closeIdleConnections();
    const endMs = this.clock.monotonicMs() + graceMs;
    while (this.running.size > 0 && this.clock.monotonicMs() < endMs) await this.pause(STOP_POLL_MS);
    for (const controller of this.running) controller.abort();
    this.server.closeAllConnections();
    while (this.running.size > 0) await this.pause(STOP_POLL_MS);
    await this.loaded.catch(() => {});
    await this.model?.runtime.dispose();
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => void this.clock.setTimer(ms, resolve));
  }

  private async load(): Promise<void> {
    const { modelFile, slots, contextTokens, threads, maxQueue } = this.options;
    const onProgress = (percent: number) => this.log(`loading model: ${percent}%`);
    const runtime = await LlamaRuntime.load({ modelFile, slots, contextTokens, threads, onProgress });
    const pool = new SlotPool(runtime.slots, maxQueue);
    const { clock, random, metrics } = this;
    const text = new TextService({ runtime, pool, metrics, clock, random });
    this.model = { runtime, pool, text };
  }

  /** Everything a request can do ends here, so that no failure becomes an unhandled rejection. */
  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const controller = new AbortController();
    this.running.add(controller);
    response.on('close', () => {
      if (!response.writableFinished) controller.abort();
    });
    try {
      await this.route(request, response, controller.signal);
    } catch (error) {
      this.fail(response, error, controller.signal);
    } finally {
      this.running.delete(controller);
    }
  }

  private fail(response: ServerResponse, error: unknown, signal: AbortSignal): void {
    if (error instanceof ApiError) return sendError(response, error);
    if (signal.aborted || error instanceof SlotAbortedError) {
      response.destroy();
      return;
    }
    const message = error instanceof Error ? error.message : String(error);
    this.log(`request failed: ${message}`);
    sendError(response, new ApiError(500, message));
  }

  private async route(
    request: IncomingMessage,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const path = (request.url ?? '/').split('?')[0] ?? '/';
    if (path === '/metrics')
      return send(response, 200, 'text/plain; version=0.0.4; charset=utf-8', this.renderMetrics());
    const loaded = this.model;
    if (loaded === undefined) throw new ApiError(503, 'the model is loading');
    if (this.stopping) throw new ApiError(503, 'the engine is shutting down');
    if (request.method === 'GET' || request.method === 'HEAD') return this.get(path, loaded, response);
    if (request.method !== 'POST') throw new ApiError(405, 'Method Not Allowed');
    const parsed = parseJsonObject(await readBody(request));
    if ('problem' in parsed) throw new ApiError(400, parsed.problem);
    const body = parsed.object;
    switch (path) {
      case '/v1/chat/completions':
        return this.answer(body, 'chat', loaded, request, response, signal);
      case '/v1/completions':
        return this.answer(body, 'completions', loaded, request, response, signal);
      case '/v1/messages':
        return this.answer(body, 'messages', loaded, request, response, signal);
      case '/v1/messages/count_tokens': {
        this.modelOf(body);
        const { length } = loaded.runtime.renderChat(readMessages(withSystem(body)));
        return sendJson(response, 200, JSON.stringify({ input_tokens: length }));
      }
      case '/v1/embeddings':
        return sendJson(response, 200, await this.embed(body, this.modelOf(body), loaded, signal));
      case '/tokenize':
      case '/v1/tokenize':
        return sendJson(response, 200, this.tokenize(body, loaded));
      case '/detokenize':
      case '/v1/detokenize':
        return sendJson(response, 200, this.detokenize(body, loaded));
      default:
        throw new ApiError(404, 'Not Found');
    }
  }

  private answer(
    body: JsonObject,
    api: TextApi,
    { text }: Loaded,
    request: IncomingMessage,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const id = request.headers['x-request-id'];
    const requestId = typeof id === 'string' ? id : undefined;
    return text.answer(body, api, this.modelOf(body), requestId, response, signal);
  }

  private get(path: string, { runtime }: Loaded, response: ServerResponse): void {
    switch (path) {
      case '/health':
        return sendJson(response, 200, '{"status":"ok"}');
      case '/v1/models': {
        const data = this.options.models.map((id) => ({
          id,
          object: 'model',
          created: 0,
          owned_by: 'llmgw',
          max_model_len: runtime.contextTokens,
        }));
        return sendJson(response, 200, JSON.stringify({ object: 'list', data }));
      }
      default:
        throw new ApiError(404, 'Not Found');
    }
  }

  /** The name the client used; answers carry it. Throws `ApiError` when nothing is served under it. */
  private modelOf(body: JsonObject): string {
    const model = stringOf(body['model']);
    if (model === undefined) throw new ApiError(400, 'field required: model', 'model');
    if (this.options.models.includes(model)) return model;
    throw new ApiError(404, `The model \`${model}\` does not exist.`, 'model');
  }

  private async embed(
    body: JsonObject,
    model: string,
    { runtime, text }: Loaded,
    signal: AbortSignal,
  ): Promise<string> {
    const format = body['encoding_format'] ?? 'float';
    if (format !== 'float' && format !== 'base64') {
      throw new ApiError(400, 'encoding_format must be float or base64', 'encoding_format');
    }
    if (body['dimensions'] !== undefined && body['dimensions'] !== null) {
      throw new ApiError(400, 'dimensions is not supported by the embedded engine', 'dimensions');
    }
    const inputs = readPrompts(body['input'], 'input').map((input) => text.tokensOf(input));
    const data: object[] = [];
    for (const [index, tokens] of inputs.entries()) {
      if (signal.aborted) throw new SlotAbortedError();
      if (tokens.length > runtime.embeddingTokens) {
        throw new ApiError(400, `input ${index} is longer than ${runtime.embeddingTokens} tokens`, 'input');
      }
      const vector = await this.vectorOf(tokens, runtime);
      data.push({ object: 'embedding', index, embedding: format === 'base64' ? toBase64(vector) : vector });
    }
    const tokens = inputs.reduce((sum, input) => sum + input.length, 0);
    const usage = { prompt_tokens: tokens, total_tokens: tokens };
    return JSON.stringify({ object: 'list', data, model, usage });
  }

  private async vectorOf(tokens: readonly number[], runtime: LlamaRuntime): Promise<readonly number[]> {
    try {
      return await runtime.embed(tokens);
    } catch (error) {
      this.log(`no embeddings: ${error instanceof Error ? error.message : String(error)}`);
      throw new ApiError(501, 'this model gives no embeddings');
    }
  }

  private tokenize(body: JsonObject, { runtime }: Loaded): string {
    const prompt = stringOf(body['prompt']) ?? stringOf(body['content']);
    const tokens = prompt === undefined ? runtime.renderChat(readMessages(body)) : runtime.tokenize(prompt);
    return JSON.stringify({ count: tokens.length, max_model_len: runtime.contextTokens, tokens });
  }

  private detokenize(body: JsonObject, { runtime }: Loaded): string {
    const [tokens] = readPrompts(body['tokens'], 'tokens');
    if (tokens === undefined || typeof tokens === 'string' || !runtime.knowsTokens(tokens)) {
      throw new ApiError(400, 'tokens must be a list of token ids', 'tokens');
    }
    return JSON.stringify({ prompt: runtime.detokenize(tokens) });
  }

  private renderMetrics(): string {
    const { slots, contextTokens } = this.options;
    const used = this.model?.runtime.slots.reduce((sum, slot) => sum + slot.contextTokens.length, 0) ?? 0;
    const capacity = slots * (this.model?.runtime.contextTokens ?? contextTokens);
    return this.metrics.render(this.options.models[0] ?? '', {
      running: this.model?.pool.running ?? 0,
      waiting: this.model?.pool.waiting ?? 0,
      cacheUse: used / capacity,
    });
  }
}

function toBase64(vector: readonly number[]): string {
  const bytes = Buffer.alloc(vector.length * 4);
  for (const [index, value] of vector.entries()) bytes.writeFloatLE(value, index * 4);
  return bytes.toString('base64');
}
