import { parseArgs } from 'node:util';

export const DIALECTS = ['vllm', 'sglang', 'llamacpp'] as const;

/** Whose manners the simulated engine has: error shapes, header timing, metric names, what it does while loading. */
export type Dialect = (typeof DIALECTS)[number];

/** Everything that shapes one simulated engine. Times are milliseconds, sizes are tokens unless named otherwise. */
export interface SimOptions {
  /** Served names, the first is the default. */
  readonly models: readonly string[];
  /** Which engine this is in a fault directive (`[[fault@NAME:...]]`). */
  readonly name: string;
  readonly dialect: Dialect;
  /** Answers depend on this, the prompt and the request's own seed: equal seeds give equal answers on every replica. */
  readonly seed: number;
  /** Requests that generate at the same time. */
  readonly slots: number;
  /** Requests that may wait for a slot; llama.cpp's dialect waits without limit. */
  readonly maxQueue: number;
  /** Fixed part of the time to the first token. */
  readonly ttftMs: number;
  /** Time per prompt token that is not in the prefix cache; prompts are read one after another. */
  readonly prefillMsPerToken: number;
  /** Time per output token after the first. */
  readonly tpotMs: number;
  /** How many times slower everything is when all slots are taken; linear in between. */
  readonly loadFactor: number;
  /** How long loading takes. */
  readonly startupMs: number;
  readonly cacheBlocks: number;
  readonly blockTokens: number;
  readonly maxModelLen: number;
  /** Output length when a request names none; such an answer ends by itself within it. */
  readonly maxTokensDefault: number;
  /** Idle connections are closed after this long, as uvicorn does; 0 = never. */
  readonly keepAliveMs: number;
  /** Time between comment lines of a silent stream (llama.cpp's dialect only); 0 = none. */
  readonly pingMs: number;
  /** Length of embedding vectors. */
  readonly embeddingSize: number;
}

export const DEFAULT_SIM_OPTIONS: SimOptions = {
  models: ['sim'],
  name: 'sim',
  dialect: 'vllm',
  seed: 1,
  slots: 8,
  maxQueue: 1000,
  ttftMs: 0,
  prefillMsPerToken: 0,
  tpotMs: 0,
  loadFactor: 1,
  startupMs: 0,
  cacheBlocks: 4096,
  blockTokens: 16,
  maxModelLen: 32_768,
  maxTokensDefault: 64,
  keepAliveMs: 5_000,
  pingMs: 30_000,
  embeddingSize: 64,
};

/** What only the program does with its own process; the engine class knows nothing of it. */
export interface SimProcessOptions {
  readonly host: string;
  readonly port: number;
  /** Exit with this code instead of starting. */
  readonly crashOnStart: number | undefined;
  /** Exit with code 1 after this long. */
  readonly crashAfterMs: number | undefined;
  readonly ignoreSigterm: boolean;
  /** Lines printed on stderr at start. */
  readonly logLines: readonly string[];
  /** Print loading progress as engines do. */
  readonly progress: boolean;
}

export interface SimCommandLine {
  readonly engine: SimOptions;
  readonly process: SimProcessOptions;
}

/** A command line that cannot be run; the message is one line for the user. */
export class SimUsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'SimUsageError';
  }
}

const FLAGS = {
  host: { type: 'string' },
  port: { type: 'string' },
  model: { type: 'string', multiple: true },
  name: { type: 'string' },
  dialect: { type: 'string' },
  seed: { type: 'string' },
  slots: { type: 'string' },
  'max-queue': { type: 'string' },
  'ttft-ms': { type: 'string' },
  'prefill-ms-per-token': { type: 'string' },
  'tpot-ms': { type: 'string' },
  'load-factor': { type: 'string' },
  'startup-ms': { type: 'string' },
  'cache-blocks': { type: 'string' },
  'block-tokens': { type: 'string' },
  'max-model-len': { type: 'string' },
  'max-tokens-default': { type: 'string' },
  'keep-alive-ms': { type: 'string' },
  'ping-ms': { type: 'string' },
  'embedding-size': { type: 'string' },
  'crash-on-start': { type: 'string' },
  'crash-after-ms': { type: 'string' },
  'ignore-sigterm': { type: 'boolean' },
  'log-line': { type: 'string', multiple: true },
  progress: { type: 'boolean' },
} as const;

/** The engine's command line. Throws `SimUsageError` for an unknown flag or a value that does not fit. */
export function parseSimCommandLine(argv: readonly string[]): SimCommandLine {
  const values = parseFlags(argv);
  const d = DEFAULT_SIM_OPTIONS;
  const number = (flag: keyof typeof values, fallback: number, min: number, whole = true): number => {
    const text = values[flag];
    return typeof text === 'string' ? toNumber(`--${flag}`, text, min, whole) : fallback;
  };
  const optional = (flag: keyof typeof values) =>
    values[flag] === undefined ? undefined : number(flag, 0, 0);
  return {
    engine: {
      models: values.model ?? d.models,
      name: values.name ?? d.name,
      dialect: toDialect(values.dialect ?? d.dialect),
      seed: number('seed', d.seed, 0),
      slots: number('slots', d.slots, 1),
      maxQueue: number('max-queue', d.maxQueue, 0),
      ttftMs: number('ttft-ms', d.ttftMs, 0, false),
      prefillMsPerToken: number('prefill-ms-per-token', d.prefillMsPerToken, 0, false),
      tpotMs: number('tpot-ms', d.tpotMs, 0, false),
      loadFactor: number('load-factor', d.loadFactor, 1, false),
      startupMs: number('startup-ms', d.startupMs, 0),
      cacheBlocks: number('cache-blocks', d.cacheBlocks, 0),
      blockTokens: number('block-tokens', d.blockTokens, 1),
      maxModelLen: number('max-model-len', d.maxModelLen, 1),
      maxTokensDefault: number('max-tokens-default', d.maxTokensDefault, 1),
      keepAliveMs: number('keep-alive-ms', d.keepAliveMs, 0),
      pingMs: number('ping-ms', d.pingMs, 0),
      embeddingSize: number('embedding-size', d.embeddingSize, 1),
    },
    process: {
      host: values.host ?? '127.0.0.1',
      port: number('port', 0, 0),
      crashOnStart: optional('crash-on-start'),
      crashAfterMs: optional('crash-after-ms'),
      ignoreSigterm: values['ignore-sigterm'] ?? false,
      logLines: values['log-line'] ?? [],
      progress: values.progress ?? false,
    },
  };
}

function parseFlags(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: FLAGS, strict: true, allowPositionals: false }).values;
  } catch (error) {
    // Node's message names the flag; its hint about positionals helps nobody here.
    const message = error instanceof Error ? (error.message.split('. ')[0] ?? error.message) : String(error);
    throw new SimUsageError(message);
  }
}

function toNumber(flag: string, text: string, min: number, whole: boolean): number {
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (!Number.isFinite(value) || value < min || (whole && !Number.isInteger(value))) {
    throw new SimUsageError(
      `${flag}: expected ${whole ? 'a whole number' : 'a number'} of at least ${min}, got "${text}"`,
    );
  }
  return value;
}

function toDialect(text: string): Dialect {
  const found = DIALECTS.find((dialect) => dialect === text);
  if (found === undefined)
    throw new SimUsageError(`--dialect: expected ${DIALECTS.join(', ')}, got "${text}"`);
  return found;
}
