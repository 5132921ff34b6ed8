/** How a drain ends when something will not end by itself, and that it is never called done before it is. */
import { describe, expect, it } from 'vitest';
import { aModel, aNode } from '../../../test/support/cluster-builder.js';
import { IdealCluster } from '../../../test/support/ideal-cluster.js';
import { replicaKey, type NodeView } from '../cluster.js';

function drained(change: Partial<NodeView['intent']> = {}): Pick<NodeView, 'intent'> {
  return { intent: { target: 'drained', actor: 'ann', atWallMs: 1_700_000_000_000, sequence: 1, ...change } };
}

/** One copy on n1, Ready, with a request in flight that never ends; n2 is free. */
function busy(): { readonly c: IdealCluster; readonly id: string } {
  const c = Object.assign(new IdealCluster(), { models: [aModel()], nodes: [aNode('n1'), aNode('n2')] });
  c.run(60_000);
  const [record] = c.recordsOf('m');
  if (record === undefined) throw new Error('nothing was placed');
  c.inflight.set(replicaKey(record.id, record.generation), 1);
  return { c, id: record.id };
}

const standsOn = (c: IdealCluster, node: string): boolean =>
  c.recordsOf('m').some(({ shards }) => shards.some(({ nodeId }) => nodeId === node));
const reasonOf = (c: IdealCluster, id: string) =>
  c.plans.at(-1)?.notDone.find(({ subject }) => subject === `replica/${id}`)?.reason;
const waitsFor = (c: IdealCluster, id: string): string | undefined => reasonOf(c, id)?.message;

describe('a drain', () => {
  it('with a stream that never ends says what it waits for, and at the grace ends the stream and stops the copy', () => {
    const { c, id } = busy();
    const nodeId = c.recordsOf('m')[0]?.shards[0]?.nodeId ?? '';
    c.change(nodeId, drained({ streamGraceMs: 30_000 }));
    c.run(600_000, () => c.records.get(id)?.intent === 'drain');
    const beganMs = c.nowMs;
    c.run(10_000);
    expect(waitsFor(c, id)).toBe('1 request in flight');
    const leftMs = Number(reasonOf(c, id)?.numbers?.['leftMs']);
    expect(leftMs).toBeGreaterThan(0);
    expect(leftMs).toBeLessThanOrEqual(20_000);
    expect(standsOn(c, nodeId)).toBe(true);
    c.run(600_000, () => c.records.get(id)?.intent !== 'drain');
    expect(c.nowMs - beganMs).toBeGreaterThanOrEqual(30_000);
    const plan = c.plans.at(-1);
    expect(plan?.events.map(({ reason }) => reason.code)).toContain('stream_grace_over');
    const kinds = plan?.actions.map(({ kind }) => kind) ?? [];
    expect(kinds.indexOf('abortInflight')).toBeGreaterThanOrEqual(0);
    expect(kinds.indexOf('stopShard')).toBeGreaterThan(kinds.indexOf('abortInflight'));
    c.run(20_000);
    expect(standsOn(c, nodeId)).toBe(false);
    expect(c.published()).toHaveLength(1);
  });

  it('of a node that falls silent on the way is not over until its stop is confirmed, and says so', () => {
    const { c, id } = busy();
    const nodeId = c.recordsOf('m')[0]?.shards[0]?.nodeId ?? '';
    c.change(nodeId, drained({ streamGraceMs: 40_000 }));
    c.run(600_000, () => c.records.get(id)?.intent === 'drain');
    c.silent.add(nodeId);
    c.run(60_000);
    expect(standsOn(c, nodeId)).toBe(true);
    expect(waitsFor(c, id)).toBe('its node is silent; waits for its return or loss');
    c.silent.delete(nodeId);
    c.run(10_000);
    expect(standsOn(c, nodeId)).toBe(false);
  });
});
