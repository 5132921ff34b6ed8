import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { aGpu, aModel, aNode, aProfile, aShard, GIB } from '../../../test/support/cluster-builder.js';
import type { NodeView } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { Bookings } from './bookings.js';
import { place } from './place.js';
import { Failures, Learned, type PlacementQuery, type PlacementWorld } from './world.js';
import { chooseYield, compareSets, type YieldCandidate, worldWithout, yieldRefusal } from './yielding.js';

const high = aModel({ name: 'high', priority: 200 });
const low = (priority = 50, mayYield = true): ModelSpec =>
  aModel({ name: `low${priority}`, priority, placement: { mayYield } });

/** A replica on some devices, given as `n1-g0`. */
function holder(
  replicaId: string,
  model: ModelSpec,
  devices: readonly string[],
  change: Partial<YieldCandidate> & { readonly gigabytes?: number } = {},
): YieldCandidate {
  const nodes = [...new Set(devices.map((uuid) => uuid.split('-')[0] ?? ''))];
  const { gigabytes, ...rest } = change;
  const shards = nodes.map((nodeId, rank) =>
    aShard(replicaId, nodeId, {
      rank,
      gpuUuids: devices.filter((uuid) => uuid.startsWith(`${nodeId}-`)),
      ports: { http: 20_000 + replicaId.charCodeAt(replicaId.length - 1) },
      ...(gigabytes === undefined ? {} : { gpuMemoryBytes: gigabytes * GIB }),
    }),
  );
  return { replicaId, model, shards, serving: true, movable: false, inflight: 0, createdWallMs: 0, ...rest };
}

function worldOf(nodes: readonly NodeView[], holders: readonly YieldCandidate[]): PlacementWorld {
  const bookings = new Bookings();
  for (const { model, shards } of holders) for (const shard of shards) bookings.book(model.name, shard);
  return {
    nodes,
    bookings,
    failures: new Failures([]),
    learned: new Learned([]),
    portRange: [20_000, 20_999],
    nowWallMs: 0,
  };
}

const asking = (model: ModelSpec): PlacementQuery => ({ model, replicaId: 'r', generation: 1 });
const chosen = (nodes: readonly NodeView[], holders: readonly YieldCandidate[], model = high) =>
  chooseYield(worldOf(nodes, holders), asking(model), holders)?.victims.map(({ replicaId }) => replicaId);

describe('who makes room', () => {
  it.each<[string, readonly NodeView[], readonly YieldCandidate[], readonly string[] | undefined]>([
    [
      'the fewest, though they are not the lowest',
      [aNode('n1', 1), aNode('n2', 2)],
      [holder('a', low(90), ['n1-g0']), holder('b', low(10), ['n2-g0']), holder('c', low(10), ['n2-g1'])],
      ['b'],
    ],
    [
      'the lowest of equally many',
      [aNode('n1', 2)],
      [holder('a', low(90), ['n1-g0']), holder('b', low(10), ['n1-g1'])],
      ['b'],
    ],
    [
      'one that can be moved before one that would be stopped',
      [aNode('n1', 2)],
      [holder('a', low(90), ['n1-g0'], { movable: true }), holder('b', low(10), ['n1-g1'])],
      ['a'],
    ],
    [
      'one that does not serve yet before one that does',
      [aNode('n1', 2)],
      [holder('a', low(90), ['n1-g0'], { serving: false }), holder('b', low(10), ['n1-g1'])],
      ['a'],
    ],
    [
      'the smallest that is enough',
      [aNode('n1', 3)],
      [holder('a', low(), ['n1-g0', 'n1-g1']), holder('b', low(), ['n1-g2'])],
      ['b'],
    ],
    [
      'the one with fewer requests, then the newest',
      [aNode('n1', 3)],
      [
        holder('a', low(), ['n1-g0'], { inflight: 1, createdWallMs: 9 }),
        holder('b', low(), ['n1-g1'], { createdWallMs: 1 }),
        holder('c', low(), ['n1-g2'], { createdWallMs: 2 }),
      ],
      ['c'],
    ],
    ['nobody of the same priority', [aNode('n1')], [holder('a', low(200), ['n1-g0'])], undefined],
    ['nobody of a higher one', [aNode('n1')], [holder('a', low(300), ['n1-g0'])], undefined],
    ['nobody who may not', [aNode('n1')], [holder('a', low(50, false), ['n1-g0'])], undefined],
    [
      'nobody where it would not fit even then',
      [
        aNode('n1', 1, { liveness: 'unreachable' }),
        aNode('n2', [aGpu('n2-g0', { health: { state: 'suspect' } })]),
      ],
      [holder('a', low(), ['n1-g0']), holder('b', low(), ['n2-g0'])],
      undefined,
    ],
  ])('is %s', (_what, nodes, holders, expected) => {
    expect(chosen(nodes, holders)).toEqual(expected);
    expect(chosen(nodes.toReversed(), holders.toReversed())).toEqual(expected);
  });

  it('is as much memory as is needed, what is measured included', () => {
    const nodes = [aNode('n1', [aGpu('n1-g0', { memoryUsedBytes: 75 * GIB })])];
    const holders = [
      holder('a', low(10), ['n1-g0'], { gigabytes: 20 }),
      holder('b', low(20), ['n1-g0'], { gigabytes: 50 }),
    ];
    const wants = (gigabytes: number) =>
      aModel({ ...high, profiles: [aProfile({ gpuMemoryBytes: gigabytes * GIB })] });
    expect(chosen(nodes, holders, wants(22))).toEqual(['a']);
    expect(chosen(nodes, holders, wants(40))).toEqual(['b']);
    expect(chosen(nodes, holders, wants(70))).toEqual(['a', 'b']);
    expect(chosen(nodes, holders, wants(90))).toBeUndefined();
  });

  it('is a whole gang, and for a gang nobody twice', () => {
    const nodes = [aNode('n1'), aNode('n2'), aNode('n3'), aNode('n4')];
    const holders = [
      holder('gang', low(40), ['n1-g0', 'n2-g0']),
      holder('a', low(10), ['n3-g0']),
      holder('b', low(10), ['n4-g0']),
    ];
    const pair = aModel({ ...high, profiles: [aProfile({ shards: 2 })] });
    expect(chosen(nodes, holders, pair)).toEqual(['a', 'b']);
    expect(chosen(nodes.slice(0, 3), holders.slice(0, 2), pair)).toEqual(['gang']);
  });

  it('is found where a node is full of small ones', () => {
    const holders = Array.from({ length: 8 }, (_, index) =>
      holder(`r${index}`, low(index), [`n1-g${index}`]),
    );
    const wide = aModel({ ...high, profiles: [aProfile({ gpus: 8 })] });
    expect(chosen([aNode('n1', 8)], holders, wide)?.length).toBe(8);
    const half = aModel({ ...high, profiles: [aProfile({ gpus: 4 })] });
    expect(chosen([aNode('n1', 8)], holders, half)).toEqual(['r0', 'r1', 'r2', 'r3']);
  });
});

// ---------------------------------------------------------------- in general

const someHolders = fc.array(
  fc.record({
    node: fc.integer({ min: 0, max: 2 }),
    first: fc.integer({ min: 0, max: 3 }),
    count: fc.constantFrom(1, 1, 2),
    priority: fc.constantFrom(10, 50, 100, 200, 300),
    mayYield: fc.constantFrom(true, true, false),
    serving: fc.boolean(),
    movable: fc.boolean(),
    inflight: fc.nat(2),
  }),
  { minLength: 3, maxLength: 9 },
);

const someCluster = fc
  .record({ drawn: someHolders, gpus: fc.constantFrom(1, 2, 3, 4), shards: fc.constantFrom(1, 1, 1, 2) })
  .map(({ drawn, gpus, shards }) => {
    const taken = new Set<string>();
    const holders = drawn.flatMap(({ node, first, count, priority, mayYield, ...rest }, index) => {
      const devices = Array.from({ length: count }, (_, at) => `n${node}-g${(first + at) % 4}`);
      if (devices.some((uuid) => taken.has(uuid)) || new Set(devices).size < count) return [];
      for (const uuid of devices) taken.add(uuid);
      const of = aModel({ name: `m${priority}${mayYield}`, priority, placement: { mayYield } });
      return [holder(`r${index}`, of, devices, rest)];
    });
    const model = aModel({ ...high, profiles: [aProfile({ gpus, shards })] });
    return { nodes: ['n0', 'n1', 'n2'].map((id) => aNode(id, 4)), holders, model };
  });

describe('whoever makes room', () => {
  it('is allowed to, is enough, is not one too many, and for one shard no other set is better', () => {
    let found = 0;
    fc.assert(
      fc.property(someCluster, ({ nodes, holders, model }) => {
        const world = worldOf(nodes, holders);
        const query = asking(model);
        if (place(world, query) !== undefined) return;
        const fits = (gone: readonly YieldCandidate[]) =>
          place(worldWithout(world, gone), query) !== undefined;
        const allowed = holders.filter((one) => yieldRefusal(model, one.model) === undefined);
        const victims = chooseYield(world, query, holders)?.victims;
        if (victims === undefined) {
          if (model.profiles[0]?.shards === 1) expect(fits(allowed)).toBe(false);
          return;
        }
        found += 1;
        for (const one of victims) {
          expect(allowed).toContain(one);
          expect(one.model.priority).toBeLessThan(model.priority);
          expect(one.model.placement.mayYield).toBe(true);
          expect(fits(victims.filter((other) => other !== one))).toBe(false);
        }
        expect(fits(victims)).toBe(true);
        if (model.profiles[0]?.shards === 1)
          for (const set of everySet(allowed))
            if (set.length > 0 && fits(set)) expect(compareSets(victims, set)).toBeLessThanOrEqual(0);
        expect(chooseYield(world, query, holders.toReversed())?.victims).toEqual(victims);
      }),
      { numRuns: 150 },
    );
    expect(found).toBeGreaterThan(15);
  });
});

function everySet<T>(items: readonly T[]): readonly (readonly T[])[] {
  return items.reduce<(readonly T[])[]>(
    (sets, item) => [...sets, ...sets.map((set) => [...set, item])],
    [[]],
  );
}
