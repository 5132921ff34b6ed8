import { parseArgs } from 'node:util';

/** Everything that shapes one embedded engine. */
export interface EmbeddedOptions {
  /** Path of a GGUF file. */
  readonly modelFile: string;
  /** Served names, all for the same model; the first is the one it is called in metrics. */
  readonly models: readonly string[];
  /** Requests that generate at the same time. */
  readonly slots: number;
  /** Tokens of one request, prompt and answer; less when the model allows less. */
  readonly contextTokens: number;
  readonly threads: number;
  /** Requests that may wait for a slot; more are answered 503. */
  readonly maxQueue: number;
}

export const DEFAULT_EMBEDDED_OPTIONS: Omit<EmbeddedOptions, 'modelFile' | 'models'> = {
  slots: 4,
  contextTokens: 4096,
  threads: 1,
  maxQueue: 256,
};

export interface EmbeddedCommandLine {
  readonly engine: EmbeddedOptions;
  readonly host: string;
  readonly port: number;
  /** How long running requests may go on after SIGTERM, milliseconds. */
  readonly stopGraceMs: number;
}

/** A command line that cannot be run; the message is one line for the user. */
export class EmbeddedUsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'EmbeddedUsageError';
  }
}

const FLAGS = {
  'model-file': { type: 'string' },
  model: { type: 'string', multiple: true },
  host: { type: 'string' },
  port: { type: 'string' },
  slots: { type: 'string' },
  context: { type: 'string' },
  threads: { type: 'string' },
  'max-queue': { type: 'string' },
  'stop-grace-ms': { type: 'string' },
} as const;

/** The engine's command line. Throws `EmbeddedUsageError` for an unknown flag or a value that does not fit. */
export function parseEmbeddedCommandLine(argv: readonly string[]): EmbeddedCommandLine {
  const values = parseFlags(argv);
  const modelFile = values['model-file'];
  if (modelFile === undefined) throw new EmbeddedUsageError('--model-file: expected the path of a GGUF file');
  const whole = (flag: keyof typeof values, fallback: number, min: number): number => {
    const text = values[flag];
    if (typeof text !== 'string') return fallback;
    const value = text.trim() === '' ? Number.NaN : Number(text);
    if (Number.isInteger(value) && value >= min) return value;
    throw new EmbeddedUsageError(`--${flag}: expected a whole number of at least ${min}, got "${text}"`);
  };
  const d = DEFAULT_EMBEDDED_OPTIONS;
  return {
    engine: {
      modelFile,
      models: values.model ?? ['tiny'],
      slots: whole('slots', d.slots, 1),
      contextTokens: whole('context', d.contextTokens, 8),
      threads: whole('threads', d.threads, 1),
      maxQueue: whole('max-queue', d.maxQueue, 0),
    },
    host: values.host ?? '127.0.0.1',
    port: whole('port', 0, 0),
    stopGraceMs: whole('stop-grace-ms', 5_000, 0),
  };
}

function parseFlags(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: FLAGS, strict: true, allowPositionals: false }).values;
  } catch (error) {
    // Node's message names the flag; its hint about positionals helps nobody here.
    const message = error instanceof Error ? (error.message.split('. ')[0] ?? error.message) : String(error);
    throw new EmbeddedUsageError(message);
  }
}
