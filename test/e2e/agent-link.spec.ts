import { Agent } from 'node:http';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { NodeSummaryView } from '../../src/admin-api/views/nodes.js';
import type { ReplicaDetailView, ReplicaSummaryView } from '../../src/admin-api/views/replicas.js';
import { TcpProxy } from '../support/agent/tcp-proxy.js';
import {
  adminGet,
  LlmgwProcess,
  Scratch,
  startServerProcess,
  type ServerUrls,
} from '../support/llmgw-process.js';
import { chat } from '../support/streamed-chat.js';
import { waitFor } from '../support/wait-for.js';

const CONFIG = `
control: { interval: 200ms, settleAfterStart: 5s, unreachableAfter: 5s, lostAfter: 120s }
models:
  - name: m1
    profiles:
      - name: sim
        engine: sim
        gpus: 1
        args: ["--ttft-ms", "10", "--tpot-ms", "20", "--slots", "64"]
`;
const AGENT = 'gpus: { driver: static, static: [{ uuid: GPU-0, type: sim-80g, memory: 80GiB }] }\n';
/** Three heartbeats of silence, the time a node may be away, and what a busy machine needs to act on it. */
const NOTICED_MS = 30_000;

/** The line between a real server and a real agent, broken in every way a line breaks. */
describe('a server and an agent', () => {
  const scratch = new Scratch();
  const sockets = new Agent({ keepAlive: true });
  let server: LlmgwProcess;
  let agent: LlmgwProcess;
  let proxy: TcpProxy;
  let urls: ServerUrls;
  let before: { readonly id: string; readonly generation: number; readonly pid: number };

  const nodeState = async (): Promise<string | undefined> =>
    (await adminGet<ListView<NodeSummaryView>>(urls, 'nodes')).items[0]?.state;
  // After several breaks within minutes the node is rightly called flapping: it is there, and takes nothing new.
  const isBack = async (): Promise<boolean> => /^(?:connected|flapping)$/.test((await nodeState()) ?? '');
  const connected = (): Promise<unknown> =>
    waitFor(isBack, {
      deadlineMs: 60_000,
      what: 'the agent to be back',
    });
  async function served(): Promise<typeof before | undefined> {
    const replica = (await adminGet<ListView<ReplicaSummaryView>>(urls, 'replicas')).items.find(
      ({ published }) => published,
    );
    if (replica === undefined) return undefined;
    const { shards } = await adminGet<ReplicaDetailView>(urls, `replicas/${replica.id}`);
    const pid = shards[0]?.pid;
    return pid === undefined ? undefined : { id: replica.id, generation: replica.generation, pid };
  }
  /** The engine is the one of before. A report that has just begun to be believed may lack its pid; another never comes back. */
  const untouched = (): Promise<unknown> =>
    waitFor(
      async () => {
        const now = await served();
        if (now?.id === before.id && now.generation === before.generation && now.pid === before.pid)
          return true;
        throw new Error(`served is ${JSON.stringify(now)}, was ${JSON.stringify(before)}`);
      },
      { deadlineMs: 30_000, what: 'the replica as it was' },
    );
  /** The agent said that its stream is over, by its own silence limit or by gRPC's. */
  const told = (from: number): boolean =>
    agent.log.slice(from).some(({ msg }) => msg?.startsWith('no link to the server') === true);

  function startAgent(): void {
    agent = new LlmgwProcess(
      [
        ...['agent', '--server', `127.0.0.1:${proxy.port}`, '--node-id', 'n1'],
        ...['--state-dir', scratch.path('agent'), '--config', scratch.file('agent.yaml', AGENT)],
      ],
      {},
      scratch.dir,
    );
  }

  /** Clients that ask one after the other while something happens; gives what was not answered whole. */
  async function underLoad(happens: () => Promise<void>): Promise<string[]> {
    const outcomes: string[] = [];
    let stop = false;
    const clients = Array.from({ length: 4 }, async () => {
      while (!stop) outcomes.push(await chat(urls.client, sockets, 5));
    });
    const more = async (): Promise<void> => {
      const enough = outcomes.length + 8;
      await waitFor(() => outcomes.length >= enough, { deadlineMs: 30_000, what: 'load to run' });
    };
    try {
      await more();
      await happens();
      await more();
    } finally {
      stop = true;
      await Promise.all(clients);
    }
    return outcomes.filter((outcome) => outcome !== 'whole');
  }

  beforeAll(async () => {
    const started = await startServerProcess(scratch, ['--config', scratch.file('server.yaml', CONFIG)]);
    server = started.process;
    urls = started.urls;
    proxy = await TcpProxy.listen(Number(urls.agent.split(':').at(-1)));
    startAgent();
    before = await waitFor(served, { deadlineMs: 60_000, what: 'the replica' });
  });

  afterAll(async () => {
    sockets.destroy();
    server?.signal('SIGCONT');
    agent?.signal('SIGCONT');
    await agent?.dispose();
    // An agent that is told to stop leaves its engines serving.
    if (before !== undefined) process.kill(-before.pid, 'SIGKILL');
    await server?.dispose();
    proxy?.close();
    scratch.remove();
  });

  afterEach(() => {
    proxy.wake();
    for (const process of [server, agent]) process.signal('SIGCONT');
  });

  it('both notice that the line swallows everything, and go on on a new one; traffic never stops', async () => {
    const lines = agent.log.length;
    const connections = proxy.connections;
    const lost = await underLoad(async () => {
      proxy.fallSilent();
      await waitFor(async () => !(await isBack()) && told(lines), {
        deadlineMs: NOTICED_MS,
        what: 'both ends to notice',
      });
      // The bytes of its answers prove the engine alive.
      await untouched();
      proxy.wake();
      await connected();
    });
    expect(lost).toEqual([]);
    expect(proxy.connections).toBeGreaterThan(connections);
    await untouched();
  });

  it('the server notices an agent that stands still, and its engine serves on', async () => {
    const lost = await underLoad(async () => {
      agent.signal('SIGSTOP');
      await waitFor(async () => !(await isBack()), {
        deadlineMs: NOTICED_MS,
        what: 'the server to notice',
      });
      await untouched();
      agent.signal('SIGCONT');
      await connected();
    });
    expect(lost).toEqual([]);
    await untouched();
  });

  it('the agent notices a server that stands still, which then blames nobody for its own sleep', async () => {
    const lines = agent.log.length;
    server.signal('SIGSTOP');
    await waitFor(() => told(lines), {
      deadlineMs: NOTICED_MS,
      what: 'the agent to notice',
    });
    process.kill(before.pid, 0);
    server.signal('SIGCONT');
    await connected();
    expect(await underLoad(() => Promise.resolve())).toEqual([]);
    await untouched();
  });

  it('an agent is replaced under load: its successor takes the engine over and no request fails', async () => {
    const lost = await underLoad(async () => {
      for (let round = 0; round < 2; round++) {
        agent.signal('SIGKILL');
        await agent.ended();
        startAgent();
        await agent.logged('connected to the server');
        await connected();
      }
    });
    expect(lost).toEqual([]);
    await untouched();
  });

  it('an engine serves on without server and agent, and is taken back when both return', async () => {
    const { address } =
      (await adminGet<ListView<ReplicaSummaryView>>(urls, 'replicas')).items[0] ?? expect.fail('no replica');
    agent.signal('SIGKILL');
    server.signal('SIGKILL');
    await Promise.all([agent.ended(), server.ended()]);
    expect(await chat(`http://${address}`, sockets, 5)).toBe('whole');
    const again = await startServerProcess(scratch, [
      ...['--config', scratch.path('server.yaml'), '--agent-listen', urls.agent],
    ]);
    server = again.process;
    urls = again.urls;
    startAgent();
    await untouched();
    await connected();
    expect(await chat(urls.client, sockets, 5)).toBe('whole');
  });
});
