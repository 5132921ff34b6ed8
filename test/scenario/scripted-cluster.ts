import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CtlCommandBase } from '../../src/cli/ctl/ctl-base.js';
import { EndpointConfig, ModelConfig, type ServerConfig } from '../../src/config/server-config.js';
import type { GpuReport, ShardReport } from '../../src/domain/cluster.js';
import { ReconcilerService } from '../../src/reconciler/reconciler.service.js';
import { buildVersion } from '../../src/shared/build-info.js';
import { systemClock } from '../../src/shared/clock.js';
import { seededRandom } from '../../src/shared/random.js';
import { ControlServer } from '../support/control-server.js';
import { testGpu, type FakeAgent } from '../support/fake-agent.js';
import { runLlmgw, type Ran } from '../support/run-ctl.js';
import { SetClock } from '../support/set-clock.js';
import { waitFor } from '../support/wait-for.js';

export const GIB = 1024 ** 3;

const START_WALL_MS = Date.parse('2026-03-01T12:00:00Z');

/** An engine somebody else runs. */
export interface ScriptedEndpoint {
  readonly id: string;
  readonly models: string[];
  readonly firstTokenMs: number;
  readonly weight?: number;
}

export interface ScriptedNode {
  readonly id: string;
  readonly gpus?: readonly GpuReport[];
  readonly labels?: Readonly<Record<string, string>>;
}

/** An H100 of the given name. */
export const h100 = (uuid: string, change: Partial<GpuReport> = {}): GpuReport =>
  testGpu(uuid, { type: 'H100 80GB HBM3', vendor: 'nvidia', ...change });

/**
 * A real server with scripted agents, at a time and with ids that are the same in every run. Machines do only what the script
 * says: their engines load until {@link ready} is called.
 */
export class ScriptedCluster {
  readonly agents = new Map<string, FakeAgent>();
  /** By address. */
  private readonly engines = new Map<string, Server>();
  /** A network of loopback addresses of our own: ports are the server's choice, and tests beside this one have theirs. */
  private readonly network = `127.9.${100 + (process.pid % 150)}`;
  private readonly dir = mkdtempSync(join(tmpdir(), 'llmgw-scenario-'));
  /** What differs from run to run in what is printed, and what stands in its place. */
  private readonly masks: [RegExp, string | ((found: string) => string)][] = [
    [/\bpid \d+/g, 'pid 4711'],
    [/"pid": \d+/g, '"pid": 4711'],
    [new RegExp(`\\b${buildVersion().replaceAll('.', '\\.')}\\b`, 'g'), '0.1.0'],
    // Passes are counted, and how many there were depends on the machine.
    [/^(Last plan: +)#\d+/gm, '$1#12'],
    [/("plan": \{\s+"number": )\d+/g, '$112'],
    [/\b(lgw_|sk-)[A-Za-z0-9_-]{20,}/g, '$1secret'],
    // As long as they were: tables are laid out by it.
    [/\b(key|tok)-[0-9a-f]{6,}\b/g, (id) => id.slice(0, 4) + '0123456789abcdef'.slice(0, id.length - 4)],
    [/from 127\.0\.0\.1:\d+/g, 'from 127.0.0.1:50000'],
  ];

  private constructor(
    readonly server: ControlServer,
    readonly clock: SetClock,
  ) {}

  static async start(
    change: Partial<ServerConfig>,
    nodes: readonly ScriptedNode[] = [],
    startWallMs = START_WALL_MS,
  ) {
    const clock = new SetClock(startWallMs);
    const { models = [] } = change;
    // Wanted only once every machine is there: which one comes first would decide who gets what.
    const unwanted = models.map((model) => Object.assign(new ModelConfig(), model, { replicas: 0 }));
    const server = await ControlServer.start(
      { ...change, models: unwanted },
      {},
      { clock, decisionRandom: seededRandom(7) },
    );
    server.edited = { models };
    const cluster = new ScriptedCluster(server, clock);
    cluster.begin();
    for (const node of nodes) await cluster.join(node);
    return cluster;
  }

  /** A server that only routes, to engines that answer after a while. */
  static async routing(wanted: readonly ScriptedEndpoint[]): Promise<ScriptedCluster> {
    const clock = new SetClock(START_WALL_MS);
    const engines = await Promise.all(
      wanted.map(({ id, firstTokenMs }) => chatEngine(id, firstTokenMs, clock)),
    );
    const endpoints = wanted.map(({ id, models, weight = 1 }, at) =>
      Object.assign(new EndpointConfig(), { id, models, weight, url: `http://${engines[at]!.address}` }),
    );
    const server = await ControlServer.start({ endpoints }, {}, { clock, random: seededRandom(7) });
    const cluster = new ScriptedCluster(server, clock);
    for (const { address, server: engine } of engines) cluster.engines.set(address, engine);
    engines.forEach(({ address }, at) => cluster.mask(address, `127.0.0.1:3800${at + 1}`));
    cluster.begin();
    return cluster;
  }

  private begin(): void {
    CtlCommandBase.clock = this.clock;
    const { admin, client, agent } = this.server.server.addresses;
    this.mask(admin, '127.0.0.1:8081');
    this.mask(client, '127.0.0.1:8080');
    if (agent !== undefined) this.mask(agent, '127.0.0.1:8082');
    this.mask(this.dir, '/etc/llmgw');
    this.mask(`${this.network}.`, '10.0.200.1');
  }

  /** Sends a chat to the client listener. */
  async ask(requestId: string, model: string): Promise<void> {
    const response = await fetch(`http://${this.server.server.addresses.client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': requestId },
      body: JSON.stringify({ model, messages: [{ role: 'user', content: 'What does a gateway do?' }] }),
    });
    await response.text();
  }

  /** Writes a file for a command to read; gives its path. */
  file(name: string, text: string): string {
    const path = join(this.dir, name);
    writeFileSync(path, text);
    return path;
  }

  async join({ id, gpus = [], labels = {} }: ScriptedNode): Promise<FakeAgent> {
    const agent = await this.server.join(id, {
      gpus,
      onStart: ['loading'],
      hello: { labels, build: '0.1.0', address: `${this.network}.${this.agents.size + 1}` },
    });
    this.agents.set(id, agent);
    await this.until(
      `${id} connected`,
      async () => (await this.get(`nodes/${id}`)).lastReportAt !== undefined,
    );
    return agent;
  }

  /**
   * Waits until a pass of the reconciler has looked at how things are now and had nothing to do. Without it a pass could see
   * the next change at one time or the other.
   */
  async quiet(): Promise<void> {
    const reconciler = this.reconciler;
    if (reconciler === undefined) return;
    await this.runEngines();
    const { number } = reconciler.lastPass()?.plan ?? { number: 0 };
    await this.until('a pass without actions', async () => {
      const plan = reconciler.lastPass()?.plan;
      return plan !== undefined && plan.number > number + 1 && plan.actions.length === 0;
    });
  }

  /** Behind every address that the router may look at is somebody who answers. */
  private async runEngines(): Promise<void> {
    for (const agent of this.agents.values()) {
      for (const { rank, ports } of agent.shards.values()) {
        const address = `${agent.hello.address}:${ports.http}`;
        if (rank !== 0 || this.engines.has(address)) continue;
        const engine = createServer((request, response) => {
          request.resume();
          response.setHeader('content-type', 'application/json');
          response.end('{}');
        });
        this.engines.set(address, engine);
        await new Promise<void>((resolve) => engine.listen(ports.http, agent.hello.address, resolve));
      }
    }
  }

  private get reconciler(): ReconcilerService | undefined {
    const { app, addresses } = this.server.server;
    // A server that only routes has none.
    return addresses.agent === undefined ? undefined : app.get(ReconcilerService, { strict: false });
  }

  /** Lets time pass; everybody who is there reports at its end. */
  async pass(ms: number): Promise<void> {
    await this.quiet();
    this.clock.advance(ms);
    const now = new Date(this.clock.wallMs()).toISOString();
    const present = [...this.agents].filter(([, agent]) => agent.status === undefined);
    for (const [, agent] of present) agent.report();
    for (const [id] of present)
      await this.until(`${id} reported`, async () => (await this.get(`nodes/${id}`)).lastReportAt === now);
    await this.quiet();
  }

  /** Has the models wanted; the engines that find a place begin to load. */
  async want(): Promise<void> {
    await this.pass(4_000);
    await this.server.admin('config/reload', { method: 'POST', body: {} });
    await this.pass(4_000);
  }

  /** The same, where every replica finds a place. */
  async place(): Promise<void> {
    await this.want();
    await this.until('every replica placed', async () => {
      const { items } = (await this.get('replicas')) as { items: { nodes: string[]; state: string }[] };
      return items.length > 0 && items.every(({ nodes, state }) => nodes.length > 0 && state === 'loading');
    });
  }

  /** Every shard that loads is Ready, one after another, each a while after the one before. */
  async ready(model?: string): Promise<void> {
    for (const shard of this.shards(model).filter(({ phase }) => phase === 'loading')) {
      await this.pass(4_000);
      await this.set(shard.shardId, { phase: 'ready', loadMs: 4_000, memoryPeakBytes: 38 * GIB });
      await this.until(`${shard.shardId} ready`, async () => {
        const replica = await this.get(`replicas/${shard.replicaId}`);
        return replica.shards.some(
          (one: { id: string; phase: string }) => one.id === shard.shardId && one.phase === 'ready',
        );
      });
      await this.quiet();
    }
  }

  shards(model?: string): readonly ShardReport[] {
    return [...this.agents.values()]
      .flatMap((agent) => [...agent.shards.values()])
      .filter((shard) => model === undefined || shard.model === model);
  }

  /** Changes what is said of a shard by whoever has it. */
  async set(shardId: string, change: Partial<ShardReport>): Promise<void> {
    // One that ended elsewhere is still told of by whoever had it.
    const agent = [...this.agents.values()].find(({ shards }) => {
      const shard = shards.get(shardId);
      return shard !== undefined && shard.phase !== 'exited';
    });
    agent?.setShard(shardId, change);
  }

  // oxlint-disable-next-line typescript/no-explicit-any -- scripts read what they know is there
  async get(path: string): Promise<any> {
    return (await this.server.admin(path)).json;
  }

  until(what: string, condition: () => Promise<boolean>): Promise<unknown> {
    return waitFor(async () => ((await condition()) ? true : undefined), { what, deadlineMs: 10_000 });
  }

  /** Runs `llmgw ctl <words>` against the server, with what differs from run to run masked. */
  async ctl(...words: string[]): Promise<Ran> {
    const ran = await runLlmgw('ctl', '--server', this.server.server.addresses.admin, ...words);
    return { code: ran.code, out: this.masked(ran.out), err: this.masked(ran.err) };
  }

  mask(text: string, instead: string): void {
    this.masks.push([new RegExp(text.replaceAll('.', '\\.'), 'g'), instead]);
  }

  /** The text without what differs from run to run. */
  masked(text: string): string {
    return this.masks.reduce(
      (all, [pattern, instead]) =>
        typeof instead === 'string' ? all.replace(pattern, instead) : all.replace(pattern, instead),
      text,
    );
  }

  async dispose(): Promise<void> {
    CtlCommandBase.clock = systemClock;
    for (const engine of this.engines.values()) engine.close();
    await this.server.dispose();
    rmSync(this.dir, { recursive: true });
  }
}

/** An engine that answers every chat with one word, and lets time pass as if it had worked for it. */
async function chatEngine(
  id: string,
  firstTokenMs: number,
  clock: SetClock,
): Promise<{ server: Server; address: string }> {
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      response.setHeader('content-type', 'application/json');
      if (request.method !== 'POST') return response.end('{}');
      clock.advance(firstTokenMs);
      const message = { role: 'assistant', content: 'hello' };
      return response.end(
        JSON.stringify({
          id,
          object: 'chat.completion',
          choices: [{ index: 0, message, finish_reason: 'stop' }],
          usage: { prompt_tokens: 12, completion_tokens: 1, total_tokens: 13 },
        }),
      );
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, address: `127.0.0.1:${(server.address() as AddressInfo).port}` };
}
