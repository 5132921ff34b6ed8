import { describe, expect, it } from 'vitest';
import { aGpu, aModel, aNode, aProfile, GIB } from '../../../test/support/cluster-builder.js';
import type { BackoffRecord, NodeView } from '../cluster.js';
import { Bookings } from './bookings.js';
import { place } from './place.js';
import { Failures, Learned, type PlacementQuery, type PlacementWorld } from './world.js';

/** `node:gpu,gpu model bytes` holds. */
interface Held {
  readonly on: string;
  readonly model: string;
  readonly gpus: readonly string[];
  readonly bytes?: number;
}

function world(
  nodes: readonly NodeView[],
  held: readonly Held[] = [],
  backoffs: readonly BackoffRecord[] = [],
): PlacementWorld {
  const bookings = new Bookings();
  for (const [index, { on, model, gpus, bytes }] of held.entries())
    bookings.book(model, {
      shardId: `h${index}`,
      nodeId: on,
      gpuUuids: gpus,
      ...(bytes === undefined ? {} : { gpuMemoryBytes: bytes }),
      ports: { http: 20_000 + index },
    });
  return {
    nodes,
    bookings,
    failures: new Failures(backoffs),
    learned: new Learned([]),
    portRange: [20_000, 20_099],
    nowWallMs: 1_000_000,
  };
}

const whole = aModel();
const part = aModel({ profiles: [aProfile({ gpuMemoryBytes: 20 * GIB })] });
const spread = aModel({ ...part, placement: { strategy: 'spread' } });

const chosen = (w: PlacementWorld, model = whole, change: Partial<PlacementQuery> = {}) =>
  place(w, { model, replicaId: 'm-a', generation: 2, ...change })?.shards.flatMap(({ nodeId, gpuUuids }) =>
    gpuUuids.length === 0 ? [nodeId] : gpuUuids,
  );

const failed = (nodeId: string, generation: number): BackoffRecord => ({
  replicaId: 'm-a',
  model: 'm',
  profile: 'p',
  nodeId,
  cause: 'crashed',
  failures: 1,
  delayMs: 5_000,
  untilWallMs: 0,
  permanent: false,
  lastFailureWallMs: 0,
  generation,
  specDigest: '',
});

describe('which place is best', () => {
  it.each<
    [
      string,
      PlacementWorld,
      readonly string[] | undefined,
      Parameters<typeof chosen>[1],
      Partial<PlacementQuery>?,
    ]
  >([
    [
      'pack: the node that keeps the largest hole elsewhere',
      world([aNode('n1', 4), aNode('n2', 2)]),
      ['n2-g0'],
      whole,
    ],
    [
      'pack: the fuller device of a node, so that whole ones stay whole',
      world([aNode('n1', 2)], [{ on: 'n1', model: 'o', gpus: ['n1-g1'], bytes: 20 * GIB }]),
      ['n1-g1'],
      part,
    ],
    [
      'pack: but not the device that carries a copy already',
      world([aNode('n1', 2)], [{ on: 'n1', model: 'm', gpus: ['n1-g0'], bytes: 20 * GIB }]),
      ['n1-g1'],
      part,
    ],
    [
      'pack: another node before the device that carries a copy',
      world([aNode('n1', 1), aNode('n2', 4)], [{ on: 'n1', model: 'm', gpus: ['n1-g0'], bytes: 20 * GIB }]),
      ['n2-g0'],
      part,
    ],
    [
      'a copy beside a copy when there is nothing else',
      world([aNode('n1', 1)], [{ on: 'n1', model: 'm', gpus: ['n1-g0'], bytes: 20 * GIB }]),
      ['n1-g0'],
      part,
    ],
    [
      'spread: the emptiest device of a node',
      world([aNode('n1', 2)], [{ on: 'n1', model: 'o', gpus: ['n1-g0'], bytes: 20 * GIB }]),
      ['n1-g1'],
      spread,
    ],
    [
      'spread: another node before a hole of the same',
      world([aNode('n1', 1), aNode('n2', 8)], [{ on: 'n1', model: 'm', gpus: [] }]),
      ['n2-g0'],
      spread,
    ],
    [
      'spread: the copy that is to go does not count',
      world(
        [aNode('n1', 2), aNode('n2', 2)],
        [
          { on: 'n1', model: 'm', gpus: ['n1-g0'] },
          { on: 'n2', model: 'm', gpus: ['n2-g0'] },
        ],
      ),
      ['n2-g1'],
      spread,
      { leaving: ['n2'] },
    ],
    [
      'spreadBy: another rack before another node of the same',
      world(
        [
          aNode('n1', 1, { labels: { rack: 'r1' } }),
          aNode('n2', 1, { labels: { rack: 'r1' } }),
          aNode('n3', 8, { labels: { rack: 'r2' } }),
        ],
        [{ on: 'n1', model: 'm', gpus: [] }],
      ),
      ['n3-g0'],
      aModel({ placement: { spreadBy: 'rack' } }),
    ],
    [
      'a node it has not failed on before one with a better hole',
      world([aNode('n1', 1), aNode('n2', 8)], [], [failed('n1', 1)]),
      ['n2-g0'],
      whole,
    ],
    [
      'of two it failed on, not the last one again',
      world([aNode('n1', 1), aNode('n2', 1)], [], [failed('n1', 1), failed('n2', 0)]),
      ['n2-g0'],
      whole,
    ],
    [
      'weights on the disk where the holes are alike',
      world([aNode('n1', 1), aNode('n2', 1, { weightsPresent: ['repo/x'] })]),
      ['n2-g0'],
      aModel({ source: 'repo/x' }),
    ],
    [
      'a linked pair before the first two',
      world([aNode('n1', [aGpu('a'), aGpu('b', { linkedTo: ['c'] }), aGpu('c', { linkedTo: ['b'] })])]),
      ['b', 'c'],
      aModel({ profiles: [aProfile({ gpus: 2 })] }),
    ],
    [
      'one device that spoils no pair',
      world([aNode('n1', [aGpu('b', { linkedTo: ['c'] }), aGpu('c', { linkedTo: ['b'] }), aGpu('d')])]),
      ['d'],
      whole,
    ],
    [
      'one type only, however much is free of both together',
      world([aNode('n1', [aGpu('a'), aGpu('b', { type: 'A100' }), aGpu('c', { type: 'A100' })])]),
      ['b', 'c'],
      aModel({ profiles: [aProfile({ gpus: 2 })] }),
    ],
    [
      'nothing when there are only two of each type',
      world([aNode('n1', [aGpu('a'), aGpu('b'), aGpu('c', { type: 'A100' }), aGpu('d', { type: 'A100' })])]),
      undefined,
      aModel({ profiles: [aProfile({ gpus: 4 })] }),
    ],
    [
      'a gang on one type although another node scores better',
      world([aNode('n1', [aGpu('a', { type: 'A100' })]), aNode('n2', 2), aNode('n3', 3)]),
      ['n2-g0', 'n3-g0'],
      aModel({ profiles: [aProfile({ shards: 2 })] }),
    ],
    [
      'no gang that is not whole',
      world([aNode('n1'), aNode('n2')]),
      undefined,
      aModel({ profiles: [aProfile({ shards: 3 })] }),
    ],
    [
      'the first profile that fits, in the order given',
      world([aNode('n1', 1)]),
      ['n1-g0'],
      aModel({ profiles: [aProfile({ name: 'big', gpus: 2 }), aProfile({ name: 'small' })] }),
    ],
    [
      'CPU work by count',
      world([aNode('n1', 0), aNode('n2', 0)], [{ on: 'n1', model: 'o', gpus: [] }]),
      ['n2'],
      aModel({ profiles: [aProfile({ gpus: 0 })] }),
    ],
  ])('%s', (_, given, expected, model, change) => {
    expect(chosen(given, model, change)).toEqual(expected);
  });
});
