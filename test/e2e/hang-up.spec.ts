/** SIGHUP ends a process that says nothing about it: what each of ours does instead. The server's is in client-api.spec. */
import { writeFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { Fleet, streamed } from '../support/fleet.js';
import { LlmgwProcess, Scratch } from '../support/llmgw-process.js';
import { GivenUp, waitFor } from '../support/wait-for.js';

const model = (name: string): string =>
  `  - { name: ${name}, profiles: [{ name: sim, engine: sim, args: ["--ttft-ms", "10", "--tpot-ms", "20"] }] }\n`;

it('an agent says that it reads its file at its start only, and goes on with its engines', async () => {
  const fleet = await Fleet.start({
    config: `control: { interval: 200ms, settleAfterStart: 5s }\nmodels:\n${model('m1')}`,
    nodes: { n1: {} },
  });
  try {
    const [before] = await fleet.settled('n1');
    const open = streamed(fleet.urls.client, 'm1', 50);
    const agent = fleet.agent('n1');
    agent.signal('SIGHUP');
    await agent.logged('an agent reads its file only when it starts; SIGHUP changes nothing');
    expect(await open).toBe('whole');
    expect(agent.exited).toBeUndefined();
    expect(await fleet.settled('n1')).toMatchObject([{ id: before?.id, generation: before?.generation }]);
  } finally {
    await fleet.dispose();
  }
});

describe('llmgw up', () => {
  const scratch = new Scratch();
  let up: LlmgwProcess | undefined;
  afterEach(() => up?.dispose());

  const start = async (...more: readonly string[]): Promise<string> => {
    const addresses = ['--listen', '--admin-listen', '--agent-listen'].flatMap((flag) => [
      flag,
      '127.0.0.1:0',
    ]);
    const running = new LlmgwProcess(
      ['up', ...addresses, '--state-dir', scratch.path('state'), ...more],
      {},
      scratch.dir,
    );
    up = running;
    const curl = await waitFor(
      () => {
        if (running.exited !== undefined) throw new GivenUp(`up ended: ${running.stderr}`);
        return /curl .*/s.exec(running.stdout)?.[0];
      },
      { deadlineMs: 60_000, what: 'the curl line' },
    );
    return /http:\/\/[\d.]+:\d+/.exec(curl)?.[0] ?? '';
  };

  it('with a file reads it again', async () => {
    const file = scratch.file('up.yaml', `watchConfig: false\nmodels:\n${model('m1')}`);
    const url = await start('--config', file);
    writeFileSync(file, `watchConfig: false\nmodels:\n${model('m1')}${model('m2')}`);
    up?.signal('SIGHUP');
    await waitFor(async () => (await streamed(url, 'm2', 2)) === 'whole', {
      deadlineMs: 30_000,
      what: 'the second model',
    });
    expect(await streamed(url, 'm1', 2)).toBe('whole');
  });

  it('without one ends, as its terminal has', async () => {
    await start();
    up?.signal('SIGHUP');
    expect((await up?.ended(30_000))?.signal).toBeNull();
    scratch.remove();
  });
});
