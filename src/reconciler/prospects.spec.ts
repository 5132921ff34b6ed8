import { describe, expect, it } from 'vitest';
import { aModel, aReplica } from '../../test/support/cluster-builder.js';
import type { LearnedFact, ReplicaView } from '../domain/cluster.js';
import { NO_MEMORY, type ControlMemory } from '../domain/snapshot.js';
import { expectedReadyMs, modelProspects } from './prospects.js';

const MODEL = aModel({ name: 'm' });
const NOW_MS = 100_000;
const FACT: LearnedFact = {
  model: 'm',
  profile: MODEL.profiles[0]?.name ?? '',
  gpuType: 'H100',
  loadMs: [40_000],
};

const replica = (id: string): ReplicaView =>
  ({ record: aReplica(id, MODEL, 'n1'), state: 'loading' }) as unknown as ReplicaView;
const remembering = (id: string, change: object): ControlMemory => ({
  ...NO_MEMORY,
  replicas: new Map([[id, { generation: 1, sinceMs: 0, told: [], ...change }]]),
});
const expected = (memory: ControlMemory, learned: readonly LearnedFact[] = [FACT]) =>
  expectedReadyMs(replica('m-r1'), { learned, memory, nowMs: NOW_MS });

describe('the time until a replica is Ready', () => {
  it('is the load time of earlier starts, less what has passed of this one', () => {
    expect(expected(NO_MEMORY)).toBe(40_000);
    expect(expected(remembering('m-r1', { startSinceMs: NOW_MS - 15_000 }))).toBe(25_000);
  });

  it('includes the wait after a failure', () => {
    expect(expected(remembering('m-r1', { retryAtMs: NOW_MS + 5_000 }))).toBe(45_000);
  });

  it('is never promised shorter than the next pass takes', () => {
    expect(expected(remembering('m-r1', { startSinceMs: NOW_MS - 60_000 }))).toBe(1_000);
  });

  it('is unknown where nothing was measured', () => {
    expect(expected(NO_MEMORY, [])).toBeUndefined();
  });

  it('of a model is that of its soonest replica', () => {
    const prospects = modelProspects({
      replicas: [replica('m-r1'), replica('m-r2')],
      learned: [FACT],
      memory: remembering('m-r2', { startSinceMs: NOW_MS - 30_000 }),
      plan: undefined,
      settling: false,
      nowMs: NOW_MS,
    });
    expect(prospects.get('m')).toEqual({
      states: ['loading', 'loading'],
      placementExpected: false,
      expectedReadyMs: 10_000,
    });
  });
});
