import { describe, expect, it } from 'vitest';
import {
  aModel,
  aNode,
  aProfile,
  aReplica,
  aShard,
  aSnapshot,
  reportsOf,
  withReports,
} from '../../../test/support/cluster-builder.js';
import { seededRandom } from '../../shared/random.js';
import type { LearnedFact, NodeView, ReplicaRecord, SchedulingIntent, ShardReport } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { planDrain } from './plan-drain.js';
import { DEFAULT_POLICY } from './policy.js';
import { viewReplicas } from './replica-state.js';

const NOW_MS = 1_000_000;
const NOW_WALL_MS = 1_700_000_000_000;
const INTERVAL_MS = 2_000;
const model = aModel();
const loads = (name: string, loadMs: number): LearnedFact => ({
  model: name,
  profile: 'p',
  gpuType: 'H100',
  loadMs: [loadMs],
});

interface Given {
  readonly models?: readonly ModelSpec[];
  readonly nodes: readonly NodeView[];
  readonly replicas: readonly ReplicaRecord[];
  readonly learned?: readonly LearnedFact[];
  readonly intent?: Partial<SchedulingIntent>;
  readonly inflight?: number;
  /** Of replicas whose shards are not Ready. */
  readonly phases?: Readonly<Record<string, ShardReport['phase']>>;
}

/** The plan of draining n1. */
function plan(given: Given) {
  const nodes = withReports(
    given.nodes,
    given.replicas.flatMap((record) => reportsOf(record, given.phases?.[record.id])),
  ).map((node) => ({
    ...node,
    lastReportMs: NOW_MS,
  }));
  const snapshot = aSnapshot({
    nodes,
    models: given.models ?? [{ ...model, replicas: given.replicas.length }],
    replicas: given.replicas,
    learned: given.learned ?? [],
    memory: { ...aSnapshot().memory, lastPassMs: NOW_MS - 2_000 },
  });
  const [node] = nodes;
  if (node === undefined) throw new Error('no node given');
  return planDrain({
    snapshot,
    policy: DEFAULT_POLICY,
    intervalMs: INTERVAL_MS,
    context: { nowMs: NOW_MS, nowWallMs: NOW_WALL_MS, random: seededRandom(1) },
    node,
    intent: { target: 'drained', actor: 'ann', atWallMs: 0, sequence: 1, ...given.intent },
    replicas: viewReplicas(snapshot, NOW_MS, NOW_WALL_MS),
    inflight: () => given.inflight ?? 0,
  });
}

const on = (id: string, nodeId: string, gpu = 0, of = model): ReplicaRecord =>
  aReplica(id, of, nodeId, {
    shards: [aShard(id, nodeId, { gpuUuids: [`${nodeId}-g${gpu}`], ports: { http: 20_000 + gpu } })],
  });

describe('the plan of a drain', () => {
  it('names the place of each replica, and the time with loads, steadiness and passes', () => {
    const drain = plan({
      nodes: [aNode('n1'), aNode('n2')],
      replicas: [on('m-a', 'n1')],
      learned: [loads('m', 165)],
    });
    expect(drain).toEqual({
      moves: [
        {
          replicaId: 'm-a',
          model: 'm',
          inflight: 0,
          target: { profile: 'p', shards: [{ nodeId: 'n2', gpuUuids: ['n2-g0'] }] },
          reason: { code: 'fits', message: 'profile p on n2' },
          expectedReadyMs: 165,
          gapMs: 0,
        },
      ],
      gaps: [],
      expectedMs: 165 + 10_000 + 4_000,
    });
  });

  it('of an empty node moves nothing and takes no time', () => {
    expect(plan({ nodes: [aNode('n1'), aNode('n2')], replicas: [on('m-a', 'n2')] })).toEqual({
      moves: [],
      gaps: [],
      expectedMs: 0,
    });
  });

  it('counts the replicas of one model one after another, and models side by side', () => {
    const other = aModel({ name: 'o', replicas: 1 });
    const drain = plan({
      models: [{ ...model, replicas: 2 }, other],
      nodes: [aNode('n1', 3), aNode('n2', 3)],
      replicas: [on('m-a', 'n1', 0), on('m-b', 'n1', 1), on('o-a', 'n1', 2, other)],
      learned: [loads('m', 30_000), loads('o', 50_000)],
    });
    expect(drain.moves.every(({ gapMs }) => gapMs === 0)).toBe(true);
    expect(drain.expectedMs).toBe(2 * (30_000 + 10_000 + 4_000));
  });

  it('gives one spare device once', () => {
    const { moves, gaps } = plan({
      nodes: [aNode('n1', 2), aNode('n2', 1)],
      replicas: [on('m-a', 'n1', 0), on('m-b', 'n1', 1)],
    });
    expect(moves.map(({ target }) => target?.shards[0]?.nodeId)).toEqual(['n2', undefined]);
    expect(gaps).toEqual(['m']);
  });

  it.each<[string, Partial<Given>, number | undefined, readonly string[]]>([
    [
      'unknown, for nobody knows when there will be room',
      { learned: [loads('m', 60_000)] },
      undefined,
      ['m'],
    ],
    [
      'none while another replica serves',
      { nodes: [aNode('n1'), aNode('n2')], replicas: [on('m-a', 'n1'), on('m-b', 'n2')] },
      0,
      [],
    ],
  ])('with nowhere to go has a gap that is %s', (_, change, gapMs, gaps) => {
    const drain = plan({ nodes: [aNode('n1')], replicas: [on('m-a', 'n1')], ...change });
    const [move] = drain.moves;
    expect(drain.moves).toHaveLength(1);
    expect(move).not.toHaveProperty('target');
    expect(move?.reason.code).toBe('nothing_fits');
    expect(move?.gapMs).toBe(gapMs);
    expect(drain.gaps).toEqual(gaps);
    expect(drain.expectedMs).toBeUndefined();
  });

  it.each<[string, Partial<Given>, number | undefined]>([
    ['unknown while no load was measured', {}, undefined],
    ['the load and the passes around it', { learned: [loads('m', 60_000)] }, 64_000],
  ])('names the place that is free once it has stopped, with a gap that is %s', (_, change, gapMs) => {
    const gang = aModel({ profiles: [aProfile({ shards: 2 })] });
    const ports = { http: 20_000, rendezvous: 20_001 };
    const { moves, gaps } = plan({
      models: [gang],
      nodes: [aNode('n1'), aNode('n2'), aNode('n3')],
      replicas: [
        aReplica('m-a', gang, 'n1', {
          shards: [aShard('m-a', 'n1', { ports }), aShard('m-a', 'n2', { rank: 1, ports })],
        }),
      ],
      ...change,
    });
    expect(moves).toMatchObject([{ stopFirst: true, reason: { code: 'stop_first' } }]);
    expect(moves[0]?.target?.shards.map(({ nodeId }) => nodeId).toSorted()).toEqual(['n2', 'n3']);
    expect(moves[0]?.gapMs).toBe(gapMs);
    expect(gaps).toEqual(['m']);
  });

  it('of one device moves what stands on it', () => {
    const { moves } = plan({
      nodes: [aNode('n1', 3)],
      replicas: [on('m-a', 'n1', 0), on('m-b', 'n1', 1)],
      intent: { gpuUuid: 'n1-g1' },
    });
    expect(moves.map(({ replicaId, target }) => [replicaId, target?.shards[0]?.gpuUuids])).toEqual([
      ['m-b', ['n1-g2']],
    ]);
  });

  it('moves a gang whole although only one of its shards stands there', () => {
    const gang = aModel({ profiles: [aProfile({ shards: 2 })] });
    const { moves } = plan({
      models: [gang],
      nodes: [aNode('n1'), aNode('n2', 2), aNode('n3')],
      replicas: [
        aReplica('m-a', gang, 'n2', {
          shards: [
            aShard('m-a', 'n2', { ports: { http: 20_000, rendezvous: 20_001 } }),
            aShard('m-a', 'n1', { rank: 1, ports: { http: 20_000, rendezvous: 20_001 } }),
          ],
        }),
      ],
    });
    expect(moves.map(({ target }) => target?.shards.map(({ nodeId }) => nodeId).toSorted())).toEqual([
      ['n2', 'n3'],
    ]);
  });

  describe('that has begun', () => {
    const copy: ReplicaRecord = { ...on('m-b', 'n2'), replaces: 'm-a', readyWallMs: NOW_MS };
    const nodes = [aNode('n1'), aNode('n2')];
    const target = { profile: 'p', shards: [{ nodeId: 'n2', gpuUuids: ['n2-g0'] }] };

    it('is the copy that loads already, and no gap although its place is taken', () => {
      const drain = plan({ nodes, replicas: [on('m-a', 'n1'), copy], learned: [loads('m', 9_000)] });
      expect(drain.gaps).toEqual([]);
      expect(drain.moves).toEqual([
        {
          replicaId: 'm-a',
          model: 'm',
          inflight: 0,
          target,
          reason: { code: 'under_way', message: 'under way: m-b is ready on n2' },
          underWay: true,
          expectedReadyMs: 0,
          gapMs: 0,
        },
      ]);
    });

    it('shows what is out of the router already with its streams, and asks nothing more of it', () => {
      const intentReason = { code: 'replaced', message: 'm-b is Ready and steady' };
      const going: ReplicaRecord = { ...on('m-a', 'n1'), intent: 'drain', intentReason };
      const drain = plan({ nodes, replicas: [going, copy], inflight: 3 });
      expect(drain).toMatchObject({
        gaps: [],
        moves: [{ replicaId: 'm-a', inflight: 3, underWay: true, reason: intentReason, target, gapMs: 0 }],
      });
      expect(plan({ nodes, replicas: [going] }).moves).toMatchObject([
        { replicaId: 'm-a', underWay: true, reason: intentReason },
      ]);
    });

    it('counts off what of the load has passed', () => {
      const loading: ReplicaRecord = {
        ...on('m-b', 'n2'),
        replaces: 'm-a',
        startedWallMs: NOW_WALL_MS - 4_000,
      };
      const drain = plan({
        nodes,
        replicas: [on('m-a', 'n1'), loading],
        learned: [loads('m', 9_000)],
        phases: { 'm-b': 'loading' },
      });
      expect(drain.moves[0]).toMatchObject({ expectedReadyMs: 5_000, underWay: true });
      expect(drain.expectedMs).toBe(5_000 + 10_000 + 2 * INTERVAL_MS);
    });

    it('names whose room is being made', () => {
      const low = aModel({ name: 'low', priority: 50, placement: { mayYield: true } });
      const waiting: ReplicaRecord = {
        ...on('m-b', 'n2'),
        shards: [],
        generation: 0,
        profile: '',
        replaces: 'm-a',
        reserved: {
          profile: 'p',
          shards: [{ nodeId: 'n2', gpuUuids: ['n2-g0'] }],
          victims: ['low-a'],
          models: ['low'],
        },
      };
      const { moves, gaps } = plan({
        models: [model, low],
        nodes,
        replicas: [on('m-a', 'n1'), waiting, on('low-a', 'n2', 0, low)],
      });
      expect(gaps).toEqual([]);
      expect(moves).toMatchObject([
        { target, underWay: true, gapMs: 0, yields: [{ replicaId: 'low-a', model: 'low' }] },
      ]);
    });
  });

  it('names who makes room where nothing is spare, and sees no gap in it', () => {
    const low = aModel({ name: 'low', priority: 50, placement: { mayYield: true } });
    const given = (mayYield: boolean): Given => ({
      models: [
        { ...model, replicas: 1 },
        { ...low, placement: { ...low.placement, mayYield } },
      ],
      nodes: [aNode('n1'), aNode('n2')],
      replicas: [on('m-a', 'n1'), on('low-a', 'n2', 0, low)],
      learned: [loads('m', 1_000)],
    });
    expect(plan(given(true))).toEqual({
      moves: [
        {
          replicaId: 'm-a',
          model: 'm',
          inflight: 0,
          target: { profile: 'p', shards: [{ nodeId: 'n2', gpuUuids: ['n2-g0'] }] },
          reason: { code: 'fits_by_yielding', message: 'profile p on n2 when low-a of low has yielded' },
          yields: [{ replicaId: 'low-a', model: 'low' }],
          expectedReadyMs: 1_000 + 2 * INTERVAL_MS,
          gapMs: 0,
        },
      ],
      gaps: [],
      expectedMs: 1_000 + 4 * INTERVAL_MS + DEFAULT_POLICY.steadyMs,
    });
    const refused = plan(given(false));
    expect(refused.gaps).toEqual(['m']);
    expect(refused.moves[0]?.target).toBeUndefined();
  });

  // A machine that goes at a fixed time took its only copy along, though the plan had promised no gap.
  it.each<[string, Partial<Given>, number, readonly string[]]>([
    ['comes after the new copy', { intent: { deadlineMs: 70_000 } }, 0, []],
    ['comes before it', { intent: { deadlineMs: 20_000 } }, 42_000, ['m']],
    ['is now', { intent: { deadlineMs: 0 } }, 62_000, ['m']],
    ['is the general one', { intent: {} }, 0, []],
    [
      'comes before it, but another copy stays',
      {
        intent: { deadlineMs: 20_000 },
        nodes: [aNode('n1'), aNode('n2'), aNode('n3')],
        replicas: [on('m-a', 'n1'), on('m-b', 'n3')],
      },
      0,
      [],
    ],
    ['may come before it for all one knows', { intent: { deadlineMs: 20_000 }, learned: [] }, 0, []],
  ])('a deadline that %s', (_what, change, gapMs, gaps) => {
    const drain = plan({
      nodes: [aNode('n1'), aNode('n2')],
      replicas: [on('m-a', 'n1')],
      learned: [loads('m', 60_000)],
      ...change,
    });
    expect(drain.gaps).toEqual(gaps);
    expect(drain.moves[0]).toMatchObject({ gapMs, target: { shards: [{ nodeId: 'n2' }] } });
    const late = gapMs === 0 ? '' : `; Ready only about ${gapMs / 1_000} s after the deadline`;
    expect(drain.moves[0]?.reason.message).toBe(`profile p on n2${late}`);
  });

  it('gives one yielded place to one replica only', () => {
    const low = aModel({ name: 'low', priority: 50, placement: { mayYield: true } });
    const drain = plan({
      models: [{ ...model, replicas: 2 }, low],
      nodes: [aNode('n1', 2), aNode('n2')],
      replicas: [on('m-a', 'n1'), on('m-b', 'n1', 1), on('low-a', 'n2', 0, low)],
    });
    expect(drain.moves.map(({ yields }) => yields)).toEqual([
      [{ replicaId: 'low-a', model: 'low' }],
      undefined,
    ]);
  });
});
