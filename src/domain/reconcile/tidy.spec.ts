import { describe, expect, it } from 'vitest';
import { aModel, aNode, aProfile, aReplica, aSnapshot } from '../../../test/support/cluster-builder.js';
import { backoffKey, type BackoffRecord } from '../cluster.js';
import { specDigest } from '../catalog/spec-digest.js';
import { DEFAULT_POLICY } from './policy.js';
import { reconcile } from './reconcile.js';

const [first, second] = [aProfile({ name: 'p0' }), aProfile({ name: 'p1' })];
const model = aModel({ replicas: 0, profiles: [first, second] });

function failure(profile: typeof first, change: Partial<BackoffRecord> = {}): BackoffRecord {
  return {
    replicaId: 'm-a',
    model: 'm',
    profile: profile.name,
    nodeId: 'n1',
    cause: 'badFlag',
    failures: 1,
    delayMs: 5_000,
    untilWallMs: 0,
    permanent: true,
    lastFailureWallMs: 0,
    generation: 1,
    specDigest: specDigest(model, profile),
    ...change,
  };
}

/** Keys of the back-offs that a pass forgets. */
function forgotten(
  backoffs: readonly BackoffRecord[],
  change: Parameters<typeof aSnapshot>[0] = {},
): readonly string[] {
  const nowMs = 1_000_000;
  const nodes = [aNode('n1', 1, { lastReportMs: nowMs })];
  const snapshot = aSnapshot({ models: [model], nodes, backoffs, ...change });
  const plan = reconcile(snapshot, DEFAULT_POLICY, {
    nowMs,
    nowWallMs: 1_700_000_000_000,
    random: () => 0.5,
  });
  return plan.actions.flatMap((action) =>
    action.kind === 'clearBackoff' ? [backoffKey(action.record)] : [],
  );
}

describe('what is forgotten', () => {
  it('of a profile that has changed leaves what is known of another on the same node', () => {
    const changed = failure(first, { specDigest: 'before the change' });
    expect(forgotten([changed, failure(second)])).toEqual([backoffKey(changed)]);
  });

  it('of a replica that is gone leaves the places where its profile can never run', () => {
    const slow = failure(first, { cause: 'crashed', permanent: false });
    expect(forgotten([slow, failure(first)])).toEqual([backoffKey(slow)]);
  });

  it('after long health leaves them too, and no failure beside them', () => {
    const nowMs = 1_000_000;
    const healthy = aReplica('m-a', model, 'n1', {
      profile: 'p0',
      specDigest: specDigest(model, first),
      generation: 3,
    });
    const slow = failure(first, { cause: 'crashed', permanent: false });
    const [shard] = healthy.shards;
    const report = {
      ...{
        shardId: shard?.shardId ?? '',
        replicaId: 'm-a',
        model: 'm',
        profile: 'p0',
        generation: 3,
        rank: 0,
      },
      ...{ phase: 'ready' as const, gpuUuids: ['n1-g0'], ports: { http: 20_000 } },
    };
    const memory = aSnapshot().memory;
    expect(
      forgotten([slow, failure(second)], {
        models: [{ ...model, replicas: 1 }],
        nodes: [aNode('n1', 1, { lastReportMs: nowMs, shards: [report] })],
        replicas: [healthy],
        memory: {
          ...memory,
          lastPassMs: nowMs - 2_000,
          replicas: new Map([['m-a', { generation: 3, sinceMs: 0, readySinceMs: 1, told: [] }]]),
        },
      }),
    ).toEqual([backoffKey(slow)]);
  });
});
