import { describe, expect, it } from 'vitest';
import {
  aModel,
  aNode,
  aReplica,
  aShard,
  aSnapshot,
  GIB,
  reportsOf,
  withReports,
} from '../../../test/support/cluster-builder.js';
import { seededRandom } from '../../shared/random.js';
import type { LearnedFact, ReplicaRecord, ShardReport } from '../cluster.js';
import { loadP95Ms, usualLoadMs } from './learn.js';
import { DEFAULT_POLICY } from './policy.js';
import { reconcile } from './reconcile.js';

const MODEL = aModel({ name: 'm' });

const DIGEST = aReplica('m-r1', MODEL, 'n1').specDigest;

/** What one pass over a Ready replica that reports `change` learns. */
function learned(
  change: Partial<ShardReport>,
  before: readonly LearnedFact[] = [],
  record: Partial<ReplicaRecord> = {},
): LearnedFact | undefined {
  const replica = aReplica('m-r1', MODEL, 'n1', record);
  const base = aSnapshot({ models: [MODEL], replicas: [replica], learned: before });
  const nowMs = (base.memory.lastPassMs ?? 0) + 2_000;
  const nodes = [{ ...aNode('n1', 1), lastReportMs: nowMs }];
  const snapshot = { ...base, nodes: withReports(nodes, reportsOf(replica, 'ready', change)) };
  const plan = reconcile(snapshot, DEFAULT_POLICY, {
    nowMs,
    nowWallMs: 1_700_000_000_000,
    random: seededRandom(1),
  });
  return plan.actions.flatMap((action) => (action.kind === 'putLearned' ? [action.fact] : []))[0];
}

const gpuType = aNode('n1', 1).gpus[0]?.type ?? '';
const fact = (change: Partial<LearnedFact> = {}): LearnedFact => ({
  model: 'm',
  profile: MODEL.profiles[0]?.name ?? '',
  gpuType,
  loadMs: [],
  ...change,
});
/** A replica that was not Ready before this pass. */
const STARTING = { readyWallMs: undefined } as unknown as Partial<ReplicaRecord>;

describe('what a start teaches', () => {
  it('load time and peak, filed under model, profile and GPU type', () => {
    expect(learned({ loadMs: 9_000, memoryPeakBytes: 60 * GIB }, [], STARTING)).toEqual(
      fact({ loadMs: [9_000], memoryPeakBytes: 60 * GIB, memoryPeakOf: DIGEST }),
    );
  });

  it('a load time once: not again while the replica stays Ready', () => {
    expect(learned({ loadMs: 9_000 })).toBeUndefined();
  });

  it('the last twenty load times', () => {
    const loadMs = Array.from({ length: 20 }, (_, index) => index + 1);
    expect(learned({ loadMs: 21 }, [fact({ loadMs })], STARTING)?.loadMs).toEqual([...loadMs.slice(1), 21]);
  });

  it('a peak only where it grew by more than a fiftieth, so that not every report is a write', () => {
    const before = [fact({ memoryPeakBytes: 50 * GIB, memoryPeakOf: DIGEST, loadMs: [7] })];
    expect(learned({ memoryPeakBytes: 51 * GIB }, before)).toBeUndefined();
    expect(learned({ memoryPeakBytes: 40 * GIB }, before)).toBeUndefined();
    expect(learned({ memoryPeakBytes: 52 * GIB }, before)).toEqual(
      fact({ memoryPeakBytes: 52 * GIB, memoryPeakOf: DIGEST, loadMs: [7] }),
    );
  });

  it('a peak anew once the engine is another, also a lower one; the load times go on', () => {
    const before = [fact({ memoryPeakBytes: 70 * GIB, memoryPeakOf: 'of-another', loadMs: [7] })];
    expect(learned({ memoryPeakBytes: 20 * GIB }, before)).toEqual(
      fact({ memoryPeakBytes: 20 * GIB, memoryPeakOf: DIGEST, loadMs: [7] }),
    );
    // What was stored before it was known of what, too.
    expect(learned({ memoryPeakBytes: 20 * GIB }, [fact({ memoryPeakBytes: 70 * GIB })])).toMatchObject({
      memoryPeakBytes: 20 * GIB,
    });
  });

  it('no peak of a copy that is on its way out because the model has changed', () => {
    const before = [fact({ memoryPeakBytes: 20 * GIB, memoryPeakOf: DIGEST })];
    expect(learned({ memoryPeakBytes: 70 * GIB }, before, { specDigest: 'of-another' })).toBeUndefined();
  });

  it.each<[string, Partial<ShardReport>]>([
    ['more memory than its device has', { memoryPeakBytes: 81 * GIB }],
    ['as much as a number can hold', { memoryPeakBytes: Number.MAX_SAFE_INTEGER }],
    ['a load of two days', { loadMs: 48 * 3_600_000 }],
    ['a load as long as a number can hold', { loadMs: Number.MAX_SAFE_INTEGER }],
  ])('nothing, where an agent tells %s', (_what, report) => {
    expect(learned(report, [], STARTING)).toBeUndefined();
  });

  it('nothing of a device that nobody knows any more', () => {
    const lost = { ...STARTING, shards: [{ ...aShard('m-r1', 'n1'), gpuUuids: ['GPU-gone'] }] };
    expect(learned({ loadMs: 9_000, memoryPeakBytes: 60 * GIB }, [], lost)).toBeUndefined();
  });

  it('nothing, where an agent tells nothing', () => {
    expect(learned({}, [], STARTING)).toBeUndefined();
  });
});

describe('the usual load time', () => {
  it('is the 95th percentile, of the slowest GPU type of the profile', () => {
    const many = fact({ loadMs: [...Array.from({ length: 18 }, () => 100), 500, 900] });
    expect(loadP95Ms(many)).toBe(900);
    expect(loadP95Ms(fact({ loadMs: [300, 100, 200] }))).toBe(300);
    expect(loadP95Ms(fact())).toBeUndefined();
    const { model, profile } = fact();
    const others = [
      fact({ loadMs: [100] }),
      fact({ gpuType: 'slow', loadMs: [400] }),
      fact({ model: 'x', loadMs: [9_999] }),
    ];
    expect(usualLoadMs({ model, profile }, others)).toBe(400);
    expect(usualLoadMs({ model, profile: 'another' }, others)).toBeUndefined();
  });
});
