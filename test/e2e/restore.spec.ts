import { cpSync, existsSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { ReplicaDetailView, ReplicaSummaryView } from '../../src/admin-api/views/replicas.js';
import type { StatusView } from '../../src/admin-api/views/status.js';
import {
  adminGet,
  LlmgwProcess,
  Scratch,
  startServerProcess,
  type Exit,
  type ServerUrls,
} from '../support/llmgw-process.js';
import { liveEngines } from '../support/live-engines.js';
import { waitFor } from '../support/wait-for.js';

const CONFIG = `
control: { interval: 200ms, baseBackoff: 1s, settleAfterStart: 5s, unreachableAfter: 2s, lostAfter: 60s }
models:
  - name: m1
    replicas: 1
    profiles:
      - name: sim
        engine: sim
        gpus: 1
        args: ["--ttft-ms", "20", "--tpot-ms", "5"]
`;

const agentConfig = (n: number): string => `
gpus:
  driver: static
  static:
    - { uuid: GPU-${n}-0, type: sim-80g, memory: 80GiB }
    - { uuid: GPU-${n}-1, type: sim-80g, memory: 80GiB }
    - { uuid: GPU-${n}-2, type: sim-80g, memory: 80GiB }
`;

describe('a server put back to an older state', () => {
  let scratch: Scratch;
  let server: LlmgwProcess;
  let urls: ServerUrls;
  let agents: LlmgwProcess[];
  /** Servers that a test started beside the first. */
  let others: LlmgwProcess[];

  beforeEach(async () => {
    scratch = new Scratch();
    agents = [];
    others = [];
    scratch.file('server.yaml', CONFIG);
    await start();
    agents.push(startAgent(1, urls.agent, 'keep'));
  });

  afterEach(async () => {
    for (const process of [...agents, ...others, server]) await process.dispose();
    // Where a test broke off, engines outlive an agent that was not told to stop them.
    for (const pid of engines(1)) process.kill(pid, 'SIGKILL');
    scratch.remove();
  });

  async function start(args: readonly string[] = []): Promise<void> {
    const started = await startServerProcess(scratch, ['--config', scratch.path('server.yaml'), ...args]);
    server = started.process;
    urls = started.urls;
  }

  function startAgent(n: number, address: string, onExit: 'stop' | 'keep'): LlmgwProcess {
    return new LlmgwProcess(
      [
        ...['agent', '--server', address, '--node-id', `n${n}`],
        ...['--config', scratch.file(`agent-${n}.yaml`, agentConfig(n))],
        ...['--state-dir', scratch.path(`agent-${n}`)],
      ],
      onExit === 'stop' ? { LLMGW_ON_EXIT: 'stop' } : {},
      scratch.dir,
    );
  }

  async function ctl(...args: string[]): Promise<{ exit: Exit; stdout: string; stderr: string }> {
    const run = new LlmgwProcess(['ctl', '--server', urls.admin, ...args], {}, scratch.dir);
    const exit = await run.ended();
    return { exit, stdout: run.stdout, stderr: run.stderr };
  }

  const replicas = async (from = urls): Promise<readonly ReplicaSummaryView[]> =>
    (await adminGet<ListView<ReplicaSummaryView>>(from, 'replicas')).items;
  const published = async (from = urls): Promise<readonly ReplicaSummaryView[]> =>
    (await replicas(from)).filter((replica) => replica.published);
  const scale = async (n: number): Promise<void> => {
    const response = await fetch(`${urls.admin}/admin/v1/models/m1/scale`, {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ replicas: n }),
    });
    expect(response.status).toBe(200);
  };
  const readyCount = (n: number, from = urls): Promise<unknown> =>
    waitFor(async () => (await published(from)).length === n && (await replicas(from)).length === n, {
      deadlineMs: 60_000,
      what: `${n} Ready replicas`,
    });
  const pidsOf = async (ids: readonly string[]): Promise<number[]> =>
    Promise.all(
      ids.map(async (id) => (await adminGet<ReplicaDetailView>(urls, `replicas/${id}`)).shards[0]?.pid ?? 0),
    );

  /** Pids of the engines of machine `n`. */
  const engines = (n: number): number[] => liveEngines(scratch.path(`agent-${n}`)).map(({ pid }) => pid);

  it('takes over or stops what runs, starts nothing twice, and goes forward', async () => {
    await readyCount(1);
    const [first] = await published();
    const file = scratch.path('old.backup');
    const made = await ctl('backup', 'create', file);
    expect(made).toMatchObject({ exit: { code: 0 } });
    expect(made.stdout).toContain('1 replicas');
    expect((await ctl('backup', 'create', file)).exit.code).toBe(7);
    const verified = await ctl('-o', 'json', 'backup', 'verify', file);
    expect(JSON.parse(verified.stdout)).toMatchObject({ schema: 1, term: 1, records: { replicas: 1 } });

    // What the start taught is in the state, with the real engine's load time.
    const model = await ctl('model', 'm1');
    expect(model.stdout).toMatch(/sim on sim-80g: .*loads in \d/);

    await scale(2);
    await readyCount(2);
    const before = await published();
    const pids = await pidsOf(before.map(({ id }) => id));

    const stateDir = scratch.path('server-state');
    const running = await ctl('backup', 'restore', file, '--state-dir', stateDir, '--replace');
    expect(running.exit.code).toBe(7);
    expect(running.stderr).toContain('another server uses the state directory');
    server.signal('SIGKILL');
    await server.ended();
    expect((await ctl('backup', 'restore', file)).exit.code).toBe(2);
    expect((await ctl('backup', 'restore', file, '--state-dir', stateDir)).exit.code).toBe(7);
    const restored = await ctl('-o', 'json', 'backup', 'restore', file, '--state-dir', stateDir, '--replace');
    expect(restored).toMatchObject({ exit: { code: 0 } });
    const { movedAside } = JSON.parse(restored.stdout) as { movedAside: string };
    expect(existsSync(`${movedAside}/state.db`)).toBe(true);

    await start(['--agent-listen', urls.agent]);
    const { term } = await adminGet<StatusView>(urls, 'status');
    expect(term).toBeGreaterThan(1_000);
    // The old state wants one. The second replica's engine is known to the agent only: it is taken over as it runs and
    // then, one being enough, it or the other is drained. No third is ever started.
    await waitFor(
      async () => {
        expect(engines(1).filter((pid) => !pids.includes(pid))).toEqual([]);
        return (await replicas()).length === 1 && (await published()).length === 1;
      },
      { deadlineMs: 60_000, what: 'one replica left' },
    );
    const [left] = await published();
    expect(before.map(({ id }) => id)).toContain(left?.id);
    expect(pids).toContain((await pidsOf([left?.id ?? '']))[0]);

    // A start after the restore must not be taken for the old generation of the same name.
    await scale(3);
    await readyCount(3);
    expect(engines(1)).toHaveLength(3);
    expect((await published()).every(({ generation }) => generation >= (first?.generation ?? 0))).toBe(true);
  });

  it('and its double beside it have one engine between them, whichever the machine turns to', async () => {
    await readyCount(1);
    const [replica] = await published();
    const [pid] = engines(1);
    // Both are at the same term: the copy and the original each take the next number of their own file.
    server.signal('SIGKILL');
    await server.ended();
    cpSync(scratch.path('server-state'), scratch.path('double-state'), { recursive: true });
    await start(['--agent-listen', urls.agent]);
    const double = await startServerProcess(scratch, [
      ...['--config', scratch.path('server.yaml'), '--state-dir', scratch.path('double-state')],
    ]);
    others.push(double.process);
    const connected = (to: ServerUrls): Promise<unknown> =>
      waitFor(async () => (await adminGet<StatusView>(to, 'status')).nodes.byState.connected === 1, {
        deadlineMs: 30_000,
        what: 'the agent there',
      });
    // Ready it is from the snapshot too: the agent must have heard this server's term before it turns away.
    await connected(urls);
    await readyCount(1);
    const termOf = async (of: ServerUrls) => (await adminGet<StatusView>(of, 'status')).term ?? 0;
    expect(await termOf(double.urls)).toBe(await termOf(urls));

    const turnTo = async (to: ServerUrls, from: ServerUrls, onExit: 'stop' | 'keep'): Promise<void> => {
      await agents[0]?.dispose();
      agents[0] = startAgent(1, to.agent, onExit);
      // The agent obeyed that number already, for somebody else: whoever speaks now takes a higher one. By this alone it
      // is known to be back; a node that it left a moment ago still counts as connected.
      await waitFor(async () => (await termOf(to)) > (await termOf(from)), {
        deadlineMs: 30_000,
        what: 'the higher term',
      });
      await connected(to);
      await readyCount(1, to);
      expect(engines(1)).toEqual([pid]);
    };
    await turnTo(double.urls, urls, 'keep');
    await turnTo(urls, double.urls, 'stop');
    expect((await published()).map(({ id, generation }) => [id, generation])).toEqual([
      [replica?.id, replica?.generation],
    ]);
  });
});
