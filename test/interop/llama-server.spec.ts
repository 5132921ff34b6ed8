import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemProcessTable } from '../../src/agent/process-table.js';
import { writeTinyModel } from '../../src/engines/tiny-model/tiny-model.js';
import { ServedNode } from '../support/agent/served-node.js';
import { Scratch } from '../support/llmgw-process.js';
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

describe.skipIf(BINARY === undefined)('a real llama-server under our agent', () => {
  const scratch = new Scratch();
  const table = systemProcessTable();
  const alive = (pid: number): boolean => table.read(pid)?.zombie === false;
  let node: ServedNode;

  beforeAll(async () => {
    const model = scratch.path('tiny.gguf');
    await writeTinyModel(model);
    node = await ServedNode.start({ scratch, server: serverConfig(model), agent: agentConfig(scratch.dir) });
    await node.untilPublished();
  });
  afterAll(async () => {
    await node?.dispose();
    scratch.remove();
  });

  it('streams through to [DONE] and answers whole', async () => {
    const streamed = await (await node.chat('tiny', { stream: true, max_tokens: 12 })).text();
    expect(streamed).toContain('data: [DONE]');
    const whole = (await (await node.chat('tiny', { max_tokens: 12 })).json()) as {
      usage: { completion_tokens: number };
    };
    expect(whole.usage.completion_tokens).toBeGreaterThan(0);
  });

  it('frees the slot when the client leaves', async () => {
    const leave = new AbortController();
    const response = await node.chat(
      'tiny',
      { stream: true, max_tokens: 4_000, ignore_eos: true },
      leave.signal,
    );
    const reader = response.body?.getReader();
    await reader?.read();
    leave.abort();
    await waitFor(() => node.isIdle(), { what: 'in-flight 0' });
    const replica = await node.published();
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
    const before = await node.published();
    process.kill(await node.leaderPid(), 'SIGKILL');
    await waitFor(async () => ((await node.published())?.generation ?? 0) > (before?.generation ?? 0), {
      deadlineMs: 60_000,
      what: 'a higher generation',
    });
    expect((await node.chat('tiny', { max_tokens: 4 })).status).toBe(200);
  });

  it('gives a hung engine up by first-token timeouts, and replaces it', async () => {
    const before = await node.published();
    const pid = await node.leaderPid();
    process.kill(pid, 'SIGSTOP');
    const first = await node.chat('tiny', { stream: true, max_tokens: 4 });
    expect([503, 504]).toContain(first.status);
    await first.text();
    // Nobody wakes it: it takes its TERM only because the agent does.
    await waitFor(
      async () => {
        const { status } = await node.chat('tiny', { max_tokens: 4 });
        return status === 200 && ((await node.published())?.generation ?? 0) > (before?.generation ?? 0);
      },
      { deadlineMs: 90_000, what: 'service by a higher generation' },
    );
    expect(alive(pid)).toBe(false);
  });

  it('is stopped by TERM only when its stream is over', async () => {
    const pid = await node.leaderPid();
    const response = await node.chat('tiny', { stream: true, max_tokens: 1_500, ignore_eos: true });
    const text = response.text();
    await node.scale('tiny', 0);
    const [whole] = await Promise.all([
      text,
      waitFor(() => !alive(pid), { deadlineMs: 60_000, what: 'its end' }),
    ]);
    expect(whole).toMatch(/data: \[DONE\]\s*$/);
    expect(whole.match(/^data: \{/gm)?.length).toBeGreaterThan(1_000);
    await node.scale('tiny', 1);
    await node.untilPublished();
  });

  it('leaves no engine when the agent is told to stop', async () => {
    const pid = await node.leaderPid();
    node.agent.signal('SIGTERM');
    expect(await node.agent.ended(30_000)).toEqual({ code: 0, signal: null });
    await waitFor(() => !alive(pid), { deadlineMs: 10_000, what: 'engine gone' });
  });
});
