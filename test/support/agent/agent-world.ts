/** An agent in a directory of its own, with short waits, for specs that run real processes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startAgent, type RunningAgent } from '../../../src/agent/bootstrap.js';
import type { AgentTimings } from '../../../src/agent/limits.js';
import { AgentConfig, AgentEngineConfig } from '../../../src/config/agent-config.js';
import type { Profile } from '../../../src/domain/model-spec.js';
import type { StartShardCommand } from '../../../src/domain/plan.js';
import { createLogger, type Logger } from '../../../src/shared/logger.js';

export const program = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** Short waits, so that a spec that waits for a limit does not take as long as an operator would. */
export const QUICK: Partial<AgentTimings> = {
  processPollMs: 20,
  logPollMs: 20,
  groupPollMs: 10,
  probeMinMs: 20,
  probeMaxMs: 100,
  probeTimeoutMs: 1_000,
  tokenTimeoutMs: 2_000,
  livenessIntervalMs: 100,
  gpuWaitMs: 500,
  gpuWaitPollMs: 20,
  gpuProbeIntervalMs: 50,
  reportDebounceMs: 5,
  reconnectBaseMs: 20,
  reconnectMaxMs: 200,
};

export class AgentWorld {
  readonly directory = mkdtempSync(join(tmpdir(), 'llmgw-agent-'));
  readonly log: string[] = [];
  private readonly logger: Logger = createLogger({ level: 'debug', format: 'json' }, (line) =>
    this.log.push(line),
  );
  private readonly agents: RunningAgent[] = [];

  config(server: string, change: (config: AgentConfig) => void = () => {}): AgentConfig {
    const config = new AgentConfig();
    config.server = server;
    config.nodeId = 'n1';
    config.stateDir = join(this.directory, 'state');
    config.heartbeat = 200;
    config.gpus.driver = 'none';
    const command = new AgentEngineConfig();
    command.binary = process.execPath;
    command.baseArgs = [program('fake-engine.mjs'), '--port', '{port}', '--model', '{model}'];
    config.engines = { command };
    change(config);
    return config;
  }

  async start(config: AgentConfig, timings: Partial<AgentTimings> = {}): Promise<RunningAgent> {
    const agent = await startAgent(config, { logger: this.logger, timings: { ...QUICK, ...timings } });
    this.agents.push(agent);
    return agent;
  }

  /** Ends everything that was started, engines included. */
  async dispose(): Promise<void> {
    for (const agent of this.agents) {
      await agent.stopEngines();
      await agent.close();
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

export function startCommand(port: number, change: Partial<StartShardCommand> = {}): StartShardCommand {
  return {
    nodeId: 'n1',
    shardId: 'r1-0',
    replicaId: 'r1',
    generation: 1,
    model: 'm1',
    aliases: [],
    profile: profile(),
    rank: 0,
    shards: 1,
    gpuUuids: [],
    ports: { http: port },
    peers: [],
    specDigest: 'd1',
    ...change,
  };
}

export function profile(change: Partial<Profile> = {}): Profile {
  return {
    name: 'p1',
    engine: 'command',
    shards: 1,
    gpus: 0,
    args: [],
    env: {},
    startTimeoutMs: 10_000,
    stopGraceMs: 2_000,
    weight: 1,
    ...change,
  };
}

/** A port that was free a moment ago. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() =>
        typeof address === 'object' && address !== null
          ? resolve(address.port)
          : reject(new Error('no port')),
      );
    });
  });
}
