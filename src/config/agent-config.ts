/** The agent's configuration as the rest of the program sees it; same conventions as the server's. */
import type { EngineKind } from '../domain/cluster.js';
import type { DurationMs, SizeBytes } from './server-config.js';
import { LogConfig } from './server-config.js';

/** What the agent's machine allows of one engine. The server can choose among it, never go beyond. */
export class AgentEngineConfig {
  /** Program to run; a bare name is looked up in PATH. Undefined = the driver's usual name. */
  binary?: string;
  /** Arguments put before everything else, e.g. for `python -m sglang.launch_server` or a wrapper. */
  baseArgs: string[] = [];
  /** Flags that profiles may pass; undefined = every flag the driver does not reserve or deny. */
  allowArgs?: string[];
  /** Flags that are refused although allowed otherwise. */
  denyArgs: string[] = [];
  /** Environment given to every process of this engine. */
  env: Record<string, string> = {};
}

export class StaticGpuConfig {
  uuid!: string;
  type = 'static';
  memory?: SizeBytes;
}

export class AgentGpusConfig {
  driver: 'auto' | 'nvidia' | 'amd' | 'static' | 'none' = 'auto';
  static: StaticGpuConfig[] = [];
}

export class AgentTlsConfig {
  caFile?: string;
  certFile?: string;
  keyFile?: string;
}

export class AgentConfig {
  server = '127.0.0.1:8082';
  /** Undefined = the machine's hostname. */
  nodeId?: string;
  labels: Record<string, string> = {};
  /** Address under which the node's engines are reached; undefined = found from the management interface, or loopback. */
  address?: string;
  mgmtInterface?: string;
  stateDir = './.llmgw-agent';
  modelRoots: string[] = [];
  /** Engines this machine offers; the built-in `sim` and `embedded` are offered unless switched off by `offerBuiltIn: false`. */
  engines: Partial<Record<EngineKind, AgentEngineConfig>> = {};
  offerBuiltIn = true;
  gpus = new AgentGpusConfig();
  tls?: AgentTlsConfig;
  joinTokenFile?: string;
  /** What becomes of engines when the agent ends: `keep` lets them serve on, `stop` ends them (used by `up`). */
  onExit: 'keep' | 'stop' = 'keep';
  heartbeat: DurationMs = 5_000;
  log = new LogConfig();
}

/** Token under which the frozen agent configuration is injected. */
export const AGENT_CONFIG = Symbol('AgentConfig');
