import { execFileSync } from 'node:child_process';
import { cpSync, statSync, truncateSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ModelDetailView } from '../../src/admin-api/views/models.js';
import { systemProcessTable } from '../../src/agent/process-table.js';
import { ServedNode } from '../support/agent/served-node.js';
import { adminGet, Scratch } from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

/** Path of a real `vllm`; the Python beside it makes the model. Without one there is nothing to test against. */
const BINARY = process.env['LLMGW_TEST_VLLM'];
/** Importing it takes a minute, several times over, and longer on two busy processors. */
const START_MS = 600_000;

const serverConfig = (model: string, cut: string): string => `
control: { interval: 500ms, baseBackoff: 1s, settleAfterStart: 5s }
models:
  - name: tiny
    source: ${model}
    profiles:
      - name: cpu
        engine: vllm
        args: ["--enforce-eager", "--max-model-len", "512"]
        stopGrace: 20s
        startTimeout: 10m
  - { name: cut, source: "${cut}", replicas: 0, profiles: [{ name: cpu, engine: vllm }] }
  - { name: absent, source: no-such/repository, replicas: 0, profiles: [{ name: cpu, engine: vllm }] }
router:
  profiles:
    interactive:
      deadlines: { firstToken: 60s, idle: 60s }
`;

const agentConfig = (root: string): string => `
modelRoots: ["${root}"]
gpus: { driver: none }
engines:
  vllm: { binary: "${BINARY ?? ''}", env: { HF_HUB_OFFLINE: "1", VLLM_CPU_KVCACHE_SPACE: "1" } }
`;

/** Asks for one replica of the model and gives what tells why it does not start, as one text. */
async function whyNot(node: ServedNode, model: string): Promise<string> {
  await node.scale(model, 1);
  return waitFor(
    async () => {
      const detail = await adminGet<ModelDetailView>(node.urls, `models/${model}`);
      const why = JSON.stringify([detail.backoffs, detail.notDone]);
      return detail.backoffs.length > 0 && why;
    },
    { deadlineMs: START_MS, what: `the end of ${model}` },
  );
}

describe.skipIf(BINARY === undefined)('a real vLLM under our agent', () => {
  const scratch = new Scratch();
  const table = systemProcessTable();
  let node: ServedNode;

  /** The API server, the engine core, its worker and what helps them. */
  const familyOf = (leader: number): number[] =>
    table
      .list()
      .filter(({ groupId, zombie }) => groupId === leader && !zombie)
      .map(({ pid }) => pid);
  const alive = (pid: number): boolean => table.read(pid)?.zombie === false;

  beforeAll(async () => {
    const model = scratch.path('tiny');
    const script = fileURLToPath(new URL('make-tiny-checkpoint.py', import.meta.url));
    execFileSync(join(dirname(BINARY ?? ''), 'python'), [script, model], { stdio: 'ignore' });
    const cut = scratch.path('cut');
    cpSync(model, cut, { recursive: true });
    const weights = join(cut, 'model.safetensors');
    truncateSync(weights, Math.floor(statSync(weights).size / 2));
    node = await ServedNode.start({
      scratch,
      server: serverConfig(model, cut),
      agent: agentConfig(scratch.dir),
    });
    await node.untilPublished(START_MS);
  }, START_MS);

  afterAll(async () => {
    await node?.dispose();
    scratch.remove();
  });

  it('streams through to [DONE] and answers whole', async () => {
    const streamed = await (await node.chat('tiny', { stream: true, max_tokens: 12 })).text();
    expect(streamed).toContain('data: [DONE]');
    const whole = (await (await node.chat('tiny', { max_tokens: 12, ignore_eos: true })).json()) as {
      usage: { completion_tokens: number };
    };
    expect(whole.usage.completion_tokens).toBe(12);
  });

  it('says what it loads, and counts what our drivers read', async () => {
    const replica = await node.published();
    const metrics = await (await fetch(`http://${replica?.address}/metrics`)).text();
    for (const name of ['num_requests_running', 'num_requests_waiting', 'generation_tokens_total'])
      expect(metrics).toMatch(new RegExp(`^vllm:${name}\\{`, 'm'));
  });

  it('hands on what the engine says of a prompt that is too long', async () => {
    const messages = [{ role: 'user', content: 'a long story '.repeat(400) }];
    const response = await node.chat('tiny', { messages, max_tokens: 4 });
    expect(response.status).toBe(400);
    const { error } = (await response.json()) as { error: { message: string } };
    expect(error.message).toMatch(/context length|maximum.*length|max_model_len/i);
    expect(JSON.stringify(error)).not.toContain('127.0.0.1');
  });

  it('is not even started with weights that were cut off', async () => {
    expect(await whyNot(node, 'cut')).toMatch(/missingWeights.*the end of model\.safetensors/);
  });

  it(
    'says that there is no such repository in the cache',
    async () => {
      expect(await whyNot(node, 'absent')).toContain('missingWeights');
    },
    START_MS,
  );

  it('stops generating when the client leaves', async () => {
    const leave = new AbortController();
    const response = await node.chat(
      'tiny',
      { stream: true, max_tokens: 400, ignore_eos: true },
      leave.signal,
    );
    await response.body?.getReader().read();
    leave.abort();
    const replica = await node.published();
    await waitFor(
      async () => {
        const idle = await node.isIdle();
        const metrics = await (await fetch(`http://${replica?.address}/metrics`)).text();
        return idle && /^vllm:num_requests_running\{[^}]*\} 0(?:\.0)?$/m.test(metrics);
      },
      { what: 'nothing in flight, here and in the engine' },
    );
  });

  it(
    'is gone with all of its processes after SIGKILL of the API server, and comes back',
    async () => {
      const before = await node.published();
      const leader = await node.leaderPid();
      const family = familyOf(leader);
      expect(family.length).toBeGreaterThan(2);
      process.kill(leader, 'SIGKILL');
      await waitFor(() => !family.some(alive), {
        deadlineMs: 60_000,
        what: 'the end of the engine core too',
      });
      await waitFor(async () => ((await node.published())?.generation ?? 0) > (before?.generation ?? 0), {
        deadlineMs: START_MS,
        what: 'a higher generation',
      });
      expect((await node.chat('tiny', { max_tokens: 4 })).status).toBe(200);
    },
    START_MS + 120_000,
  );

  it('leaves nothing when the agent is told to stop', async () => {
    const family = familyOf(await node.leaderPid());
    node.agent.signal('SIGTERM');
    expect(await node.agent.ended(60_000)).toEqual({ code: 0, signal: null });
    expect(family.filter(alive)).toEqual([]);
  });
});
