import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { program, startCommand } from '../../test/support/agent/agent-world.js';
import { waitFor } from '../../test/support/wait-for.js';
import { systemClock } from '../shared/clock.js';
import { systemProcessTable } from './process-table.js';
import { RunLog } from './run-log.js';
import { shardDirectory } from './shard-directory.js';
import { shardSpecOf } from './shard-spec.js';
import { SpawnError, Supervisor, type EngineProcess } from './supervisor.js';

const spec = shardSpecOf(startCommand(1));
const processes = systemProcessTable();

describe('the supervisor', () => {
  let directory: string;
  let output: string;
  let supervisor: Supervisor;
  let started: EngineProcess[] = [];

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'llmgw-supervisor-'));
    supervisor = new Supervisor({
      owner: { agent: `spec-${process.pid}`, shardsDir: directory },
      processes,
      clock: systemClock,
      timings: { processPollMs: 10, groupPollMs: 10, killSettleMs: 3_000 },
    });
    mkdirSync(shardDirectory(directory, spec.shardId));
    output = RunLog.currentFile(shardDirectory(directory, spec.shardId));
  });
  afterEach(async () => {
    for (const engine of started) await engine.end(() => 0);
    started = [];
    rmSync(directory, { recursive: true, force: true });
  });

  const text = (): string => readFileSync(output, 'utf8');
  async function start(args: readonly string[], file: string = process.execPath): Promise<EngineProcess> {
    const engine = await supervisor.start(
      spec,
      { file, args, env: { PATH: process.env['PATH'] ?? '' }, cwd: directory },
      openSync(output, 'a'),
    );
    started.push(engine);
    return engine;
  }
  async function startTree(...flags: string[]): Promise<{ engine: EngineProcess; pids: number[] }> {
    const engine = await start([program('process-tree.mjs'), '--depth', '2', ...flags]);
    const pids = await waitFor(
      () => {
        const seen = [...text().matchAll(/^pid \d (\d+)$/gm)].map(([, pid]) => Number(pid));
        return seen.length === 3 && seen;
      },
      { what: 'three processes' },
    );
    return { engine, pids };
  }
  const alive = (pid: number): boolean => processes.read(pid)?.zombie === false;

  it('ends a group that takes TERM without KILL', async () => {
    const { engine, pids } = await startTree('--polite');
    expect(new Set(engine.members())).toEqual(new Set(pids));
    expect(await engine.end(() => 10_000)).toEqual({ killed: false, survivors: [] });
    expect(pids.filter(alive)).toEqual([]);
    expect(await engine.exited).toEqual({ signal: 'SIGTERM' });
  });

  it('kills a grandchild that ignores TERM after the grace', async () => {
    const { engine, pids } = await startTree();
    expect(await engine.end(() => 150)).toEqual({ killed: true, survivors: [] });
    expect(pids.filter(alive)).toEqual([]);
  });

  it('kills at once when the grace is cut short', async () => {
    const { engine, pids } = await startTree();
    let graceMs = 3_600_000;
    const end = engine.end(() => graceMs);
    await waitFor(() => text().includes('ignoring SIGTERM'), { what: 'TERM to arrive' });
    graceMs = 0;
    expect(await end).toEqual({ killed: true, survivors: [] });
    expect(pids.filter(alive)).toEqual([]);
  });

  it('finds the rest of a group whose leader alone was killed', async () => {
    const { engine, pids } = await startTree();
    process.kill(engine.identity.pid, 'SIGKILL');
    expect(await engine.exited).toEqual({ signal: 'SIGKILL' });
    expect(engine.alive()).toBe(false);
    await waitFor(() => engine.members().length === 2, { what: 'only the leftovers' });
    await engine.end(() => 100);
    expect(pids.filter(alive)).toEqual([]);
  });

  it('finds a member that left the group by its marker', async () => {
    const script = `
      require('node:child_process').spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { detached: true, stdio: 'ignore' });
      setInterval(() => {}, 1000);`;
    const engine = await start(['-e', script]);
    await waitFor(() => engine.members().length === 2, { what: 'both processes' });
    const pids = engine.members();
    await engine.end(() => 5_000);
    expect(pids.filter(alive)).toEqual([]);
  });

  it('finds what is left without a marker after its leader', async () => {
    const script = `
      require('node:child_process').spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { env: {}, stdio: 'inherit' });
      setInterval(() => {}, 1000);`;
    const engine = await start(['-e', script]);
    const pids = await waitFor(() => engine.members().length === 2 && engine.members(), { what: 'both' });
    process.kill(engine.identity.pid, 'SIGKILL');
    await engine.exited;
    // An agent that never saw them together has only the log to go by.
    const later = supervisor.adopt(spec, engine.identity, new AbortController().signal);
    expect(later.members()).toEqual(pids.filter((pid) => pid !== engine.identity.pid));
    await later.end(() => 5_000);
    expect(pids.filter(alive)).toEqual([]);
  });

  it('ends a stopped process', async () => {
    const { engine, pids } = await startTree('--polite');
    for (const pid of pids) process.kill(pid, 'SIGSTOP');
    expect(await engine.end(() => 10_000)).toEqual({ killed: false, survivors: [] });
  });

  it('leaves no zombie and touches nobody else', async () => {
    const stranger = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
    try {
      for (let round = 0; round < 3; round++) await (await start(['-e', 'process.exit(0)'])).exited;
      const { engine } = await startTree();
      await engine.end(() => 50);
      expect(alive(stranger.pid ?? 0)).toBe(true);
      const zombies = processes.list().filter((facts) => facts.zombie && facts.parentPid === process.pid);
      expect(zombies).toEqual([]);
    } finally {
      stranger.kill('SIGKILL');
    }
  });

  it('tells exit codes', async () => {
    expect(await (await start(['-e', 'process.exit(7)'])).exited).toEqual({ code: 7 });
  });

  it('hands over arguments exactly, without a shell', async () => {
    const args = ['$(touch ./pwned)', '`id`', 'a b', '--x="q"', '*', ''];
    await (
      await start(['-e', 'console.log(JSON.stringify(process.argv.slice(1)))', '--', ...args])
    ).exited;
    expect(JSON.parse(text())).toEqual(args);
    expect(() => readFileSync(join(directory, 'pwned'))).toThrow('ENOENT');
  });

  it('says what is wrong with a program that cannot be started', async () => {
    await expect(start([], join(directory, 'nothing'))).rejects.toThrow(SpawnError);
    await expect(start([], program('process-tree.mjs'))).rejects.toMatchObject({ verdict: 'binaryMissing' });
  });

  it('takes over a process that is not its child and sees its end', async () => {
    const { engine } = await startTree('--polite');
    const leave = new AbortController();
    const adopted = supervisor.adopt(spec, engine.identity, leave.signal);
    expect(adopted.alive()).toBe(true);
    process.kill(engine.identity.pid, 'SIGKILL');
    expect(await adopted.exited).toEqual({});
  });

  it('does not take a stranger with a reused pid for its own', async () => {
    const { engine } = await startTree('--polite');
    const { pid, startTicks } = engine.identity;
    const mistaken = supervisor.adopt(
      { ...spec, shardId: 'other' },
      { pid, startTicks: startTicks - 1 },
      new AbortController().signal,
    );
    expect(mistaken.alive()).toBe(false);
    expect(mistaken.members()).toEqual([]);
    expect(await mistaken.end(() => 0)).toEqual({ killed: false, survivors: [] });
    expect(engine.alive()).toBe(true);
  });
});
