import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { freePort, profile, startCommand } from '../../test/support/agent/agent-world.js';
import { waitFor } from '../../test/support/wait-for.js';
import { systemClock } from '../shared/clock.js';
import { llamacppDriver } from './engines/llamacpp.js';
import type { GpuPicture } from './gpu/monitor.js';
import { shardSpecOf } from './shard-spec.js';
import {
  gpusHaveRoom,
  gpusLetGo,
  peersListen,
  turnToLoad,
  weightsAreWhole,
  type StartChecksDeps,
} from './start-checks.js';
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
const repository = {
  source: { kind: 'repository', id: 'org/model' },
  env: { HF_HOME: '/not/there' },
} as const;

describe('a start', () => {
  it('waits until the last of its GPUs is empty, and shows for what', async () => {
    let looks = 0;
    const told: string[] = [];
    const fresh = (): Promise<GpuPicture> => Promise.resolve(picture(++looks < 4 ? 60 * GIB : 0));
    const answer = await gpusHaveRoom(
      spec,
      deps({ gpus: { fresh }, timings: { ...deps().timings, gpuWaitMs: 10_000 } }),
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
    const asked: string[] = [];
    const turn = turnToLoad(
      { ...spec, source: 'org/model@main' },
      repository,
      deps({ loaderOf: (source) => (asked.push(source), loader) }),
      (_phase, what) => told.push(what),
      never,
      () => (done = true),
    );
    await waitFor(() => told.length > 1);
    expect(done).toBe(false);
    expect(told[0]).toBe('waiting for shard r1-0, which fetches org/model');
    loader = undefined;
    await turn;
    expect(done).toBe(true);
    // As it was ordered: what a revision adds to the id tells two models apart.
    expect(new Set(asked)).toEqual(new Set(['org/model@main']));
  });

  it('lets one of two load that start in the same moment', async () => {
    const loading = new Set<string>();
    const told: string[] = [];
    const over = new AbortController();
    const turnOf = (shardId: string): Promise<void> =>
      turnToLoad(
        { ...spec, shardId, source: 'org/model' },
        repository,
        deps({ loaderOf: (_source, except) => [...loading].find((other) => other !== except) }),
        (_phase, what) => told.push(what),
        over.signal,
        () => !over.signal.aborted && loading.add(shardId),
      );
    const turns = [turnOf('r1-0'), turnOf('r2-0')];
    await waitFor(() => told.length > 1);
    expect(loading.size).toBe(1);
    over.abort();
    await Promise.all(turns);
  });

  it('does not wait for weights that are there, and refuses those that are not whole', async () => {
    const root = mkdtempSync(join(tmpdir(), 'llmgw-start-'));
    try {
      const snapshot = join(root, 'hub', 'models--org--model', 'snapshots', 'abc');
      mkdirSync(snapshot, { recursive: true });
      writeFileSync(join(snapshot, 'model.safetensors'), 'x');
      let claimed = false;
      await turnToLoad(
        { ...spec, source: 'org/model' },
        { ...repository, env: { HF_HOME: root } },
        deps({ loaderOf: () => 'r1-0' }),
        () => {},
        never,
        () => (claimed = true),
      );
      expect(claimed).toBe(false);
      const model = join(root, 'half');
      mkdirSync(model);
      writeFileSync(join(model, 'config.json'), '{}');
      writeFileSync(join(model, 'model-00001-of-00002.safetensors'), 'x');
      expect(await weightsAreWhole({ kind: 'path', path: model })).toEqual({
        verdict: 'missingWeights',
        message: `${model} is not whole: it lacks model-00002-of-00002.safetensors`,
      });
    } finally {
      rmSync(root, { recursive: true });
    }
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
    const patient = { ...deps().timings, gpuWaitMs: 10_000 };
    await gpusLetGo(spec, deps({ gpus: { fresh }, timings: patient }), (what) => told.push(what));
    expect(looks).toBe(3);
    expect(told).toContain('gpu C still holds 61440 MiB');
    await gpusLetGo(spec, deps({ gpus: { fresh: () => Promise.resolve(picture(60 * GIB)) } }), () => {});
  });
});
