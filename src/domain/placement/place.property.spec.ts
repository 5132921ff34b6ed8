import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { aGpu, aModel, aNode, aProfile, aSnapshot, GIB } from '../../../test/support/cluster-builder.js';
import { seededRandom } from '../../shared/random.js';
import { specDigest } from '../catalog/spec-digest.js';
import type { NodeLiveness, NodeView, ReplicaRecord } from '../cluster.js';
import type { ModelSpec, Profile } from '../model-spec.js';
import type { Plan } from '../plan.js';
import { checkPlan } from '../reconcile/check-plan.js';
import { explainPlacement } from '../reconcile/explain.js';
import { judgeLiveness } from '../reconcile/liveness.js';
import { Pass } from '../reconcile/pass.js';
import { DEFAULT_POLICY } from '../reconcile/policy.js';
import { reconcile } from '../reconcile/reconcile.js';
import type { Snapshot } from '../snapshot.js';
import { place } from './place.js';

const NOW_MS = 1_000_000;
/** Narrow, so that ports run out. */
const POLICY = { ...DEFAULT_POLICY, portRange: [20_000, 20_003] as const };
const context = () => ({ nowMs: NOW_MS, nowWallMs: 1_700_000_000_000, random: seededRandom(3) });

// Sizes are set by hand: left to itself fast-check makes clusters too small for anything to happen in them.
const profile: fc.Arbitrary<Profile> = fc
  .record({
    shards: fc.constantFrom(1, 1, 1, 2, 3),
    gpus: fc.constantFrom(0, 1, 1, 2, 4),
    gigabytes: fc.option(fc.integer({ min: 10, max: 90 }), { nil: undefined }),
    gpuType: fc.option(fc.constantFrom('H100', 'A*'), { nil: undefined, freq: 3 }),
    engine: fc.constantFrom('sim' as const, 'sim' as const, 'sim' as const, 'vllm' as const),
  })
  .map(({ gigabytes, gpuType, ...rest }) =>
    aProfile({
      ...rest,
      ...(gigabytes === undefined || rest.gpus === 0 ? {} : { gpuMemoryBytes: gigabytes * GIB }),
      ...(gpuType === undefined ? {} : { gpuType }),
    }),
  );

const model = (name: string): fc.Arbitrary<ModelSpec> =>
  fc
    .record({
      replicas: fc.integer({ min: 1, max: 3 }),
      priority: fc.constantFrom(100, 200),
      profiles: fc.array(profile, { minLength: 1, maxLength: 2 }),
      strategy: fc.constantFrom('pack' as const, 'spread' as const),
      antiAffinity: fc.boolean(),
      pinned: fc.option(fc.constantFrom('n0', 'n9'), { nil: undefined, freq: 8 }),
    })
    .map(({ strategy, antiAffinity, pinned, profiles, ...rest }) =>
      aModel({
        ...rest,
        name,
        profiles: profiles.map((one, index) => ({ ...one, name: `p${index}` })),
        placement: {
          strategy,
          antiAffinity,
          ...(pinned === undefined ? {} : { nodeSelector: { node: pinned } }),
        },
      }),
    );

const liveness = fc.constantFrom<NodeLiveness>(
  'connected',
  'connected',
  'connected',
  'connected',
  'flapping',
  'unreachable',
  'lost',
);

const node = (id: string): fc.Arbitrary<NodeView> =>
  fc
    .record({
      devices: fc.array(
        fc.record({
          type: fc.constantFrom('H100', 'H100', 'A100'),
          healthy: fc.constantFrom(true, true, true, false),
          used: fc.constantFrom(0, 0, 0, 50),
          foreign: fc.constantFrom(false, false, false, true),
        }),
        { minLength: 0, maxLength: 6 },
      ),
      liveness,
      cordoned: fc.constantFrom(false, false, false, true),
      portsTaken: fc.subarray([20_000, 20_001, 20_002, 20_003]),
    })
    .map(({ devices, liveness: state, cordoned, portsTaken }) =>
      aNode(
        id,
        devices.map(({ type, healthy, used, foreign }, index) =>
          aGpu(`${id}-g${index}`, {
            type,
            memoryUsedBytes: used * GIB,
            foreign: foreign ? [{ pid: 1, memoryBytes: used * GIB }] : [],
            health: healthy ? { state: 'healthy' } : { state: 'excluded', reason: 'xid_79' },
          }),
        ),
        {
          liveness: state,
          livenessSinceMs: NOW_MS - 1_000,
          lastReportMs: state === 'connected' || state === 'flapping' ? NOW_MS : NOW_MS - 40_000,
          portsTaken,
          intent: { target: cordoned ? 'cordoned' : 'schedulable', actor: 'ann', atWallMs: 0, sequence: 1 },
        },
      ),
    );

const snapshot: fc.Arbitrary<Snapshot> = fc
  .record({
    nodes: fc
      .integer({ min: 1, max: 5 })
      .chain((count) => fc.tuple(...Array.from({ length: count }, (_, index) => node(`n${index}`)))),
    models: fc.tuple(model('a'), model('b')),
  })
  .map((given) => aSnapshot({ ...given, memory: { ...aSnapshot().memory, lastPassMs: NOW_MS - 2_000 } }));

const placedIn = (plan: Plan): readonly ReplicaRecord[] =>
  plan.actions.flatMap((action) =>
    action.kind === 'createReplica' && action.record.shards.length > 0 ? [action.record] : [],
  );

function decide(given: Snapshot): { readonly plan: Plan; readonly placed: readonly ReplicaRecord[] } {
  const plan = reconcile(given, POLICY, context());
  return { plan, placed: placedIn(plan) };
}

/** Each property runs over enough clusters that every filter takes part; a failure prints the seed that repeats it. */
const RUNS = { numRuns: 200 };

describe('a placement', () => {
  it('is the same for the same input, in whatever order nodes and models come', () => {
    fc.assert(
      fc.property(snapshot, (given) => {
        const shape = ({ placed }: ReturnType<typeof decide>) =>
          placed
            .map(({ model: name, profile: of, shards }) =>
              JSON.stringify([name, of, shards.map(({ nodeId, gpuUuids }) => [nodeId, gpuUuids])]),
            )
            .toSorted();
        expect(shape(decide(given))).toEqual(shape(decide(given)));
        expect(shape(decide({ ...given, nodes: given.nodes.toReversed() }))).toEqual(shape(decide(given)));
      }),
      RUNS,
    );
  });

  it('gives no device to two, and no more memory than is there, strangers counted', () => {
    fc.assert(
      fc.property(snapshot, (given) => {
        const held = new Map<string, (number | undefined)[]>();
        for (const { gpuUuids, gpuMemoryBytes } of decide(given).placed.flatMap(({ shards }) => shards))
          for (const uuid of gpuUuids) held.set(uuid, [...(held.get(uuid) ?? []), gpuMemoryBytes]);
        for (const [uuid, holders] of held) {
          const device = given.nodes.flatMap(({ gpus }) => gpus).find((one) => one.uuid === uuid);
          if (holders.includes(undefined)) expect(holders).toHaveLength(1);
          const foreign = (device?.foreign ?? []).reduce((sum, one) => sum + (one.memoryBytes ?? 0), 0);
          const booked = holders.reduce<number>((sum, one) => sum + (one ?? 0), foreign);
          expect(booked).toBeLessThanOrEqual(device?.memoryTotalBytes ?? 0);
        }
      }),
      RUNS,
    );
  });

  it('is whole or not at all, each shard on a node of its own, all devices of one type', () => {
    fc.assert(
      fc.property(snapshot, (given) => {
        for (const record of decide(given).placed) {
          const wanted = given.models
            .find(({ name }) => name === record.model)
            ?.profiles.find(({ name }) => name === record.profile);
          expect(new Set(record.shards.map(({ nodeId }) => nodeId)).size).toBe(wanted?.shards);
          const devices = record.shards.flatMap(({ nodeId, gpuUuids }) =>
            gpuUuids.map((uuid) =>
              given.nodes.find(({ id }) => id === nodeId)?.gpus.find((one) => one.uuid === uuid),
            ),
          );
          expect(devices).toHaveLength((wanted?.shards ?? 0) * (wanted?.gpus ?? 0));
          expect(new Set(devices.map((device) => device?.type)).size).toBeLessThanOrEqual(1);
        }
      }),
      RUNS,
    );
  });

  it('has ports of the range that nobody else has', () => {
    fc.assert(
      fc.property(snapshot, (given) => {
        const taken = new Set(
          given.nodes.flatMap(({ id, portsTaken }) => portsTaken.map((port) => `${id}:${port}`)),
        );
        for (const { nodeId, ports } of decide(given).placed.flatMap(({ shards }) => shards)) {
          for (const port of [ports.http, ports.rendezvous]) {
            if (port === undefined) continue;
            expect(port).toBeGreaterThanOrEqual(POLICY.portRange[0]);
            expect(port).toBeLessThanOrEqual(POLICY.portRange[1]);
            expect(taken).not.toContain(`${nodeId}:${port}`);
            taken.add(`${nodeId}:${port}`);
          }
        }
      }),
      RUNS,
    );
  });

  it('breaks no invariant that the check of plans knows', () => {
    fc.assert(
      fc.property(snapshot, (given) => {
        expect(checkPlan(given, decide(given).plan)).toEqual([]);
      }),
      RUNS,
    );
  });
});

describe('the places remembered within a pass', () => {
  const worldOf = (given: Snapshot) =>
    new Pass(
      given,
      DEFAULT_POLICY,
      context(),
      judgeLiveness(given, DEFAULT_POLICY, NOW_MS, 1_700_000_000_000),
    ).world();
  const failure = (asked: ModelSpec, replicaId: string, nodeId: string, profileName: string) => {
    const failed = asked.profiles.find(({ name }) => name === profileName);
    return {
      ...{ replicaId, nodeId, model: asked.name, profile: profileName },
      ...{ failures: 1, delayMs: 5_000, generation: 1 },
      ...{ untilWallMs: 1_700_000_001_000, lastFailureWallMs: 1_700_000_000_000 },
      cause: 'crashed' as const,
      specDigest: failed === undefined ? '' : specDigest(asked, failed),
    };
  };
  const step = fc.record({
    model: fc.constantFrom(0, 1),
    replica: fc.constantFrom('r1', 'r2', 'r3'),
    leaving: fc.option(fc.constantFrom('n0', 'n1'), { nil: undefined, freq: 3 }),
    fails: fc.constantFrom('not', 'not', 'once', 'always'),
    at: fc.constantFrom('n0', 'n1', 'n2'),
    profileName: fc.constantFrom('p0', 'p1'),
  });

  it('are the ones that are found by looking again', () => {
    let placements = 0;
    fc.assert(
      fc.property(snapshot, fc.array(step, { minLength: 4, maxLength: 10 }), (given, steps) => {
        const remembering = worldOf(given);
        const { memo: _memo, ...forgetful } = worldOf(given);
        for (const [index, { model: which, replica, leaving, fails, at, profileName }] of steps.entries()) {
          const asked = given.models[which];
          if (asked === undefined) continue;
          const replicaId = `${asked.name}-${replica}`;
          const query = {
            model: asked,
            replicaId,
            generation: index + 1,
            ...(leaving === undefined ? {} : { leaving: [leaving] }),
          };
          const found = place(remembering, query);
          expect(found).toEqual(place(forgetful, query));
          const shards = (found?.shards ?? []).map((shard) => ({
            ...shard,
            shardId: `${shard.shardId}-${index}`,
          }));
          placements += shards.length;
          const failed = failure(asked, replicaId, at, profileName);
          for (const world of [remembering, forgetful]) {
            for (const shard of shards) {
              world.bookings.book(asked.name, shard);
            }
            if (fails !== 'not') world.failures.add({ ...failed, permanent: fails === 'always' });
          }
        }
      }),
      { numRuns: 600 },
    );
    expect(placements).toBeGreaterThan(150);
  });

  it('do not outlive a park of their profile, by whichever replica', () => {
    const asked = aModel({ name: 'a', profiles: [aProfile({ name: 'p0' })] });
    const world = worldOf(aSnapshot({ models: [asked], nodes: [aNode('n0'), aNode('n1')] }));
    const placeOf = (replicaId: string) => place(world, { model: asked, replicaId, generation: 1 })?.shards;
    expect(placeOf('a-r1')?.[0]?.nodeId).toBe('n0');
    world.failures.add({ ...failure(asked, 'a-r2', 'n0', 'p0'), permanent: true });
    expect(placeOf('a-r3')?.[0]?.nodeId).toBe('n1');
  });
});

describe('an explanation', () => {
  it('says "fits" exactly when the next pass places it, there, and lists every node and device once', () => {
    let fitted = 0;
    let refused = 0;
    fc.assert(
      fc.property(snapshot, ({ models, ...given }) => {
        const [first] = models;
        if (first === undefined) return;
        const asked = { ...given, models: [{ ...first, replicas: 1 }] };
        const explanation = explainPlacement(asked, POLICY, context(), first.name);
        const [record] = decide(asked).placed;
        expect(explanation?.chosen?.profile).toBe(record?.profile);
        expect(explanation?.chosen?.shards.map(({ nodeId, gpuUuids }) => [nodeId, gpuUuids])).toEqual(
          record?.shards.map(({ nodeId, gpuUuids }) => [nodeId, gpuUuids]),
        );
        if (record === undefined) refused += 1;
        else fitted += 1;
        for (const { nodes } of explanation?.profiles ?? []) {
          const known = nodes.filter(
            ({ nodeId }) => nodeId !== 'n9' || asked.nodes.some(({ id }) => id === 'n9'),
          );
          expect(known.map(({ nodeId }) => nodeId).toSorted()).toEqual(
            asked.nodes.map(({ id }) => id).toSorted(),
          );
          for (const verdict of nodes) {
            expect(verdict.fits).toBe(verdict.reasons.length === 0);
            expect(verdict.fits).toBe(verdict.total !== undefined);
            const present = asked.nodes.find(({ id }) => id === verdict.nodeId)?.gpus ?? [];
            expect(verdict.gpus.map(({ uuid }) => uuid)).toEqual(present.map(({ uuid }) => uuid));
            for (const one of verdict.gpus) expect(one.fits).toBe(one.reasons.length === 0);
          }
        }
        if (record === undefined) {
          expect(explanation?.blocked).toBeDefined();
          // Held back for another reason there is nothing to free.
          if (explanation?.blocked?.code === 'nothing_fits')
            expect(explanation.counterfactual?.message.length).toBeGreaterThan(10);
        } else {
          const by = explanation?.profiles.find(({ profile: name }) => name === record.profile);
          for (const { nodeId } of record.shards)
            expect(by?.nodes.find((one) => one.nodeId === nodeId)?.fits).toBe(true);
        }
      }),
      { numRuns: 600 },
    );
    // Both answers occur often enough to mean something.
    expect(Math.min(fitted, refused)).toBeGreaterThan(25);
  });

  it('kept with a replica is the one of the decision', () => {
    fc.assert(
      fc.property(snapshot, ({ models, ...given }) => {
        const [first] = models;
        if (first === undefined) return;
        const asked = { ...given, models: [{ ...first, replicas: 1 }] };
        const [record] = decide(asked).placed;
        if (record === undefined) return;
        const explanation = explainPlacement(asked, POLICY, context(), first.name);
        expect(record.placement?.profiles).toEqual(explanation?.profiles);
        expect(record.placement?.chosen?.shards).toEqual(record.shards);
        expect(record.placement?.chosen?.beat).toEqual(explanation?.chosen?.beat);
      }),
      RUNS,
    );
  });
});
