import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { AgentPrograms } from '../../test/support/agent/agent-process.js';
import {
  AgentWorld,
  freePort,
  profile,
  program,
  startCommand,
} from '../../test/support/agent/agent-world.js';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { waitFor } from '../../test/support/wait-for.js';
import type { ShardReport } from '../domain/cluster.js';
import { systemProcessTable } from './process-table.js';

/** A process namespace, as a container has; it ends with the process that made it. */
const UNSHARE = ['unshare', '--fork', '--pid', '--mount-proc', '--kill-child'];
/** The same with a process 1 that waits for nobody, as below `npm` or in a container that is entered by `exec`. */
const BELOW_SLEEP = [...UNSHARE, '/bin/sh', '-c', '"$@" & exec sleep 600', 'sh'];
const runs = (command: string, ...args: string[]): boolean => spawnSync(command, args).status === 0;
const canUnshare = runs('unshare', ...UNSHARE.slice(1), 'true');
const hasInit = runs('tini', '--version');
const processes = systemProcessTable();

describe.skipIf(!canUnshare)('an agent in a process namespace of its own', { timeout: 60_000 }, () => {
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

  /** Starts an agent whose engines leave so many orphans, which end at once; returns process 1 of the namespace. */
  async function startAgent(below: readonly string[], orphans = 2): Promise<number> {
    const config = world.config(gateway.address, ({ engines }) => {
      const { command } = engines;
      if (command === undefined) throw new Error('no command engine');
      command.binary = '/bin/sh';
      command.baseArgs = [
        '-c',
        `i=0; while [ $i -lt ${orphans} ]; do (true &); i=$((i+1)); done; port=$1 model=$2; shift 2
         exec ${process.execPath} ${program('fake-engine.mjs')} --port "$port" --model "$model" "$@"`,
        'sh',
        '{port}',
        '{model}',
      ];
    });
    const maker = await programs.start(config, { reapIntervalMs: 50, initCheckMs: 100 }, below);
    await waitFor(() => gateway.lastReport, { what: 'a report' });
    return waitFor(() => processes.childrenOf(maker.pid ?? 0)[0], { what: 'process 1' });
  }

  async function runEngine(generation: number, args: readonly string[] = []): Promise<ShardReport> {
    await startEngine(generation, args);
    return untilShard(generation, 'ready');
  }
  async function startEngine(generation: number, args: readonly string[]): Promise<void> {
    gateway.start(startCommand(await freePort(), { generation, profile: profile({ args }) }));
  }
  const untilShard = (generation: number, phase: string): Promise<ShardReport> =>
    gateway.waitForShard('r1-0', phase, (shard) => shard.phase === phase && shard.generation === generation);
  async function runEngines(rounds: number): Promise<void> {
    for (let generation = 1; generation <= rounds; generation++) {
      await runEngine(generation);
      gateway.stop('r1-0', generation, 2_000);
      await untilShard(generation, 'exited');
    }
  }
  const zombiesBelow = (pid: number): number =>
    processes
      .childrenOf(pid)
      .reduce((sum, child) => sum + (processes.read(child)?.zombie === true ? 1 : zombiesBelow(child)), 0);
  const untilNoZombie = (init: number): Promise<true> =>
    waitFor(() => zombiesBelow(init) === 0, { what: 'no zombie', deadlineMs: 20_000 });

  it.skipIf(!hasInit)('leaves no zombie below an init', async () => {
    const init = await startAgent([...UNSHARE, 'tini', '--']);
    await runEngines(3);
    await untilNoZombie(init);
    expect(gateway.lastReport?.conditions).toEqual([]);
  });

  it('leaves none as process 1 after twenty engines', async () => {
    const init = await startAgent(UNSHARE);
    await runEngines(20);
    await untilNoZombie(init);
    expect(gateway.lastReport?.conditions).toEqual([]);
  }, 120_000);

  it('takes its own children from nobody: how engines end is known', async () => {
    await startAgent(UNSHARE);
    await startEngine(1, ['--exit-at', '50', '--exit-code', '7']);
    expect(await untilShard(1, 'exited')).toMatchObject({ exitCode: 7 });
    const { pid } = await runEngine(2);
    // The pid is that of the namespace; here it has another.
    const [outside] = processes
      .list()
      .filter((facts) => processes.environment(facts.pid)?.get('LLMGW_SHARD') === 'r1-0@2');
    expect(pid).toBeGreaterThan(1);
    process.kill(outside?.pid ?? expect.fail('no engine'), 'SIGKILL');
    expect(await untilShard(2, 'exited')).toMatchObject({ exitSignal: 'SIGKILL' });
  });

  it('stops its engines in order when it ends, since they would be killed with it', async () => {
    const init = await startAgent(UNSHARE);
    await runEngine(1, ['--ignore-term']);
    process.kill(init, 'SIGTERM');
    await untilShard(1, 'exited');
    const log = readFileSync(join(world.directory, 'state', 'shards', 'r1-0', 'current.log'), 'utf8');
    expect(log).toContain('ignoring SIGTERM');
  });

  // The pid of the other means nothing here, so a lock file alone would be taken for that of a dead agent.
  it('does not take the state directory of an agent in another container', async () => {
    await startAgent(UNSHARE);
    const config = world.config(gateway.address);
    await expect(programs.start(config, {}, UNSHARE)).rejects.toThrow(
      /another agent \(of another container\) uses/,
    );
    await programs.killAll();
    await startAgent(UNSHARE);
  });

  it('reports on while hundreds end at once', async () => {
    const init = await startAgent(UNSHARE, 600);
    const { phase } = await runEngine(1);
    expect(phase).toBe('ready');
    await untilNoZombie(init);
    const reports = gateway.reports.length;
    await waitFor(() => gateway.reports.length > reports + 2, { what: 'heartbeats' });
  });

  it('reaps in place of a process 1 that does not', async () => {
    const init = await startAgent(BELOW_SLEEP);
    let generation = 0;
    /** What came to process 1 before it was known for what it is stays with it. */
    const lost = async (): Promise<number> => {
      await runEngine(++generation);
      gateway.stop('r1-0', generation, 2_000);
      await untilShard(generation, 'exited');
      return zombiesBelow(init);
    };
    let before = await lost();
    await waitFor(
      async () => {
        const after = await lost();
        const none = after === before;
        before = after;
        return none;
      },
      { what: 'a round without a new zombie', deadlineMs: 30_000 },
    );
    expect(gateway.lastReport?.conditions).toEqual([]);
  }, 60_000);
});
