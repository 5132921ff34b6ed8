import { Command, Option } from 'nest-commander';
import type { AgentConfig } from '../config/agent-config.js';
import { loadAgentConfig, type LoadedConfig } from '../config/load.js';
import { systemClock } from '../shared/clock.js';
import { EXIT, formatProblem } from '../shared/errors.js';
import { createLogger, type Logger } from '../shared/logger.js';
import { QuietExit } from './failure.js';
import { LlmgwCommand, collect } from './llmgw-command.js';
import { scalarFlags, warnAbout } from './server.command.js';
import { ReloadSignals } from './reload-signals.js';
import { StopSignals } from './stop-signals.js';
import { loadAgentWorld } from './worlds.js';

interface AgentOptions {
  readonly config?: string;
  readonly server?: string;
  readonly nodeId?: string;
  readonly label?: readonly string[];
  readonly stateDir?: string;
  readonly joinTokenFile?: string;
  readonly check?: boolean;
}

@Command({
  name: 'agent',
  description: 'Run the agent of this machine: it starts, watches and stops engines.',
})
export class AgentCommand extends LlmgwCommand {
  protected override readonly examples = [
    ['llmgw agent --server 10.0.0.1:8082 --label zone=a', 'join this machine to a server'],
    ['llmgw agent --config agent.yaml --check', 'check configuration and machine, and end'],
  ] as const;

  @Option({
    flags: '--config <file>',
    description: "the agent's configuration file (YAML); env LLMGW_CONFIG",
  })
  parseConfig(value: string): string {
    return value;
  }

  @Option({
    flags: '--server <host:port>',
    description: "the server's agent listener (default 127.0.0.1:8082)",
  })
  parseServer(value: string): string {
    return value;
  }

  @Option({ flags: '--node-id <id>', description: 'stable name of this machine (default: the host name)' })
  parseNodeId(value: string): string {
    return value;
  }

  @Option({ flags: '--label <key=value>', description: 'label for placement; may be given more than once' })
  parseLabel(value: string, previous?: string[]): string[] {
    return collect(value, previous);
  }

  @Option({
    flags: '--state-dir <dir>',
    description: "directory of the agent's state (default ./.llmgw-agent)",
  })
  parseStateDir(value: string): string {
    return value;
  }

  @Option({ flags: '--join-token-file <file>', description: 'file holding the join token' })
  parseJoinTokenFile(value: string): string {
    return value;
  }

  @Option({ flags: '--check', description: 'check configuration and machine, say what is missing, and end' })
  parseCheck(): boolean {
    return true;
  }

  override async run(_words: string[], options: AgentOptions): Promise<void> {
    const loaded = readAgentConfig(options);
    if (options.check === true) {
      for (const problem of loaded.warnings) process.stderr.write(`warning: ${formatProblem(problem)}\n`);
      process.stdout.write('the configuration is valid\n');
      await checkMachine(loaded.config);
      return;
    }
    const logger = createLogger(loaded.config.log);
    warnAbout(loaded, logger);
    await workUntilStopped(loaded.config, logger);
  }
}

/** Configuration of file, environment and the flags of `agent`. */
function readAgentConfig(options: AgentOptions): LoadedConfig<AgentConfig> {
  const file = options.config ?? process.env['LLMGW_CONFIG'];
  return loadAgentConfig({
    ...(file === undefined || file === '' ? {} : { file }),
    env: process.env,
    flags: scalarFlags({
      server: ['--server', options.server],
      nodeId: ['--node-id', options.nodeId],
      stateDir: ['--state-dir', options.stateDir],
      joinTokenFile: ['--join-token-file', options.joinTokenFile],
    }),
    labels: options.label ?? [],
  });
}

/** What this machine lacks, one line each; ends with failure when something must be mended first. */
async function checkMachine(config: AgentConfig): Promise<void> {
  const { examine, systemDoctorDeps } = await import('../agent/doctor.js');
  const { findingText } = await import('../agent/finding.js');
  const findings = await examine(config, systemDoctorDeps(config, systemClock));
  for (const finding of findings) process.stdout.write(`${findingText(finding)}\n`);
  if (findings.some(({ level }) => level === 'problem')) throw new QuietExit(EXIT.failed);
}

async function workUntilStopped(config: AgentConfig, logger: Logger): Promise<void> {
  const startAgent = await loadAgentWorld();
  const signals = new StopSignals(systemClock, process.env['npm_lifecycle_event'] !== undefined);
  const reloads = new ReloadSignals();
  reloads.follow(() => logger.warn('an agent reads its file only when it starts; SIGHUP changes nothing'));
  try {
    const agent = await startAgent(config, { logger });
    logger.info({ nodeId: agent.nodeId, server: config.server }, 'agent is up');
    await signals.requested();
    logger.info({ engines: agent.onExit }, 'agent is stopping');
    await agent.close();
    logger.info('agent has stopped');
  } finally {
    signals.dispose();
    reloads.dispose();
  }
}
