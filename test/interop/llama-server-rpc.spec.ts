import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentEngineConfig } from '../../src/config/agent-config.js';
import { writeTinyModel } from '../../src/engines/tiny-model/tiny-model.js';
import { AgentWorld, freePort, profile, startCommand } from '../support/agent/agent-world.js';
import { FakeGateway } from '../support/agent/fake-gateway.js';
import { waitFor } from '../support/wait-for.js';

/** Path of a real llama-server with its RPC worker beside it; without one there is nothing to test against. */
const BINARY = process.env['LLMGW_TEST_LLAMA_SERVER'];

describe.skipIf(BINARY === undefined)('a llama.cpp replica of two ranks under our agent', () => {
  let world: AgentWorld;
  let gateway: FakeGateway;

  beforeAll(async () => {
    world = new AgentWorld();
    gateway = await FakeGateway.listen();
    await writeTinyModel(`${world.directory}/tiny.gguf`);
    const config = world.config(gateway.address, (agent) => {
      const engine = new AgentEngineConfig();
      engine.binary = BINARY ?? '';
      agent.engines = { llamacpp: engine };
      agent.modelRoots = [world.directory];
    });
    await world.start(config);
    await waitFor(() => gateway.lastReport);
  });
  afterAll(async () => {
    await world.dispose();
    gateway.close();
  });

  it('starts the head after its worker, generates through it, and ends when the worker dies', async () => {
    const ports = [await freePort(), await freePort()] as const;
    const peers = ports.map((http, rank) => ({ rank, address: '127.0.0.1', ports: { http } }));
    const args = ['--threads', '1', '--ctx-size', '512'];
    const start = (rank: 0 | 1): void => {
      gateway.start(
        startCommand(ports[rank], {
          shardId: `r1-${rank}`,
          rank,
          shards: 2,
          peers,
          source: 'tiny.gguf',
          profile: profile({ engine: 'llamacpp', shards: 2, args, startTimeoutMs: 60_000 }),
        }),
      );
    };
    start(0);
    await gateway.waitForShard(
      'r1-0',
      'waiting for its worker',
      ({ progress }) => progress === `waiting for rank 1 on 127.0.0.1:${ports[1]}`,
    );
    start(1);
    const worker = await gateway.waitForShard('r1-1', 'ready', ({ phase }) => phase === 'ready');
    await gateway.waitForShard('r1-0', 'ready', ({ phase }) => phase === 'ready', 60_000);

    const ask = (): Promise<Response> =>
      fetch(`http://127.0.0.1:${ports[0]}/v1/completions`, {
        method: 'POST',
        body: JSON.stringify({ model: 'm1', prompt: 'The gateway', max_tokens: 4 }),
      });
    expect(((await (await ask()).json()) as { choices: unknown[] }).choices).toHaveLength(1);

    process.kill(worker.pid ?? 0, 'SIGKILL');
    const gone = await gateway.waitForShard('r1-1', 'exited', ({ phase }) => phase === 'exited');
    expect(gone).toMatchObject({ verdict: 'signalled', exitSignal: 'SIGKILL' });
    // The head aborts with the next request that needs its worker.
    await ask().catch(() => {});
    const head = await gateway.waitForShard('r1-0', 'exited', ({ phase }) => phase === 'exited', 30_000);
    expect(head.verdict).toBe('peerRankExited');
  });
});
