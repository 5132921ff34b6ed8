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
  /** Kills what is left of the engines, at once and without waiting. */
  killEngines?(): void;
}

export type StartServer = (config: ServerConfig, context: { logger: Logger }) => Promise<RunningServer>;
export type StartAgent = (config: AgentConfig, context: { logger: Logger }) => Promise<RunningAgent>;

export async function loadServerWorld(): Promise<StartServer> {
  const path = '../server/bootstrap.js';
  const world = (await import(path)) as { startServer: StartServer };
  return world.startServer;
}

export async function loadAgentWorld(): Promise<StartAgent> {
  const { startAgent } = await import('../agent/bootstrap.js');
  return startAgent;
}

export interface EmbeddedEngine {
  embeddedAvailable(): Promise<
    { readonly available: true } | { readonly available: false; readonly reason: string }
  >;
}

export async function loadEmbeddedEngine(): Promise<EmbeddedEngine> {
  const path = '../engines/embedded/availability.js';
  return (await import(path)) as EmbeddedEngine;
}

export async function writeTinyModelTo(file: string): Promise<void> {
  const path = '../engines/tiny-model/tiny-model.js';
  const { writeTinyModel } = (await import(path)) as { writeTinyModel: (file: string) => Promise<void> };
  await writeTinyModel(file);
}
