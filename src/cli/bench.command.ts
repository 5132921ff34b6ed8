import { readFileSync } from 'node:fs';
import { Command, Option } from 'nest-commander';
import { parseDuration, parseShare } from '../config/units.js';
import { systemClock } from '../shared/clock.js';
import { EXIT, OperatorError } from '../shared/errors.js';
import { didYouMean } from '../shared/nearest.js';
import { CompletionClient } from './bench/completion-client.js';
import { parseFaultPlan, type PlannedFault } from './bench/faults.js';
import { benchReport, reportLines, type BenchReport } from './bench/report.js';
import { BenchRun, type BenchPlan } from './bench/run-bench.js';
import { isShape, SHAPES, type ShapeName } from './bench/shapes.js';
import { QuietExit } from './failure.js';
import { LlmgwCommand, usageError } from './llmgw-command.js';
import { StopSignals } from './stop-signals.js';

const DEFAULT_CONCURRENCY = 8;
const DEFAULT_REQUESTS = 100;
const DEFAULT_TIMEOUT_MS = 300_000;

interface BenchOptions {
  readonly url?: URL;
  readonly model?: string;
  readonly concurrency?: number;
  readonly requests?: number;
  readonly duration?: number;
  readonly rate?: number;
  readonly shape?: ShapeName;
  readonly maxTokens?: number;
  readonly seed?: number;
  readonly faults?: readonly PlannedFault[];
  readonly maxErrors?: MaxErrors;
  readonly timeout?: number;
  readonly apiKeyFile?: string;
  readonly output?: 'table' | 'json';
}

/** How many failures are still a success. */
type MaxErrors = { readonly count: number } | { readonly share: number };

@Command({
  name: 'bench',
  description: 'Send load to an OpenAI-compatible API and measure how it is answered.',
})
export class BenchCommand extends LlmgwCommand {
  protected override readonly examples = [
    ['llmgw bench --url http://127.0.0.1:8080 --model qwen --concurrency 32 --duration 1m', 'closed loop'],
    ['llmgw bench --url http://127.0.0.1:8080 --model qwen --rate 20 --duration 5m -o json', 'open loop'],
    ["llmgw bench --url http://127.0.0.1:8080 --model sim --faults 'cancel=5@10%'", 'clients that leave'],
  ] as const;

  @Option({ flags: '--url <url>', description: 'of the API, with or without /v1' })
  parseUrl(value: string): URL {
    const url = URL.canParse(value) ? new URL(value) : undefined;
    if (url === undefined || !/^https?:$/.test(url.protocol)) {
      throw usageError(`--url: expected a URL such as http://127.0.0.1:8080, got '${value}'`);
    }
    return url;
  }

  @Option({ flags: '--model <name>', description: 'model or alias to ask' })
  parseModel(value: string): string {
    return value;
  }

  @Option({
    flags: '--concurrency <n>',
    description: `clients of the closed loop (default ${DEFAULT_CONCURRENCY})`,
  })
  parseConcurrency(value: string): number {
    return wholeNumber('--concurrency', value, 1, 10_000);
  }

  @Option({
    flags: '--requests <n>',
    description: `end after so many (default ${DEFAULT_REQUESTS}, without --duration)`,
  })
  parseRequests(value: string): number {
    return wholeNumber('--requests', value, 1, 1e9);
  }

  @Option({ flags: '--duration <d>', description: 'end after this time, e.g. 30s, 5m' })
  parseDurationOption(value: string): number {
    return duration('--duration', value);
  }

  @Option({
    flags: '--rate <n>',
    description:
      'open loop: requests a second, sent whatever the answers do; times count from when each was due',
  })
  parseRate(value: string): number {
    const rate = Number(value);
    if (!(rate > 0 && rate <= 100_000))
      throw usageError(`--rate: expected requests a second, got '${value}'`);
    return rate;
  }

  @Option({
    flags: '--shape <name>',
    description: `what is asked: ${Object.keys(SHAPES).join(', ')} (default chat)`,
  })
  parseShape(value: string): ShapeName {
    if (isShape(value)) return value;
    const known = Object.keys(SHAPES);
    throw usageError(
      `--shape: no shape is named '${value}'${didYouMean(value, known)}`,
      `known are: ${known.join(', ')}`,
    );
  }

  @Option({ flags: '--max-tokens <n>', description: "length of answers instead of the shape's" })
  parseMaxTokens(value: string): number {
    return wholeNumber('--max-tokens', value, 1, 1e6);
  }

  @Option({ flags: '--seed <n>', description: 'the same seed asks the same (default 1)' })
  parseSeed(value: string): number {
    return wholeNumber('--seed', value, 0, 2 ** 32 - 1);
  }

  @Option({
    flags: '--faults <plan>',
    description:
      'NAME[=ARGUMENT][@SHARE%], joined by ;: cancel, slow-reader, or a fault of the simulated engine',
  })
  parseFaults(value: string): readonly PlannedFault[] {
    return parseFaultPlan(value);
  }

  @Option({
    flags: '--max-errors <n>',
    description: 'failures that are still a success: a number or a share (default 0)',
  })
  parseMaxErrors(value: string): MaxErrors {
    if (!value.endsWith('%')) return { count: wholeNumber('--max-errors', value, 0, 1e9) };
    const share = parseShare(value);
    if (!share.ok) throw usageError(`--max-errors: ${share.problem}`);
    return { share: share.value };
  }

  @Option({ flags: '--timeout <d>', description: 'for one request (default 5m)' })
  parseTimeout(value: string): number {
    return duration('--timeout', value);
  }

  @Option({ flags: '--api-key-file <file>', description: 'file with the API key' })
  parseApiKeyFile(value: string): string {
    return value;
  }

  @Option({ flags: '-o, --output <format>', description: 'table (default) or json' })
  parseOutput(value: string): 'table' | 'json' {
    if (value === 'table' || value === 'json') return value;
    throw usageError(`unknown output format '${value}'`, 'known are: table, json');
  }

  override async run(_words: string[], options: BenchOptions): Promise<void> {
    const { url, model } = options;
    if (url === undefined || model === undefined) throw usageError('--url and --model are needed');
    const apiKey = options.apiKeyFile === undefined ? undefined : readKey(options.apiKeyFile);
    const client = new CompletionClient({
      url,
      model,
      timeoutMs: options.timeout ?? DEFAULT_TIMEOUT_MS,
      clock: systemClock,
      ...(apiKey === undefined ? {} : { apiKey }),
    });
    const signals = new StopSignals(systemClock, false);
    try {
      const run = new BenchRun(planOf(options), client, systemClock);
      void signals.requested().then(() => run.stop());
      const result = await run.run();
      const report = benchReport(result, signals.isRequested);
      print(report, options.output ?? 'table');
      judge(report, result.reached, options.maxErrors ?? { count: 0 });
    } finally {
      signals.dispose();
      client.close();
    }
  }
}

function planOf(options: BenchOptions): BenchPlan {
  const { duration: durationMs, rate, maxTokens } = options;
  const requests = options.requests ?? (durationMs === undefined ? DEFAULT_REQUESTS : undefined);
  return {
    shape: options.shape ?? 'chat',
    seed: options.seed ?? 1,
    faults: options.faults ?? [],
    concurrency: options.concurrency ?? DEFAULT_CONCURRENCY,
    ...(requests === undefined ? {} : { requests }),
    ...(durationMs === undefined ? {} : { durationMs }),
    ...(rate === undefined ? {} : { ratePerSecond: rate }),
    ...(maxTokens === undefined ? {} : { maxTokens }),
  };
}

function print(report: BenchReport, output: 'table' | 'json'): void {
  const text = output === 'json' ? JSON.stringify(report, null, 2) : reportLines(report).join('\n');
  process.stdout.write(`${text}\n`);
}

/** The exit code tells how it went: everything is printed already. */
function judge(report: BenchReport, reached: boolean, allowed: MaxErrors): void {
  if (report.interrupted) throw new QuietExit(EXIT.interrupted);
  const most = 'count' in allowed ? allowed.count : allowed.share * report.requests;
  if (report.failures <= most) return;
  if (!reached) throw new QuietExit(EXIT.unreachable);
  throw new QuietExit(EXIT.failed);
}

function readKey(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (cause) {
    throw new OperatorError('invalid_argument', `--api-key-file ${file} cannot be read`, { cause });
  }
}

function wholeNumber(flag: string, text: string, least: number, most: number): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < least || value > most) {
    throw usageError(`${flag}: expected a whole number from ${least} to ${most}, got '${text}'`);
  }
  return value;
}

function duration(flag: string, text: string): number {
  const parsed = parseDuration(text);
  if (!parsed.ok) throw usageError(`${flag}: ${parsed.problem}`);
  if (parsed.value <= 0) throw usageError(`${flag}: expected more than nothing`);
  return parsed.value;
}
