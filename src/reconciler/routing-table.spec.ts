import { describe, expect, it } from 'vitest';
import type { ReplicaState } from '../domain/cluster.js';
import type { ModelSpec } from '../domain/model-spec.js';
import type { PublishedReplica } from '../domain/plan.js';
import { buildRoutingTable, type RoutingInput } from './routing-table.js';

const model = (name: string, change: Partial<ModelSpec> = {}): ModelSpec => ({
  name,
  aliases: [],
  replicas: 1,
  fallback: [],
  priority: 100,
  placement: { strategy: 'pack', nodeSelector: {}, antiAffinity: false },
  profiles: [],
  ...change,
});

const published: PublishedReplica = {
  replicaId: 'm1-a',
  generation: 3,
  model: 'm1',
  profile: 'h100',
  nodeId: 'n1',
  address: '10.0.0.1',
  port: 20_000,
  engine: 'vllm',
  maxConcurrency: 8,
  weight: 2,
};

const build = (change: Partial<RoutingInput>) =>
  buildRoutingTable({
    version: 4,
    models: [model('m1')],
    published: [],
    prospects: new Map(),
    defaultProfile: 'interactive',
    staticModels: new Set(),
    ...change,
  });

describe('the routing table', () => {
  it('holds exactly the published replicas, by id and generation', () => {
    expect(build({ published: [published] }).endpoints).toEqual([
      {
        id: 'm1-a',
        generation: 3,
        protocol: 'http',
        host: '10.0.0.1',
        port: 20_000,
        basePath: '',
        models: ['m1'],
        pool: 'h100',
        weight: 2,
        engine: 'vllm',
        nodeId: 'n1',
        maxConcurrency: 8,
      },
    ]);
    expect(build({}).endpoints).toEqual([]);
  });

  it.each<[string, Partial<RoutingInput>, string]>([
    ['one that is published', { published: [published] }, 'ready'],
    ['one that a static endpoint serves', { staticModels: new Set(['m1']) }, 'ready'],
    ['one without any replica', {}, 'none'],
  ])('calls %s', (_, change, outlook) => {
    expect(build(change).models[0]?.outlook).toBe(outlook);
  });

  it.each<[ReplicaState, boolean, 'coming' | 'none']>([
    ['starting', false, 'coming'],
    ['loading', false, 'coming'],
    ['unreachable', false, 'coming'],
    ['backoff', false, 'coming'],
    ['pending', true, 'coming'],
    ['pending', false, 'none'],
    ['failed', true, 'none'],
    ['stopping', true, 'none'],
  ])(
    'a replica that is %s (a place expected: %s) makes the outlook %s',
    (state, placementExpected, outlook) => {
      const prospects = new Map([['m1', { states: [state], placementExpected, expectedReadyMs: 40_000 }]]);
      const [only] = build({ prospects }).models;
      expect(only?.outlook).toBe(outlook);
      // What a waiting client is told must not be told to one that waits for nothing.
      expect(only?.expectedReadyMs).toBe(outlook === 'coming' ? 40_000 : undefined);
    },
  );

  it('passes on what the router needs of a model', () => {
    const models = [
      model('m1', { aliases: ['a'], routing: 'batch', fallback: ['m2'], replicas: 0 }),
      model('m2'),
    ];
    expect(build({ models }).models).toMatchObject([
      { name: 'm1', aliases: ['a'], routingProfile: 'batch', fallback: ['m2'], desired: 0 },
      { name: 'm2', routingProfile: 'interactive', desired: 1 },
    ]);
  });
});
