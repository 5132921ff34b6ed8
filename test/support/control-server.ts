import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { request } from 'node:http';
import { ControlConfig, ModelConfig, ProfileConfig, ServerConfig } from '../../src/config/server-config.js';
import { loadServerConfig, type LoadedConfig } from '../../src/config/load.js';
import { ConfigError } from '../../src/shared/errors.js';
import { startServer, type RunningServer, type StartContext } from '../../src/server/bootstrap.js';
import { createLogger } from '../../src/shared/logger.js';
import { seededRandom } from '../../src/shared/random.js';
import { FakeAgent, type FakeAgentOptions } from './fake-agent.js';

export interface AdminAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  // oxlint-disable-next-line typescript/no-explicit-any -- tests read what they know is there
  readonly json: any;
}

export interface AdminCall {
  readonly method?: string;
  readonly body?: unknown;
  /** Sent as it is, in place of a JSON body. */
  readonly rawBody?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export function simModel(
  name: string,
  change: Partial<ModelConfig> = {},
  profile: Partial<ProfileConfig> = {},
) {
  const launch = Object.assign(new ProfileConfig(), { name: 'p', engine: 'sim', ...profile });
  return Object.assign(new ModelConfig(), { name, profiles: [launch], ...change });
}

/** A whole server in this process, on free ports and a state directory of its own, with agents that join on demand. */
export class ControlServer {
  readonly log: string[] = [];
  private readonly agents: FakeAgent[] = [];
  private readonly dirs: string[] = [];
  private running: RunningServer | undefined;
  readonly config: ServerConfig;

  constructor(
    change: Partial<ServerConfig> = {},
    control: Partial<ControlConfig> = {},
    private readonly world: Partial<StartContext> = {},
  ) {
    const stateDir = mkdtempSync(join(tmpdir(), 'llmgw-control-'));
    this.dirs.push(stateDir);
    this.config = Object.assign(new ServerConfig(), {
      listen: '127.0.0.1:0',
      adminListen: '127.0.0.1:0',
      agentListen: '127.0.0.1:0',
      stateDir,
      shutdownGrace: 1_000,
      control: Object.assign(new ControlConfig(), { interval: 100, settleAfterStart: 0, ...control }),
      ...change,
    });
  }

  static async start(
    change: Partial<ServerConfig> = {},
    control: Partial<ControlConfig> = {},
    world: Partial<StartContext> = {},
  ): Promise<ControlServer> {
    const server = new ControlServer(change, control, world);
    await server.start();
    return server;
  }

  get server(): RunningServer {
    if (this.running === undefined) throw new Error('the server is not running');
    return this.running;
  }

  async start(): Promise<void> {
    const logger = createLogger({ level: 'debug', format: 'json' }, (line) => this.log.push(line));
    this.running = await startServer(this.config, {
      logger,
      random: seededRandom(7),
      source: { file: 'llmgw.yaml', load: (instead) => this.read(instead) },
      ...this.world,
    });
  }

  /** What a reload reads: changes against the configuration of the start, or the error of reading it. */
  edited: Partial<ServerConfig> | ConfigError = {};

  private read(instead: { name: string; text: string } | undefined): LoadedConfig<ServerConfig> {
    if (this.edited instanceof ConfigError) throw this.edited;
    if (instead !== undefined) return loadServerConfig({ file: instead.name, text: instead.text, env: {} });
    const config = Object.assign(new ServerConfig(), this.config, this.edited);
    return { config, warnings: [], origins: new Map() };
  }

  /** Ends the server, agents stay. */
  async stop(): Promise<void> {
    await this.running?.close(0);
    this.running = undefined;
  }

  get agentPort(): number {
    return Number(this.server.addresses.agent?.split(':').at(-1));
  }

  async join(nodeId: string, options: Partial<FakeAgentOptions> = {}): Promise<FakeAgent> {
    const agent = await FakeAgent.join({ port: this.agentPort, nodeId, ...options });
    this.agents.push(agent);
    return agent;
  }

  /** A call of the admin API, also one that `fetch` would not send. */
  async admin(path: string, call: AdminCall = {}): Promise<AdminAnswer> {
    const [host = '', port = ''] = this.server.addresses.admin.split(':');
    const body = call.rawBody ?? (call.body === undefined ? undefined : JSON.stringify(call.body));
    return new Promise((resolve, reject) => {
      const outgoing = request(
        {
          host,
          port,
          path: path.startsWith('/') ? path : `/admin/v1/${path}`,
          method: call.method ?? 'GET',
          headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...call.headers },
        },
        (response) => {
          let text = '';
          response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
          response.on('end', () => {
            const isJson = String(response.headers['content-type']).includes('json');
            resolve({
              status: response.statusCode ?? 0,
              headers: response.headers,
              text,
              json: isJson && text !== '' ? (JSON.parse(text) as unknown) : undefined,
            });
          });
        },
      );
      outgoing.on('error', reject);
      outgoing.end(body);
    });
  }

  async dispose(): Promise<void> {
    for (const agent of this.agents) agent.leave();
    await this.stop();
    for (const dir of this.dirs) rmSync(dir, { recursive: true, force: true });
  }
}
