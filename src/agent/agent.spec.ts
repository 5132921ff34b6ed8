import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AgentWorld, freePort, profile, startCommand } from '../../test/support/agent/agent-world.js';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { waitFor } from '../../test/support/wait-for.js';

describe('an agent with a server', () => {
  let world: AgentWorld;
  let gateway: FakeGateway;

  beforeEach(async () => {
    world = new AgentWorld();
    gateway = await FakeGateway.listen();
  });
  afterEach(async () => {
    await world.dispose();
    gateway.close();
  });

  it('says hello, reports fully, runs an engine until it is told to stop', async () => {
    await world.start(world.config(gateway.address));
    const first = await waitFor(() => gateway.lastReport, { what: 'first report' });
    expect(first).toMatchObject({ complete: true, shards: [], gpus: [] });
    expect(gateway.messages[0]).toMatchObject({
      kind: 'hello',
      hello: { nodeId: 'n1', address: '127.0.0.1', protocolVersion: 1 },
    });

    const id = gateway.start(startCommand(await freePort()));
    expect(await gateway.result(id)).toMatchObject({ outcome: 'accepted' });
    const ready = await gateway.waitForShard('r1-0', 'ready', ({ phase }) => phase === 'ready');
    expect(ready).toMatchObject({ generation: 1, specDigest: 'd1', rank: 0 });
    expect(ready.loadMs).toBeGreaterThan(0);
    expect(ready.pid).toBeGreaterThan(1);

    expect(await gateway.result(gateway.start(startCommand(1)))).toMatchObject({ outcome: 'already' });
    gateway.stop('r1-0', 1, 2_000);
    const stopped = await gateway.waitForShard('r1-0', 'exited', ({ phase }) => phase === 'exited');
    expect(stopped.verdict).toBe('stopped');
    expect(() => process.kill(ready.pid ?? 0, 0)).toThrow('ESRCH');
    expect(gateway.problems).toEqual([]);
  });

  it("tells of a clock that differs from the server's, and works all the same", async () => {
    const wrong = await FakeGateway.listen({ wallMs: Date.now() - 3_600_000 });
    try {
      await world.start(world.config(wrong.address));
      const report = await waitFor(() => wrong.lastReport);
      expect(report.conditions).toMatchObject([{ type: 'ClockSkewed', blocksPlacement: false }]);
      expect(report.conditions[0]?.reason).toMatch(/36\d\d s ahead of the server's/);
      wrong.start(startCommand(await freePort()));
      await wrong.waitForShard('r1-0', 'ready', ({ phase }) => phase === 'ready');
    } finally {
      wrong.close();
    }
  });

  it('on the state directory of a living agent is refused in one line, and nothing of it goes into the log', async () => {
    await world.start(world.config(gateway.address));
    const before = world.log.length;
    await expect(world.start(world.config(gateway.address))).rejects.toThrow(
      `another agent (pid ${process.pid}) uses `,
    );
    expect(world.log.slice(before).filter((line) => /error|fatal/i.test(line))).toEqual([]);
  });

  it('tells how an engine ended, with the end of its output', async () => {
    await world.start(world.config(gateway.address));
    await waitFor(() => gateway.lastReport);
    const args = [
      '--say',
      'torch.OutOfMemoryError: CUDA out of memory.',
      '--exit-at',
      '50',
      '--exit-code',
      '3',
    ];
    gateway.start(startCommand(await freePort(), { profile: profile({ args }) }));
    const ended = await gateway.waitForShard('r1-0', 'exited', ({ phase }) => phase === 'exited');
    expect(ended).toMatchObject({ verdict: 'outOfMemory', exitCode: 3 });
    expect(ended.logTail).toContain('CUDA out of memory');
  });
});
