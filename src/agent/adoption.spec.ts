import { spawn } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { AgentPrograms, killed } from '../../test/support/agent/agent-process.js';
import { AgentWorld, freePort, profile, startCommand } from '../../test/support/agent/agent-world.js';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { waitFor } from '../../test/support/wait-for.js';
import type { AgentConfig } from '../config/agent-config.js';
import { planAdoption } from './adoption.js';
import { markerVariables } from './marker.js';
import type { ProcessFacts, ProcessTable } from './process-table.js';
import { systemProcessTable } from './process-table.js';
import { shardSpecOf } from './shard-spec.js';
import type { StoredShard } from './state-file.js';

const spec = shardSpecOf(startCommand(20_000));
const facts = (pid: number, change: Partial<ProcessFacts> = {}): ProcessFacts => ({
  pid,
  parentPid: 1,
  groupId: pid,
  sessionId: pid,
  zombie: false,
  startTicks: 100,
  cpuTicks: 0,
  ...change,
});

function tableOf(
  processes: readonly {
    readonly facts: ProcessFacts;
    readonly env?: Record<string, string>;
    readonly output?: string;
  }[],
  bootId = 'boot-1',
): ProcessTable {
  const find = (pid: number) => processes.find((entry) => entry.facts.pid === pid);
  return {
    canIdentify: true,
    read: (pid) => find(pid)?.facts,
    childrenOf: () => [],
    list: () => processes.map((entry) => entry.facts),
    environment: (pid) => {
      const env = find(pid)?.env;
      return env === undefined ? undefined : new Map(Object.entries(env));
    },
    output: (pid) => find(pid)?.output,
    name: () => undefined,
    bootId: () => bootId,
  };
}

describe('planAdoption', () => {
  const me = { agent: 'me', shardsDir: '/state/shards' };
  const log = '/state/shards/r1-0/current.log';
  const marked = markerVariables('me', spec);
  const stored = (change: Partial<StoredShard> = {}): StoredShard => ({
    spec,
    ready: true,
    process: { pid: 500, startTicks: 100, bootId: 'boot-1' },
    ...change,
  });

  it('adopts a process whose pid, start, boot and marker agree', () => {
    const plan = planAdoption(me, [stored()], tableOf([{ facts: facts(500), env: marked }]), false);
    expect(plan).toMatchObject({ adopt: [{ identity: { pid: 500 } }], ended: [], orphans: [] });
  });

  it.each<[string, ProcessFacts, Record<string, string>, string]>([
    ['another start time', facts(500, { startTicks: 101 }), {}, 'boot-1'],
    ['no marker', facts(500), {}, 'boot-1'],
    ["another agent's marker", facts(500), markerVariables('you', spec), 'boot-1'],
    ['another boot', facts(500), {}, 'boot-2'],
    ['only a zombie', facts(500, { zombie: true }), marked, 'boot-1'],
  ])('leaves a process alone that has %s', (_what, process, env, bootId) => {
    const plan = planAdoption(me, [stored()], tableOf([{ facts: process, env }], bootId), false);
    expect(plan.adopt).toEqual([]);
    expect(plan.orphans).toEqual([]);
    expect(plan.ended).toHaveLength(1);
  });

  it('finds a start that was never recorded by its marker', () => {
    const { process: _process, ...before } = stored();
    const plan = planAdoption(me, [before], tableOf([{ facts: facts(600), env: marked }]), false);
    expect(plan.adopt).toMatchObject([{ identity: { pid: 600, startTicks: 100 } }]);
  });

  it('stops what is left of an engine whose leader is gone', () => {
    const rest = facts(501, { groupId: 500, parentPid: 1 });
    const plan = planAdoption(me, [stored()], tableOf([{ facts: rest, env: marked }]), false);
    expect(plan).toMatchObject({
      adopt: [],
      ended: [{ unseen: true }],
      orphans: [{ engine: { mark: 'r1-0@1' }, pids: [501] }],
    });
  });

  // vLLM's EngineCore and workers write their titles over their environment, and outlive an API server that is killed:
  // what held the GPUs was nobody's any more.
  it('knows processes that wiped their marker by the log they write to', () => {
    const wiped = (pid: number, output: string) => ({ facts: facts(pid, { groupId: 500 }), env: {}, output });
    const workers = [
      wiped(501, log),
      wiped(502, '/state/shards/r1-0/previous.log'),
      wiped(503, '/state/shards/r1-0/work/own.log'),
      wiped(504, '/var/log/other/current.log'),
    ];
    expect(planAdoption(me, [stored()], tableOf(workers), false)).toMatchObject({
      ended: [{ unseen: true }],
      orphans: [{ engine: { directory: '/state/shards/r1-0' }, pids: [501, 502] }],
    });
    const leader = { facts: facts(500), env: {}, output: log };
    expect(planAdoption(me, [stored()], tableOf([leader, ...workers]), false)).toMatchObject({
      adopt: [{ identity: { pid: 500 } }],
      orphans: [],
    });
  });

  it('rebuilds the record from markers, and only then', () => {
    const table = tableOf([
      { facts: facts(500), env: marked },
      { facts: facts(501, { groupId: 500 }), env: marked },
    ]);
    expect(planAdoption(me, [], table, true)).toMatchObject({
      adopt: [{ stored: { spec, ready: false }, identity: { pid: 500 } }],
      orphans: [],
    });
    expect(planAdoption(me, [], table, false)).toMatchObject({
      adopt: [],
      orphans: [{ pids: [500, 501] }],
    });
  });
});

describe('an agent that was killed', () => {
  let programs: AgentPrograms;
  let world: AgentWorld;
  let gateway: FakeGateway;
  let config: AgentConfig;

  beforeAll(() => {
    programs = AgentPrograms.compile();
    // On a busy machine compiling takes longer than hooks are given.
  }, 60_000);
  afterAll(() => programs.dispose());
  beforeEach(async () => {
    world = new AgentWorld();
    gateway = await FakeGateway.listen();
    config = world.config(gateway.address);
  });
  afterEach(async () => {
    await programs.killAll();
    // Whatever a spec left running is taken over and ended by an agent that stops what it has.
    config.onExit = 'stop';
    await (await world.start(config)).close();
    await world.dispose();
    gateway.close();
  });

  const stateFile = (): string => join(config.stateDir, 'agent-state.json');

  it('leaves its engine serving; the next one takes it over without a flap', async () => {
    const first = await programs.start(config);
    await waitFor(() => gateway.lastReport);
    gateway.start(startCommand(await freePort()));
    const ready = await gateway.waitForShard('r1-0', 'ready', ({ phase }) => phase === 'ready');
    await killed(first);
    gateway.messages.length = 0;
    await programs.start(config);
    const seen = await gateway.waitForShard('r1-0', 'reported again', () => true);
    expect(seen).toMatchObject({ phase: 'ready', pid: ready.pid, generation: 1, loadMs: ready.loadMs });
    await waitFor(() => gateway.reports.length > 3, { what: 'some reports' });
    expect(new Set(gateway.reports.map((report) => report.shards[0]?.phase))).toEqual(new Set(['ready']));

    process.kill(ready.pid ?? 0, 'SIGKILL');
    const ended = await gateway.waitForShard('r1-0', 'exited', ({ phase }) => phase === 'exited');
    expect(ended.exitSignal).toBeUndefined();
  });

  it('remembers its term, its generations and an end nobody saw', async () => {
    const first = await programs.start(config);
    await waitFor(() => gateway.lastReport);
    const args = ['--say', 'OSError: [Errno 28] No space left on device'];
    gateway.start(startCommand(await freePort(), { generation: 4, profile: profile({ args }) }), 7);
    const ready = await gateway.waitForShard('r1-0', 'ready', ({ phase }) => phase === 'ready');
    await killed(first);
    process.kill(ready.pid ?? 0, 'SIGKILL');
    await waitFor(() => systemProcessTable().read(ready.pid ?? 0)?.zombie !== false);
    gateway.messages.length = 0;
    gateway.term = 7;
    await programs.start(config);
    const seen = await gateway.waitForShard('r1-0', 'reported again', () => true);
    expect(seen).toMatchObject({ phase: 'exited', verdict: 'diskFull' });
    expect(gateway.messages[0]).toMatchObject({ kind: 'hello', hello: { highestTerm: 7 } });
    const stale = gateway.start(startCommand(1, { generation: 9 }), 6);
    expect(await gateway.result(stale)).toMatchObject({ outcome: 'refused' });
    const late = gateway.start(startCommand(1, { generation: 3 }), 7);
    expect(await gateway.result(late)).toMatchObject({ outcome: 'refused' });
  });

  it('moves an unreadable state file aside and finds its engine by the marker', async () => {
    const first = await programs.start(config);
    await waitFor(() => gateway.lastReport);
    gateway.start(startCommand(await freePort()));
    const ready = await gateway.waitForShard('r1-0', 'ready', ({ phase }) => phase === 'ready');
    await killed(first);
    writeFileSync(stateFile(), readFileSync(stateFile()).subarray(0, 40));
    gateway.messages.length = 0;
    await programs.start(config);
    const seen = await gateway.waitForShard('r1-0', 'ready again', ({ phase }) => phase === 'ready');
    expect(seen).toMatchObject({ pid: ready.pid, generation: 1, specDigest: 'd1' });
    expect(gateway.lastReport?.conditions).toMatchObject([
      { type: 'StateFileRebuilt', blocksPlacement: false },
    ]);
    expect(readdirSync(config.stateDir).some((name) => name.includes('unreadable'))).toBe(true);
  });

  it('stops a marked process without a record, and leaves a stranger alone whose pid stands in the record', async () => {
    const stranger = spawn('sleep', ['60'], { stdio: 'ignore' });
    const first = await programs.start(config);
    await waitFor(() => gateway.lastReport);
    gateway.start(startCommand(await freePort()));
    const ready = await gateway.waitForShard('r1-0', 'ready', ({ phase }) => phase === 'ready');
    await killed(first);
    const state = readFileSync(stateFile(), 'utf8');
    writeFileSync(stateFile(), state.replace(`"pid":${ready.pid}`, `"pid":${stranger.pid}`));
    gateway.messages.length = 0;
    await programs.start(config);
    const seen = await gateway.waitForShard('r1-0', 'reported again', () => true);
    expect(seen.phase).toBe('exited');
    expect(gateway.lastReport?.conditions).toMatchObject([{ type: 'OrphanStopped' }]);
    expect(systemProcessTable().read(ready.pid ?? 0)?.zombie).not.toBe(false);
    expect(stranger.exitCode).toBeNull();
    stranger.kill('SIGKILL');
  });

  it('keeps a second agent off its state directory, but not a successor', async () => {
    const first = await programs.start(config);
    await expect(world.start(config)).rejects.toThrow(/another agent \(pid \d+\) uses/);
    await killed(first);
    const second = await world.start(config);
    await second.close();
  });

  it('takes no part of a shard for a path', async () => {
    mkdirSync(config.stateDir, { recursive: true });
    await programs.start(config);
    await waitFor(() => gateway.lastReport);
    gateway.start(startCommand(await freePort(), { shardId: '../../evil/..' }));
    await gateway.waitForShard('../../evil/..', 'ready', ({ phase }) => phase === 'ready');
    expect(readdirSync(join(config.stateDir, 'shards'))).toHaveLength(1);
    expect(readdirSync(world.directory)).toEqual(['state']);
  });
});
