/** Server and agent in one process: started in order, stopped in order, engines included. */
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { AgentEngineConfig, type AgentConfig } from '../../config/agent-config.js';
import type { RunningAgent } from '../../agent/bootstrap.js';
import type { ConfigSource } from '../../admin-api/config-reload.service.js';
import { loadAgentConfig } from '../../config/load.js';
import type { ServerConfig } from '../../config/server-config.js';
import type { EngineKind } from '../../domain/model-spec.js';
import { systemClock } from '../../shared/clock.js';
import { setLogLevel, type Logger } from '../../shared/logger.js';
import { AdminClient, adminTarget } from '../ctl/admin-client.js';
import type { RunningServer } from '../../server/bootstrap.js';
import { ReloadSignals } from '../reload-signals.js';
import { StopSignals } from '../stop-signals.js';
import { loadAgentWorld, loadServerWorld, writeTinyModelTo } from '../worlds.js';
import { waitUntilReady } from './readiness.js';
import { summary } from './summary.js';

export interface UpRun {
  readonly config: ServerConfig;
  readonly source: ConfigSource;
  readonly logger: Logger;
  /** Says one line of progress. */
  readonly tell: (line: string) => void;
}

/** Where the default model lies; written at the first start. */
export const tinyModelPath = (stateDir: string): string => join(stateDir, 'models', 'tiny.gguf');

/** Runs until a signal asks for the end; throws when the start fails, with everything closed again. */
export async function runUp(run: UpRun): Promise<void> {
  let server: RunningServer | undefined;
  let agent: RunningAgent | undefined;
  const underNpm = process.env['npm_lifecycle_event'] !== undefined;
  const serverLog = run.logger.child({ component: 'server' });
  const agentLog = run.logger.child({ component: 'agent' });
  const signals = new StopSignals(systemClock, underNpm, async () => {
    // First, so that clients hear why from us before their engines are gone.
    const told = server?.endNow();
    agent?.killEngines();
    await told;
  });
  const reloads = new ReloadSignals();
  try {
    await writeDefaultModel(run.config);
    const [startServer, startAgent] = await Promise.all([loadServerWorld(), loadAgentWorld()]);
    server = await startServer(run.config, { logger: serverLog, source: run.source });
    const running = server;
    // Without a file there is nothing to read again: then the hang-up of the terminal is what it always was, the end.
    if (run.source.file === undefined) reloads.follow(() => signals.request());
    else reloads.follow(() => running.reload('SIGHUP'));
    const agentAddress = server.addresses.agent;
    // Static endpoints alone need no agent, and the server then has no listener for one.
    if (agentAddress !== undefined && run.config.models.some(({ profiles }) => profiles.length > 0)) {
      const config = agentConfig(run.config, agentAddress);
      agent = await startAgent(config, { logger: agentLog });
    }
    await becomeReady(run, server, agent !== undefined, signals);
    await signals.requested();
    run.tell('stopping ...');
    // The agent would warn that its server goes away: here that is the plan.
    setLogLevel(agentLog, 'error');
  } finally {
    await stop(run.config.shutdownGrace, server, agent);
    signals.dispose();
    reloads.dispose();
  }
}

/** The server first: requests that run may finish on engines that still live. */
async function stop(
  graceMs: number,
  server: RunningServer | undefined,
  agent: RunningAgent | undefined,
): Promise<void> {
  try {
    await server?.close(graceMs);
  } finally {
    await agent?.close();
  }
}

async function writeDefaultModel({ models, stateDir }: ServerConfig): Promise<void> {
  const file = tinyModelPath(resolve(stateDir));
  const isUsed = models.some(({ source }) => source === file);
  if (isUsed && !existsSync(file)) await writeTinyModelTo(file);
}

/** The agent of this machine: it trusts what the operator's own configuration asks for, and takes its engines with it. */
function agentConfig(config: ServerConfig, server: string): AgentConfig {
  const stateDir = resolve(config.stateDir);
  return loadAgentConfig({
    // The server's file and environment speak of the server; only the node id may come from outside.
    env: { LLMGW_NODE_ID: process.env['LLMGW_NODE_ID'] },
    amend: (agent) => {
      agent.server = server;
      agent.stateDir = join(stateDir, 'agent');
      agent.modelRoots = modelRoots(config, stateDir);
      agent.engines = Object.fromEntries(
        otherEngines(config).map((engine) => [engine, new AgentEngineConfig()]),
      );
      agent.onExit = 'stop';
      agent.log = config.log;
    },
  }).config;
}

/** Engines of the configuration that an agent does not offer by itself. */
function otherEngines({ models }: ServerConfig): EngineKind[] {
  const engines = models.flatMap(({ profiles }) => profiles).map(({ engine }) => engine);
  return engines.filter((engine) => engine !== 'sim' && engine !== 'embedded');
}

function modelRoots({ models }: ServerConfig, stateDir: string): string[] {
  const own = models.flatMap(({ source }) => (source?.startsWith('/') === true ? [dirname(source)] : []));
  return [...new Set([join(stateDir, 'models'), ...own])];
}

async function becomeReady(
  { config, tell }: UpRun,
  server: RunningServer,
  places: boolean,
  signals: StopSignals,
): Promise<void> {
  const { client, admin } = server.addresses;
  // Without a control plane there is nothing to wait for: what the endpoints are said to serve is all that is known.
  const result = places
    ? await waitUntilReady({
        client: new AdminClient(adminTarget(admin, undefined)),
        clock: systemClock,
        tell,
        stopped: () => signals.isRequested,
      })
    : { served: config.endpoints.flatMap(({ models }) => models), notServed: [] };
  if (!signals.isRequested) process.stdout.write(summary({ client, admin, ...result }));
}
