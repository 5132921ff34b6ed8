/** What an agent that was killed leaves behind, and what its successor makes of it: real engines of several processes. */
import { spawn, type ChildProcess } from 'node:child_process';
import { Agent } from 'node:http';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MARKER_AGENT, MARKER_SHARD } from '../../src/agent/marker.js';
import { systemProcessTable } from '../../src/agent/process-table.js';
import { program } from '../support/agent/agent-world.js';
import { ServedNode } from '../support/agent/served-node.js';
import { chat } from '../support/streamed-chat.js';
import { waitFor } from '../support/wait-for.js';

const SIM = `
control: { interval: 200ms, baseBackoff: 1s, settleAfterStart: 5s }
models:
  - name: m1
    profiles: [{ name: p, engine: sim, gpus: 0, args: ["--ttft-ms", "10", "--tpot-ms", "10"] }]
`;
/** A wrapper, the engine proper, and a worker whose own worker ignores TERM. */
const TREE = `
control: { interval: 200ms, baseBackoff: 1s, settleAfterStart: 5s }
models:
  - name: m1
    profiles: [{ name: p, engine: command, gpus: 0, stopGrace: 1s }]
`;
const WRAPPER = [
  `${process.execPath} ${program('process-tree.mjs')} --depth 1 &`,
  `${process.execPath} ${program('fake-engine.mjs')} --port {port} --model {model} & wait`,
].join(' ');
const AGENT = `gpus: { driver: none }\nengines:\n  command: { binary: /bin/sh, baseArgs: ['-c', '${WRAPPER}'] }\n`;

const REBUILT = 'StateFileRebuilt: the state file was gone; engines were found by their markers';

/** Twenty hold as well; each takes seconds. */
const RESTARTS = Number(process.env['LLMGW_AGENT_RESTARTS'] ?? 8);

const table = systemProcessTable();
const lives = (pid: number): boolean => table.read(pid)?.zombie === false;

describe('an agent that was killed', () => {
  let node: ServedNode;
  const strangers: ChildProcess[] = [];
  afterEach(async () => {
    for (const stranger of strangers.splice(0)) stranger.kill('SIGKILL');
    await node.dispose();
  });

  const stateFile = (): string => join(node.stateDir, 'agent-state.json');
  function stranger(env: Readonly<Record<string, string>> = {}): number {
    const child = spawn('sleep', ['600'], {
      stdio: 'ignore',
      detached: true,
      env: { ...process.env, ...env },
    });
    strangers.push(child);
    return child.pid ?? expect.fail('no sleep');
  }
  /** All live processes of the engine that this leader began. */
  const familyOf = (leader: number): number[] =>
    table
      .list()
      .filter(({ groupId, zombie }) => groupId === leader && !zombie)
      .map(({ pid }) => pid);
  /** All four of it: the engine may serve before its worker has a worker. */
  const wholeFamily = async (): Promise<number[]> => {
    const leader = await node.leaderPid();
    return waitFor(
      () => {
        const family = familyOf(leader);
        return family.length === 4 && family;
      },
      { deadlineMs: 20_000, what: 'the engine with all of its processes' },
    );
  };
  const conditions = async (): Promise<string[]> =>
    (await node.node()).conditions.map(({ type, reason }) => `${type}: ${reason}`);
  /** Before it spoke with the server it had said this. */
  function saidBeforeConnecting(msg: string): boolean {
    const said = node.agent.log.map((line) => line.msg);
    return said.includes(msg) && said.indexOf(msg) < said.indexOf('connected to the server');
  }

  describe('over an engine that serves', () => {
    const sockets = new Agent({ keepAlive: true });
    beforeEach(async () => {
      node = await ServedNode.start({ server: SIM, agent: AGENT });
      await node.untilPublished();
    });
    afterEach(() => sockets.destroy());

    it('loses nothing when its state file is gone: the engine is known by its marker', async () => {
      const before = { ...(await node.published()), pid: await node.leaderPid() };
      const outcomes: string[] = [];
      let over = false;
      const client = (async () => {
        while (!over) outcomes.push(await chat(node.urls.client, sockets, 5));
      })();
      try {
        await node.killAgent();
        rmSync(stateFile());
        await node.startAgent();
        await waitFor(async () => (await conditions()).includes(REBUILT), {
          deadlineMs: 20_000,
          what: 'a word about it',
        });
        const enough = outcomes.length + 5;
        await waitFor(() => outcomes.length >= enough, { deadlineMs: 20_000, what: 'requests after it' });
      } finally {
        over = true;
        await client;
      }
      expect(new Set(outcomes)).toEqual(new Set(['whole']));
      expect(saidBeforeConnecting('engine of an earlier agent taken over')).toBe(true);
      // Another engine would have another pid and generation for good.
      await waitFor(
        async () => {
          const { id, generation } = (await node.published()) ?? expect.fail('not published');
          expect({ id, generation, pid: await node.leaderPid() }).toEqual({
            id: before.id,
            generation: before.generation,
            pid: before.pid,
          });
          return true;
        },
        { deadlineMs: 20_000, what: 'the engine of before' },
      );
    });
  });

  it('is followed by others again and again, and the engine serves on', async () => {
    const sockets = new Agent({ keepAlive: true });
    node = await ServedNode.start({ server: SIM, agent: 'gpus: { driver: none }' });
    await node.untilPublished();
    const before = { ...(await node.published()), pid: await node.leaderPid() };
    const outcomes: string[] = [];
    let over = false;
    let unpublished = 0;
    const client = (async () => {
      while (!over) outcomes.push(await chat(node.urls.client, sockets, 5));
    })();
    const watcher = (async () => {
      while (!over) if ((await node.published()) === undefined) unpublished += 1;
    })();
    try {
      for (let restart = 0; restart < RESTARTS; restart++) {
        await node.killAgent();
        await node.startAgent();
        // Half of them live long enough to look at the engine, the others are killed right away.
        const enough = outcomes.length + (restart % 2) * 10;
        await waitFor(() => outcomes.length >= enough, { deadlineMs: 20_000, what: 'requests after it' });
      }
    } finally {
      over = true;
      await Promise.all([client, watcher]);
      sockets.destroy();
    }
    expect([new Set(outcomes), unpublished]).toEqual([new Set(['whole']), 0]);
    const { id, generation } = (await node.published()) ?? expect.fail('not published');
    expect({ id, generation, pid: await node.leaderPid() }).toEqual({
      id: before.id,
      generation: before.generation,
      pid: before.pid,
    });
    const mine = table.environment(before.pid)?.get(MARKER_AGENT);
    const owned = table.list().filter(({ pid }) => table.environment(pid)?.get(MARKER_AGENT) === mine);
    expect(owned.map(({ pid }) => pid)).toEqual([before.pid]);
  }, 480_000);

  describe('over an engine of several processes', () => {
    let empty: string;
    beforeEach(async () => {
      node = await ServedNode.start({
        server: TREE.replace('name: m1', 'name: m1\n    replicas: 0'),
        agent: AGENT,
      });
      empty = await waitFor(() => readFileSync(stateFile(), 'utf8'), {
        deadlineMs: 20_000,
        what: 'a state file',
      });
      await node.scale('m1', 1);
      await node.untilPublished();
    });

    it('ends the whole of it, the deaf worker too, when the shard is stopped', async () => {
      const family = await wholeFamily();
      await node.scale('m1', 0);
      await waitFor(() => !family.some(lives), { deadlineMs: 30_000, what: 'the end of all of it' });
    });

    it('reports the shard as failed when the wrapper alone is killed, and ends the rest', async () => {
      const leader = await node.leaderPid();
      const family = await wholeFamily();
      process.kill(leader, 'SIGKILL');
      await waitFor(async () => ((await node.published())?.generation ?? 0) > 1, {
        deadlineMs: 60_000,
        what: 'the next generation',
      });
      expect(family.filter(lives)).toEqual([]);
    });

    it('has a successor that ends what no record knows before it takes a start', async () => {
      const leader = await node.leaderPid();
      const family = await wholeFamily();
      await node.killAgent();
      writeFileSync(stateFile(), empty);
      // Only what is known by its marker is left of it.
      process.kill(leader, 'SIGKILL');
      const others = [stranger(), stranger({ [MARKER_AGENT]: 'another', [MARKER_SHARD]: 'm1-x.0@1' })];
      await node.startAgent();
      expect(saidBeforeConnecting('orphan of an earlier agent is stopped')).toBe(true);
      expect(family.filter(lives)).toEqual([]);
      const reason = await waitFor(
        async () => (await conditions()).find((condition) => condition.startsWith('OrphanStopped')),
        { deadlineMs: 20_000, what: 'a word about it' },
      );
      for (const pid of family.filter((one) => one !== leader)) expect(reason).toContain(String(pid));
      await waitFor(async () => ((await node.published())?.generation ?? 0) > 1, {
        deadlineMs: 60_000,
        what: 'the next generation',
      });
      expect(others.filter(lives)).toEqual(others);
    });

    it.each<[string, (state: string, leader: number) => string]>([
      [
        'got the pid of the engine',
        (state, leader) => state.replace(`"pid":${leader}`, `"pid":${stranger()}`),
      ],
      [
        'has the pid and a later start',
        (state, leader) => {
          const pid = stranger();
          const ticks = table.read(pid)?.startTicks ?? 0;
          return state
            .replace(`"pid":${leader}`, `"pid":${pid}`)
            .replace(/"startTicks":\d+/, `"startTicks":${ticks - 1}`);
        },
      ],
      [
        'has pid and start of a record from before a reboot',
        (state, leader) => {
          const pid = stranger();
          const ticks = table.read(pid)?.startTicks ?? 0;
          return state
            .replace(`"pid":${leader}`, `"pid":${pid}`)
            .replace(/"startTicks":\d+/, `"startTicks":${ticks}`)
            .replace(/"bootId":"[^"]*"/, '"bootId":"an-earlier-one"');
        },
      ],
    ])('has a successor that leaves a stranger alone that %s', async (_what, forge) => {
      const leader = await node.leaderPid();
      await node.killAgent();
      writeFileSync(stateFile(), forge(readFileSync(stateFile(), 'utf8'), leader));
      const pid = strangers.at(-1)?.pid ?? expect.fail('no stranger');
      await node.startAgent();
      // The engine itself, which no record leads to any more, makes room for the next.
      await waitFor(async () => ((await node.published())?.generation ?? 0) > 1, {
        deadlineMs: 60_000,
        what: 'the next generation',
      });
      expect(lives(leader)).toBe(false);
      expect(lives(pid)).toBe(true);
    });
  });
});
