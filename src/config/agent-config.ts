/** The agent's configuration as the rest of the program sees it; same conventions as the server's. */
import { ENGINE_KINDS, type EngineKind } from '../domain/model-spec.js';
import type { DurationMs, SizeBytes } from './server-config.js';
import { LogConfig } from './server-config.js';
import {
  Address,
  Choice,
  Duration,
  ENV_NAME,
  ID,
  LABEL_KEY,
  NOT_EMPTY,
  Nested,
  NestedList,
  NestedMap,
  Size,
  Text,
  TextList,
  TextMap,
  Toggle,
  type TextRule,
} from './setting.js';

const FLAG: TextRule = {
  pattern: /^-{1,2}[A-Za-z0-9][\w.-]*$/,
  expected: 'a flag such as --max-model-len',
};

const HOST: TextRule = {
  pattern: /^[A-Za-z0-9:][A-Za-z0-9.:%-]*$/,
  expected: 'a host name or IP address without a port',
  maxLength: 255,
};

/** What the agent's machine allows of one engine. The server can choose among it, never go beyond. */
export class AgentEngineConfig {
  @Text({ doc: 'Program to run; a bare name is looked up in PATH.', unset: "the engine's usual name" })
  binary?: string;

  @TextList({
    of: 'arguments',
    repeatable: true,
    doc: 'Arguments put before everything else, e.g. `["-m", "sglang.launch_server"]` for a Python program.',
  })
  baseArgs: string[] = [];

  @TextList({
    of: 'flags',
    rule: FLAG,
    doc: 'Flags that launch profiles may pass.',
    unset: 'every flag that llmgw does not set itself and `denyArgs` does not name',
  })
  allowArgs?: string[];

  @TextList({ of: 'flags', rule: FLAG, doc: 'Flags that are refused although allowed otherwise.' })
  denyArgs: string[] = [];

  @TextMap({
    of: 'environment variables',
    keyRule: ENV_NAME,
    doc: 'Environment of every process of the engine.',
  })
  env: Record<string, string> = {};
}

export class StaticGpuConfig {
  @Text({ required: true, rule: ID, doc: 'Stable id of the device.' })
  uuid!: string;

  @Text({ rule: NOT_EMPTY, doc: 'Type, as `gpuType` of launch profiles matches it.' })
  type = 'static';

  @Size({ doc: 'Memory of the device.', unset: 'unknown' })
  memory?: SizeBytes;
}

export class AgentGpusConfig {
  @Choice(['auto', 'nvidia', 'amd', 'static', 'none'], {
    doc: 'How GPUs are found; `auto` takes the first vendor tool that answers, `static` the list below.',
  })
  driver: 'auto' | 'nvidia' | 'amd' | 'static' | 'none' = 'auto';

  @NestedList(() => StaticGpuConfig, { of: 'devices', doc: 'Declared devices, for `driver: static`.' })
  static: StaticGpuConfig[] = [];
}

export class AgentTlsConfig {
  @Text({ doc: 'Certificate authority of the server, PEM.', unset: "the system's" })
  caFile?: string;

  @Text({ doc: "The agent's own certificate, PEM.", unset: 'none' })
  certFile?: string;

  @Text({ doc: "Key of the agent's own certificate, PEM.", unset: 'none' })
  keyFile?: string;
}

export class AgentConfig {
  @Address({ doc: "The server's agent listener." })
  server = '127.0.0.1:8082';

  @Text({ rule: ID, doc: 'Stable name of this machine.', unset: 'the host name' })
  nodeId?: string;

  @TextMap({ of: 'labels', keyRule: LABEL_KEY, doc: 'Labels that placement rules can ask for.' })
  labels: Record<string, string> = {};

  @Text({
    rule: HOST,
    doc: "Address under which this machine's engines are reached.",
    unset: 'the address of `mgmtInterface`, or loopback',
  })
  address?: string;

  @Text({ doc: 'Interface for engine traffic and traffic between ranks.', unset: 'none' })
  mgmtInterface?: string;

  @Text({ doc: "Directory of the agent's state and of engine logs, relative to where the agent is started." })
  stateDir = './.llmgw-agent';

  @TextList({ of: 'directories', doc: 'Directories that model paths may point into.' })
  modelRoots: string[] = [];

  @NestedMap(() => AgentEngineConfig, {
    of: 'engines',
    keyRule: ID,
    keys: ENGINE_KINDS,
    doc: 'Engines this machine offers, and what the server may choose of each.',
  })
  engines: Partial<Record<EngineKind, AgentEngineConfig>> = {};

  @Toggle({ doc: 'Whether the built-in engines `sim` and `embedded` are offered without being listed.' })
  offerBuiltIn = true;

  @Nested(() => AgentGpusConfig, { doc: "The machine's GPUs." })
  gpus = new AgentGpusConfig();

  @Nested(() => AgentTlsConfig, { doc: 'TLS towards the server.', unset: 'plain' })
  tls?: AgentTlsConfig;

  @Text({ doc: 'File holding the join token.', unset: 'none' })
  joinTokenFile?: string;

  @Choice(['keep', 'stop'], {
    doc: 'What becomes of engines when the agent ends: `keep` lets them serve on, except in a container, which ends with its agent.',
  })
  onExit: 'keep' | 'stop' = 'keep';

  @Duration({ minMs: 100, doc: 'Pause between two reports.' })
  heartbeat: DurationMs = 5_000;

  @Nested(() => LogConfig, { doc: 'The log of the process.' })
  log = new LogConfig();
}

/** Token under which the frozen agent configuration is injected. */
export const AGENT_CONFIG = Symbol('AgentConfig');
