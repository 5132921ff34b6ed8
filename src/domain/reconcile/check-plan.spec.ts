import { describe, expect, it } from 'vitest';
import {
  aGpu,
  aModel,
  aNode,
  aProfile,
  aReplica,
  aShard,
  aSnapshot,
  GIB,
  reportsOf,
  withReports,
} from '../../../test/support/cluster-builder.js';
import type { ReplicaRecord } from '../cluster.js';
import type { Action, Plan, PublishedReplica } from '../plan.js';
import { NO_MEMORY, type Snapshot } from '../snapshot.js';
import { checkPlan, type ViolationCode, VIOLATIONS } from './check-plan.js';

const why = { code: 'planted', message: 'planted' };
const model = aModel();
const part = aModel({ profiles: [aProfile({ gpuMemoryBytes: 50 * GIB })] });
const gang = aModel({ profiles: [aProfile({ shards: 2 })] });

/** Two Ready replicas of one model on two nodes with two devices each, and nothing to do. */
const one = aReplica('m-a', model, 'n1');
const two = aReplica('m-b', model, 'n2');

const willing = aModel({ replicas: 2, placement: { mayYield: true } });
/** Waits for the place of m-a. */
const waiting: ReplicaRecord = {
  ...aReplica('high-a', aModel({ name: 'high', priority: 200 }), 'n1', { shards: [], generation: 0 }),
  reserved: {
    profile: 'p',
    shards: [{ nodeId: 'n1', gpuUuids: ['n1-g0'] }],
    victims: ['m-a'],
    models: ['m'],
  },
};

/** Placed where m-a runs, and not started yet. */
const aloneOnOne = aReplica('m-c', model, 'n1', { shards: [aShard('m-c', 'n1')] });
const running = withReports([aNode('n1', 2), aNode('n2', 2)], [...reportsOf(one), ...reportsOf(two)]);

function world(change: Partial<Snapshot> = {}, records: readonly ReplicaRecord[] = [one, two]): Snapshot {
  const nodes = withReports(
    [aNode('n1', 2), aNode('n2', 2)],
    records.flatMap((record) => reportsOf(record)),
  );
  return aSnapshot({ models: [{ ...model, replicas: records.length }], nodes, replicas: records, ...change });
}

function published(record: ReplicaRecord, change: Partial<PublishedReplica> = {}): PublishedReplica {
  const [shard] = record.shards;
  return {
    replicaId: record.id,
    generation: record.generation,
    model: record.model,
    profile: record.profile,
    nodeId: shard?.nodeId ?? '',
    address: '10.0.0.1',
    port: shard?.ports.http ?? 0,
    engine: 'sim',
    weight: 1,
    ...change,
  };
}

function plan(actions: readonly Action[], change: Partial<Plan> = {}): Plan {
  return {
    number: 2,
    term: 1,
    actions,
    notDone: [],
    published: [published(one), published(two)],
    explanations: [],
    events: [],
    conditions: [],
    memory: NO_MEMORY,
    ...change,
  };
}

/** A record that was just placed. */
function fresh(change: Partial<ReplicaRecord> = {}, of = model): ReplicaRecord {
  const {
    startedWallMs: _started,
    readyWallMs: _ready,
    ...rest
  } = aReplica('m-c', of, 'n1', {
    shards: [aShard('m-c', 'n1', { gpuUuids: ['n1-g1'], ports: { http: 20_001 } })],
    ...change,
  });
  return rest;
}

const create = (record: ReplicaRecord): Action => ({ kind: 'createReplica', record, reason: why });
const update = (record: ReplicaRecord): Action => ({ kind: 'updateReplica', record, reason: why });
const shardOf = (record: ReplicaRecord, rank = 0) => record.shards[rank] ?? aShard(record.id, 'n1');

const start = (record: ReplicaRecord, rank = 0): Action => ({
  kind: 'startShard',
  command: {
    ...shardOf(record, rank),
    replicaId: record.id,
    generation: record.generation,
    model: record.model,
    aliases: [],
    profile: aProfile(),
    shards: record.shards.length,
    peers: [],
    specDigest: record.specDigest,
  },
  reason: why,
});

const stop = (record: ReplicaRecord): Action => ({
  kind: 'stopShard',
  command: {
    nodeId: shardOf(record).nodeId,
    shardId: shardOf(record).shardId,
    replicaId: record.id,
    generation: record.generation,
    graceMs: 1_000,
  },
  reason: why,
});

const placedAt = (gpuUuids: readonly string[], http = 20_001, nodeId = 'n1') =>
  fresh({ shards: [aShard('m-c', nodeId, { gpuUuids, ports: { http } })] });

const drained = aNode('n1', 2, { intent: { target: 'drained', actor: 'ann', atWallMs: 0, sequence: 1 } });

const bad: readonly (readonly [ViolationCode, string, Snapshot, Plan])[] = [
  ['wrong_term', 'made for another term', world(), plan([], { term: 7 })],
  ['plan_not_next', 'made from an older state', world({ planNumber: 2 }), plan([])],
  ['gpu_double_booked', 'a device that is held whole', world(), plan([create(placedAt(['n1-g0']))])],
  [
    'gpu_double_booked',
    'one device for two new replicas',
    world(),
    plan([create(placedAt(['n1-g1'])), create({ ...placedAt(['n1-g1'], 20_002), id: 'm-d' })]),
  ],
  [
    'gpu_double_booked',
    'the device of one whose stop nobody has confirmed',
    world({}, [{ ...one, intent: 'stop' }, two]),
    plan([create(placedAt(['n1-g0']))], { published: [published(two)] }),
  ],
  [
    'gpu_double_booked',
    'the device of an engine without a record',
    world({ replicas: [two] }),
    plan([create(placedAt(['n1-g0']))], { published: [published(two)] }),
  ],
  [
    'gpu_memory_overbooked',
    'more memory than the device has',
    world({ models: [part], nodes: [aNode('n1', [aGpu('n1-g1')])], replicas: [] }, []),
    plan(
      ['m-c', 'm-d'].map((id, index) =>
        create(
          fresh(
            {
              id,
              shards: [
                aShard(id, 'n1', {
                  gpuUuids: ['n1-g1'],
                  gpuMemoryBytes: 50 * GIB,
                  ports: { http: 20_001 + index },
                }),
              ],
            },
            part,
          ),
        ),
      ),
      { published: [] },
    ),
  ],
  ['port_double_booked', 'a port of the same node', world(), plan([create(placedAt(['n1-g1'], 20_000))])],
  [
    'place_blocked',
    'a drained node',
    world({ nodes: [drained, aNode('n2')], replicas: [] }, []),
    plan([create(fresh())], { published: [] }),
  ],
  [
    'place_blocked',
    'a silent node',
    world({ nodes: [aNode('n1', 2, { liveness: 'unreachable' })], replicas: [] }, []),
    plan([create(fresh())], { published: [] }),
  ],
  ['place_blocked', 'a node nobody knows', world(), plan([create(placedAt([''], 20_001, 'n9'))])],
  [
    'gpu_unfit',
    'an excluded device',
    world({ nodes: [aNode('n1', [aGpu('n1-g1', { health: { state: 'excluded' } })])], replicas: [] }, []),
    plan([create(fresh())], { published: [] }),
  ],
  [
    'gpu_unfit',
    'devices of two types',
    world(
      {
        models: [aModel({ profiles: [aProfile({ gpus: 2 })] })],
        nodes: [aNode('n1', [aGpu('n1-g0'), aGpu('n1-g1', { type: 'A100' })])],
        replicas: [],
      },
      [],
    ),
    plan([create(placedAt(['n1-g0', 'n1-g1']))], { published: [] }),
  ],
  ['gpu_unfit', 'fewer devices than the profile wants', world(), plan([create(placedAt([]))])],
  [
    'gang_incomplete',
    'one of two shards placed',
    world({ models: [gang], nodes: [aNode('n1', 2), aNode('n2', 2)], replicas: [] }, []),
    plan([create(fresh({}, gang))], { published: [] }),
  ],
  [
    'gang_incomplete',
    'one of two shards started',
    world({ models: [gang], nodes: [aNode('n1', 2), aNode('n2', 2)], replicas: [] }, []),
    (() => {
      const record = fresh(
        {
          shards: [
            aShard('m-c', 'n1', { gpuUuids: ['n1-g1'], ports: { http: 20_001, rendezvous: 20_002 } }),
            aShard('m-c', 'n2', {
              rank: 1,
              gpuUuids: ['n2-g1'],
              ports: { http: 20_001, rendezvous: 20_002 },
            }),
          ],
        },
        gang,
      );
      return plan([create(record), start(record)], { published: [] });
    })(),
  ],
  ['start_without_record', 'nobody wants the start', world(), plan([start(fresh())])],
  [
    'start_without_record',
    "of a generation that is not the record's",
    world(),
    plan([start({ ...one, generation: 2 })]),
  ],
  [
    'start_while_older_runs',
    'the generation before still runs',
    world(),
    plan([update({ ...one, generation: 2 }), start({ ...one, generation: 2 })], {
      published: [published(two)],
    }),
  ],
  [
    'start_in_taken_place',
    'another runs on its device',
    world({ replicas: [one, two, aloneOnOne], nodes: running }),
    plan([start(aloneOnOne)]),
  ],
  [
    'start_in_taken_place',
    'something without a record listens on its port',
    world({ replicas: [two, aloneOnOne], nodes: running }),
    plan([start(aloneOnOne)], { published: [published(two)] }),
  ],
  [
    'published_not_ready',
    'one that is loading',
    world({
      nodes: withReports([aNode('n1', 2), aNode('n2', 2)], [...reportsOf(one, 'loading'), ...reportsOf(two)]),
    }),
    plan([]),
  ],
  [
    'published_not_ready',
    'an older generation',
    world(),
    plan([], { published: [published(one, { generation: 0 }), published(two)] }),
  ],
  [
    'published_not_ready',
    'one on a lost node',
    world(),
    plan([{ kind: 'setNodeLiveness', nodeId: 'n1', liveness: 'lost', reason: why }]),
  ],
  [
    'published_twice',
    'a replica twice',
    world(),
    plan([], { published: [published(one), published(one, { port: 1 })] }),
  ],
  [
    'published_twice',
    'two replicas at one address',
    world(),
    plan([], { published: [published(one), published(two, { nodeId: 'n1' })] }),
  ],
  ['stop_while_published', 'in the router and stopped', world(), plan([stop(one)])],
  [
    'stop_with_inflight',
    'requests neither ended nor told',
    world({ inflight: new Map([['m-a@1', 2]]) }, [{ ...one, intent: 'stop' }, two]),
    plan([stop(one)], { published: [published(two)] }),
  ],
  [
    'stop_of_wanted',
    'a healthy engine stopped although nothing was decided about it',
    world(),
    plan([stop(one)], { published: [published(two)] }),
  ],
  [
    'generation_went_back',
    'a lower number',
    world(),
    plan([update({ ...one, generation: 0 })], { published: [published(two)] }),
  ],
  [
    'below_desired',
    'a serving copy taken away for nothing',
    world(),
    plan([update({ ...one, intent: 'drain' })], { published: [published(two)] }),
  ],
  [
    'deleted_while_running',
    'a record forgotten while its engine runs',
    world(),
    plan([{ kind: 'deleteReplica', replicaId: 'm-a', reason: why }], { published: [published(two)] }),
  ],
  [
    'deleted_while_running',
    'and while its node is silent',
    world({ nodes: [aNode('n1', 2, { liveness: 'unreachable' }), aNode('n2', 2)] }),
    plan([{ kind: 'deleteReplica', replicaId: 'm-a', reason: why }], { published: [] }),
  ],
  [
    'yield_not_allowed',
    'one is asked to make room that never agreed to',
    world(),
    plan([create(waiting)], { published: [published(one), published(two)] }),
  ],
  [
    'yield_not_allowed',
    'and one that is no lower',
    world({ models: [willing, aModel({ name: 'high', priority: 100 })] }),
    plan([create(waiting)], { published: [published(one), published(two)] }),
  ],
  [
    'reserved_room_taken',
    'a place on the device that is kept for another',
    world({ replicas: [two, waiting] }, [two]),
    plan([create({ ...one, id: 'm-c', startedWallMs: undefined } as unknown as ReplicaRecord)], {
      published: [published(two)],
    }),
  ],
];

describe('a plan that breaks an invariant is refused', () => {
  it.each(bad.map(([code, story, given, planted]) => ({ code, story, given, planted })))(
    '$code: $story',
    ({ code, given, planted }) => {
      const found = checkPlan(given, planted);
      expect(found.map((violation) => violation.code)).toContain(code);
      for (const { subject, message } of found) {
        expect(subject).not.toBe('');
        expect(message).not.toBe('');
      }
    },
  );

  it('every violation there is has a planted plan', () => {
    expect(VIOLATIONS.filter((code) => !bad.some(([planted]) => planted === code))).toEqual([]);
  });
});

describe('a sound plan passes', () => {
  const ending: ReplicaRecord = {
    ...one,
    intent: 'drain',
    intentReason: { code: 'scale_down', message: '' },
  };

  it.each<[string, Snapshot, Plan]>([
    ['that does nothing', world(), plan([])],
    [
      'that places and starts a replica',
      world({ models: [{ ...model, replicas: 3 }] }),
      plan([create(fresh()), start(fresh())]),
    ],
    [
      'that places on what a confirmed stop has freed',
      world({ nodes: withReports([aNode('n1', 1), aNode('n2', 2)], reportsOf(two)) }, [
        { ...one, intent: 'stop' },
        two,
      ]),
      plan([create(placedAt(['n1-g0']))], { published: [published(two)] }),
    ],
    [
      'that scales down: out of the router first, and nothing more',
      world({ models: [{ ...model, replicas: 1 }] }),
      plan([update(ending)], { published: [published(two)] }),
    ],
    [
      'that stops what nobody uses any more',
      world({ models: [{ ...model, replicas: 1 }] }, [{ ...ending, intent: 'stop' }, two]),
      plan([stop(one)], { published: [published(two)] }),
    ],
    [
      'that stops what still runs after its requests were told',
      world({ models: [{ ...model, replicas: 1 }], inflight: new Map([['m-a@1', 1]]) }, [
        { ...ending, intent: 'stop' },
        two,
      ]),
      plan([{ kind: 'abortInflight', replicaId: 'm-a', generation: 1, reason: why }, stop(one)], {
        published: [published(two)],
      }),
    ],
    [
      'that shares a device with room for both',
      world(
        {
          models: [part],
          nodes: [aNode('n1', [aGpu('n1-g1', { memoryTotalBytes: 100 * GIB })])],
          replicas: [],
        },
        [],
      ),
      plan(
        ['m-c', 'm-d'].map((id, index) =>
          create(
            fresh(
              {
                id,
                shards: [
                  aShard(id, 'n1', {
                    gpuUuids: ['n1-g1'],
                    gpuMemoryBytes: 50 * GIB,
                    ports: { http: 20_001 + index },
                  }),
                ],
              },
              part,
            ),
          ),
        ),
        { published: [] },
      ),
    ],
  ])('%s', (_, given, sound) => {
    expect(checkPlan(given, sound)).toEqual([]);
  });
});
