import { describe, expect, it } from 'vitest';
import { aModel, aNode, aReplica, aSnapshot } from '../../test/support/cluster-builder.js';
import { SetClock } from '../../test/support/set-clock.js';
import type { ReplicaView } from '../domain/cluster.js';
import type { PassRecord } from '../reconciler/reconciler.service.js';
import { ClusterReading } from './cluster-reader.js';
import { schedulingView } from './node-views.js';
import { ViewTimes } from './view-times.js';

const record = aReplica('m-1', aModel(), 'n1');
const replica: ReplicaView = { record, state: 'draining', shards: [], restarts: 0 };

/** What is said of the wait of a copy whose own bound is `ownMs`, 8 s before the drain is due. */
function waitingFor(ownMs: number, deadlineMs?: number) {
  const clock = new SetClock(0);
  const node = aNode('n1', 1, {
    intent: {
      target: 'drained',
      actor: 'ann',
      atWallMs: 0,
      sequence: 3,
      ...(deadlineMs === undefined ? {} : { deadlineMs }),
    },
  });
  const reason = { code: 'waits_for_streams', message: '2 requests in flight', numbers: { leftMs: ownMs } };
  const memory = { drainDueMs: clock.monotonicMs() + 8_000, drainSequence: 3, reconnectsMs: [] };
  const plan = {
    conditions: [],
    notDone: [{ subject: 'replica/m-1', reason }],
    memory: { nodes: new Map([['n1', memory]]) },
  };
  const pass = { plan } as unknown as PassRecord;
  const snapshot = aSnapshot({ nodes: [node] });
  const reading = new ClusterReading(new ViewTimes(clock), snapshot, [replica], [], pass, false);
  return schedulingView(reading, node).waitingFor.map(({ reason: said }) => said.numbers?.['leftMs']);
}

describe('how long a drain waits at most', () => {
  it('is the bound that is hit first: its own, or the deadline given by hand', () => {
    expect(waitingFor(899_000, 20_000)).toEqual([8_000]);
    expect(waitingFor(5_000, 20_000)).toEqual([5_000]);
  });

  it('is its own where the general deadline ends nothing that serves', () => {
    expect(waitingFor(899_000)).toEqual([899_000]);
  });
});
