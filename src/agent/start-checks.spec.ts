import { describe, expect, it } from 'vitest';
import { freePort, profile, startCommand } from '../../test/support/agent/agent-world.js';
import { waitFor } from '../../test/support/wait-for.js';
import { systemClock } from '../shared/clock.js';
import { llamacppDriver } from './engines/llamacpp.js';
import type { GpuPicture } from './gpu/monitor.js';
import { shardSpecOf } from './shard-spec.js';
import { gpusHaveRoom, gpusLetGo, peersListen, turnToLoad, type StartChecksDeps } from './start-checks.js';
import { createServer } from 'node:net';

const GIB = 2 ** 30;

function deps(change: Partial<StartChecksDeps> = {}): StartChecksDeps {
  return {
    clock: systemClock,
    timings: { gpuWaitMs: 150, gpuWaitPollMs: 5, probeMaxMs: 20, probeTimeoutMs: 500 },
    gpus: { fresh: () => Promise.resolve(undefined) },
    stateDir: '/',
    holders: () => [],
    loaderOf: () => undefined,
    ...change,
  };
}
/** Four devices, one of which still holds memory of a process that is gone. */
function picture(usedBytes: number): GpuPicture {
  return {
    beganMs: 0,
    processes: [],
    indices: new Map(),
    gpus: ['A', 'B', 'C', 'D'].map((uuid) => ({
      uuid,
      type: 'H100',
      vendor: 'nvidia',
      memoryTotalBytes: 80 * GIB,
      memoryUsedBytes: uuid === 'C' ? usedBytes : 0,
      foreign: [],
      health: { state: 'healthy' },
      linkedTo: [],
    })),
  };
}
const spec = shardSpecOf(startCommand(1, { gpuUuids: ['A', 'B', 'C', 'D'] }));
const never = new AbortController().signal;

describe('a start', () => {
  it('waits until the last of its GPUs is empty, and shows for what', async () => {
    let looks = 0;
    const told: string[] = [];
    const fresh = (): Promise<GpuPicture> => Promise.resolve(picture(++looks < 4 ? 60 * GIB : 0));
    const answer = await gpusHaveRoom(
      spec,
      deps({ gpus: { fresh } }),
      (_phase, what) => told.push(what),
      never,
    );
    expect(answer).toBeUndefined();
    expect(looks).toBe(4);
    expect(told).toContain('gpu C still holds 61440 MiB, no visible process');
  });

  it('gives up waiting with a verdict that is not the fault of the model', async () => {
    const fresh = (): Promise<GpuPicture> => Promise.resolve(picture(60 * GIB));
    expect(await gpusHaveRoom(spec, deps({ gpus: { fresh } }), () => {}, never)).toEqual({
      verdict: 'gpuNotEmpty',
      message: 'gpu C still holds 61440 MiB, no visible process',
    });
    expect(await gpusHaveRoom(spec, deps(), () => {}, never)).toMatchObject({ verdict: 'gpuNotEmpty' });
  });

  it('stops waiting when it is told to stop', async () => {
    const stop = new AbortController();
    const waiting = gpusHaveRoom(
      spec,
      deps({ timings: { ...deps().timings, gpuWaitMs: 1e9 } }),
      () => {},
      stop.signal,
    );
    stop.abort();
    expect(await waiting).toBeUndefined();
  });

  it('waits for the shard that fetches the same weights', async () => {
    let loader: string | undefined = 'r1-0';
    const told: string[] = [];
    let done = false;
    const turn = turnToLoad(
      spec,
      { kind: 'repository', id: 'org/model' },
      deps({ loaderOf: () => loader }),
      (_phase, what) => told.push(what),
      never,
    ).then(() => (done = true));
    await waitFor(() => told.length > 1);
    expect(done).toBe(false);
    expect(told[0]).toBe('waiting for shard r1-0, which fetches org/model');
    loader = undefined;
    await turn;
  });

  it('of an RPC head waits for its workers', async () => {
    const port = await freePort();
    const start = startCommand(1, {
      shards: 2,
      profile: profile({ engine: 'llamacpp', shards: 2, startTimeoutMs: 5_000 }),
      peers: [
        { rank: 0, address: '127.0.0.1', ports: { http: 1 } },
        { rank: 1, address: '127.0.0.1', ports: { http: port } },
      ],
    });
    const told: string[] = [];
    const waiting = peersListen(llamacppDriver, start, deps(), (_phase, what) => told.push(what), never);
    await waitFor(() => told[0] === `waiting for rank 1 on 127.0.0.1:${port}`);
    const worker = createServer().listen(port, '127.0.0.1');
    expect(await waiting).toBeUndefined();
    worker.close();
    const impatient = { ...start, profile: { ...start.profile, startTimeoutMs: 0 } };
    worker.close();
    await waitFor(
      async () => (await peersListen(llamacppDriver, impatient, deps(), () => {}, never)) !== undefined,
    );
  });
});

describe('an end', () => {
  it('counts only when the devices hold nothing any more, within a bound', async () => {
    let looks = 0;
    const told: string[] = [];
    const fresh = (): Promise<GpuPicture> => Promise.resolve(picture(++looks < 3 ? 60 * GIB : 0));
    await gpusLetGo(spec, deps({ gpus: { fresh } }), (what) => told.push(what));
    expect(looks).toBe(3);
    expect(told).toContain('gpu C still holds 61440 MiB');
    await gpusLetGo(spec, deps({ gpus: { fresh: () => Promise.resolve(picture(60 * GIB)) } }), () => {});
  });
});
