import type { Exchange } from '../http1/http1-server.js';
import { parseJsonObject, stringOf } from '../json-fields.js';
import { type Answer, planAnswer, planToolCall } from './answer.js';
import { type AnswerSink, StreamSink, WholeSink } from './answer-sink.js';
import { type EngineError, errorEvents } from './dialect.js';
import type { FaultPlayer } from './fault-player.js';
import { FaultSink, WRITING_FAULTS } from './fault-sink.js';
import { directivesFor, type Fault, FaultSet, parseFaults } from './faults.js';
import type { AnswerContext, AnswerFormat } from './formats/answer-format.js';
import { AnthropicFormat } from './formats/anthropic-format.js';
import { ChatFormat, CompletionFormat } from './formats/openai-format.js';
import { ResponsesFormat } from './formats/responses-format.js';
import { type EngineParts, Generation, promptTokens } from './generation.js';
import { type GenerationRequest, readGenerationRequest, type Route } from './generation-request.js';
import { hashBytes, mix } from './hashing.js';
import type { Responder } from './responder.js';
import type { RequestLog, SimRequestRecord } from './stats.js';

/** The paths that generate text. */
export const GENERATION_ROUTES: ReadonlyMap<string, Route> = new Map([
  ['/v1/chat/completions', 'chat'],
  ['/v1/completions', 'completions'],
  ['/v1/responses', 'responses'],
  ['/v1/messages', 'messages'],
]);

const ID_PREFIXES: Readonly<Record<Route, string>> = {
  chat: 'chatcmpl-',
  completions: 'cmpl-',
  responses: 'resp_',
  messages: 'msg_',
};

/** Turns a request for text into a running generation, or refuses it the way the dialect does. */
export class TextRoutes {
  /** Generations that can be aborted by SGLang's id. */
  private readonly tracked = new Set<Generation>();
  private requestNumber = 0;

  constructor(
    private readonly parts: EngineParts,
    private readonly responder: Responder,
    private readonly player: FaultPlayer,
    private readonly log: RequestLog,
    private readonly wallMs: () => number,
  ) {}

  handle(exchange: Exchange, path: string, route: Route, asked: readonly Fault[]): void {
    const parsed = parseJsonObject(exchange.request.body);
    if ('problem' in parsed) {
      return this.responder.refuse(exchange, route, {
        status: this.responder.traits.badJsonStatus,
        message: parsed.problem,
      });
    }
    const read = readGenerationRequest(route, parsed.object);
    if ('problem' in read)
      return this.responder.refuse(exchange, route, { status: 400, message: read.problem });
    const { request } = read;
    const inPrompt = this.directiveFaults(request);
    if ('problem' in inPrompt)
      return this.responder.refuse(exchange, route, { status: 400, message: inPrompt.problem });
    const faults = [...asked, ...inPrompt.faults];
    const promptBytes = Buffer.from(request.prompt);
    const record = this.record(exchange, path, request, promptBytes, faults);
    const set = new FaultSet(faults);
    if (this.player.play(exchange, route, set)) {
      record.outcome = 'faulted';
      return;
    }
    const error = this.validate(request, promptBytes) ?? this.queueError();
    if (error !== undefined) return this.reject(exchange, request, record, error);
    this.generate(exchange, request, promptBytes, record, set);
  }

  private directiveFaults(request: GenerationRequest): ReturnType<typeof parseFaults> {
    const specs = directivesFor(this.parts.options.name, request.directives);
    return specs.length === 0 ? { faults: [] } : parseFaults(specs.join(';'));
  }

  private record(
    exchange: Exchange,
    path: string,
    request: GenerationRequest,
    promptBytes: Buffer,
    faults: readonly Fault[],
  ): SimRequestRecord {
    const { headers, headerLines } = exchange.request;
    const record: SimRequestRecord = {
      number: ++this.requestNumber,
      requestId: headers.get('x-request-id') ?? '',
      path,
      model: request.model ?? '',
      stream: request.stream,
      headerNames: headerLines.map(([name]) => name.toLowerCase()),
      receivedAtMs: this.parts.nowMs(),
      promptTokens: promptTokens(promptBytes),
      cachedTokens: 0,
      outputTokens: 0,
      startedAfterMs: undefined,
      firstTokenAfterMs: undefined,
      endedAfterMs: undefined,
      outcome: 'running',
      status: undefined,
      faults: faults.map((fault) => fault.name),
    };
    this.log.add(record);
    this.parts.stats.requests++;
    if (faults.length > 0) this.parts.stats.faulted++;
    return record;
  }

  private validate(request: GenerationRequest, promptBytes: Buffer): EngineError | undefined {
    const { models, maxModelLen } = this.parts.options;
    if (this.responder.traits.checksModel && !models.includes(request.model ?? '')) {
      return {
        status: 404,
        message: `The model \`${request.model ?? ''}\` does not exist.`,
        param: 'model',
      };
    }
    if (request.n !== 1) return { status: 400, message: 'n must be 1', param: 'n' };
    const tokens = promptTokens(promptBytes);
    const wanted = this.parts.options.dialect === 'llamacpp' ? 1 : (request.maxTokens ?? 1);
    if (tokens + wanted <= maxModelLen) return undefined;
    if (this.parts.options.dialect === 'llamacpp') {
      return {
        status: 400,
        type: 'exceed_context_size_error',
        message: 'the request exceeds the available context size, try increasing it',
        extra: { n_prompt_tokens: tokens, n_ctx: maxModelLen },
      };
    }
    return {
      status: 400,
      message: `This model's maximum context length is ${maxModelLen} tokens. However, your request has ${tokens} input tokens and asks for ${wanted} output tokens.`,
    };
  }

  private reject(
    exchange: Exchange,
    request: GenerationRequest,
    record: SimRequestRecord,
    error: EngineError,
  ): void {
    record.outcome = 'rejected';
    record.status = error.status;
    // SGLang has sent its 200 by the time its queue turns the request away: the refusal is the stream's first event.
    if (error.status === 503 && this.parts.options.dialect === 'sglang' && request.stream) {
      this.parts.stats.rejected++;
      record.status = 200;
      exchange.begin(200, this.responder.traits.streamHeaderLines);
      exchange.end(errorEvents('sglang', request.route, error).join(''));
      return;
    }
    this.responder.refuse(exchange, request.route, error);
  }

  private generate(
    exchange: Exchange,
    request: GenerationRequest,
    promptBytes: Buffer,
    record: SimRequestRecord,
    faults: FaultSet,
  ): void {
    const context = this.answerContext(exchange, request, promptBytes, record);
    const generation = new Generation(this.parts, {
      exchange,
      context,
      format: formatFor(context),
      sink: this.sinkFor(exchange, request, faults),
      record,
      promptBytes,
      headers: request.stream ? this.responder.traits.headers : undefined,
      ignoreDisconnect: faults.has('ignore-disconnect'),
      commentsEveryMs: faults.number('comments-only', 0, 100),
    });
    if (this.parts.options.dialect === 'sglang' && request.rid !== undefined) this.track(generation);
    generation.start();
  }

  /** Keeps generations that can be aborted by id, and drops those that have ended. */
  private track(generation: Generation): void {
    for (const old of this.tracked) if (old.over) this.tracked.delete(old);
    this.tracked.add(generation);
  }

  private answerContext(
    exchange: Exchange,
    request: GenerationRequest,
    promptBytes: Buffer,
    record: SimRequestRecord,
  ): AnswerContext {
    const { seed, models } = this.parts.options;
    const state = mix(hashBytes(promptBytes, 0, promptBytes.length, seed) % 0x1_0000_0000, request.seed);
    const requestId = exchange.request.headers.get('x-request-id');
    const unique = requestId ?? `${this.parts.options.name}-${record.number.toString(16).padStart(8, '0')}`;
    return {
      id: ID_PREFIXES[request.route] + unique,
      createdS: Math.floor(this.wallMs() / 1000),
      model: request.model ?? models[0] ?? '',
      request,
      answer: this.planAnswer(request, record.promptTokens, state),
      promptTokens: record.promptTokens,
      cachedTokens: 0,
    };
  }

  /** As long as asked for; when nothing is asked for, the answer ends by itself somewhere in the default length. */
  private planAnswer(request: GenerationRequest, promptTokenCount: number, state: number): Answer {
    if (request.toolName !== undefined) return planToolCall(state, request.toolName);
    const { maxTokensDefault, maxModelLen } = this.parts.options;
    const room = Math.max(1, maxModelLen - promptTokenCount);
    const asked = request.maxTokens;
    const natural = Math.ceil(maxTokensDefault / 2) + (state % (Math.floor(maxTokensDefault / 2) + 1));
    return planAnswer({
      state,
      tokens: Math.min(asked ?? natural, room),
      finish: asked === undefined && natural <= room ? 'stop' : 'length',
      stop: request.stop,
    });
  }

  private sinkFor(exchange: Exchange, request: GenerationRequest, faults: FaultSet): AnswerSink {
    const { streamHeaderLines, headerLines } = this.responder.traits;
    if (faults.hasAny(WRITING_FAULTS)) {
      return new FaultSink({
        exchange,
        stream: request.stream,
        headerLines: request.stream ? streamHeaderLines : headerLines,
        faults,
        ticker: this.parts.ticker,
        nowMs: this.parts.nowMs,
        errorEvents: () =>
          errorEvents(this.parts.options.dialect, request.route, { status: 500, message: 'scripted error' }),
      });
    }
    return request.stream
      ? new StreamSink(exchange, streamHeaderLines)
      : new WholeSink(exchange, headerLines);
  }

  private queueError(): EngineError | undefined {
    if (!this.parts.slots.full) return undefined;
    const sglang = this.parts.options.dialect === 'sglang';
    const message = sglang ? 'The request queue is full.' : 'The engine has too many queued requests.';
    return { status: 503, message };
  }

  /** `/abort_request` of SGLang: ends the generation with that `rid`. */
  abortByRid(exchange: Exchange): void {
    const parsed = parseJsonObject(exchange.request.body);
    const rid = 'object' in parsed ? stringOf(parsed.object['rid']) : undefined;
    for (const generation of this.tracked) {
      if (rid !== undefined && generation.rid === rid && !generation.over) generation.abort();
    }
    exchange.respond(200, '', '');
  }
}

function formatFor(context: AnswerContext): AnswerFormat {
  switch (context.request.route) {
    case 'chat':
      return new ChatFormat(context);
    case 'completions':
      return new CompletionFormat(context);
    case 'responses':
      return new ResponsesFormat(context);
    case 'messages':
      return new AnthropicFormat(context);
  }
}
