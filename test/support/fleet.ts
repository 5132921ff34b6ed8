/** A server and its agents as real processes, with a TCP proxy before each agent's link, and clients that count what they got. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { NodeDetailView, SchedulingResultView } from '../../src/admin-api/views/nodes.js';
import type { ReplicaSummaryView } from '../../src/admin-api/views/replicas.js';
import type { EventView } from '../../src/admin-api/views/status.js';
import { TcpProxy } from './agent/tcp-proxy.js';
import { adminGet, LlmgwProcess, Scratch, startServerProcess, type ServerUrls } from './llmgw-process.js';
import { GivenUp, waitFor } from './wait-for.js';

/** One agent's devices and labels. */
export interface FleetNode {
  readonly gpus?: number;
  /** More of the agent's own file, e.g. its engines. */
  readonly file?: string;
}

export interface FleetOptions {
  /** Text of the server's file, or, a function that writes it and says where it lies. */
  readonly config: string | { readonly at: (scratch: Scratch) => string };
  /** By node id; started in this order, each once the former one is connected. */
  readonly nodes: Readonly<Record<string, FleetNode>>;
}

export interface CtlResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Fleet {
  readonly scratch = new Scratch();
  /** The server's configuration. */
  readonly configFile: string;
  private readonly agents = new Map<string, LlmgwProcess>();
  private readonly proxies = new Map<string, TcpProxy>();
  server!: LlmgwProcess;
  urls!: ServerUrls;
  /** Where agents dial: the same after a restart of the server. */
  private agentListen = '';
  private readonly added: Record<string, FleetNode> = {};

  private constructor({ config }: FleetOptions) {
    this.configFile =
      typeof config === 'string' ? this.scratch.file('server.yaml', config) : config.at(this.scratch);
  }

  static async start(options: FleetOptions): Promise<Fleet> {
    const fleet = new Fleet(options);
    try {
      await fleet.startServer();
      for (const [id, node] of Object.entries(options.nodes)) await fleet.addNode(id, node);
    } catch (error) {
      await fleet.dispose();
      throw error;
    }
    return fleet;
  }

  private async startServer(): Promise<void> {
    const started = await startServerProcess(this.scratch, [
      ...['--config', this.configFile],
      ...(this.agentListen === '' ? [] : ['--agent-listen', this.agentListen]),
      ...(this.agentListen === '' ? [] : ['--listen', this.urls.client.replace('http://', '')]),
      ...(this.agentListen === '' ? [] : ['--admin-listen', this.urls.admin.replace('http://', '')]),
    ]);
    this.server = started.process;
    this.urls = started.urls;
    this.agentListen = started.urls.agent;
  }

  /** SIGKILL, and a new server on the same state and addresses. */
  async crashServer(whileDown: () => Promise<void> = () => Promise.resolve()): Promise<void> {
    this.server.signal('SIGKILL');
    await this.server.ended();
    await whileDown();
    await this.startServer();
  }

  /** One more machine, up and connected. */
  async addNode(id: string, node: FleetNode): Promise<void> {
    this.added[id] = node;
    await this.startAgent(id);
  }

  private async startAgent(id: string): Promise<void> {
    const proxy = await TcpProxy.listen(Number(this.agentListen.split(':').at(-1)));
    this.proxies.set(id, proxy);
    const { gpus: count = 1, file: more = '' } = this.added[id] ?? {};
    const gpus = Array.from(
      { length: count },
      (_, n) => `    - { uuid: GPU-${id}-${n}, type: sim-80g, memory: 80GiB }`,
    );
    const file = `gpus:\n  driver: static\n  static:\n${gpus.join('\n')}\n${more}`;
    this.agents.set(
      id,
      new LlmgwProcess(
        [
          ...['agent', '--server', `127.0.0.1:${proxy.port}`, '--node-id', id],
          ...['--config', this.scratch.file(`${id}.yaml`, file)],
          ...['--state-dir', this.scratch.path(id)],
        ],
        { LLMGW_ON_EXIT: 'stop' },
        this.scratch.dir,
      ),
    );
    await waitFor(async () => (await this.node(id)).state === 'connected', {
      deadlineMs: 30_000,
      what: `${id} connected`,
    });
  }

  /** The link between this agent and the server, both ways. */
  link(id: string): TcpProxy {
    const proxy = this.proxies.get(id);
    if (proxy === undefined) throw new Error(`no agent ${id}`);
    return proxy;
  }

  /** Directory of this agent's state: its engines are known by it. */
  stateDir(id: string): string {
    return this.scratch.path(id);
  }

  agent(id: string): LlmgwProcess {
    const agent = this.agents.get(id);
    if (agent === undefined) throw new Error(`no agent ${id}`);
    return agent;
  }

  async dispose(): Promise<void> {
    // Agents first: they end their engines; a server that goes first would leave them to serve on.
    await Promise.all([...this.agents.values()].map((agent) => agent.dispose()));
    await this.server.dispose();
    for (const proxy of this.proxies.values()) proxy.close();
    this.scratch.remove();
  }

  // ---------------------------------------------------------------- what is seen

  node(id: string): Promise<NodeDetailView> {
    return adminGet<NodeDetailView>(this.urls, `nodes/${id}`);
  }

  async replicas(): Promise<readonly ReplicaSummaryView[]> {
    return (await adminGet<ListView<ReplicaSummaryView>>(this.urls, 'replicas')).items;
  }

  async events(type: string): Promise<readonly EventView[]> {
    return (await adminGet<ListView<EventView>>(this.urls, `events?type=${type}`)).items;
  }

  /** Waits until exactly these nodes hold one published replica each, and there are no others. */
  settled(...nodes: readonly string[]): Promise<readonly ReplicaSummaryView[]> {
    return waitFor(
      async () => {
        const now = await this.replicas();
        const places = now.map((one) => one.nodes.join('+')).toSorted();
        const good = now.every((one) => one.published) && places.join() === nodes.toSorted().join();
        return good ? now : undefined;
      },
      { deadlineMs: 60_000, what: `Ready replicas on ${nodes.join(', ')} and no others` },
    );
  }

  /** Waits until each of these models has one Ready replica, and there are no others. */
  serves(...models: readonly string[]): Promise<unknown> {
    return waitFor(
      async () => {
        const now = await this.replicas();
        return (
          now.length === models.length && now.every((one) => one.published && models.includes(one.model))
        );
      },
      { deadlineMs: 60_000, what: `one Ready replica of each of ${models.join(', ')} and nothing else` },
    );
  }

  /** Copies of a model with their generations: equal ones were not restarted. */
  async identity(model: string): Promise<readonly string[]> {
    return (await this.replicas())
      .filter((one) => one.model === model)
      .map(({ id, generation }) => `${id}@${generation}`);
  }

  drained(id: string, deadlineMs = 90_000): Promise<unknown> {
    return waitFor(
      async () => {
        const { scheduling } = await this.node(id);
        // Never silently: while something is left it is said what it waits for.
        if (
          scheduling.state === 'draining' &&
          scheduling.waitingFor.some(({ reason }) => reason.message === '')
        )
          throw new GivenUp(`waits without a word: ${JSON.stringify(scheduling)}`);
        return scheduling.state === 'drained' ? true : undefined;
      },
      { deadlineMs, what: `${id} drained` },
    );
  }

  // ---------------------------------------------------------------- what operators do

  async schedule(
    id: string,
    body: Readonly<Record<string, unknown>>,
    query = '',
  ): Promise<SchedulingResultView> {
    const response = await fetch(`${this.urls.admin}/admin/v1/nodes/${id}/scheduling${query}`, {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    return (await response.json()) as SchedulingResultView;
  }

  ctl(...words: readonly string[]): Promise<CtlResult> {
    return new Promise((resolve) => {
      execFile(process.execPath, this.ctlArgs(words), { env: CTL_ENV }, (error, stdout, stderr) =>
        resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr }),
      );
    });
  }

  /** `ctl` that can be signalled. */
  ctlProcess(...words: readonly string[]): LlmgwProcess {
    return new LlmgwProcess(this.ctlArgs(words).slice(1));
  }

  private ctlArgs(words: readonly string[]): readonly string[] {
    return [
      join(import.meta.dirname, '../../dist/main.js'),
      ...['ctl', '--server', this.urls.admin, ...words],
    ];
  }
}

const CTL_ENV = { PATH: process.env['PATH'], NO_COLOR: '1' };

/** Streams of one model, and what became of each: `whole`, or status and the end of what came. */
export class Traffic {
  readonly long: Promise<string>[] = [];
  readonly short: Promise<string>[] = [];
  fewestReady = Infinity;
  /** The replicas as they were at the worst moment. */
  worst: readonly ReplicaSummaryView[] | undefined;
  private stopped = false;
  private readonly loop: Promise<void>;

  /** @param perSecond new short requests */
  constructor(
    private readonly fleet: Fleet,
    private readonly model: string,
    options: { readonly long: number; readonly longTokens: number; readonly perSecond: number },
  ) {
    for (let index = 0; index < options.long; index += 1) this.long.push(this.stream(options.longTokens));
    this.loop = this.run(1_000 / options.perSecond);
  }

  private async run(everyMs: number): Promise<void> {
    while (!this.stopped) {
      this.short.push(this.stream(3));
      // Nobody to ask while the server is away.
      const all = await this.fleet.replicas().catch(() => undefined);
      const ready = all?.filter((one) => one.model === this.model && one.published).length ?? Infinity;
      if (ready < this.fewestReady) this.worst = all;
      this.fewestReady = Math.min(this.fewestReady, ready);
      await new Promise((resolve) => setTimeout(resolve, everyMs));
    }
  }

  stream(tokens: number): Promise<string> {
    return streamed(this.fleet.urls.client, this.model, tokens);
  }

  /** Ends new requests and returns what became of all, each outcome once. */
  async end(): Promise<{ readonly long: ReadonlySet<string>; readonly short: ReadonlySet<string> }> {
    this.stopped = true;
    await this.loop;
    return { long: new Set(await Promise.all(this.long)), short: new Set(await Promise.all(this.short)) };
  }
}

/** One streamed chat read to its end; a failure is an outcome too. */
export async function streamed(url: string, model: string, tokens: number): Promise<string> {
  let text = '';
  try {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model,
        stream: true,
        max_tokens: tokens,
        ignore_eos: true,
        messages: [{ role: 'user', content: 'go on' }],
      }),
    });
    for await (const chunk of response.body ?? []) text += Buffer.from(chunk).toString('utf8');
    if (response.status === 200 && text.endsWith('data: [DONE]\n\n')) return 'whole';
    return `${response.status} ${text.slice(-300)}`;
  } catch (error) {
    return `broken: ${String(error)}; ${text.slice(-300)}`;
  }
}
