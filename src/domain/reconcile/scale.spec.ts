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
import type { BackoffRecord, NodeView, ReplicaRecord, ShardPhase } from '../cluster.js';
import type { Snapshot } from '../snapshot.js';
import { judgeLiveness } from './liveness.js';
import { Pass } from './pass.js';
import { DEFAULT_POLICY } from './policy.js';
import { units, victims } from './scale.js';

const NOW = { nowMs: 1_000, nowWallMs: 1_700_000_000_000, random: seededRandom(1) };
const model = aModel({ replicas: 2 });
const gang = aModel({ replicas: 2, profiles: [aProfile({ shards: 2 })] });

/** A replica on a node of its own, its shards in the given phases. */
interface Row {
  readonly record: ReplicaRecord;
  readonly phases: readonly ShardPhase[];
  readonly node?: Partial<NodeView>;
}

const one = (id: string, change: Partial<ReplicaRecord> = {}, phase: ShardPhase = 'ready'): Row => ({
  record: aReplica(id, model, `n-${id}`, change),
  phases: change.shards?.length === 0 ? [] : [phase],
});

const two = (id: string, phases: readonly [ShardPhase, ShardPhase]): Row => ({
  record: aReplica(id, gang, `n-${id}`, {
    shards: [aShard(id, `n-${id}`), aShard(id, `n-${id}b`, { rank: 1 })],
  }),
  phases,
});

function neverReady(row: Row): Row {
  const { readyWallMs: _ready, ...record } = row.record;
  return { ...row, record };
}

/** Names in the order in which they would go. */
function order(rows: readonly Row[], of = model, change: Partial<Snapshot> = {}): readonly string[] {
  const nodes = rows.flatMap(({ record, node }) =>
    [`n-${record.id}`, `n-${record.id}b`].map((id) => aNode(id, 1, { lastReportMs: NOW.nowMs, ...node })),
  );
  const reports = rows.flatMap(({ record, phases }) =>
    reportsOf(record).map((report, rank) => ({ ...report, phase: phases[rank] ?? 'ready' })),
  );
  const snapshot = aSnapshot({
    models: [of],
    nodes: withReports(nodes, reports),
    replicas: rows.map(({ record }) => record),
    ...change,
  });
  const judgement = judgeLiveness(snapshot, DEFAULT_POLICY, NOW.nowMs, NOW.nowWallMs);
  const pass = new Pass(snapshot, DEFAULT_POLICY, NOW, judgement);
  return victims(pass, units(pass, of.name)).map(({ record }) => record.id);
}

const failed: BackoffRecord = {
  replicaId: 'a',
  model: 'm',
  profile: 'p',
  nodeId: 'n-a',
  cause: 'crashed',
  failures: 1,
  delayMs: 5_000,
  untilWallMs: NOW.nowWallMs,
  permanent: false,
  lastFailureWallMs: NOW.nowWallMs,
  generation: 1,
  specDigest: '',
};

describe('of too many replicas', () => {
  it('those go first that serve nobody: failed, without a place, starting, silent; then those that must leave', () => {
    const drained = { target: 'drained', actor: 'ann', atWallMs: 0, sequence: 1 } as const;
    const silent = { liveness: 'unreachable', livenessSinceMs: NOW.nowMs } as const;
    const rows: readonly Row[] = [
      one('g'),
      { ...one('f'), node: { intent: drained } },
      // What serves as far as is known goes after what never did, although it is newer.
      { ...one('e', { readyWallMs: 1, createdWallMs: 9 }), node: silent },
      { ...neverReady(one('d')), node: silent },
      one('c', {}, 'loading'),
      one('b', { shards: [], generation: 0 }),
      one('a', {}, 'exited'),
    ];
    expect(order(rows, model, { backoffs: [failed] })).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'g']);
  });

  it('of those that serve the one with the fewest requests goes, then the newest', () => {
    const rows = [one('old'), one('new', { createdWallMs: 9 }), one('idle', { createdWallMs: 1 })];
    const inflight = new Map([
      ['old@1', 2],
      ['new@1', 2],
    ]);
    expect(order(rows, model, { inflight })).toEqual(['idle', 'new', 'old']);
  });

  it('those that are to stand apart go from the fullest rack, and there from the fullest node, whatever they do just now', () => {
    const spread = aModel({ replicas: 2, placement: { strategy: 'spread', spreadBy: 'rack' } });
    const at = (id: string, nodeId: string, rack: string, createdWallMs: number): Row => ({
      ...one(id, { shards: [aShard(id, nodeId)], createdWallMs }),
      node: { labels: { rack } },
    });
    const rows = [
      at('a', 'n-a', 'r1', 1),
      at('b', 'n-b', 'r1', 2),
      at('c', 'n-a', 'r1', 3),
      at('d', 'n-d', 'r2', 9),
      at('e', 'n-e', 'r2', 8),
    ];
    expect(order(rows, spread)).toEqual(['c', 'd', 'b', 'e', 'a']);
    const busy = new Map([['c@1', 3]]);
    expect(order(rows, spread, { inflight: busy })).toEqual(['a', 'd', 'b', 'e', 'c']);
    // The only copy in its rack stays, although it is the only idle one: the rack of the others may fail.
    const alone = [at('a', 'n-a', 'r1', 1), at('b', 'n-b', 'r1', 2), at('e', 'n-e', 'r2', 3)];
    const inflight = new Map([
      ['a@1', 7],
      ['b@1', 8],
    ]);
    expect(order(alone, spread, { inflight })).toEqual(['a', 'e', 'b']);
    expect(order(alone, model, { inflight })[0]).toBe('e');
  });

  it.each<readonly [string, readonly [ShardPhase, ShardPhase], string]>([
    [
      'whose rank 0 is Ready while the word of rank 1 is late serves like any other',
      ['ready', 'loading'],
      'b',
    ],
    ['whose rank 1 has ended serves nobody', ['ready', 'exited'], 'a'],
    ['whose rank 0 still loads serves nobody', ['loading', 'ready'], 'a'],
  ])('a gang %s', (_, phases, first) => {
    const inflight = new Map([['a@1', 1]]);
    expect(order([two('a', phases), two('b', ['ready', 'ready'])], gang, { inflight })[0]).toBe(first);
  });
});
