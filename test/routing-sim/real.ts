import { Agent, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { RoutingProfileConfig, ServerConfig, type BalancingPolicy } from '../../src/config/server-config.js';
import { mix32 } from '../../src/domain/balancing/text-hash.js';
import { SimEngine } from '../../src/engines/sim/sim-engine.js';
import type { RouteEndpoint } from '../../src/router/ports.js';
import { Router } from '../../src/router/router.js';
import { createLogger } from '../../src/shared/logger.js';
import { seededRandom } from '../../src/shared/random.js';
import { TOKENS_PER_BLOCK } from './engine.js';
import type { Segment, SimReplica, SimRequest, Workload } from './workloads.js';

/** Real time runs so many times faster than the workload says; engines are that much faster as well. */
const SPEED = 2;
/** Answers are this much shorter: every event costs real work here, and prompts are what is compared. */
const ANSWER_SHARE = 1 / 8;
const SAMPLE_EVERY_MS = 20;
/** Turns of a conversation that are played: with all of them, and the pauses between, a run would last minutes. */
const TURNS_MAX = 4;

/** What came of one workload under one policy. */
export interface RealResult {
  /** Sorted, in the workload's time. */
  readonly ttftMs: readonly number[];
  /** Prompt tokens that the engines had cached, of all. */
  readonly cachedShare: number;
  /** The busiest endpoint's tokens due over the mean of all, both as means over the run. */
  readonly busiest: number;
  readonly failures: number;
}

/** Runs `workload` through the real router to simulated engines with real block caches, all on sockets. */
export async function runReal(
  workload: Workload,
  policy: BalancingPolicy,
  seed: number,
): Promise<RealResult> {
  prepare(workload);
  const engines = workload.replicas.map(engineOf);
  const ports = await Promise.all(engines.map((engine) => engine.start({ port: 0 })));
  const router = new Router({
    config: configOf(policy),
    logger: createLogger({ level: 'error', format: 'json' }),
    random: seededRandom(seed),
  });
  const run = new Run(router, await router.listen('127.0.0.1:0'));
  try {
    run.publish(workload.replicas, ports);
    await run.send(workload);
    return run.result();
  } finally {
    run.close();
    await router.close(0);
    await Promise.all(engines.map((engine) => engine.stop()));
  }
}

function configOf(policy: BalancingPolicy): ServerConfig {
  const config = new ServerConfig();
  config.router.profiles = { interactive: Object.assign(new RoutingProfileConfig(), { policy }) };
  return config;
}

function engineOf({ id, engine }: SimReplica): SimEngine {
  return new SimEngine({
    name: id,
    models: ['m'],
    slots: engine.maxSequences,
    prefillMsPerToken: 1_000 / engine.prefillTokensPerSecond / SPEED,
    tpotMs: engine.stepMs / SPEED,
    blockTokens: TOKENS_PER_BLOCK,
    cacheBlocks: engine.cacheBlocks,
  });
}

class Run {
  private readonly agent = new Agent({ keepAlive: true, maxSockets: Infinity });
  private readonly startMs = performance.now();
  private readonly ttftMs: number[] = [];
  private readonly due = new Map<string, { sum: number; samples: number }>();
  private readonly timers: NodeJS.Timeout[] = [];
  private promptTokens = 0;
  private cachedTokens = 0;
  private failures = 0;
  private version = 0;

  constructor(
    private readonly router: Router,
    private readonly at: AddressInfo,
  ) {}

  /** Replicas that join later are told to the router when their time has come. */
  publish(replicas: readonly SimReplica[], ports: readonly number[]): void {
    for (const joinsAtMs of new Set(replicas.map((replica) => replica.joinsAtMs))) {
      this.after(joinsAtMs, () => {
        const endpoints = replicas.flatMap((replica, i) =>
          replica.joinsAtMs > joinsAtMs ? [] : [endpointOf(replica.id, ports[i] ?? 0)],
        );
        const model = { name: 'm', aliases: [], routingProfile: 'interactive', fallback: [], desired: 1 };
        this.router.applyTable({
          version: ++this.version,
          endpoints,
          models: [{ ...model, outlook: 'ready' }],
        });
      });
    }
    this.timers.push(setInterval(() => this.sample(), SAMPLE_EVERY_MS));
  }

  async send({ arrivals }: Workload): Promise<void> {
    await Promise.all(
      arrivals.map(
        ({ atMs, request }) =>
          new Promise<void>((resolve) => this.after(atMs, () => void this.talk(request).then(resolve))),
      ),
    );
  }

  close(): void {
    for (const timer of this.timers) clearTimeout(timer);
    this.agent.destroy();
  }

  result(): RealResult {
    const means = [...this.due.values()].map(({ sum, samples }) => sum / samples);
    const mean = means.reduce((sum, one) => sum + one, 0) / means.length;
    return {
      ttftMs: this.ttftMs.toSorted((a, b) => a - b),
      cachedShare: this.cachedTokens / this.promptTokens,
      busiest: Math.max(...means) / mean,
      failures: this.failures,
    };
  }

  private after(workloadMs: number, then: () => void): void {
    const leftMs = workloadMs / SPEED - (performance.now() - this.startMs);
    if (leftMs <= 0) then();
    else this.timers.push(setTimeout(then, leftMs));
  }

  private sample(): void {
    for (const { endpoint, outstandingTokens } of this.router.endpoints()) {
      const known = this.due.get(endpoint.id) ?? { sum: 0, samples: 0 };
      this.due.set(endpoint.id, { sum: known.sum + outstandingTokens, samples: known.samples + 1 });
    }
  }

  /** One request and, after its thinking time, those that follow in its conversation. */
  private async talk(request: SimRequest, turn = 1): Promise<void> {
    await this.ask(request);
    const { next } = request;
    if (next === undefined || turn === TURNS_MAX) return;
    await new Promise((resolve) => this.timers.push(setTimeout(resolve, next.thinkMs / SPEED)));
    await this.talk(next.request, turn + 1);
  }

  private ask(request: SimRequest): Promise<void> {
    const body = JSON.stringify({
      model: 'm',
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: Math.max(1, Math.round(request.outputTokens * ANSWER_SHARE)),
      messages: [{ role: 'user', content: request.prompt.map(textOf).join('') }],
    });
    const options = { host: this.at.address, port: this.at.port, path: '/v1/chat/completions' };
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
    return new Promise((resolve) => {
      const sentMs = performance.now();
      const sent = httpRequest({ ...options, method: 'POST', agent: this.agent, headers }, (answer) => {
        let firstMs: number | undefined;
        let text = '';
        answer.setEncoding('utf8').on('data', (chunk: string) => {
          if (chunk.includes('"content":"')) firstMs ??= performance.now();
          text = (text + chunk).slice(-2_000);
        });
        answer.on('close', () => {
          this.take(text, firstMs === undefined ? undefined : firstMs - sentMs);
          resolve();
        });
      });
      sent.on('error', () => {
        this.failures += 1;
        resolve();
      });
      sent.end(body);
    });
  }

  private take(text: string, firstMs: number | undefined): void {
    const usage = /"prompt_tokens":(\d+).*?"cached_tokens":(\d+)/.exec(text);
    if (firstMs === undefined || usage === null || !text.includes('[DONE]')) {
      this.failures += 1;
      return;
    }
    this.ttftMs.push(firstMs * SPEED);
    this.promptTokens += Number(usage[1]);
    this.cachedTokens += Number(usage[2]);
  }
}

function endpointOf(id: string, port: number): RouteEndpoint {
  const place = { protocol: 'http', host: '127.0.0.1', port, basePath: '' } as const;
  return { id, generation: 1, ...place, models: ['m'], pool: 'sim', weight: 1, engine: 'sim' };
}

const texts = new Map<number, string>();

/** Four bytes a token, as the simulated engines count. */
function textOf({ seed, tokens }: Segment): string {
  const known = texts.get(seed);
  if (known !== undefined) return known;
  let text = '';
  for (let at = 0; at < tokens; at++) {
    const word = mix32(seed + at) % 46_656;
    text += `${word.toString(36).padStart(3, '0')} `;
  }
  texts.set(seed, text);
  return text;
}

/** The text of everything, made before the clock starts. */
function prepare({ arrivals }: Workload): void {
  texts.clear();
  for (let { request } of arrivals) {
    for (;;) {
      request.prompt.forEach(textOf);
      if (request.next === undefined) break;
      ({ request } = request.next);
    }
  }
}
