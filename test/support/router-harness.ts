import { Registry } from 'prom-client';
import { expect } from 'vitest';
import {
  EndpointConfig,
  RoutingProfileConfig,
  ServerConfig,
  type DeadlinesConfig,
} from '../../src/config/server-config.js';
import type { Authoriser } from '../../src/router/authoriser.js';
import { Router } from '../../src/router/router.js';
import { systemClock, type Clock } from '../../src/shared/clock.js';
import { createLogger } from '../../src/shared/logger.js';
import { seededRandom } from '../../src/shared/random.js';
import { FakeEngine } from './fake-engine/fake-engine.js';
import { RawClient } from './raw-client.js';
import { waitFor } from './wait-for.js';

export interface HarnessOptions {
  /** Engines to start, each serving `m1`. */
  readonly engines?: number;
  /** Settings per endpoint, by position. */
  readonly endpoints?: readonly Partial<EndpointConfig>[];
  readonly deadlines?: Partial<DeadlinesConfig>;
  readonly profile?: Partial<Omit<RoutingProfileConfig, 'deadlines'>>;
  readonly configure?: (config: ServerConfig) => void;
  readonly authoriser?: Authoriser;
  readonly clock?: Clock;
  /** Period of probes, ms; none by default, so that scripted engines see only what a test sends. */
  readonly probes?: number;
  /** Scripts the engines before the router starts, and with it its first probes. */
  readonly prepare?: (engines: readonly FakeEngine[]) => void;
}

/** A clock on which everything takes `factor` times less real time: minutes of waiting pass in a test. */
export function fastClock(factor: number): Clock {
  return {
    monotonicMs: () => performance.now() * factor,
    wallMs: () => Date.now(),
    setTimer: (delayMs, fn) => systemClock.setTimer(delayMs / factor, fn),
  };
}

/** A router on a free port with byte-scripted engines behind it, and everything it logged. */
export class RouterHarness {
  readonly clients: RawClient[] = [];
  readonly logLines: string[] = [];
  readonly registry = new Registry();
  /** Strings that must appear nowhere. */
  readonly secrets: string[] = [];

  private constructor(
    readonly router: Router,
    readonly engines: readonly FakeEngine[],
    logLines: string[],
  ) {
    this.logLines = logLines;
    router.metrics.registerOn(this.registry, router);
  }

  static async start(options: HarnessOptions = {}): Promise<RouterHarness> {
    const engines: FakeEngine[] = [];
    for (let i = 0; i < (options.engines ?? 1); i++) engines.push(await FakeEngine.listen());
    options.prepare?.(engines);
    const config = new ServerConfig();
    const profile = Object.assign(new RoutingProfileConfig(), { policy: 'leastLoad' }, options.profile);
    Object.assign(profile.deadlines, options.deadlines);
    config.router.profiles = { interactive: profile };
    config.endpoints = engines.map((engine, i) =>
      Object.assign(
        new EndpointConfig(),
        { id: `e${i + 1}`, url: engine.url, models: ['m1'] },
        options.endpoints?.[i],
      ),
    );
    // Every spec can be run with either way of reading requests.
    config.router.fastPath = process.env['LLMGW_ROUTER_FAST_PATH'] !== 'false';
    options.configure?.(config);
    const lines: string[] = [];
    const logger = createLogger({ level: 'debug', format: 'json' }, (text) =>
      lines.push(...text.split('\n').filter((line) => line !== '')),
    );
    const router = new Router({
      config,
      logger,
      random: seededRandom(1),
      probes: options.probes ?? false,
      ...(options.authoriser === undefined ? {} : { authoriser: options.authoriser }),
      ...(options.clock === undefined ? {} : { clock: options.clock }),
    });
    await router.listen('127.0.0.1:0');
    return new RouterHarness(router, engines, lines);
  }

  /** The engine at `index`; fails when there is none. */
  engine(index = 0): FakeEngine {
    const engine = this.engines[index];
    if (engine === undefined) throw new Error(`no engine ${index}`);
    return engine;
  }

  get port(): number {
    const port = this.router.address?.port;
    if (port === undefined) throw new Error('the router does not listen');
    return port;
  }

  async connect(): Promise<RawClient> {
    const client = await RawClient.connect(this.port);
    this.clients.push(client);
    return client;
  }

  /** Sends a JSON request on a connection of its own. */
  async post(path: string, body: unknown, headers: Record<string, string> = {}): Promise<RawClient> {
    const client = await this.connect();
    await client.post(path, typeof body === 'string' ? body : JSON.stringify(body), headers);
    return client;
  }

  /** A chat request for `m1`. */
  chat(extra: Record<string, unknown> = {}, headers: Record<string, string> = {}): Promise<RawClient> {
    const body = { model: 'm1', messages: [{ role: 'user', content: 'hi' }], ...extra };
    return this.post('/v1/chat/completions', body, headers);
  }

  /** Waits until `ms` have passed on the router's own clock: for scripts of engines and clients that take their time. */
  async passed(ms: number): Promise<void> {
    const until = this.router.clock.monotonicMs() + ms;
    await waitFor(() => this.router.clock.monotonicMs() >= until, { what: `${ms} ms of the router's clock` });
  }

  /** Access log records, newest last. */
  accessLog(): Record<string, unknown>[] {
    this.router.accessLog.flush();
    return this.logLines
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter((record) => record['component'] === 'access');
  }

  metrics(): Promise<string> {
    return this.registry.metrics();
  }

  /** The value of one series, as it stands in the exposition; 0 when it is not there. */
  async metric(series: string): Promise<number> {
    const line = (await this.metrics()).split('\n').find((text) => text.startsWith(`${series} `));
    return line === undefined ? 0 : Number(line.slice(series.length + 1));
  }

  /** Waits until nothing is in flight anywhere and checks what must hold after every case. */
  async settle(): Promise<void> {
    await waitFor(() => this.router.endpoints().every((endpoint) => endpoint.inflight === 0), {
      what: 'in-flight to be 0 everywhere',
    });
    await waitFor(() => this.router.exchanges.size === 0, { what: 'all exchanges to be over' });
    for (const status of this.router.endpoints()) {
      expect(status.inflight).toBe(0);
      expect(status.outstandingTokens).toBe(0);
    }
    const log = this.accessLog()
      .map((record) => JSON.stringify(record))
      .join('\n');
    const outputs = [log, this.logLines.join('\n'), await this.metrics()];
    outputs.push(...this.clients.map((client) => client.text));
    for (const secret of this.secrets) for (const output of outputs) expect(output).not.toContain(secret);
  }

  async stop(): Promise<void> {
    try {
      await this.settle();
    } finally {
      for (const client of this.clients) client.destroy();
      await this.router.close(0);
      for (const engine of this.engines) await engine.close();
    }
  }
}

/** An OpenAI chunk as engines write it. */
export const sse = (data: unknown): string =>
  `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;

/** A content delta. */
export const delta = (content: string): string =>
  sse({ id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, delta: { content } }] });

/** The last content chunk. */
export const finish = (): string =>
  sse({
    id: 'c',
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta: {}, finish_reason: 'stop' }],
  });

export const DONE = 'data: [DONE]\n\n';
