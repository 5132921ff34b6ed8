import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type {
  EndpointView,
  ReplicaDetailView,
  ReplicaSummaryView,
} from '../../src/admin-api/views/replicas.js';
import { writeTinyModel } from '../../src/engines/tiny-model/tiny-model.js';
import {
  adminGet,
  LlmgwProcess,
  Scratch,
  startServerProcess,
  type ServerUrls,
} from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

/** Path of a real llama-server; without one there is nothing to test against. */
const BINARY = process.env['LLMGW_TEST_LLAMA_SERVER'];

const serverConfig = (model: string): string => `
control: { interval: 200ms, baseBackoff: 1s, settleAfterStart: 5s }
models:
  - name: tiny
    source: ${model}
    profiles:
      - name: cpu
        engine: llamacpp
        args: ["--threads", "1", "--ctx-size", "4096", "--parallel", "2"]
        stopGrace: 5s
router:
  profiles:
    interactive:
      deadlines: { firstToken: 3s, idle: 5s }
`;

const agentConfig = (root: string): string => `
modelRoots: ["${root}"]
gpus: { driver: none }
engines:
  llamacpp: { binary: "${BINARY ?? ''}" }
`;

const chat = (urls: ServerUrls, body: Record<string, unknown>, signal?: AbortSignal): Promise<Response> =>
  fetch(`${urls.client}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'tiny', messages: [{ role: 'user', content: 'hello' }], ...body }),
    ...(signal === undefined ? {} : { signal }),
  });

/** True while the process exists and is no zombie. */
function alive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

describe.skipIf(BINARY === undefined)('a real llama-server under our agent', () => {
  const scratch = new Scratch();
  const processes: LlmgwProcess[] = [];
  let urls: ServerUrls;

  const ready = async (): Promise<ReplicaSummaryView | undefined> =>
    (await adminGet<ListView<ReplicaSummaryView>>(urls, 'replicas')).items.find(
      (replica) => replica.published,
    );
  const enginePid = async (): Promise<number> => {
    const replica = await ready();
    const detail = await adminGet<ReplicaDetailView>(urls, `replicas/${replica?.id}`);
    const pid = detail.shards[0]?.pid;
    if (pid === undefined) throw new Error('no pid reported');
    return pid;
  };

  beforeAll(async () => {
    const model = scratch.path('tiny.gguf');
    await writeTinyModel(model);
    const server = await startServerProcess(scratch, [
      '--config',
      scratch.file('server.yaml', serverConfig(model)),
    ]);
    urls = server.urls;
    const agent = new LlmgwProcess(
      [
        ...['agent', '--server', urls.agent, '--node-id', 'n1', '--state-dir', scratch.path('agent')],
        ...['--config', scratch.file('agent.yaml', agentConfig(scratch.dir))],
      ],
      { LLMGW_ON_EXIT: 'stop' },
      scratch.dir,
    );
    processes.push(agent, server.process);
    await waitFor(ready, { deadlineMs: 60_000, what: 'llama-server Ready' });
  });

  afterAll(async () => {
    for (const process of processes) await process.dispose();
    scratch.remove();
  });

  it('streams through to [DONE] and answers whole', async () => {
    const streamed = await (await chat(urls, { stream: true, max_tokens: 12 })).text();
    expect(streamed).toContain('data: [DONE]');
    const whole = (await (await chat(urls, { max_tokens: 12 })).json()) as {
      usage: { completion_tokens: number };
    };
    expect(whole.usage.completion_tokens).toBeGreaterThan(0);
  });

  it('frees the slot when the client leaves', async () => {
    const leave = new AbortController();
    const response = await chat(urls, { stream: true, max_tokens: 4_000, ignore_eos: true }, leave.signal);
    const reader = response.body?.getReader();
    await reader?.read();
    leave.abort();
    await waitFor(
      async () =>
        (await adminGet<ListView<EndpointView>>(urls, 'endpoints')).items.every(
          (item) => item.inflight === 0,
        ),
      { what: 'in-flight 0' },
    );
    const replica = await ready();
    await waitFor(
      async () => {
        const slots = (await (await fetch(`http://${replica?.address}/slots`)).json()) as {
          is_processing: boolean;
        }[];
        return slots.every((slot) => !slot.is_processing);
      },
      { what: 'no busy slot in the engine' },
    );
  });

  it('comes back with a new generation after SIGKILL', async () => {
    const before = await ready();
    process.kill(await enginePid(), 'SIGKILL');
    await waitFor(async () => ((await ready())?.generation ?? 0) > (before?.generation ?? 0), {
      deadlineMs: 60_000,
      what: 'a higher generation',
    });
    expect((await chat(urls, { max_tokens: 4 })).status).toBe(200);
  });

  it('gives a hung engine up by first-token timeouts, and replaces it', async () => {
    const before = await ready();
    const pid = await enginePid();
    process.kill(pid, 'SIGSTOP');
    try {
      const answer = await chat(urls, { stream: true, max_tokens: 4 });
      expect([503, 504]).toContain(answer.status);
      await answer.text();
    } finally {
      if (alive(pid)) process.kill(pid, 'SIGCONT');
    }
    await waitFor(async () => (await chat(urls, { max_tokens: 4 })).status === 200, {
      deadlineMs: 60_000,
      what: 'service again',
    });
    expect(before).toBeDefined();
  });

  it('leaves no engine when the agent is told to stop', async () => {
    const pid = await enginePid();
    const [agent] = processes;
    agent?.signal('SIGTERM');
    expect(await agent?.ended(30_000)).toEqual({ code: 0, signal: null });
    await waitFor(() => !alive(pid), { deadlineMs: 10_000, what: 'engine gone' });
  });
});
