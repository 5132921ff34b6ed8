import { spawnSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { AgentPrograms } from '../../test/support/agent/agent-process.js';
import { AgentWorld, freePort, program, startCommand } from '../../test/support/agent/agent-world.js';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { waitFor } from '../../test/support/wait-for.js';
import { systemProcessTable, type ProcessFacts } from './process-table.js';

/** A process namespace, as a container has; it ends with the process that made it. */
const UNSHARE = ['unshare', '--fork', '--pid', '--mount-proc', '--kill-child'];
const runs = (command: string, ...args: string[]): boolean => spawnSync(command, args).status === 0;
const canUnshare = runs('unshare', ...UNSHARE.slice(1), 'true');
const hasInit = runs('tini', '--version');
const processes = systemProcessTable();

describe.skipIf(!canUnshare)('an agent in a process namespace of its own', () => {
  let programs: AgentPrograms;
  let world: AgentWorld;
  let gateway: FakeGateway;

  beforeAll(() => {
    programs = AgentPrograms.compile();
    // On a busy machine compiling takes longer than hooks are given.
  }, 60_000);
  afterAll(() => programs.dispose());
  beforeEach(async () => {
    world = new AgentWorld();
    gateway = await FakeGateway.listen();
  });
  afterEach(async () => {
    // Everything in the namespace ends with its maker.
    await programs.killAll();
    await world.dispose();
    gateway.close();
  });

  const childrenOf = (pid: number): ProcessFacts[] =>
    processes.list().filter(({ parentPid }) => parentPid === pid);

  /** Runs an engine that leaves orphans, which end at once; returns process 1 of the namespace. */
  async function runEngines(below: readonly string[], rounds: number): Promise<number> {
    const config = world.config(gateway.address, ({ engines }) => {
      const { command } = engines;
      if (command === undefined) throw new Error('no command engine');
      command.binary = '/bin/sh';
      const engine = `${process.execPath} ${program('fake-engine.mjs')} --port "$1" --model "$2"`;
      command.baseArgs = ['-c', `(true &); (true &); exec ${engine}`, 'sh', '{port}', '{model}'];
    });
    const maker = await programs.start(config, {}, below);
    const first = await waitFor(() => childrenOf(maker.pid ?? 0)[0], { what: 'process 1' });
    await waitFor(() => gateway.lastReport);
    for (let generation = 1; generation <= rounds; generation++) {
      const is = (phase: string) => (shard: { phase: string; generation: number }) =>
        shard.phase === phase && shard.generation === generation;
      gateway.start(startCommand(await freePort(), { generation }));
      await gateway.waitForShard('r1-0', 'ready', is('ready'));
      gateway.stop('r1-0', generation, 2_000);
      await gateway.waitForShard('r1-0', 'exited', is('exited'));
    }
    return first.pid;
  }
  const zombiesOf = (pid: number): number => childrenOf(pid).filter(({ zombie }) => zombie).length;

  it.skipIf(!hasInit)('leaves no zombie below an init', async () => {
    const init = await runEngines([...UNSHARE, 'tini', '--'], 3);
    await waitFor(() => zombiesOf(init) === 0, { what: 'no zombie' });
    expect(gateway.lastReport?.conditions).toEqual([]);
  });

  it('says that it has no init, and is not held up by what nobody reaps', async () => {
    const init = await runEngines(UNSHARE, 2);
    expect(zombiesOf(init)).toBeGreaterThan(0);
    expect(gateway.lastReport?.conditions).toMatchObject([{ type: 'NoInit', blocksPlacement: false }]);
  });
});
