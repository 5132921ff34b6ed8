import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { Command, Option } from 'nest-commander';
import type { ServerConfig } from '../config/server-config.js';
import type { Origin } from '../config/settings-reader.js';
import { createLogger } from '../shared/logger.js';
import { ListenerFlags, type ListenerOptions } from './listener-flags.js';
import { collect, usageError } from './llmgw-command.js';
import { checkPortsFree } from './port-check.js';
import { serverConfigSource, warnAbout } from './server.command.js';
import { parseModelFlag, toModelConfig, type WantedModel } from './up/models.js';
import { runUp, tinyModelPath } from './up/run-up.js';
import { embeddedEngine } from './worlds.js';

interface UpOptions extends ListenerOptions {
  readonly config?: string;
  readonly model?: readonly string[];
  readonly verbose?: boolean;
}

/** Name of the model that is served when none is given. */
const DEFAULT_MODEL = 'tiny';

@Command({ name: 'up', description: 'Run everything on this machine: server, agent and a model.' })
export class UpCommand extends ListenerFlags {
  protected override readonly examples = [
    ['llmgw up', 'a tiny built-in model, to see it work'],
    ['llmgw up --model qwen=/models/qwen.gguf', 'a real model on the built-in llama.cpp'],
    ['llmgw up --config llmgw.yaml', 'the models of a configuration file'],
  ] as const;

  @Option({
    flags: '--config <file>',
    description: "the server's configuration file (YAML); env LLMGW_CONFIG",
  })
  parseConfig(value: string): string {
    return value;
  }

  @Option({
    flags: '--model <name=source>',
    description: 'serve a GGUF file under a name; may be given more than once',
  })
  parseModel(value: string, previous?: string[]): string[] {
    return collect(value, previous);
  }

  @Option({ flags: '--verbose', description: 'print the log of server and agent too' })
  parseVerbose(): boolean {
    return true;
  }

  override async run(_words: string[], options: UpOptions): Promise<void> {
    const wanted = await wantedModels(options);
    const source = serverConfigSource(options, (config, origins) => {
      addModels(config, wanted, resolve(config.stateDir));
      settleLog(config, origins, options.verbose === true);
    });
    const loaded = source.load();
    await checkPortsFree(loaded.config);
    const logger = createLogger(loaded.config.log);
    warnAbout(loaded, logger);
    await runUp({ config: loaded.config, source, logger, tell });
  }
}

/** Progress goes to standard error: standard output holds the summary alone. */
const tell = (line: string): void => void process.stderr.write(`${line}\n`);

/** The models of the flags, or undefined for those of the file, or the default where the file has none. */
interface WantedModels {
  readonly given: readonly WantedModel[];
  /** Served when neither flags nor file name one. */
  readonly fallback: WantedModel['engine'];
}

async function wantedModels(options: UpOptions): Promise<WantedModels> {
  const given = (options.model ?? []).map((spec) => parseModelFlag(spec, (path) => resolve(path)));
  const embedded = given.filter(({ engine }) => engine === 'embedded');
  for (const { name, source } of embedded) {
    if (source === undefined || !existsSync(source))
      throw usageError(`--model ${name}: no such file: ${source ?? ''}`);
  }
  const availability = await embeddedEngine();
  if (availability.available) return { given, fallback: 'embedded' };
  const why = `the built-in llama.cpp cannot run here: ${availability.reason}`;
  if (embedded.length > 0) throw new Error(why);
  if (given.length === 0 && options.config === undefined) tell(`${why}; using the simulated engine instead`);
  return { given, fallback: 'sim' };
}

function addModels(config: ServerConfig, wanted: WantedModels, stateDir: string): void {
  config.models.push(...wanted.given.map(toModelConfig));
  if (config.models.length > 0 || config.endpoints.length > 0) return;
  const source = wanted.fallback === 'embedded' ? { source: tinyModelPath(stateDir) } : {};
  config.models.push(toModelConfig({ name: DEFAULT_MODEL, engine: wanted.fallback, ...source }));
}

/** Quiet unless asked: progress and summary tell what a person wants to know. */
function settleLog(config: ServerConfig, origins: ReadonlyMap<string, Origin>, verbose: boolean): void {
  if (!origins.has('log.format')) config.log.format = 'pretty';
  if (!origins.has('log.level')) config.log.level = verbose ? 'info' : 'warn';
}
