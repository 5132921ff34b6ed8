import { Agent } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { NodeSummaryView } from '../../src/admin-api/views/nodes.js';
import type { ReplicaSummaryView } from '../../src/admin-api/views/replicas.js';
import { HeldSocket } from '../support/held-socket.js';
import { adminGet, LlmgwProcess, Scratch, type ServerUrls } from '../support/llmgw-process.js';
import { chat } from '../support/streamed-chat.js';
import { waitFor } from '../support/wait-for.js';

const CONFIG = `
control: { interval: 200ms, settleAfterStart: 30s, unreachableAfter: 60s, lostAfter: 120s }
shutdownGrace: 20s
models:
  - name: m1
    profiles:
      - name: sim
        engine: sim
        gpus: 1
        args: ["--ttft-ms", "10", "--tpot-ms", "20", "--slots", "64"]
`;

const AGENT = `
gpus: { driver: static, static: [{ uuid: GPU-0, type: sim-80g, memory: 80GiB }] }
onExit: stop
`;

describe('a server whose client socket a supervisor holds', () => {
  const scratch = new Scratch();
  const socket = HeldSocket.bind();
  const sockets = new Agent({ keepAlive: true });
  let server: LlmgwProcess;
  let agent: LlmgwProcess;
  let urls: ServerUrls;

  async function startServer(agentListen: string): Promise<void> {
    const config = scratch.file('server.yaml', CONFIG);
    server = new LlmgwProcess(
      [
        ...['server', '--config', config, '--state-dir', scratch.path('server-state')],
        // Where `listen` says to listen does not matter: port 1 could not be bound and nobody would be served there.
        ...['--listen', '127.0.0.1:1', '--admin-listen', '127.0.0.1:0', '--agent-listen', agentListen],
      ],
      {},
      scratch.dir,
      socket.fd,
    );
    const up = await server.logged('server is up');
    urls = { client: socket.url, admin: `http://${String(up['admin'])}`, agent: String(up['agent']) };
  }

  const restart = async (): Promise<void> => {
    server.signal('SIGTERM');
    expect(await server.ended(30_000)).toEqual({ code: 0, signal: null });
    await startServer(urls.agent);
  };

  const served = async (): Promise<readonly ReplicaSummaryView[]> =>
    (await adminGet<ListView<ReplicaSummaryView>>(urls, 'replicas')).items.filter((one) => one.published);

  beforeAll(async () => {
    await startServer('127.0.0.1:0');
    agent = new LlmgwProcess(
      [
        ...['agent', '--server', urls.agent, '--node-id', 'n1', '--state-dir', scratch.path('agent')],
        ...['--config', scratch.file('agent.yaml', AGENT)],
      ],
      {},
      scratch.dir,
    );
    await waitFor(async () => (await served()).length === 1, { deadlineMs: 60_000, what: 'the replica' });
  });

  afterAll(async () => {
    sockets.destroy();
    agent?.signal('SIGCONT');
    await agent?.dispose();
    await server?.dispose();
    socket.close();
    scratch.remove();
  });

  it('restarts under load without a request failed or a stream cut', async () => {
    const [before] = await served();
    const outcomes: string[] = [];
    let stop = false;
    const clients = Array.from({ length: 8 }, async () => {
      while (!stop) outcomes.push(await chat(socket.url, sockets, 5));
    });
    for (let round = 0; round < 2; round++) {
      const enough = outcomes.length + 16;
      await waitFor(() => outcomes.length >= enough, { deadlineMs: 30_000, what: 'load to run' });
      // Longer than the time connections are served on, shorter than the grace.
      let running = 0;
      const long = Array.from({ length: 4 }, () => chat(socket.url, sockets, 150, () => running++));
      await waitFor(() => running === 4, { deadlineMs: 20_000, what: 'the long streams to run' });
      await restart();
      expect(await Promise.all(long)).toEqual(['whole', 'whole', 'whole', 'whole']);
    }
    const enough = outcomes.length + 16;
    await waitFor(() => outcomes.length >= enough, { deadlineMs: 30_000, what: 'load after the restarts' });
    stop = true;
    await Promise.all(clients);
    expect(outcomes.filter((outcome) => outcome !== 'whole')).toEqual([]);
    // The engine was not touched: the same replica at the same generation.
    await waitFor(
      async () => (await adminGet<ListView<NodeSummaryView>>(urls, 'nodes')).items[0]?.state === 'connected',
      { deadlineMs: 30_000, what: 'the agent to be back' },
    );
    await waitFor(
      async () => {
        const now = (await served()).map(({ id, generation }) => [id, generation]);
        expect(now).toEqual([[before?.id, before?.generation]]);
        return true;
      },
      { deadlineMs: 20_000, what: 'the replica of before' },
    );
  });

  it('serves from what it knew before any agent is back', async () => {
    agent.signal('SIGSTOP');
    await restart();
    expect(await chat(socket.url, sockets, 5)).toBe('whole');
    const [node] = (await adminGet<ListView<NodeSummaryView>>(urls, 'nodes')).items;
    expect(node?.state).not.toBe('connected');
    agent.signal('SIGCONT');
  });
});
