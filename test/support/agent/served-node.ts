/** A real server with one real agent, as a user starts them: what specs of engines and of the agent ask again and again. */
import type { ListView } from '../../../src/admin-api/views/answers.js';
import type { NodeDetailView } from '../../../src/admin-api/views/nodes.js';
import type {
  EndpointView,
  ReplicaDetailView,
  ReplicaSummaryView,
} from '../../../src/admin-api/views/replicas.js';
import { adminGet, LlmgwProcess, Scratch, startServerProcess, type ServerUrls } from '../llmgw-process.js';
import { waitFor } from '../wait-for.js';

export interface ServedNodeOptions {
  /** The server's file. */
  readonly server: string;
  /** The agent's file. */
  readonly agent: string;
  /** Environment of the agent. */
  readonly env?: Readonly<Record<string, string>>;
  /** Removed at the end, unless it is the caller's own. */
  readonly scratch?: Scratch;
}

const NODE = 'n1';

export class ServedNode {
  agent!: LlmgwProcess;

  private constructor(
    private readonly options: ServedNodeOptions,
    readonly scratch: Scratch,
    readonly server: LlmgwProcess,
    readonly urls: ServerUrls,
  ) {}

  /** Settles when the agent is connected, whatever becomes of its engines. */
  static async start(options: ServedNodeOptions): Promise<ServedNode> {
    const scratch = options.scratch ?? new Scratch();
    const config = scratch.file('server.yaml', options.server);
    const { process, urls } = await startServerProcess(scratch, ['--config', config]);
    const node = new ServedNode(options, scratch, process, urls);
    await node.startAgent();
    return node;
  }

  /** Starts the agent, or its successor. */
  async startAgent(): Promise<void> {
    this.agent = new LlmgwProcess(
      [
        ...['agent', '--server', this.urls.agent, '--node-id', NODE, '--state-dir', this.stateDir],
        ...['--config', this.scratch.file('agent.yaml', this.options.agent)],
      ],
      { LLMGW_ON_EXIT: 'stop', ...this.options.env },
      this.scratch.dir,
    );
    await this.agent.logged('connected to the server', 60_000);
  }

  /** SIGKILL to the agent alone; its engines serve on. */
  async killAgent(): Promise<void> {
    this.agent.signal('SIGKILL');
    await this.agent.ended();
  }

  get stateDir(): string {
    return this.scratch.path('agent');
  }

  async dispose(): Promise<void> {
    // The agent first: it ends its engines.
    await this.agent.dispose();
    await this.server.dispose();
    if (this.options.scratch === undefined) this.scratch.remove();
  }

  // ---------------------------------------------------------------- what is seen

  node(): Promise<NodeDetailView> {
    return adminGet<NodeDetailView>(this.urls, `nodes/${NODE}`);
  }

  async replicas(): Promise<readonly ReplicaSummaryView[]> {
    return (await adminGet<ListView<ReplicaSummaryView>>(this.urls, 'replicas')).items;
  }

  /** The replica that the router sends to. */
  async published(): Promise<ReplicaSummaryView | undefined> {
    return (await this.replicas()).find((replica) => replica.published);
  }

  untilPublished(deadlineMs = 60_000): Promise<ReplicaSummaryView> {
    return waitFor(() => this.published(), { deadlineMs, what: 'a Ready replica' });
  }

  /** The only replica there is, with its shards. */
  async replica(): Promise<ReplicaDetailView> {
    const [only, ...others] = await this.replicas();
    if (only === undefined || others.length > 0) throw new Error(`${others.length + 1} replicas`);
    return adminGet<ReplicaDetailView>(this.urls, `replicas/${only.id}`);
  }

  /** Leader of the engine of the published replica. */
  async leaderPid(): Promise<number> {
    const replica = await this.published();
    const { shards } = await adminGet<ReplicaDetailView>(this.urls, `replicas/${replica?.id}`);
    const pid = shards[0]?.pid;
    if (pid === undefined) throw new Error('no pid reported');
    return pid;
  }

  /** Nothing is in flight as far as the router knows. */
  async isIdle(): Promise<boolean> {
    const { items } = await adminGet<ListView<EndpointView>>(this.urls, 'endpoints');
    return items.every(({ inflight }) => inflight === 0);
  }

  // ---------------------------------------------------------------- what users do

  chat(model: string, body: Record<string, unknown> = {}, signal?: AbortSignal): Promise<Response> {
    return fetch(`${this.urls.client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages: [{ role: 'user', content: 'hello' }], ...body }),
      ...(signal === undefined ? {} : { signal }),
    });
  }

  async scale(model: string, replicas: number): Promise<void> {
    const response = await fetch(`${this.urls.admin}/admin/v1/models/${model}/scale`, {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ replicas }),
    });
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  }
}
