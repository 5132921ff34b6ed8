/** How a drain ends when something will not end by itself, and that it is never called done before it is. */
import { describe, expect, it } from 'vitest';
import { aModel, aNode, aProfile } from '../../../test/support/cluster-builder.js';
import { IdealCluster } from '../../../test/support/ideal-cluster.js';
import { replicaKey, type NodeView } from '../cluster.js';

function drained(change: Partial<NodeView['intent']> = {}): Pick<NodeView, 'intent'> {
  return { intent: { target: 'drained', actor: 'ann', atWallMs: 1_700_000_000_000, sequence: 1, ...change } };
}

const undrained = { intent: { ...drained().intent, target: 'schedulable', sequence: 9 } } as const;

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

  it('whose new copy is not Ready within its bound is told so once, while the old one serves on', () => {
    const { c, id } = busy();
    c.loadMs = 3_600_000;
    c.change(c.recordsOf('m')[0]?.shards[0]?.nodeId ?? '', drained());
    c.run(30_000);
    const waits = reasonOf(c, id);
    expect(waits?.code).toBe('waits_for_replacement');
    const leftMs = Number(waits?.numbers?.['leftMs']);
    c.run(leftMs + 60_000);
    const overdue = reasonOf(c, id);
    expect(overdue).toMatchObject({
      code: 'replacement_overdue',
      message: expect.stringContaining('goes on serving'),
    });
    expect(Number(overdue?.numbers?.['waitedMs'])).toBeGreaterThanOrEqual(
      Number(overdue?.numbers?.['boundMs']),
    );
    const told = c.plans
      .flatMap(({ events }) => events)
      .filter(({ reason }) => reason.code === 'replacement_overdue');
    expect(told).toHaveLength(1);
    expect(c.records.get(id)?.intent).toBe('run');
    expect(c.published()).toContain(`${id}@1`);
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

  it('that is taken back when its deadline has driven the copy out leaves the streams their grace', () => {
    const { c, id } = busy();
    c.loadMs = 600_000;
    const nodeId = c.recordsOf('m')[0]?.shards[0]?.nodeId ?? '';
    c.change(nodeId, drained({ deadlineMs: 10_000 }));
    c.run(60_000, () => c.records.get(id)?.intent === 'drain');
    expect(c.records.get(id)?.intentReason.code).toBe('drain_deadline');
    c.change(nodeId, undrained);
    // Another reason to leave, or it would come back.
    c.models = [aModel({ profiles: [aProfile({ args: ['--x'] })] })];
    c.run(10_000);
    expect(waitsFor(c, id)).toBe('1 request in flight');
  });

  it('hands nothing over to a copy that must go in the same moment', () => {
    const { c, id } = busy();
    c.nodes = [...c.nodes, aNode('n3')];
    c.change(c.recordsOf('m')[0]?.shards[0]?.nodeId ?? '', drained());
    c.run(60_000, () => c.published().length === 2);
    const second = c.recordsOf('m').find((one) => one.id !== id);
    c.run(6_000);
    c.change(second?.shards[0]?.nodeId ?? '', drained({ sequence: 2, deadlineMs: 1 }));
    c.run(4_000);
    expect(c.records.get(second?.id ?? '')?.intentReason.code).toBe('drain_deadline');
    expect(c.published()).toEqual([`${id}@1`]);
    c.inflight.clear();
    c.run(120_000);
    expect(c.records.has(id)).toBe(false);
    expect(standsOn(c, 'n3')).toBe(true);
  });

  it.each([
    ['', [], 2_000],
    [' while not every node has reported after a sleep', ['n3'], 30_000],
  ])('that is taken back has the copy stay whose successor has just failed%s', (_when, silent, afterMs) => {
    const { c, id } = busy();
    c.nodes = [...c.nodes, aNode('n3')];
    const nodeId = c.recordsOf('m')[0]?.shards[0]?.nodeId ?? '';
    c.change(nodeId, drained());
    c.run(120_000, () => c.records.get(id)?.intent === 'drain');
    const second = c.recordsOf('m').find((one) => one.id !== id);
    c.inflight.clear();
    c.change(nodeId, undrained);
    c.evidence.set(`${second?.id}@1`, { firstTokenTimeouts: 9, consecutiveFailures: 9 });
    for (const one of silent) c.silent.add(one);
    c.tick(afterMs);
    expect(c.records.get(second?.id ?? '')?.readyWallMs).toBeUndefined();
    expect(c.records.get(id)?.intent).not.toBe('stop');
    c.silent.clear();
    c.tick();
    expect(c.published()).toEqual([`${id}@1`]);
  });

  it('and the drain of its successor, both taken back, leave the first copy at once', () => {
    const { c, id } = busy();
    c.nodes = [...c.nodes, aNode('n3')];
    const nodes = ['n1', 'n2'];
    c.change(c.recordsOf('m')[0]?.shards[0]?.nodeId ?? '', drained());
    c.run(120_000, () => c.records.get(id)?.intent === 'drain');
    for (const one of nodes) c.change(one, drained({ sequence: 2 }));
    c.run(120_000, () => c.published().length === 2);
    for (const one of nodes) c.change(one, undrained);
    c.tick();
    expect(c.published()).toEqual([`${id}@1`]);
    expect(c.tick().actions.map(({ reason }) => reason.code)).not.toContain('revived');
  });

  it('takes a copy that came to stand beside its original for no replacement of it', () => {
    const { c, id } = busy();
    c.nodes = [...c.nodes, aNode('n3'), aNode('n4')];
    const nodeId = c.recordsOf('m')[0]?.shards[0]?.nodeId ?? '';
    c.change(nodeId, drained());
    c.run(60_000, () => c.published().length === 2);
    // Both are wanted from now on, and both stay.
    c.change(nodeId, undrained);
    c.models = [aModel({ replicas: 2 })];
    c.run(60_000);
    expect(c.published()).toHaveLength(2);
    c.change(nodeId, drained({ sequence: 10 }));
    for (let pass = 0; pass < 60 && c.records.get(id)?.intent === 'run'; pass += 1)
      expect(c.tick().published.length).toBeGreaterThanOrEqual(2);
    expect(c.records.get(id)?.intent).not.toBe('run');
    expect(c.published()).toHaveLength(2);
  });

  it('of a copy whose successor has itself been succeeded ends for both in one pass', () => {
    const c = Object.assign(new IdealCluster(), {
      models: [aModel({ replicas: 3, placement: { strategy: 'spread' } })],
      nodes: [aNode('n1'), aNode('n2'), aNode('n3')],
    });
    c.run(60_000);
    const [first, second, third] = c.recordsOf('m');
    if (first === undefined || second === undefined || third === undefined) throw new Error('not placed');
    c.records.set(second.id, { ...second, replaces: first.id });
    c.records.set(third.id, { ...third, replaces: second.id });
    c.models = [aModel({ placement: { strategy: 'spread' } })];
    for (const one of [first, second]) c.change(one.shards[0]?.nodeId ?? '', drained());
    c.tick();
    expect([first, second, third].map(({ id }) => c.records.get(id)?.intent)).toEqual([
      'drain',
      'drain',
      'run',
    ]);
    expect(c.published()).toEqual([`${third.id}@1`]);
  });

  it('is not over while an engine runs there whose number was given out a second time, elsewhere', () => {
    const { c, id } = busy();
    const there = c.recordsOf('m')[0]?.shards[0]?.nodeId ?? '';
    const other = there === 'n1' ? 'n2' : 'n1';
    const [engine] = c.engines.values();
    if (engine === undefined) throw new Error('nothing runs');
    c.engines.set('stray', { ...engine, nodeId: other });
    c.change(other, drained());
    const told = () => c.plans.flatMap(({ events }) => events.map(({ reason }) => reason.code));
    c.run(10_000);
    expect(c.records.get(id)?.shards[0]?.nodeId).toBe(there);
    expect(told()).not.toContain('node_drained');
    c.engines.delete('stray');
    c.tick();
    expect(told()).toContain('node_drained');
  });
});
