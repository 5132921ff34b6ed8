import { afterEach, describe, expect, it } from 'vitest';
import { waitFor } from '../../../test/support/wait-for.js';
import { systemClock } from '../../shared/clock.js';
import { createLogger } from '../../shared/logger.js';
import type { GpuDriver, GpuProbe } from './driver.js';
import { GpuMonitor, type GpuMonitorDeps } from './monitor.js';

const probeOf = (...uuids: string[]): GpuProbe => ({
  gpus: uuids.map((uuid) => ({
    uuid,
    type: 'H100',
    vendor: 'nvidia',
    memoryTotalBytes: 100,
    memoryUsedBytes: 10,
    linkedTo: [],
    signs: {},
  })),
  processes: [
    { uuid: 'A', pid: 1001, memoryBytes: 5 },
    { uuid: 'A', pid: 2002, name: 'ollama', memoryBytes: 5 },
  ],
  notes: [],
});

describe('the GPU monitor', () => {
  let monitor: GpuMonitor | undefined;
  afterEach(() => monitor?.close());

  function watch(probe: GpuDriver['probe'], change: Partial<GpuMonitorDeps> = {}): GpuMonitor {
    monitor = new GpuMonitor({
      driver: { vendor: 'nvidia', probe },
      clock: systemClock,
      logger: createLogger({ level: 'error', format: 'json' }, () => {}),
      timings: { gpuProbeIntervalMs: 10, gpuProbeTimeoutMs: 60, gpuStaleMs: 1_000 },
      isOurs: (pid) => pid === 1001,
      remembered: [],
      bootId: () => 'boot-1',
      onChange: () => {},
      ...change,
    });
    monitor.start();
    return monitor;
  }

  it('tells strangers from our own processes', async () => {
    const seen = watch(() => Promise.resolve(probeOf('A')));
    const picture = await waitFor(() => seen.picture());
    expect(picture.gpus).toMatchObject([
      { uuid: 'A', foreign: [{ pid: 2002, name: 'ollama', memoryBytes: 5 }], health: { state: 'healthy' } },
    ]);
    expect(seen.conditions()).toMatchObject([{ type: 'GpuErrorsNotObservable', blocksPlacement: false }]);
  });

  it('kills a probe that hangs, keeps the last picture, and says when it is too old to place by', async () => {
    let alive = 0;
    let most = 0;
    let hang = false;
    const seen = watch((signal) => {
      if (!hang) return Promise.resolve(probeOf('A'));
      alive += 1;
      most = Math.max(most, alive);
      return new Promise((_, reject) => {
        signal.addEventListener('abort', () => {
          alive -= 1;
          reject(new Error('killed'));
        });
      });
    });
    await waitFor(() => seen.picture());
    hang = true;
    const failing = await waitFor(() => seen.conditions().find(({ type }) => type === 'GpuProbeFailing'));
    expect(failing).toMatchObject({ blocksPlacement: false });
    await waitFor(() => seen.conditions().some(({ blocksPlacement }) => blocksPlacement));
    expect(seen.picture()?.gpus).toHaveLength(1);
    expect(await seen.fresh()).toBeUndefined();
    expect(most).toBe(1);
    hang = false;
    await waitFor(() => seen.conditions().every(({ type }) => type !== 'GpuProbeFailing'));
  });

  it('gives a picture that is younger than the question', async () => {
    let count = 0;
    const seen = watch(async () => {
      count += 1;
      await new Promise((resolve) => setTimeout(resolve, 20));
      return probeOf('A');
    });
    await waitFor(() => count > 0);
    const askedMs = performance.now();
    const fresh = await seen.fresh();
    expect(fresh?.beganMs).toBeGreaterThanOrEqual(askedMs);
  });

  it('remembers devices and findings over a restart, and tells changes', async () => {
    let changes = 0;
    const seen = watch(() => Promise.resolve(probeOf('A')), {
      remembered: [
        {
          uuid: 'B',
          type: 'H200',
          held: [
            {
              reason: 'xid_79',
              state: 'excluded',
              evidence: 'Xid 79',
              cure: 'reboot',
              sinceWallMs: 5,
              bootId: 'boot-1',
            },
          ],
        },
      ],
      onChange: () => (changes += 1),
    });
    const picture = await waitFor(() => seen.picture());
    expect(picture.gpus.find(({ uuid }) => uuid === 'B')).toMatchObject({
      type: 'H200',
      health: { state: 'excluded', evidence: expect.stringContaining('Xid 79') as unknown },
    });
    expect(seen.remembered().map(({ uuid, held }) => [uuid, held.length])).toEqual([
      ['A', 0],
      ['B', 2],
    ]);
    expect(changes).toBe(1);
  });

  it('reports remembered devices as unusable when the driver never answers', async () => {
    const seen = watch(() => Promise.reject(new Error('no driver')), {
      remembered: [{ uuid: 'B', type: 'H200', held: [] }],
    });
    await waitFor(() => seen.conditions().length > 0);
    expect(seen.picture()).toBeUndefined();
    const picture = await waitFor(() => seen.picture());
    expect(picture.gpus).toMatchObject([
      { uuid: 'B', health: { state: 'excluded', reason: 'probe_failing' } },
    ]);
    expect(await seen.fresh()).toBeUndefined();
  });

  it('has a picture at once where there are no GPUs', () => {
    expect(
      watch(() => Promise.reject(new Error('never asked')), { driver: undefined }).picture(),
    ).toMatchObject({
      gpus: [],
    });
  });
});
