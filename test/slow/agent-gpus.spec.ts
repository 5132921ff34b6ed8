/** Memory of GPUs that others hold, with real processes behind it: who waits, for what, for how long, and who is blamed. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { ModelDetailView } from '../../src/admin-api/views/models.js';
import type { ShardView } from '../../src/admin-api/views/replicas.js';
import { FakeNvidiaSmi } from '../support/agent/fake-nvidia-smi.js';
import { ServedNode } from '../support/agent/served-node.js';
import { adminGet } from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

const GPUS = ['a', 'b', 'c', 'd'].map((letter) => `GPU-${letter.repeat(8)}-0000-0000-0000-000000000000`);
const MIB = 2 ** 20;
const HELD_MIB = 61_440;

const SERVER = `
control: { interval: 200ms, baseBackoff: 1s, settleAfterStart: 5s }
models:
  - name: m1
    replicas: 0
    profiles: [{ name: sim, engine: sim, gpus: 4, args: ["--ttft-ms", "10", "--tpot-ms", "5"] }]
`;

describe('a shard of four GPUs', () => {
  const smi = new FakeNvidiaSmi(GPUS);
  const holders: ChildProcess[] = [];
  let node: ServedNode;

  beforeAll(async () => {
    node = await ServedNode.start({
      server: SERVER,
      agent: 'gpus: { driver: nvidia }\n',
      env: { PATH: smi.path },
    });
  });
  afterAll(async () => {
    await node?.dispose();
    smi.remove();
  });
  afterEach(nothingRuns);

  async function nothingRuns(): Promise<void> {
    for (const holder of holders.splice(0)) holder.kill('SIGKILL');
    smi.hold();
    await node.scale('m1', 0);
    await waitFor(async () => (await node.replicas()).length === 0, {
      deadlineMs: 30_000,
      what: 'nothing to run',
    });
  }

  /** Somebody else's process that holds memory of one device. */
  function stranger(uuid: string): number {
    const holder = spawn('sleep', ['600'], { stdio: 'ignore' });
    holders.push(holder);
    const pid = holder.pid ?? expect.fail('no sleep');
    smi.hold({ uuid, mib: HELD_MIB, pid });
    return pid;
  }

  /** Asks for a replica while the server still believes what the last probe saw, and somebody comes in between. */
  async function startAgainst(uuid: string): Promise<number> {
    for (;;) {
      await smi.probed();
      const pid = stranger(uuid);
      await node.scale('m1', 1);
      if (await isStarted(pid)) return pid;
      // The next probe was quicker than the start, which then never comes.
      await nothingRuns();
    }
  }

  function isStarted(strangerPid: number): Promise<boolean> {
    return waitFor(
      async () => {
        const { shards } = await node.replica();
        if (shards.length > 0) return { started: true };
        const explained = JSON.stringify(await adminGet(node.urls, 'placements/m1/explain'));
        return explained.includes(`used by pid ${strangerPid} (sleep)`) && { started: false };
      },
      { deadlineMs: 30_000, what: 'a start, or why there is none' },
    ).then(({ started }) => started);
  }

  function shard(
    what: string,
    holds: (shard: ShardView) => boolean,
    deadlineMs = 30_000,
  ): Promise<ShardView> {
    return waitFor(
      async () => {
        const { shards } = await node.replica();
        if (shards[0] !== undefined && holds(shards[0])) return shards[0];
        throw new Error(JSON.stringify(shards));
      },
      { deadlineMs, what: `the shard ${what}` },
    );
  }

  it('waits for a stranger on the third of them, names it, and starts when it has gone', async () => {
    const uuid = GPUS[2] ?? '';
    const pid = await startAgainst(uuid);
    const waiting = await shard('waiting', ({ phase }) => phase === 'waitingForGpu');
    expect(waiting.progress).toBe(`gpu ${uuid} still holds ${HELD_MIB + 12} MiB, pids ${pid} (sleep)`);
    expect(waiting.pid).toBeUndefined();
    const device = await waitFor(
      async () => (await node.node()).gpuDevices.find(({ foreign }) => foreign.length > 0),
      { deadlineMs: 30_000, what: 'the stranger in the report' },
    );
    expect(device).toMatchObject({
      uuid,
      foreign: [{ pid, name: 'sleep', memoryBytes: HELD_MIB * MIB }],
    });
    // It is one wait, not one failure after the other.
    expect(await node.replica()).toMatchObject({ generation: 1, restarts: 0 });

    holders[0]?.kill('SIGKILL');
    expect(await node.untilPublished()).toMatchObject({ generation: 1, restarts: 0 });
    expect((await node.replica()).backoff).toBeUndefined();
  });

  it('reports the most memory it ever had on one of them, its helpers included', async () => {
    await smi.probed();
    await node.scale('m1', 1);
    await node.untilPublished();
    const pid = await node.leaderPid();
    const peak = async (mib: number): Promise<void> => {
      await shard(`with a peak of ${mib} MiB`, ({ memoryPeakBytes }) => memoryPeakBytes === mib * MIB);
    };
    smi.hold(...GPUS.map((uuid, at) => ({ uuid, mib: 30_000 + at, pid })));
    await peak(30_003);
    smi.hold(...GPUS.map((uuid) => ({ uuid, mib: 20_000, pid })));
    await smi.probed();
    await peak(30_003);
  });

  it('has not ended before all of them are empty; what follows starts at once then', async () => {
    const uuid = GPUS[1] ?? '';
    await smi.probed();
    await node.scale('m1', 1);
    await node.untilPublished();
    // The driver goes on holding what a dead process had, as it does for pinned memory.
    smi.hold({ uuid, mib: HELD_MIB });
    process.kill(await node.leaderPid(), 'SIGKILL');
    const ending = await shard('ending', ({ progress }) => progress?.startsWith('gpu ') === true);
    expect(ending).toMatchObject({
      phase: 'stopping',
      progress: `gpu ${uuid} still holds ${HELD_MIB + 12} MiB`,
      generation: 1,
    });
    const { gpus, gpuDevices } = await node.node();
    expect(gpus.free).toBe(0);
    expect(gpuDevices.every(({ heldBy }) => heldBy.length === 1)).toBe(true);
    await waitFor(async () => (await node.published()) === undefined, {
      deadlineMs: 20_000,
      what: 'it to leave the router',
    });
    smi.hold();
    expect(await node.untilPublished()).toMatchObject({ generation: 2, restarts: 1 });
  });

  it('gives up after a minute with who holds what, which is held against nobody', async () => {
    const uuid = GPUS[3] ?? '';
    const pid = await startAgainst(uuid);
    const model = (): Promise<ModelDetailView> => adminGet<ModelDetailView>(node.urls, 'models/m1');
    const [record] = await waitFor(
      async () => {
        const { backoffs } = await model();
        return backoffs.length > 0 && backoffs;
      },
      { deadlineMs: 90_000, what: 'the verdict' },
    );
    expect(record).toMatchObject({
      cause: 'gpuNotEmpty',
      permanent: false,
      lastMessage: `gpu ${uuid} still holds ${HELD_MIB + 12} MiB, pids ${pid} (sleep)`,
    });
    // By now the server knows of the stranger itself, and does not even try.
    await waitFor(
      async () => {
        const explained = JSON.stringify(await adminGet(node.urls, 'placements/m1/explain'));
        if (!explained.includes(`used by pid ${pid} (sleep)`)) throw new Error(explained);
        return true;
      },
      { deadlineMs: 30_000, what: 'the stranger as the reason' },
    );
    expect(await node.replica()).toMatchObject({ generation: 1, restarts: 0, published: false });

    const holder = holders[0] ?? expect.fail('no holder');
    const gone = once(holder, 'exit');
    holder.kill('SIGKILL');
    await gone;
    await node.untilPublished();
    // Nothing of it makes the next real crash wait longer.
    const crashes = (await model()).backoffs.filter(({ cause }) => cause !== 'gpuNotEmpty');
    expect(crashes).toEqual([]);
  });
});
