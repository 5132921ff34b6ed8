import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { ModelSummaryView } from '../../src/admin-api/views/models.js';
import type { NodeSummaryView } from '../../src/admin-api/views/nodes.js';
import type {
  EndpointView,
  ReplicaDetailView,
  ReplicaSummaryView,
} from '../../src/admin-api/views/replicas.js';
import {
  adminGet,
  LlmgwProcess,
  Scratch,
  startServerProcess,
  type ServerUrls,
} from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

const CONFIG = `
control: { interval: 200ms, baseBackoff: 1s, settleAfterStart: 5s }
models:
  - name: m1
    replicas: 2
    placement: { strategy: spread, antiAffinity: true }
    profiles:
      - name: sim
        engine: sim
        gpus: 1
        args: ["--ttft-ms", "20", "--tpot-ms", "5"]
`;

const agentConfig = (n: number): string => `
gpus:
  driver: static
  static: [{ uuid: GPU-${n}-0, type: sim-80g, memory: 80GiB }]
`;

/** What became of one request of the load. */
interface Outcome {
  readonly status: number | 'failed';
  readonly firstByte: boolean;
  readonly complete: boolean;
  readonly detail?: string;
}

/** One client that streams chats one after another until told to stop. */
async function streamClient(url: string, stop: () => boolean, outcomes: Outcome[]): Promise<void> {
  while (!stop()) {
    let firstByte = false;
    let text = '';
    try {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          model: 'm1',
          stream: true,
          max_tokens: 30,
          messages: [{ role: 'user', content: `question ${outcomes.length}` }],
        }),
      });
      for await (const chunk of response.body ?? []) {
        firstByte = true;
        text += Buffer.from(chunk).toString('utf8');
      }
      outcomes.push({
        status: response.status,
        firstByte,
        complete: text.includes('data: [DONE]'),
        detail: text.slice(-300),
      });
    } catch (error) {
      outcomes.push({ status: 'failed', firstByte, complete: false, detail: String(error) });
    }
  }
}

describe('a server with two agents', () => {
  const scratch = new Scratch();
  const processes: LlmgwProcess[] = [];
  let urls: ServerUrls;

  const items = async <T>(path: string): Promise<readonly T[]> =>
    (await adminGet<ListView<T>>(urls, path)).items;
  const published = async (): Promise<readonly ReplicaSummaryView[]> =>
    (await items<ReplicaSummaryView>('replicas')).filter((replica) => replica.published);

  beforeAll(async () => {
    const server = await startServerProcess(scratch, ['--config', scratch.file('server.yaml', CONFIG)]);
    processes.push(server.process);
    urls = server.urls;
    for (const n of [1, 2]) {
      processes.push(
        new LlmgwProcess(
          [
            ...['agent', '--server', urls.agent, '--node-id', `n${n}`],
            ...['--config', scratch.file(`agent-${n}.yaml`, agentConfig(n))],
            ...['--state-dir', scratch.path(`agent-${n}`)],
          ],
          { LLMGW_ON_EXIT: 'stop' },
          scratch.dir,
        ),
      );
    }
    await waitFor(async () => (await published()).length === 2, {
      deadlineMs: 60_000,
      what: 'two Ready replicas',
    });
  });

  afterAll(async () => {
    // Agents first: they end their engines; a server that goes first would leave them to serve on.
    for (const process of processes.toReversed()) await process.dispose();
    scratch.remove();
  });

  it('places one replica on each node and tells so', async () => {
    const nodes = await items<NodeSummaryView>('nodes');
    expect(nodes.map((node) => [node.id, node.state, node.replicas.length])).toEqual([
      ['n1', 'connected', 1],
      ['n2', 'connected', 1],
    ]);
    // Who serves was known from what was published; what a model and an endpoint say of it comes with the next look at them.
    const model = await waitFor(
      async () => (await items<ModelSummaryView>('models')).find(({ ready }) => ready === 2),
      { deadlineMs: 30_000, what: 'both to be counted as ready' },
    );
    expect(model).toMatchObject({ name: 'm1', desired: 2, ready: 2, outlook: 'ready' });
    await waitFor(
      async () => (await items<EndpointView>('endpoints')).map(({ state }) => state).join() === 'up,up',
      { deadlineMs: 30_000, what: 'both endpoints up' },
    );
  });

  it('loses no request without a first byte when an engine is killed under load', async () => {
    const outcomes: Outcome[] = [];
    let stopped = false;
    const clients = Array.from({ length: 8 }, () => streamClient(urls.client, () => stopped, outcomes));
    await waitFor(() => outcomes.length >= 24, { deadlineMs: 30_000, what: 'load to run' });

    const [victim] = await published();
    if (victim === undefined) throw new Error('nothing published');
    const pid = await waitFor(
      async () => (await adminGet<ReplicaDetailView>(urls, `replicas/${victim.id}`)).shards[0]?.pid,
      { deadlineMs: 20_000, what: 'the pid of its engine' },
    );
    process.kill(pid, 'SIGKILL');

    await waitFor(
      async () =>
        !(await published()).some(
          (replica) => replica.id === victim.id && replica.generation === victim.generation,
        ),
      {
        // By the word of its agent: looks at an engine, and a node's silence, take ten seconds and more to decide.
        deadlineMs: 8_000,
        what: 'the killed replica to leave the router',
      },
    );
    await waitFor(async () => (await published()).length === 2, {
      deadlineMs: 30_000,
      what: 'the replica to come back',
    });
    const after = outcomes.length;
    await waitFor(() => outcomes.length >= after + 24, { deadlineMs: 30_000, what: 'load after the return' });
    stopped = true;
    await Promise.all(clients);

    expect(outcomes.filter((outcome) => !outcome.firstByte)).toEqual([]);
    expect(outcomes.filter((outcome) => outcome.status !== 200)).toEqual([]);
    // Streams that were in the middle of the killed engine's answer end with an error event, never as if whole.
    const cut = outcomes.filter((outcome) => !outcome.complete);
    for (const outcome of cut) expect(outcome.detail).toContain('upstream_aborted');
    await waitFor(
      async () => (await items<EndpointView>('endpoints')).every((endpoint) => endpoint.inflight === 0),
      { deadlineMs: 20_000, what: 'in-flight 0 at rest' },
    );
  });

  it('keeps engines serving while the server is away and takes them over again', async () => {
    const before = await published();
    const [server] = processes;
    if (server === undefined) throw new Error('no server');
    server.signal('SIGKILL');
    await server.ended();
    const again = await startServerProcess(scratch, [
      ...['--config', scratch.path('server.yaml'), '--agent-listen', urls.agent],
    ]);
    processes[0] = again.process;
    urls = again.urls;
    const after = await waitFor(
      async () => {
        const now = await published();
        return now.length === 2 && now;
      },
      { deadlineMs: 60_000, what: 'both replicas adopted' },
    );
    const identity = (replica: ReplicaSummaryView): string => `${replica.id}@${replica.generation}`;
    expect(after.map(identity).toSorted()).toEqual(before.map(identity).toSorted());
  });
});
