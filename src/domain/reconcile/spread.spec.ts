import { describe, expect, it } from 'vitest';
import { aModel, aNode } from '../../../test/support/cluster-builder.js';
import { IdealCluster } from '../../../test/support/ideal-cluster.js';

function cluster(change: Partial<Pick<IdealCluster, 'models' | 'nodes'>>): IdealCluster {
  return Object.assign(new IdealCluster(), change);
}

const nodesOf = (c: IdealCluster) =>
  c
    .recordsOf('m')
    .map(({ shards }) => shards[0]?.nodeId ?? '')
    .toSorted();
const conditions = (c: IdealCluster) => c.plans.at(-1)?.conditions.map(({ reason }) => reason.message);
const told = (c: IdealCluster) =>
  c.plans
    .flatMap(({ events }) => events.map(({ reason }) => reason.code))
    .filter((code) => code.startsWith('spread'));

const model = aModel({ replicas: 2, placement: { strategy: 'spread' } });

/** Two copies spread over two nodes; then one node is lost and comes back. */
function afterLoss(): IdealCluster {
  const c = cluster({ models: [model], nodes: [aNode('n1', 4), aNode('n2', 4)] });
  c.run(40_000);
  expect(nodesOf(c)).toEqual(['n1', 'n2']);
  expect(conditions(c)).toEqual([]);
  c.silent.add('n2');
  for (const [key, engine] of c.engines) if (engine.nodeId === 'n2') c.engines.delete(key);
  c.run(160_000);
  return c;
}

describe('copies that were to be kept apart', () => {
  it('stand together after the loss of a node, and that is said', () => {
    const c = afterLoss();
    expect(
      c
        .recordsOf('m')
        .filter(({ intent }) => intent === 'run')
        .map(({ shards }) => shards[0]?.nodeId),
    ).toEqual(['n1', 'n1']);
    expect(conditions(c)).toEqual([
      'spread not met: 2 of 2 replicas on node n1; no other place takes a copy now',
    ]);
  });

  it('are thinned out evenly, as if the fewer had been placed apart, whatever they do just then', () => {
    const four = { ...model, replicas: 4 };
    const c = cluster({ models: [four], nodes: [aNode('n1', 4), aNode('n2', 4)] });
    c.run(60_000);
    expect(nodesOf(c)).toEqual(['n1', 'n1', 'n2', 'n2']);
    for (const { id, generation, shards } of c.recordsOf('m')) {
      if (shards[0]?.nodeId === 'n1') c.inflight.set(`${id}@${generation}`, 1);
    }
    c.models = [model];
    c.tick();
    c.inflight.clear();
    c.run(60_000);
    expect(nodesOf(c)).toEqual(['n1', 'n2']);
    expect(told(c)).toEqual([]);
  });

  it('are not told that nothing has room while what leaves still holds it', () => {
    const four = { ...model, replicas: 4 };
    const c = cluster({ models: [four], nodes: [aNode('n1', 2), aNode('n2', 2)] });
    c.run(60_000);
    const busy = c.recordsOf('m').filter(({ shards }) => shards[0]?.nodeId === 'n2');
    for (const { id, generation } of busy) c.inflight.set(`${id}@${generation}`, 1);
    c.models = [model];
    c.change('n2', { intent: { target: 'drained', actor: 'ann', atWallMs: 0, sequence: 1 } });
    c.tick();
    c.change('n2', { intent: { target: 'schedulable', actor: 'ann', atWallMs: 0, sequence: 2 } });
    c.tick();
    expect(conditions(c)).toEqual([
      expect.stringMatching(
        /^spread not met: 2 of 2 replicas on node n1; \S+ is on its way out on n2, its room may be enough$/,
      ),
    ]);
    c.inflight.clear();
    c.run(60_000);
    expect(conditions(c)).toEqual([expect.stringContaining('a copy would fit on n2')]);
  });

  it('stay when the node is back: nothing that serves is moved for that; what would undo it is said', () => {
    const c = afterLoss();
    c.silent.clear();
    c.run(60_000);
    expect(nodesOf(c)).toEqual(['n1', 'n1']);
    expect(c.tick().actions).toEqual([]);
    expect(conditions(c)).toEqual([
      'spread not met: 2 of 2 replicas on node n1; a copy would fit on n2: llmgw ctl restart m spreads them again',
    ]);
    expect(told(c)).toEqual(['spread_not_met']);
  });

  it('are spread again by the restart that was named, with a Ready copy at every moment', () => {
    const c = afterLoss();
    c.silent.clear();
    c.run(60_000);
    c.models = [{ ...model, restartedWallMs: c.wallMs }];
    const published: number[] = [];
    for (let pass = 0; pass < 120; pass += 1) published.push(c.tick().published.length);
    expect(Math.min(...published)).toBeGreaterThanOrEqual(2);
    expect(nodesOf(c)).toEqual(['n1', 'n2']);
    expect(conditions(c)).toEqual([]);
    expect(told(c)).toEqual(['spread_not_met', 'spread_met']);
  });

  it.each([
    ['more copies than nodes, as even as can be', aModel({ replicas: 3, placement: { strategy: 'spread' } })],
    ['packed on purpose', aModel({ replicas: 2 })],
    ['only one rack to be in', aModel({ replicas: 2, placement: { spreadBy: 'rack' } })],
  ])('have nothing to be said of: %s', (_, wanted) => {
    const rack = { labels: { rack: 'r1' } };
    const c = cluster({ models: [wanted], nodes: [aNode('n1', 4, rack), aNode('n2', 4, rack)] });
    c.run(60_000);
    expect(c.published()).toHaveLength(wanted.replicas);
    expect(conditions(c)).toEqual([]);
  });
});
