import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  adminGet,
  LlmgwProcess,
  Scratch,
  startServerProcess,
  type ServerUrls,
} from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

const CONFIG = `
control: { interval: 200ms, settleAfterStart: 1s }
models:
  - name: slow
    profiles: [{ name: sim, engine: sim, gpus: 1, args: ["--startup-ms", "3000"] }]
`;

const AGENT = `
onExit: stop
gpus:
  driver: static
  static: [{ uuid: GPU-0, type: sim-80g, memory: 80GiB }]
`;

describe('a model whose replica is still starting', () => {
  const scratch = new Scratch();
  let server: LlmgwProcess;
  let agent: LlmgwProcess;
  let urls: ServerUrls;

  beforeAll(async () => {
    const started = await startServerProcess(scratch, ['--config', scratch.file('server.yaml', CONFIG)]);
    ({ process: server, urls } = started);
    agent = new LlmgwProcess(
      [
        ...['agent', '--config', scratch.file('agent.yaml', AGENT), '--server', urls.agent],
        ...['--node-id', 'n1', '--state-dir', scratch.path('agent-state')],
      ],
      {},
      scratch.dir,
    );
  }, 60_000);

  afterAll(async () => {
    await agent?.dispose();
    await server?.dispose();
    scratch.remove();
  });

  it('holds a request until it is Ready, and answers it', async () => {
    await waitFor(
      async () => {
        const { items } = await adminGet<{ items: { state: string }[] }>(urls, 'replicas');
        return items[0]?.state === 'starting' || items[0]?.state === 'loading';
      },
      { deadlineMs: 20_000, what: 'the replica to be starting' },
    );
    const answer = await fetch(`${urls.client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': 'held' },
      body: JSON.stringify({ model: 'slow', max_tokens: 3, messages: [{ role: 'user', content: 'hi' }] }),
    });
    expect(answer.status).toBe(200);
    const told = await adminGet<{ phases: { phase: string }[] }>(urls, 'requests/held/explain');
    expect(told.phases.map(({ phase }) => phase)).toContain('queued');
  }, 60_000);
});
