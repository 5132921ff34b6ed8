import { hashPrompt } from '../../src/domain/balancing/prompt-chain.js';
import type { PromptChain } from '../../src/domain/balancing/prompt-chain.js';
import { mix32 } from '../../src/domain/balancing/text-hash.js';
import { seededRandom } from '../../src/shared/random.js';
import type { Random } from '../../src/shared/random.js';
import { STANDARD_ENGINE, TOKENS_PER_BLOCK } from './engine.js';
import type { EngineSpec } from './engine.js';

/** Simulated text has a fixed width, so that tokens, blocks and bytes convert exactly. */
export const BYTES_PER_TOKEN = 4;

export interface SimRequest {
  readonly id: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** The prompt as it was put together. */
  readonly prompt: readonly Segment[];
  /** Whole blocks of the prompt, as ids that are equal for equal text up to there. */
  readonly blocks: Int32Array;
  /** The same with the answer appended. */
  readonly blocksWithAnswer: Int32Array;
  readonly chain: PromptChain;
  /** Hash of the first 100 characters of the first user message: what consistent hashing elsewhere looks at. */
  readonly firstUserHash: number;
  /** Follows in the same conversation, `thinkMs` after this one's end. */
  next: { readonly request: SimRequest; readonly thinkMs: number } | undefined;
}

export interface SimReplica {
  readonly id: string;
  readonly engine: EngineSpec;
  /** When it begins to serve, cold. */
  readonly joinsAtMs: number;
}

export interface Workload {
  readonly replicas: readonly SimReplica[];
  readonly arrivals: readonly { readonly atMs: number; readonly request: SimRequest }[];
  /** Distinct blocks over all requests: the size of the engines' tables. */
  readonly blockIds: number;
}

/** A stretch of made-up text: the same seed and length give the same bytes. */
export interface Segment {
  readonly seed: number;
  readonly tokens: number;
}

/** Makes requests out of segments and gives equal text equal block ids. */
class Forge {
  private readonly ids = new Map<number, number>();
  private count = 0;
  private readonly cache = new Map<number, Uint8Array>();
  private seeds: number;

  constructor(seed: number) {
    this.seeds = mix32(seed);
  }

  get blockIds(): number {
    return this.ids.size;
  }

  fresh(tokens: number): Segment {
    return { seed: (this.seeds = mix32(this.seeds + 0x9e3779b9)), tokens: Math.max(1, Math.round(tokens)) };
  }

  request(prompt: readonly Segment[], firstUser: Segment, answer: Segment): SimRequest {
    const text = this.textOf(prompt);
    const withAnswer = this.textOf([...prompt, answer]);
    const promptTokens = text.length / BYTES_PER_TOKEN;
    const blocksWithAnswer = this.blocksOf(withAnswer);
    return {
      id: this.count++,
      promptTokens,
      outputTokens: answer.tokens,
      prompt: [...prompt],
      blocks: blocksWithAnswer.subarray(0, Math.floor(promptTokens / TOKENS_PER_BLOCK)),
      blocksWithAnswer,
      chain: hashPrompt([{ bytes: text, from: 0, to: text.length }], 'm'),
      firstUserHash: hashBytes(this.textOf([firstUser]).subarray(0, 100), 0),
      next: undefined,
    };
  }

  private textOf(segments: readonly Segment[]): Uint8Array {
    const tokens = segments.reduce((sum, segment) => sum + segment.tokens, 0);
    const text = new Uint8Array(tokens * BYTES_PER_TOKEN);
    let at = 0;
    for (const segment of segments) {
      text.set(this.segmentText(segment), at);
      at += segment.tokens * BYTES_PER_TOKEN;
    }
    return text;
  }

  private segmentText({ seed, tokens }: Segment): Uint8Array {
    const known = this.cache.get(seed);
    if (known !== undefined) return known;
    const words = new Uint32Array(tokens);
    for (let at = 0; at < tokens; at++) words[at] = mix32(seed + at);
    const text = new Uint8Array(words.buffer);
    if (this.cache.size > 512) this.cache.clear();
    this.cache.set(seed, text);
    return text;
  }

  private blocksOf(text: Uint8Array): Int32Array {
    const size = TOKENS_PER_BLOCK * BYTES_PER_TOKEN;
    const blocks = new Int32Array(Math.floor(text.length / size));
    let low = 1;
    let high = 2;
    for (let block = 0; block < blocks.length; block++) {
      const part = text.subarray(block * size, (block + 1) * size);
      low = hashBytes(part, low);
      high = mix32(Math.imul(high, 31) + low + block);
      const key = low * 2 ** 20 + (high & 0xfffff);
      let id = this.ids.get(key);
      if (id === undefined) this.ids.set(key, (id = this.ids.size));
      blocks[block] = id;
    }
    return blocks;
  }
}

function hashBytes(bytes: Uint8Array, seed: number): number {
  let hash = seed;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193);
  return mix32(hash);
}

function between(random: Random, low: number, high: number): number {
  return low + random() * (high - low);
}

/** Many short, few long; the median of the log-normal and its spread. */
function logNormal(random: Random, median: number, sigma: number): number {
  const gauss = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return median * Math.exp(sigma * gauss);
}

function poisson(random: Random, perSecond: number, untilMs: number): number[] {
  const times: number[] = [];
  for (let at = 0; ;) {
    at += (-Math.log(1 - random()) / perSecond) * 1000;
    if (at >= untilMs) return times;
    times.push(at);
  }
}

function replicas(
  n: number,
  change: (i: number) => Partial<EngineSpec & { joinsAtMs: number }> = () => ({}),
) {
  return Array.from({ length: n }, (_, i): SimReplica => {
    const { joinsAtMs = 0, ...engine } = change(i);
    return { id: `replica-${i}`, engine: { ...STANDARD_ENGINE, ...engine }, joinsAtMs };
  });
}

/** Position of a tenant drawn so that the k-th is asked for in proportion to 1 / k^skew. */
function zipf(n: number, skew: number): (random: Random) => number {
  const sums: number[] = [];
  for (let k = 1; k <= n; k++) sums.push((sums.at(-1) ?? 0) + k ** -skew);
  return (random) => {
    const point = random() * sums.at(-1)!;
    let at = 0;
    while (sums[at]! < point) at += 1;
    return at;
  };
}

/** One system prompt for everybody, short questions. */
function hotSystemPrompt(seed: number, scale: number): Workload {
  const random = seededRandom(seed);
  const forge = new Forge(seed);
  const system = forge.fresh(1_000);
  const arrivals = poisson(random, 26, 240_000 * scale).map((atMs) => {
    const question = forge.fresh(between(random, 40, 600));
    const answer = forge.fresh(between(random, 50, 250));
    return { atMs, request: forge.request([system, question], question, answer) };
  });
  return { replicas: replicas(4), arrivals, blockIds: forge.blockIds };
}

interface TenantShape {
  readonly tenants: number;
  readonly skew: number;
  readonly contextTokens: number;
  readonly questionTokens: readonly [number, number];
  readonly answerTokens: readonly [number, number];
}

function tenantArrivals(forge: Forge, random: Random, times: readonly number[], shape: TenantShape) {
  const contexts = Array.from({ length: shape.tenants }, () =>
    forge.fresh(shape.contextTokens * between(random, 0.7, 1.3)),
  );
  const draw = zipf(shape.tenants, shape.skew);
  return times.map((atMs) => {
    const context = contexts[draw(random)]!;
    const question = forge.fresh(between(random, ...shape.questionTokens));
    const answer = forge.fresh(between(random, ...shape.answerTokens));
    return { atMs, request: forge.request([context, question], question, answer) };
  });
}

const LONG_CONTEXTS: TenantShape = {
  tenants: 80,
  skew: 0,
  contextTokens: 6_000,
  questionTokens: [100, 1_200],
  answerTokens: [50, 250],
};

/** Many tenants, each with a long context of its own; all together more than one replica can cache. */
function manyTenants(seed: number, scale: number): Workload {
  const random = seededRandom(seed);
  const forge = new Forge(seed);
  const arrivals = tenantArrivals(forge, random, poisson(random, 30, 240_000 * scale), LONG_CONTEXTS);
  return { replicas: replicas(8), arrivals, blockIds: forge.blockIds };
}

/** Conversations that grow turn by turn; the next turn comes some time after the answer. */
function multiTurn(seed: number, scale: number): Workload {
  const random = seededRandom(seed);
  const forge = new Forge(seed);
  const system = forge.fresh(400);
  const arrivals = poisson(random, 3.2, 240_000 * scale).map((atMs) => {
    const turns = 2 + Math.floor(random() * 9);
    const segments = [system];
    let first: SimRequest | undefined;
    let last: SimRequest | undefined;
    let opening: Segment | undefined;
    for (let turn = 0; turn < turns; turn++) {
      const question = forge.fresh(Math.min(3_000, logNormal(random, 250, 0.9)));
      opening ??= question;
      const answer = forge.fresh(between(random, 60, 400));
      segments.push(question);
      const request = forge.request(segments, opening, answer);
      segments.push(answer);
      if (last !== undefined) last.next = { request, thinkMs: between(random, 2_000, 15_000) };
      first ??= request;
      last = request;
    }
    return { atMs, request: first! };
  });
  return { replicas: replicas(4), arrivals, blockIds: forge.blockIds };
}

/** Nothing in common: whoever looks for reuse finds none and must not be worse for it. */
function noReuse(seed: number, scale: number): Workload {
  const random = seededRandom(seed);
  const forge = new Forge(seed);
  const arrivals = poisson(random, 22, 240_000 * scale).map((atMs) => {
    const prompt = forge.fresh(Math.min(8_000, logNormal(random, 700, 0.9)));
    const answer = forge.fresh(between(random, 30, 300));
    return { atMs, request: forge.request([prompt], prompt, answer) };
  });
  return { replicas: replicas(4), arrivals, blockIds: forge.blockIds };
}

/** A few tenants make most of the traffic. */
function skewedTenants(seed: number, scale: number): Workload {
  const random = seededRandom(seed);
  const forge = new Forge(seed);
  const shape = { ...LONG_CONTEXTS, tenants: 150, skew: 1.1, contextTokens: 3_000 };
  const arrivals = tenantArrivals(forge, random, poisson(random, 42, 240_000 * scale), shape);
  return { replicas: replicas(6), arrivals, blockIds: forge.blockIds };
}

/** Quiet, then five times the traffic for a few seconds, again and again. */
function bursty(seed: number, scale: number): Workload {
  const random = seededRandom(seed);
  const forge = new Forge(seed);
  const times: number[] = [];
  for (let from = 0; from < 240_000 * scale; from += 15_000) {
    for (const at of poisson(random, 12, 11_000)) times.push(from + at);
    for (const at of poisson(random, 70, 4_000)) times.push(from + 11_000 + at);
  }
  const shape = { ...LONG_CONTEXTS, tenants: 40, skew: 0.8, contextTokens: 2_000 };
  const arrivals = tenantArrivals(forge, random, times, shape);
  return { replicas: replicas(5), arrivals, blockIds: forge.blockIds };
}

/** A cold replica joins a warm fleet that is short of capacity. */
function scaleOut(seed: number, scale: number): Workload {
  const random = seededRandom(seed);
  const forge = new Forge(seed);
  const shape = { ...LONG_CONTEXTS, tenants: 40, contextTokens: 4_000 };
  const arrivals = tenantArrivals(forge, random, poisson(random, 19, 240_000 * scale), shape);
  const fleet = replicas(5, (i) => (i === 4 ? { joinsAtMs: 100_000 * scale } : {}));
  return { replicas: fleet, arrivals, blockIds: forge.blockIds };
}

/** One replica has half the speed, one double; nobody told the router. */
function unevenReplicas(seed: number, scale: number): Workload {
  const random = seededRandom(seed);
  const forge = new Forge(seed);
  const shape = { ...LONG_CONTEXTS, tenants: 30, skew: 0.6, contextTokens: 3_000 };
  const arrivals = tenantArrivals(forge, random, poisson(random, 24, 240_000 * scale), shape);
  const speed = [1, 1, 0.5, 1.6];
  const fleet = replicas(4, (i) => ({
    prefillTokensPerSecond: STANDARD_ENGINE.prefillTokensPerSecond * speed[i]!,
    stepMs: STANDARD_ENGINE.stepMs / speed[i]!,
    stepPerSequenceMs: STANDARD_ENGINE.stepPerSequenceMs / speed[i]!,
  }));
  return { replicas: fleet, arrivals, blockIds: forge.blockIds };
}

/** Half of the traffic shares long contexts, half shares nothing and pushes the contexts out of the caches. */
function mixed(seed: number, scale: number): Workload {
  const random = seededRandom(seed);
  const forge = new Forge(seed);
  const times = poisson(random, 11, 240_000 * scale);
  const shared = tenantArrivals(forge, random, times, { ...LONG_CONTEXTS, tenants: 25 });
  const alone = poisson(random, 11, 240_000 * scale).map((atMs) => {
    const prompt = forge.fresh(Math.min(8_000, logNormal(random, 900, 0.9)));
    const answer = forge.fresh(between(random, 50, 300));
    return { atMs, request: forge.request([prompt], prompt, answer) };
  });
  const arrivals = [...shared, ...alone].sort((a, b) => a.atMs - b.atMs);
  return { replicas: replicas(4), arrivals, blockIds: forge.blockIds };
}

/** All shapes by name; `scale` shortens the simulated time. */
export const WORKLOADS: Readonly<Record<string, (seed: number, scale: number) => Workload>> = {
  'hot-system-prompt': hotSystemPrompt,
  'many-tenants': manyTenants,
  'multi-turn': multiTurn,
  'no-reuse': noReuse,
  'skewed-tenants': skewedTenants,
  bursty,
  'scale-out': scaleOut,
  'uneven-replicas': unevenReplicas,
  mixed,
};
