import { describe, expect, it } from 'vitest';
import { aModel, aNode, aProfile, GIB } from '../../../test/support/cluster-builder.js';
import { IdealCluster } from '../../../test/support/ideal-cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { ForecastRun, UNKNOWN_LOAD_MS, type Forecast } from './forecast.js';

function cluster(models: readonly ModelSpec[], gpus: number, nodes = 1): IdealCluster {
  const made = Object.assign(new IdealCluster(), {
    models,
    nodes: Array.from({ length: nodes }, (_, index) => aNode(`n${index + 1}`, gpus)),
  });
  made.run(40_000);
  made.log.length = 0;
  return made;
}

const withArgs = (name: string, arg: string, change: Partial<ModelSpec> = {}): ModelSpec =>
  aModel({ name, profiles: [aProfile({ args: [arg] })], ...change });

function forecast(c: IdealCluster, models: readonly ModelSpec[]): Forecast {
  const published = new Set(c.published().map((key) => key.split('@')[0] ?? ''));
  const now = { nowMs: c.nowMs, nowWallMs: c.wallMs };
  const run = new ForecastRun(c.snapshot(), models, c.policy, now, published);
  while (run.step());
  return run.result();
}

/** Steps as text, new copies by a number in order of appearance. */
function told(result: Forecast, known: readonly string[]): readonly string[] {
  const names = new Map(known.map((id) => [id, id]));
  const nameOf = (id: string): string => {
    if (!names.has(id)) names.set(id, `new ${names.size - known.length + 1}`);
    return names.get(id) ?? id;
  };
  return result.steps.map(
    ({ kind, replicaId, nodeIds }) => `${nameOf(replicaId)} ${kind} on ${nodeIds.join('+')}`,
  );
}

describe('a forecast', () => {
  it('of what is so already has no step', () => {
    const c = cluster([withArgs('a', '--x', { replicas: 2 })], 2);
    expect(forecast(c, c.models)).toMatchObject({ steps: [], stuck: [], endMs: 0, cut: false });
  });

  it('of a rolling change has the copies one after another, the new one first, with measured times', () => {
    const c = cluster([withArgs('a', '--x', { replicas: 2 }), withArgs('b', '--x')], 4);
    const known = c
      .recordsOf('a')
      .map(({ id }) => id)
      .toSorted();
    const result = forecast(c, [withArgs('a', '--y', { replicas: 2 }), withArgs('b', '--x')]);
    expect(told(result, known)).toEqual([
      'new 1 starts on n1',
      'new 1 serves on n1',
      `${known[0]} leaves on n1`,
      `${known[0]} stopped on n1`,
      'new 2 starts on n1',
      'new 2 serves on n1',
      `${known[1]} leaves on n1`,
      `${known[1]} stopped on n1`,
    ]);
    expect(result.service.find(({ model }) => model === 'a')).toEqual({
      model: 'a',
      now: 2,
      fewest: 2,
      gapMs: 0,
    });
    expect(result.endMs).toBeGreaterThanOrEqual(2 * (c.loadMs + c.policy.steadyMs));
    expect(result.unmeasured).toEqual([]);
  });

  it('is what then happens', () => {
    const c = cluster(
      [withArgs('a', '--x', { replicas: 2, priority: 200 }), withArgs('b', '--x'), withArgs('c', '--x')],
      3,
      2,
    );
    const models = [
      withArgs('a', '--y', { replicas: 3, priority: 200 }),
      withArgs('b', '--y'),
      withArgs('d', '--x'),
    ];
    const expected = forecast(c, models);
    c.models = models;
    c.run(400_000);
    const places = (steps: readonly string[]) => steps.map((line) => / on (\S+)$/.exec(line)?.[1]);
    const starts = c.log.filter((line) => line.startsWith('start '));
    expect(places(starts)).toEqual(
      expected.steps.filter(({ kind }) => kind === 'starts').map(({ nodeIds }) => nodeIds.join('+')),
    );
    const stops = c.log.flatMap((line) => /^stop (\S+)\.0@/.exec(line)?.[1] ?? []);
    expect(expected.steps.filter(({ kind }) => kind === 'stopped').map(({ replicaId }) => replicaId)).toEqual(
      stops,
    );
  });

  it('says that without room the old copy stays, or how long nobody serves where stopping first is allowed', () => {
    const c = cluster([withArgs('a', '--x')], 1);
    const waits = forecast(c, [withArgs('a', '--y')]);
    expect(waits.steps).toEqual([]);
    expect(waits.stuck.map(({ reason }) => reason.code)).toEqual(['no_surge']);
    const swaps = forecast(c, [withArgs('a', '--y', { onNoSurge: 'swap' })]);
    expect(swaps.steps.map(({ kind }) => kind)).toEqual(['leaves', 'stopped', 'starts', 'serves']);
    const [service] = swaps.service;
    expect(service).toMatchObject({ now: 1, fewest: 0 });
    expect(service?.gapMs).toBeGreaterThanOrEqual(c.loadMs);
    expect(service?.gapMs).toBeLessThan(c.loadMs + 1_000);
  });

  it('of fewer or no copies is no loss of service', () => {
    const c = cluster([withArgs('a', '--x', { replicas: 3 }), withArgs('b', '--x')], 4);
    const result = forecast(c, [withArgs('a', '--x', { replicas: 1 })]);
    expect(result.service).toEqual([{ model: 'a', now: 3, fewest: 3, gapMs: 0 }]);
    expect(result.steps.map(({ kind }) => kind).toSorted()).toEqual([
      ...Array<string>(3).fill('leaves'),
      ...Array<string>(3).fill('stopped'),
    ]);
  });

  it('names what was never measured, and frees the memory of what stops', () => {
    const big = aProfile({ gpuMemoryBytes: 60 * GIB });
    const c = cluster([aModel({ name: 'a', profiles: [big] })], 1);
    c.nodes = c.nodes.map((node) => ({
      ...node,
      gpus: node.gpus.map((gpu) => ({ ...gpu, memoryUsedBytes: 60 * GIB })),
    }));
    const result = forecast(c, [aModel({ name: 'z', profiles: [big] })]);
    expect(result.steps.filter(({ model }) => model === 'z').map(({ kind }) => kind)).toEqual([
      'starts',
      'serves',
    ]);
    expect(result.unmeasured).toEqual(['z/p']);
    expect(result.endMs).toBeGreaterThanOrEqual(UNKNOWN_LOAD_MS);
  });
});
