import { type Exchange, Http1Server } from '../http1/http1-server.js';
import { parseJsonObject, stringOf } from '../json-fields.js';
import { type Clock, systemClock, type Timer } from '../../shared/clock.js';
import { AdminRoutes, type SimAdmin } from './admin-routes.js';
import { FaultPlayer } from './fault-player.js';
import { FaultSet, parseFaults, type StandingFault } from './faults.js';
import type { EngineParts } from './generation.js';
import { renderMetrics } from './metrics.js';
import { DEFAULT_SIM_OPTIONS, type Dialect, type SimOptions } from './options.js';
import { PrefillLane } from './prefill-lane.js';
import { PrefixCache } from './prefix-cache.js';
import { Responder } from './responder.js';
import { SIDE_ROUTES, type SideAnswer, transcribe } from './side-routes.js';
import { Slots } from './slots.js';
import { freshStats, RequestLog, type SimRequestRecord, type SimStats } from './stats.js';
import { GENERATION_ROUTES, TextRoutes } from './text-routes.js';
import { Ticker } from './ticker.js';

/** Requests kept in the log. */
const LOG_CAPACITY = 1000;

/** Most turns of the event loop that `stop` waits for sockets to report their end. */
const STOP_TURNS = 100;

/** How often a port that was given up by the `refuse` fault is asked for again, and how long between. */
const REBIND_ATTEMPTS = 50;
const REBIND_PAUSE_MS = 20;

/**
 * A simulated engine: HTTP, slots, queue, prefix cache and timing of a real one, without a model.
 * Everything it says depends on seed and request only, so answers can be compared through any path; everything it does
 * wrong is asked for (see `FAULTS`). Many can live in one process. What shapes it stands in `SimOptions`.
 */
export class SimEngine implements SimAdmin {
  readonly options: SimOptions;

  private readonly parts: EngineParts;
  private readonly responder: Responder;
  private readonly server: Http1Server;
  private readonly ticker: Ticker;
  private readonly log = new RequestLog(LOG_CAPACITY);
  private readonly player: FaultPlayer;
  private readonly text: TextRoutes;
  private readonly admin: AdminRoutes;
  private readonly timers = new Set<Timer>();
  private ready = false;
  private stopped = false;
  private boundPort = 0;
  private boundHost = '127.0.0.1';

  constructor(
    options: Partial<SimOptions> = {},
    private readonly clock: Clock = systemClock,
  ) {
    this.options = { ...DEFAULT_SIM_OPTIONS, ...options };
    const { dialect, slots, maxQueue, cacheBlocks, keepAliveMs } = this.options;
    const stats = freshStats(this.options);
    const nowMs = () => clock.monotonicMs();
    this.ticker = new Ticker(clock);
    this.responder = new Responder(dialect, stats);
    this.parts = {
      options: this.options,
      slots: new Slots(slots, this.responder.traits.endlessQueue ? Infinity : maxQueue),
      lane: new PrefillLane(this.ticker, nowMs),
      ticker: this.ticker,
      cache: new PrefixCache(cacheBlocks),
      stats,
      nowMs,
    };
    this.player = new FaultPlayer(this.responder, (ms) => this.refuseConnections(ms));
    this.text = new TextRoutes(this.parts, this.responder, this.player, this.log, () => clock.wallMs());
    this.admin = new AdminRoutes(this, this.responder);
    this.server = new Http1Server({ clock, keepAliveMs, handler: (exchange) => this.handle(exchange) });
  }

  get port(): number {
    return this.boundPort;
  }

  get url(): string {
    return `http://${this.boundHost}:${this.boundPort}`;
  }

  /**
   * Starts and resolves with the port once it listens. vLLM's dialect listens only when loaded (connections are refused until
   * then); the others listen at once and answer 503 while loading.
   */
  async start({ port = 0, host = '127.0.0.1' }: { port?: number; host?: string } = {}): Promise<number> {
    this.boundHost = host;
    const { startupMs, dialect } = this.options;
    const listensLate = dialect === 'vllm';
    if (listensLate && startupMs > 0) await new Promise<void>((resolve) => this.after(startupMs, resolve));
    if (this.stopped) throw new Error('the engine was stopped while it started');
    this.boundPort = await this.server.listen(port, host);
    if (listensLate || startupMs === 0) this.ready = true;
    else this.after(startupMs, () => (this.ready = true));
    return this.boundPort;
  }

  /** Stops at once: running answers are cut, as by a dying process. */
  async stop(): Promise<void> {
    this.stopped = true;
    for (const timer of this.timers) timer.cancel();
    this.timers.clear();
    this.server.close();
    // Sockets report their end in a later turn; whoever looks at the counters after stop() must see them settled.
    for (let turn = 0; turn < STOP_TURNS && this.server.openConnections > 0; turn++) {
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    this.ticker.clear();
  }

  stats(): SimStats {
    const { stats, slots, cache } = this.parts;
    return {
      ...stats,
      ready: this.ready,
      running: slots.running,
      waiting: slots.waiting,
      cacheBlocks: cache.size,
      openConnections: this.server.openConnections,
    };
  }

  /** The newest requests, oldest first; with an id only its attempts. */
  requests(requestId?: string): SimRequestRecord[] {
    return this.log.list(requestId);
  }

  standingFaults(): readonly StandingFault[] {
    return this.player.book.list();
  }

  /** Plays `spec` on the next `count` requests, or until cleared. Throws when the spec cannot be read. */
  setFault(spec: string, { count, path }: { count?: number; path?: string } = {}): void {
    const parsed = parseFaults(spec);
    if ('problem' in parsed) throw new Error(parsed.problem);
    this.player.book.add({ faults: parsed.faults, spec, left: count, path });
  }

  clearFaults(): void {
    this.player.book.clear();
  }

  /** Forgets counters, log, faults and cache; running requests go on. */
  reset(): void {
    Object.assign(this.parts.stats, freshStats(this.options));
    this.log.clear();
    this.player.book.clear();
    this.parts.cache.clear();
  }

  private after(delayMs: number, fn: () => void): void {
    const timer = this.clock.setTimer(delayMs, () => {
      this.timers.delete(timer);
      fn();
    });
    this.timers.add(timer);
  }

  private refuseConnections(ms: number): void {
    this.server.stopListening();
    this.after(ms, () => this.listenAgain(REBIND_ATTEMPTS));
  }

  private listenAgain(attemptsLeft: number): void {
    if (this.stopped) return;
    this.server.listen(this.boundPort, this.boundHost).catch(() => {
      // Somebody else may hold the port for a moment, say as an outgoing connection; an engine cannot move to another one.
      if (attemptsLeft > 0) this.after(REBIND_PAUSE_MS, () => this.listenAgain(attemptsLeft - 1));
    });
  }

  private handle(exchange: Exchange): void {
    const { target, method } = exchange.request;
    const query = target.indexOf('?');
    const path = query < 0 ? target : target.slice(0, query);
    if (path.startsWith('/sim/')) return this.admin.handle(exchange, path);
    const route = GENERATION_ROUTES.get(path);
    const faults = this.player.collect(exchange, path, route !== undefined);
    if (faults === undefined) return;
    if (!this.ready && this.refuseWhileLoading(exchange, path)) return;
    if (route === undefined) {
      if (!this.player.play(exchange, undefined, new FaultSet(faults))) this.handleSide(exchange, path);
    } else if (method === 'POST') {
      this.text.handle(exchange, path, route, faults);
    } else {
      const status = this.options.dialect === 'llamacpp' ? 404 : 405;
      this.responder.refuse(exchange, route, { status, message: 'Method Not Allowed' });
    }
  }

  /** True when this dialect does not serve `path` yet and has said so. */
  private refuseWhileLoading(exchange: Exchange, path: string): boolean {
    const { dialect } = this.options;
    if (dialect === 'sglang' && (path === '/ping' || path === '/metrics')) return false;
    const message = dialect === 'llamacpp' ? 'Loading model' : 'The server is starting.';
    this.responder.refuse(exchange, undefined, { status: 503, message });
    return true;
  }

  private handleSide(exchange: Exchange, path: string): void {
    const { method, headers, body } = exchange.request;
    if (method === 'GET' || method === 'HEAD') return this.handleGet(exchange, path);
    if (path === '/v1/audio/transcriptions' || path === '/v1/audio/translations') {
      const { answer, model } = transcribe(headers.get('content-type') ?? '', body);
      return this.give(exchange, model, answer);
    }
    if (path === '/abort_request' && this.options.dialect === 'sglang') return this.text.abortByRid(exchange);
    const route = SIDE_ROUTES.get(path);
    if (route === undefined) return this.notFound(exchange);
    const parsed = parseJsonObject(body);
    if ('problem' in parsed) {
      const error = { status: this.responder.traits.badJsonStatus, message: parsed.problem };
      return this.responder.refuse(exchange, undefined, error);
    }
    const model = stringOf(parsed.object['model']);
    const { seed, models, embeddingSize, maxModelLen } = this.options;
    const context = { seed, model: model ?? models[0] ?? '', embeddingSize, maxModelLen };
    this.give(exchange, model, route(parsed.object, context));
  }

  private give(exchange: Exchange, model: string | undefined, answer: SideAnswer): void {
    if (this.responder.traits.checksModel && model !== undefined && !this.options.models.includes(model)) {
      const message = `The model \`${model}\` does not exist.`;
      return this.responder.refuse(exchange, undefined, { status: 404, message, param: 'model' });
    }
    if ('error' in answer) this.responder.refuse(exchange, undefined, answer.error);
    else if ('text' in answer) this.responder.text(exchange, answer.text);
    else if ('bytes' in answer)
      exchange.respond(200, `content-type: ${answer.contentType}\r\n`, answer.bytes);
    else this.responder.json(exchange, answer.json);
  }

  private handleGet(exchange: Exchange, path: string): void {
    const { dialect, models, maxModelLen, slots } = this.options;
    const { responder } = this;
    switch (path) {
      case '/health':
        // vLLM and SGLang answer an empty body, llama.cpp a little JSON.
        if (dialect === 'llamacpp') return responder.json(exchange, { status: 'ok' });
        return exchange.respond(200, '', '');
      case '/ping':
        return exchange.respond(200, '', '');
      case '/v1/models':
      case '/models': {
        const data = models.map((id) => modelEntry(id, dialect, maxModelLen));
        return responder.json(exchange, { object: 'list', data });
      }
      case '/metrics':
        return responder.text(exchange, renderMetrics(dialect, this.stats()));
      case '/version':
        return responder.json(exchange, { version: 'sim' });
      case '/props':
        return responder.json(exchange, {
          total_slots: slots,
          default_generation_settings: { n_ctx: maxModelLen },
        });
      case '/get_model_info':
        return responder.json(exchange, { model_path: models[0] ?? '', is_generation: true });
      default:
        return this.notFound(exchange);
    }
  }

  private notFound(exchange: Exchange): void {
    this.responder.refuse(exchange, undefined, { status: 404, message: 'Not Found' });
  }
}

function modelEntry(id: string, dialect: Dialect, maxModelLen: number): object {
  const base = { id, object: 'model', created: 0 };
  if (dialect === 'llamacpp') return { ...base, owned_by: 'llamacpp', meta: { n_ctx: maxModelLen } };
  return { ...base, owned_by: dialect, root: id, parent: null, max_model_len: maxModelLen };
}
