/** One streamed chat request and everything that is measured of it. Retries nothing: a load test wants to see. */
import {
  Agent as HttpAgent,
  request as httpRequest,
  type ClientRequest,
  type IncomingMessage,
} from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { Clock, Timer } from '../../shared/clock.js';
import type { Misbehaviour } from './faults.js';
import type { Ask } from './shapes.js';

/** How one request ended. Times are ms since it was meant to be sent. */
export interface Outcome {
  /** `ok`, `cancelled` (by us, on purpose), or what went wrong: `503 queue_full`, `ECONNREFUSED`, `stream_cut`. */
  readonly result: string;
  readonly firstTokenMs?: number;
  readonly totalMs: number;
  /** Between events with text, ms. */
  readonly gapsMs: readonly number[];
  /** Events with text; what stands in for tokens where no usage is reported. */
  readonly events: number;
  readonly usage?: { readonly prompt: number; readonly completion: number; readonly cached?: number };
}

export interface ClientOptions {
  /** Of the API, with or without `/v1`. */
  readonly url: URL;
  readonly model: string;
  readonly apiKey?: string;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

/** Longest part of an answer that is no stream, kept to find its error code in. */
const BODY_MAX_CHARS = 64 * 1024;

export class CompletionClient {
  private readonly agent: HttpAgent;
  private readonly running = new Set<Exchange>();

  constructor(private readonly options: ClientOptions) {
    const settings = { keepAlive: true, maxSockets: Infinity, maxFreeSockets: 1_024 };
    this.agent = options.url.protocol === 'https:' ? new HttpsAgent(settings) : new HttpAgent(settings);
  }

  /** Sends a request that was meant to leave at `intendedMs` (monotonic). Never rejects. */
  send(what: Ask, wrong: Misbehaviour, intendedMs: number): Promise<Outcome> {
    const exchange = new Exchange(this.options, wrong, intendedMs);
    this.running.add(exchange);
    return exchange
      .run(this.agent, bodyOf(this.options.model, what, wrong))
      .finally(() => this.running.delete(exchange));
  }

  /** Breaks off what runs; each ends as `interrupted`. */
  interrupt(): void {
    for (const exchange of this.running) exchange.end('interrupted');
  }

  close(): void {
    this.agent.destroy();
  }
}

function bodyOf(model: string, what: Ask, wrong: Misbehaviour): string {
  const last = what.messages.length - 1;
  const messages = what.messages.map((message, at) =>
    at === last && wrong.directive !== undefined
      ? { ...message, content: `${wrong.directive} ${message.content}` }
      : message,
  );
  const stream = { stream: true, stream_options: { include_usage: true } };
  return JSON.stringify({ model, messages, max_tokens: what.maxTokens, ...stream });
}

/** What of an event matters here. */
interface StreamEvent {
  readonly error?: { readonly code?: unknown; readonly type?: unknown };
  readonly choices?: readonly {
    readonly delta?: Readonly<Record<string, unknown>>;
    readonly text?: string;
  }[];
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  } | null;
}

class Exchange {
  private request: ClientRequest | undefined;
  private timer: Timer | undefined;
  private settle: (outcome: Outcome) => void = () => undefined;
  private ended = false;
  private firstTokenMs: number | undefined;
  private lastTokenMs = 0;
  private events = 0;
  private done = false;
  private usage: Outcome['usage'];
  private readonly gapsMs: number[] = [];
  private partial = '';

  constructor(
    private readonly options: ClientOptions,
    private readonly wrong: Misbehaviour,
    private readonly intendedMs: number,
  ) {}

  run(agent: HttpAgent, body: string): Promise<Outcome> {
    const { url, apiKey, clock, timeoutMs } = this.options;
    const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      accept: 'text/event-stream',
      ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
    };
    return new Promise((resolve) => {
      this.settle = resolve;
      this.timer = clock.setTimer(timeoutMs, () => this.end('timeout'));
      this.request = send(completionsUrl(url), { method: 'POST', agent, headers }, (answer) =>
        this.read(answer),
      );
      this.request.on('error', (error: NodeJS.ErrnoException) => this.end(error.code ?? error.message));
      this.request.setNoDelay(true);
      this.request.end(body);
    });
  }

  /** Ends the exchange with a result; the first one counts. */
  end(result: string): void {
    if (this.ended) return;
    this.ended = true;
    this.timer?.cancel();
    if (!this.done) this.request?.destroy();
    const { firstTokenMs, usage } = this;
    this.settle({
      result,
      totalMs: this.sinceIntended(),
      gapsMs: this.gapsMs,
      events: this.events,
      ...(firstTokenMs === undefined ? {} : { firstTokenMs }),
      ...(usage === undefined ? {} : { usage }),
    });
  }

  private sinceIntended(): number {
    return this.options.clock.monotonicMs() - this.intendedMs;
  }

  private read(answer: IncomingMessage): void {
    answer.setEncoding('utf8');
    const streamed = answer.statusCode === 200 && /event-stream/.test(answer.headers['content-type'] ?? '');
    answer.on('data', (text: string) => {
      if (!streamed) this.partial = (this.partial + text).slice(0, BODY_MAX_CHARS);
      else this.readEvents(text);
      this.pause(answer);
    });
    answer.on('error', () => this.end('stream_cut'));
    answer.on('aborted', () => this.end('stream_cut'));
    answer.on('end', () => {
      if (!streamed) this.end(refusal(answer.statusCode ?? 0, this.partial));
      // A stream that ends in order without its mark is an answer that somebody cut short.
      else this.end(this.done ? 'ok' : 'stream_without_end');
    });
  }

  private pause(answer: IncomingMessage): void {
    const { readPauseMs } = this.wrong;
    if (readPauseMs === undefined) return;
    answer.pause();
    this.options.clock.setTimer(readPauseMs, () => answer.resume());
  }

  private readEvents(text: string): void {
    const lines = (this.partial + text).split('\n');
    this.partial = lines.pop() ?? '';
    for (const line of lines) {
      if (line.startsWith('data:')) this.event(line.slice(5).trim());
      if (this.ended) return;
    }
  }

  private event(data: string): void {
    if (data === '[DONE]') {
      this.done = true;
      return;
    }
    let event: StreamEvent;
    try {
      event = JSON.parse(data) as StreamEvent;
    } catch {
      return this.end('invalid_event');
    }
    if (event.error !== undefined) {
      return this.end(`in stream: ${codeOf(event.error)}`);
    }
    if (event.usage !== undefined && event.usage !== null) this.takeUsage(event.usage);
    if (event.choices?.some(hasText) === true) this.token();
  }

  private takeUsage(usage: NonNullable<StreamEvent['usage']>): void {
    const cached = usage.prompt_tokens_details?.cached_tokens;
    this.usage = {
      prompt: usage.prompt_tokens ?? 0,
      completion: usage.completion_tokens ?? 0,
      ...(cached === undefined ? {} : { cached }),
    };
  }

  private token(): void {
    const nowMs = this.options.clock.monotonicMs();
    this.events += 1;
    if (this.firstTokenMs === undefined) this.firstTokenMs = nowMs - this.intendedMs;
    else this.gapsMs.push(nowMs - this.lastTokenMs);
    this.lastTokenMs = nowMs;
    if (this.events === this.wrong.cancelAfterTokens) this.end('cancelled');
  }
}

function completionsUrl(base: URL): URL {
  const url = new URL(base);
  url.pathname = `${url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '')}/v1/chat/completions`;
  return url;
}

/** Any kind of output counts: text, reasoning, a tool's arguments. The first event has only a role. */
function hasText({ delta, text }: NonNullable<StreamEvent['choices']>[number]): boolean {
  if (text !== undefined && text !== '') return true;
  return Object.entries(delta ?? {}).some(
    ([key, value]) => key !== 'role' && value !== null && value !== '' && value !== undefined,
  );
}

function refusal(status: number, body: string): string {
  try {
    const { error } = JSON.parse(body) as StreamEvent;
    return error === undefined ? `${status}` : `${status} ${codeOf(error)}`;
  } catch {
    return `${status}`;
  }
}

/** Codes are few; a server that puts more into them must not make the list of results grow. */
function codeOf({ code, type }: NonNullable<StreamEvent['error']>): string {
  const named = [code, type].find((one) => typeof one === 'string' || typeof one === 'number');
  return String(named ?? 'error').slice(0, 60);
}
