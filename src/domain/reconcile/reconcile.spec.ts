import { describe, expect, it } from 'vitest';
import { aModel, aNode, aProfile } from '../../../test/support/cluster-builder.js';
import { IdealCluster } from '../../../test/support/ideal-cluster.js';

function cluster(change: Partial<Pick<IdealCluster, 'models' | 'nodes'>>): IdealCluster {
  return Object.assign(new IdealCluster(), change);
}

describe('a model that wants replicas', () => {
  it('gets them placed, started, and published once Ready', () => {
    const c = cluster({ models: [aModel({ replicas: 2 })], nodes: [aNode('n1'), aNode('n2')] });
    c.tick();
    expect(c.log.filter((line) => line.startsWith('start'))).toHaveLength(2);
    expect(c.published()).toEqual([]);
    c.run(30_000);
    expect(c.published()).toHaveLength(2);
    const gpus = c.recordsOf('m').flatMap((record) => record.shards.flatMap(({ gpuUuids }) => gpuUuids));
    expect(new Set(gpus).size).toBe(2);
  });

  it('says nothing more once everything is as wanted', () => {
    const c = cluster({ models: [aModel({ replicas: 2 })], nodes: [aNode('n1', 2)] });
    c.run(60_000);
    expect(c.tick().actions).toEqual([]);
  });

  it('keeps what fits nowhere as waiting, with the explanation', () => {
    const c = cluster({ models: [aModel({ replicas: 2 })], nodes: [aNode('n1')] });
    const plan = c.tick();
    expect(plan.explanations[0]?.counterfactual?.message).toContain('largest hole 0');
    expect(plan.notDone).toContainEqual(
      expect.objectContaining({ reason: expect.objectContaining({ code: 'no_place' }) as unknown }),
    );
  });
});

describe('models that fit nowhere in a large fleet', () => {
  it('are explained in turns, and each keeps its explanation until its next one', () => {
    const hopeless = ['a', 'b', 'c'].map((name) => aModel({ name, profiles: [aProfile({ gpus: 2 })] }));
    const nodes = Array.from({ length: 1_100 }, (_, index) => aNode(`n${index}`));
    const c = cluster({ models: hopeless, nodes });
    const explained = (): readonly (string | undefined)[] => {
      const { explanations, notDone } = c.tick();
      expect(notDone.filter(({ reason }) => reason.code === 'no_place')).toHaveLength(3);
      for (const one of explanations) {
        expect(one.counterfactual?.message).toContain('largest hole 1');
        expect(one.omittedNodes).toBeGreaterThan(1_000);
      }
      return explanations.map(({ model }) => model);
    };
    expect(explained()).toEqual(['a', 'b']);
    expect(explained()).toEqual(['a', 'b', 'c']);
  });

  it('are explained anew when their declaration changes', () => {
    const nodes = Array.from({ length: 1_100 }, (_, index) => aNode(`n${index}`));
    const c = cluster({ models: [aModel({ profiles: [aProfile({ gpus: 2 })] })], nodes });
    const said = () => c.tick().explanations[0]?.counterfactual?.message;
    expect(said()).toContain('needs 2 on one node');
    c.models = [aModel({ profiles: [aProfile({ gpus: 3 })] })];
    expect(said()).toContain('needs 3 on one node');
  });
});

describe('a crash', () => {
  it('is unpublished at once, waits, and starts again under a new generation and port', () => {
    const c = cluster({ models: [aModel()], nodes: [aNode('n1')] });
    c.run(30_000);
    const [before] = c.recordsOf('m');
    c.crash(`${before?.id}.0`);
    c.tick();
    expect(c.published()).toEqual([]);
    expect(c.log.filter((line) => line.startsWith('start'))).toHaveLength(1);
    c.run(40_000);
    const [after] = c.recordsOf('m');
    expect(after?.id).toBe(before?.id);
    expect(after?.generation).toBe(2);
    expect(after?.shards[0]?.ports.http).not.toBe(before?.shards[0]?.ports.http);
    expect(c.published()).toEqual([`${before?.id}@2`]);
  });

  it('takes another node before the same one again', () => {
    const c = cluster({ models: [aModel()], nodes: [aNode('n1'), aNode('n2')] });
    c.run(30_000);
    const first = c.recordsOf('m')[0];
    c.crash(`${first?.id}.0`);
    c.run(20_000);
    expect(c.recordsOf('m')[0]?.shards[0]?.nodeId).not.toBe(first?.shards[0]?.nodeId);
  });

  it('of one rank ends the whole gang, which starts together with a new rendezvous port', () => {
    const model = aModel({ profiles: [aProfile({ shards: 2 })] });
    const c = cluster({ models: [model], nodes: [aNode('n1'), aNode('n2')] });
    c.run(40_000);
    const before = c.recordsOf('m')[0];
    expect(c.published()).toHaveLength(1);
    c.crash(`${before?.id}.1`);
    c.tick();
    expect(c.published()).toEqual([]);
    expect(c.log.at(-1)).toContain(`stop ${before?.id}.0@1`);
    c.run(60_000);
    const after = c.recordsOf('m')[0];
    expect(after?.generation).toBe(2);
    expect(after?.shards[0]?.ports.rendezvous).not.toBe(before?.shards[0]?.ports.rendezvous);
    expect(c.published()).toHaveLength(1);
  });
});

describe('scaling down', () => {
  it('takes the replica out of the router, lets its requests end, then stops it', () => {
    const c = cluster({ models: [aModel({ replicas: 2 })], nodes: [aNode('n1', 2)] });
    c.run(40_000);
    const [keep, go] = c.recordsOf('m');
    c.inflight.set(`${keep?.id}@1`, 5);
    c.inflight.set(`${go?.id}@1`, 2);
    c.models = [aModel({ replicas: 1 })];
    c.run(20_000);
    expect(c.published()).toEqual([`${keep?.id}@1`]);
    expect(c.log.some((line) => line.startsWith('stop'))).toBe(false);
    c.inflight.delete(`${go?.id}@1`);
    c.run(10_000);
    expect(c.recordsOf('m').map(({ id }) => id)).toEqual([keep?.id]);
  });
});

describe('draining a node', () => {
  it('moves first and stops second', () => {
    const c = cluster({ models: [aModel()], nodes: [aNode('n1'), aNode('n2')] });
    c.run(30_000);
    const original = c.recordsOf('m')[0];
    const from = original?.shards[0]?.nodeId ?? '';
    c.change(from, { intent: { target: 'drained', actor: 'ann', atWallMs: c.wallMs, sequence: 1 } });
    c.inflight.set(`${original?.id}@1`, 1);
    const ready: number[] = [];
    for (let pass = 0; pass < 30; pass += 1) ready.push(c.tick().published.length);
    expect(Math.min(...ready)).toBe(1);
    expect(c.published()[0]).not.toContain(original?.id);
    expect(c.log.some((line) => line.startsWith(`stop ${original?.id}`))).toBe(false);
    c.inflight.clear();
    c.run(10_000);
    expect(c.recordsOf('m')).toHaveLength(1);
    expect(c.recordsOf('m')[0]?.shards[0]?.nodeId).not.toBe(from);
  });
});

describe('a restart of the server', () => {
  it('starts nothing while it settles, keeps what runs, and goes on publishing it', () => {
    const c = cluster({ models: [aModel({ replicas: 2 })], nodes: [aNode('n1'), aNode('n2')] });
    c.run(40_000);
    const before = c.recordsOf('m');
    c.log.length = 0;
    c.restart();
    for (const { id } of c.nodes) c.change(id, { liveness: 'unseen', reported: false });
    c.tick();
    expect(c.published()).toHaveLength(2);
    for (const { id } of c.nodes) c.change(id, { reported: true });
    c.run(30_000);
    expect(c.recordsOf('m').map(({ id, generation }) => [id, generation])).toEqual(
      before.map(({ id, generation }) => [id, generation]),
    );
    expect(c.log.filter((line) => line.startsWith('st'))).toEqual([]);
    expect(c.published()).toHaveLength(2);
  });
});
