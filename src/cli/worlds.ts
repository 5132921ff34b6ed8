/**
 * The heavy worlds that commands start. Loaded only when asked for: the agent must not pay for the server's modules,
 * nor `config check` for either.
 */
import type { AgentConfig } from '../config/agent-config.js';
import type { ServerConfig } from '../config/server-config.js';
import type { Logger } from '../shared/logger.js';

export interface RunningServer {
  readonly addresses: { readonly client: string; readonly admin: string; readonly agent?: string };
  /** Ends gracefully within the grace; running streams get an error event at its end. */
  close(graceMs?: number): Promise<void>;
}

export interface RunningAgent {
  readonly nodeId: string;
  /** Stops every engine the agent runs. */
  stopEngines(): Promise<void>;
  close(): Promise<void>;
}

export type StartServer = (config: ServerConfig, context: { logger: Logger }) => Promise<RunningServer>;
export type StartAgent = (config: AgentConfig, context: { logger: Logger }) => Promise<RunningAgent>;

export async function loadServerWorld(): Promise<StartServer> {
  const path = '../server/bootstrap.js';
  const world = (await import(path)) as { startServer: StartServer };
  return world.startServer;
}

export async function loadAgentWorld(): Promise<StartAgent> {
  const path = '../agent/bootstrap.js';
  const world = (await import(path)) as { startAgent: StartAgent };
  return world.startAgent;
}
