import { Command, Option } from 'nest-commander';
import type { ConfigSource } from '../admin-api/config-reload.service.js';
import { takeClientSocket } from '../config/handed-over-socket.js';
import { loadServerConfig, type LoadedConfig } from '../config/load.js';
import type { ScalarFlag } from '../config/overlay.js';
import type { ServerConfig } from '../config/server-config.js';
import type { Origin } from '../config/settings-reader.js';
import { systemClock } from '../shared/clock.js';
import { formatProblem } from '../shared/errors.js';
import type { RunningServer } from '../server/bootstrap.js';
import { createLogger, type Logger } from '../shared/logger.js';
import { ListenerFlags, type ListenerOptions } from './listener-flags.js';
import { collect } from './llmgw-command.js';
import { checkPortsFree } from './port-check.js';
import { ReloadSignals } from './reload-signals.js';
import { StopSignals } from './stop-signals.js';
import { loadServerWorld } from './worlds.js';

interface ServerOptions extends ListenerOptions {
  readonly config?: string;
  readonly endpoint?: readonly string[];
}

@Command({ name: 'server', description: 'Run the server: router, control plane and admin API.' })
export class ServerCommand extends ListenerFlags {
  protected override readonly examples = [
    ['llmgw server --config llmgw.yaml', 'route, place and run the models of the file'],
    ['llmgw server --endpoint e1=http://10.0.0.5:8000=qwen', 'route to an engine that runs already'],
  ] as const;

  @Option({ flags: '--config <file>', description: 'configuration file (YAML); env LLMGW_CONFIG' })
  parseConfig(value: string): string {
    return value;
  }

  @Option({
    flags: '--endpoint <id=URL=model[,model]>',
    description: 'static endpoint; may be given more than once',
  })
  parseEndpoint(value: string, previous?: string[]): string[] {
    return collect(value, previous);
  }

  override async run(_words: string[], options: ServerOptions): Promise<void> {
    const source = serverConfigSource(options);
    const loaded = source.load();
    const logger = createLogger(loaded.config.log);
    warnAbout(loaded, logger);
    const clientSocketFd = takeClientSocket(process.env, process.pid);
    await checkPortsFree(loaded.config, clientSocketFd === undefined ? [] : ['listen']);
    await serveUntilStopped(loaded.config, { logger, source, clientSocketFd });
  }
}

/** Configuration of file, environment and the flags of `server`, to be read as often as needed. */
export function serverConfigSource(
  options: ServerOptions,
  amend?: (config: ServerConfig, origins: ReadonlyMap<string, Origin>) => void,
): ConfigSource {
  const named = options.config ?? process.env['LLMGW_CONFIG'];
  const file = named === undefined || named === '' ? {} : { file: named };
  return { ...file, load: (instead) => readServerConfig(options, instead ?? file, amend) };
}

function readServerConfig(
  options: ServerOptions,
  from: { readonly file?: string; readonly name?: string; readonly text?: string },
  amend?: (config: ServerConfig, origins: ReadonlyMap<string, Origin>) => void,
): LoadedConfig<ServerConfig> {
  const { text } = from;
  const file = from.name ?? from.file;
  return loadServerConfig({
    ...(file === undefined ? {} : { file }),
    ...(text === undefined ? {} : { text }),
    env: process.env,
    flags: scalarFlags({
      listen: ['--listen', options.listen],
      adminListen: ['--admin-listen', options.adminListen],
      agentListen: ['--agent-listen', options.agentListen],
      stateDir: ['--state-dir', options.stateDir],
    }),
    endpoints: options.endpoint ?? [],
    ...(amend === undefined ? {} : { amend }),
  });
}

/** The given ones among the flags, by the path they set. */
export function scalarFlags(
  flags: Readonly<Record<string, readonly [flag: string, text: string | undefined]>>,
): ScalarFlag[] {
  return Object.entries(flags).flatMap(([path, [flag, text]]) =>
    text === undefined ? [] : [{ flag, path, text }],
  );
}

export function warnAbout(loaded: LoadedConfig<unknown>, logger: Logger): void {
  for (const problem of loaded.warnings) logger.warn(formatProblem(problem));
}

interface ServeContext {
  readonly logger: Logger;
  readonly source: ConfigSource;
  readonly clientSocketFd: number | undefined;
}

async function serveUntilStopped(config: ServerConfig, context: ServeContext): Promise<void> {
  const { logger } = context;
  const startServer = await loadServerWorld();
  let running: RunningServer | undefined;
  const underNpm = process.env['npm_lifecycle_event'] !== undefined;
  const signals = new StopSignals(systemClock, underNpm, async () => running?.endNow());
  const reloads = new ReloadSignals();
  try {
    const server = await startServer(config, context);
    running = server;
    reloads.follow(() => server.reload('SIGHUP'));
    logger.info({ ...server.addresses }, 'server is up');
    await signals.requested();
    logger.info('server is stopping');
    await server.close();
    logger.info('server has stopped');
  } finally {
    signals.dispose();
    reloads.dispose();
  }
}
