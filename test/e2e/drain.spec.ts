import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { NodeSummaryView, SchedulingResultView } from '../../src/admin-api/views/nodes.js';
import type { ReplicaDetailView, ReplicaSummaryView } from '../../src/admin-api/views/replicas.js';
import {
  adminGet,
  LlmgwProcess,
  Scratch,
  startServerProcess,
  type ServerUrls,
} from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

const CONFIG = `
control: { interval: 200ms, settleAfterStart: 5s }
models:
  - name: m1
    replicas: 1
    profiles:
      - name: sim
        engine: sim
        gpus: 1
        args: ["--ttft-ms", "20", "--tpot-ms", "100", "--startup-ms", "1000", "--slots", "256"]
`;

/** Output tokens of the long streams: at 100 ms each they outlast load, steadiness and unpublishing. */
const LONG_TOKENS = 250;

const agentConfig = (n: number): string => `
gpus:
  driver: static
  static: [{ uuid: GPU-${n}-0, type: sim-80g, memory: 80GiB }]
`;

/** One streamed chat read to its end. */
async function stream(url: string, maxTokens: number): Promise<string> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'm1',
      stream: true,
      max_tokens: maxTokens,
      ignore_eos: true,
      messages: [{ role: 'user', content: 'go on' }],
    }),
  });
  const text = await response.text();
  return response.status === 200 && text.endsWith('data: [DONE]\n\n')
    ? 'whole'
    : `${response.status} ${text.slice(-300)}`;
}

describe('draining a node that holds the only replica', () => {
  let scratch: Scratch;
  let server: LlmgwProcess;
  let agents: LlmgwProcess[];
  let urls: ServerUrls;

  const replicas = async (): Promise<readonly ReplicaSummaryView[]> =>
    (await adminGet<ListView<ReplicaSummaryView>>(urls, 'replicas')).items;
  const node = async (id: string): Promise<NodeSummaryView | undefined> =>
    (await adminGet<ListView<NodeSummaryView>>(urls, 'nodes')).items.find((item) => item.id === id);
  const schedule = async (
    id: string,
    body: Record<string, unknown>,
    query = '',
  ): Promise<SchedulingResultView> => {
    const response = await fetch(`${urls.admin}/admin/v1/nodes/${id}/scheduling${query}`, {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    return (await response.json()) as SchedulingResultView;
  };

  const startAgent = (n: number): LlmgwProcess =>
    new LlmgwProcess(
      [
        ...['agent', '--server', urls.agent, '--node-id', `n${n}`],
        ...['--config', scratch.file(`agent-${n}.yaml`, agentConfig(n))],
        ...['--state-dir', scratch.path(`agent-${n}`)],
      ],
      { LLMGW_ON_EXIT: 'stop' },
      scratch.dir,
    );

  beforeEach(async () => {
    scratch = new Scratch();
    const started = await startServerProcess(scratch, ['--config', scratch.file('server.yaml', CONFIG)]);
    server = started.process;
    urls = started.urls;
    agents = [startAgent(1)];
    await waitFor(async () => (await replicas()).some((replica) => replica.published), {
      deadlineMs: 60_000,
      what: 'the replica on n1',
    });
    agents.push(startAgent(2));
    await waitFor(async () => (await node('n2'))?.state === 'connected', { deadlineMs: 30_000, what: 'n2' });
  });

  afterEach(async () => {
    for (const agent of agents) await agent.dispose();
    await server.dispose();
    scratch.remove();
  });

  it('moves it with no request failed, no stream cut and never a moment without a Ready replica', async () => {
    const [original] = await replicas();
    const plan = await schedule('n1', { target: 'drained' }, '?plan=true');
    expect(plan).toMatchObject({ changed: false, gapExpected: false, moves: [{ replicaId: original?.id }] });

    const long = Array.from({ length: 20 }, () => stream(urls.client, LONG_TOKENS));
    const short: Promise<string>[] = [];
    let fewestReady = Infinity;
    let stop = false;
    const traffic = (async () => {
      while (!stop) {
        short.push(stream(urls.client, 3));
        fewestReady = Math.min(fewestReady, (await replicas()).filter((replica) => replica.published).length);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    })();

    await schedule('n1', { target: 'drained', reason: 'maintenance' });
    await waitFor(async () => (await node('n1'))?.scheduling.state === 'drained', {
      deadlineMs: 90_000,
      what: 'n1 drained',
    });
    stop = true;
    await traffic;

    expect(new Set(await Promise.all(long))).toEqual(new Set(['whole']));
    expect(new Set(await Promise.all(short))).toEqual(new Set(['whole']));
    expect(fewestReady).toBeGreaterThanOrEqual(1);
    expect((await replicas()).map((replica) => replica.nodes)).toEqual([['n2']]);
  });

  it('goes on after the server was killed in the middle', async () => {
    const [original] = await replicas();
    await schedule('n1', { target: 'drained' });
    await waitFor(async () => (await replicas()).length === 2, { what: 'the replacement to be placed' });
    server.signal('SIGKILL');
    await server.ended();
    const again = await startServerProcess(scratch, [
      ...['--config', scratch.path('server.yaml'), '--agent-listen', urls.agent],
    ]);
    server = again.process;
    urls = again.urls;
    await waitFor(async () => (await node('n1'))?.scheduling.state === 'drained', {
      deadlineMs: 90_000,
      what: 'n1 drained',
    });
    const left = await replicas();
    expect(left.map((replica) => [replica.nodes, replica.published])).toEqual([[['n2'], true]]);
    expect(left[0]?.id).not.toBe(original?.id);
    expect(await stream(urls.client, 3)).toBe('whole');
  });

  it('is refused without consent when it would leave the model without a replica', async () => {
    agents[1]?.signal('SIGTERM');
    await agents[1]?.ended(30_000);
    await waitFor(async () => (await node('n2'))?.state !== 'connected', {
      deadlineMs: 30_000,
      what: 'n2 gone',
    });
    await expect(schedule('n1', { target: 'drained' })).rejects.toThrow(/409.*allow/is);
    expect((await node('n1'))?.scheduling.target).toBe('schedulable');
  });

  it('is undone by making the node schedulable again', async () => {
    const [original] = await replicas();
    await schedule('n1', { target: 'drained' });
    await waitFor(async () => (await replicas()).length === 2, { what: 'the replacement to be placed' });
    await schedule('n1', { target: 'schedulable' });
    const settled = await waitFor(
      async () => {
        const now = await replicas();
        return now.length === 1 && now[0]?.published ? now : undefined;
      },
      { deadlineMs: 60_000, what: 'one replica again' },
    );
    const detail = await adminGet<ReplicaDetailView>(urls, `replicas/${settled[0]?.id}`);
    expect(detail.id).toBe(original?.id);
    expect(detail.intent).toBe('run');
  });
});
