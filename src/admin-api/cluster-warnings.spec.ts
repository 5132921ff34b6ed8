import { describe, expect, it } from 'vitest';
import { aModel, aNode, aReplica, aSnapshot } from '../../test/support/cluster-builder.js';
import { SetClock } from '../../test/support/set-clock.js';
import type { BackoffRecord, ReplicaRecord, ReplicaView } from '../domain/cluster.js';
import type { Snapshot } from '../domain/snapshot.js';
import type { PassRecord } from '../reconciler/reconciler.service.js';
import { clusterWarnings } from './cluster-warnings.js';
import { ClusterReading } from './cluster-reader.js';
import { ViewTimes } from './view-times.js';

const model = aModel();
const serving = aReplica('m-old', model, 'n1');
const times = new ViewTimes(new SetClock(0));

function backoff(change: Partial<BackoffRecord>): BackoffRecord {
  return {
    replicaId: 'm-new',
    model: 'm',
    profile: 'p',
    nodeId: 'n1',
    cause: 'badFlag',
    failures: 1,
    delayMs: 0,
    untilWallMs: 0,
    permanent: false,
    lastMessage: 'error: invalid argument: --ctx',
    lastFailureWallMs: 0,
    generation: 1,
    specDigest: '',
    ...change,
  };
}

function view(record: ReplicaRecord, change: Partial<ReplicaView>): ReplicaView {
  return { record, state: 'ready', shards: [], restarts: 0, ...change };
}

/** The model is served by its old copy while another one is as given. */
function told(other: readonly ReplicaView[], conditions: PassRecord['plan']['conditions'] = []) {
  const snapshot: Snapshot = aSnapshot({ models: [model], nodes: [aNode('n1', 2)] });
  const pass = { plan: { conditions, notDone: [] } } as unknown as PassRecord;
  const reading = new ClusterReading(times, snapshot, [view(serving, {}), ...other], [], pass, false);
  return clusterWarnings(reading).map(({ code, message }) => `${code}: ${message}`);
}

const unplaced = aReplica('m-new', model, 'n1', { shards: [] });

describe('what needs an eye', () => {
  it('is nothing when all is well, nor when a copy failed once and is tried again', () => {
    expect(told([])).toEqual([]);
    expect(told([view(unplaced, { state: 'backoff', backoff: backoff({ failures: 2 }) })])).toEqual([]);
  });

  it('is the copy a roll waits for in vain, with its cause and where to read on', () => {
    expect(told([view(unplaced, { state: 'failed', backoff: backoff({ permanent: true }) })])).toEqual([
      'replica_failed: replica m-new failed: badFlag: error: invalid argument: --ctx; see llmgw ctl logs m-new',
    ]);
  });

  it('is a copy that fails again and again, also while it is being tried', () => {
    const again = backoff({ cause: 'crashed', lastMessage: 'exit code 1', failures: 3 });
    const text = 'replica_failed: replica m-new failed 3 times and is tried again: crashed: exit code 1';
    expect(told([view(unplaced, { state: 'backoff', backoff: again })])).toEqual([
      `${text}; see llmgw ctl logs m-new`,
    ]);
    const placed = aReplica('m-new', model, 'n1');
    expect(told([view(placed, { state: 'loading', backoff: again })])).toEqual([
      `${text}; see llmgw ctl logs m-new --previous`,
    ]);
    expect(told([view(placed, { state: 'ready', backoff: again })])).toEqual([]);
    expect(told([view({ ...placed, intent: 'stop' }, { state: 'stopping', backoff: again })])).toEqual([]);
  });

  it('is bounded', () => {
    const many = Array.from({ length: 11 }, (_, index) =>
      view(aReplica(`m-${index}`, model, 'n1', { shards: [] }), { state: 'failed' }),
    );
    const lines = told(many);
    expect(lines).toHaveLength(9);
    expect(lines.at(-1)).toBe('replica_failed: and 3 more: llmgw ctl replicas');
  });

  it('is a model whose copies stand together, with what would undo it', () => {
    const message = 'spread not met: 2 of 2 replicas on node n1; llmgw ctl restart m spreads them again';
    const holds = [{ subject: 'model/m', reason: { code: 'spread_not_met', message } }];
    expect(told([], holds)).toEqual([`spread_not_met: model m: ${message}`]);
    expect(told([], [{ subject: 'model/m', reason: { code: 'other', message: 'x' } }])).toEqual([]);
  });
});
