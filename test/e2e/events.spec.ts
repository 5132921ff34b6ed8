/** `ctl events -f` as somebody leaves it open in a terminal: servers come and go meanwhile. */
import { afterAll, describe, expect, it } from 'vitest';
import { FakeAgent } from '../support/fake-agent.js';
import { LlmgwProcess, Scratch, startServerProcess } from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

const CONFIG = `
control: { settleAfterStart: 1s, unreachableAfter: 1s }
models:
  - name: m1
    replicas: 1
    profiles: [{ name: sim, engine: sim }]
`;

const scratch = new Scratch();
const cleanups: (() => unknown)[] = [() => scratch.remove()];
afterAll(async () => {
  for (const cleanup of cleanups.toReversed()) await cleanup();
});

describe('events that are followed', () => {
  it('go on over a kill and an orderly restart of the server, each once', { timeout: 90_000 }, async () => {
    const config = scratch.file('server.yaml', CONFIG);
    let started = await startServerProcess(scratch, ['--config', config]);
    cleanups.push(() => started.process.dispose());
    const { admin, agent } = started.urls;
    const fixed = ['--admin-listen', admin.replace('http://', ''), '--agent-listen', agent];
    const follower = new LlmgwProcess(['ctl', 'events', '-f', '-o', 'json', '--server', admin]);
    cleanups.push(() => follower.dispose());
    const seen = (): readonly {
      readonly sequence: number;
      readonly type: string;
      readonly subject: { id: string };
    }[] =>
      follower.stdout
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line));
    const join = async (nodeId: string): Promise<void> => {
      const joined = await FakeAgent.join({ port: Number(agent.split(':').at(-1)), nodeId });
      cleanups.push(() => joined.leave());
      await waitFor(
        () => seen().some(({ type, subject }) => type === 'NodeConnected' && subject.id === nodeId),
        {
          what: `that ${nodeId} connected`,
          deadlineMs: 30_000,
        },
      );
    };
    await join('n1');
    for (const [signal, nodeId] of [
      ['SIGKILL', 'n2'],
      ['SIGTERM', 'n3'],
    ] as const) {
      started.process.signal(signal);
      await started.process.ended();
      started = await startServerProcess(scratch, ['--config', config, ...fixed]);
      await join(nodeId);
    }
    expect(follower.exited).toBeUndefined();
    const numbers = seen().map(({ sequence }) => sequence);
    expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b));
    expect(follower.stderr.match(/trying again/g)).toHaveLength(2);
  });
});
