import { describe, expect, it } from 'vitest';
import { aModel, aNode, aProfile, GIB } from '../../../test/support/cluster-builder.js';
import { IdealCluster } from '../../../test/support/ideal-cluster.js';
import type { NodeView } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';

const low = (change: Parameters<typeof aModel>[0] = {}): ModelSpec =>
  aModel({ name: 'low', priority: 50, ...change, placement: { mayYield: true, ...change.placement } });
const high = (change: Parameters<typeof aModel>[0] = {}): ModelSpec =>
  aModel({ name: 'high', priority: 200, ...change });

/** Low ones first, until they serve; then the high model wants its place. */
function cluster(nodes: readonly NodeView[], lower: readonly ModelSpec[]): IdealCluster {
  const c = new IdealCluster();
  c.nodes = nodes;
  c.models = lower;
  c.run(60_000);
  return c;
}

const served = (c: IdealCluster, model: string): number =>
  (c.plans.at(-1)?.published ?? []).filter((one) => one.model === model).length;
const codesOf = (c: IdealCluster, subject: string): readonly string[] =>
  (c.plans.at(-1)?.notDone ?? []).filter((one) => one.subject === subject).map(({ reason }) => reason.code);
const isQuiet = (c: IdealCluster): boolean => c.plans.slice(-5).every(({ actions }) => actions.length === 0);

describe('a replica that fits nowhere', () => {
  it('gets the place of a lower one that may yield, which drains first and is told of', () => {
    const c = cluster([aNode('n1')], [low()]);
    const [victim] = c.recordsOf('low');
    const key = `${victim?.id}@1`;
    c.inflight.set(key, 1);
    c.models = [low(), high()];
    c.tick();
    expect(c.records.get(victim?.id ?? '')).toMatchObject({
      intent: 'drain',
      intentReason: { code: 'yielded' },
    });
    expect(c.published()).toEqual([]);
    c.run(20_000);
    // Its stream has the grace that every other would have.
    expect(c.log.filter((line) => line.startsWith('stop'))).toEqual([]);
    c.inflight.delete(key);
    c.run(120_000);
    expect([served(c, 'low'), served(c, 'high')]).toEqual([0, 1]);
    expect(isQuiet(c)).toBe(true);
    const [waiting] = c.recordsOf('low');
    expect(codesOf(c, `replica/${waiting?.id}`)).toEqual(['yielded']);
    const [taker] = c.recordsOf('high');
    expect(c.plans.at(-1)?.conditions).toEqual([
      {
        subject: 'model/low',
        reason: {
          code: 'yielded',
          message: `1 replica short: yielded to high (${taker?.id})`,
          numbers: { waiting: 1 },
        },
      },
    ]);
  });

  it.each([
    ['is not allowed to', low({ placement: { mayYield: false } }), high()],
    ['has the same priority', low({ priority: 200 }), high()],
    ['has a higher one', low({ priority: 300 }), high()],
  ])('takes nothing from one that %s', (_why, lower, upper) => {
    const c = cluster([aNode('n1')], [lower]);
    c.models = [lower, upper];
    c.run(60_000);
    expect([served(c, 'low'), served(c, 'high')]).toEqual([1, 0]);
    const [waiting] = c.recordsOf('high');
    expect(codesOf(c, `replica/${waiting?.id}`)).toEqual(['no_place']);
  });

  it('has the other moved first where another place is spare for it, without a gap', () => {
    // The high model needs the H100; the low one runs on either.
    const nodes = [aNode('n1'), aNode('n2', [{ ...gpu('n2-g0'), type: 'A100' }])];
    const c = cluster([nodes[0] as NodeView], [low()]);
    c.nodes = [...c.nodes, nodes[1] as NodeView];
    c.models = [low(), high({ profiles: [aProfile({ gpuType: 'H100' })] })];
    const least: number[] = [];
    c.run(120_000, () => {
      least.push(served(c, 'low'));
      return false;
    });
    expect(Math.min(...least)).toBe(1);
    expect([served(c, 'low'), served(c, 'high')]).toEqual([1, 1]);
    expect(c.plans.at(-1)?.conditions).toEqual([]);
    expect(isQuiet(c)).toBe(true);
  });

  it('keeps the room from the victim, from a third and for itself after a failure', () => {
    const c = cluster([aNode('n1', 2)], [low({ replicas: 2 })]);
    const third = aModel({ name: 'third', priority: 900 });
    c.models = [low({ replicas: 2 }), high({ profiles: [aProfile({ gpus: 2 })] })];
    const [first] = c.recordsOf('low');
    // One of the two takes long, so the other's GPU is free for a while.
    c.inflight.set(`${first?.id}@1`, 1);
    c.tick();
    c.models = [...c.models, third];
    c.run(30_000);
    expect(c.recordsOf('third')[0]?.shards).toEqual([]);
    c.inflight.clear();
    c.run(60_000);
    expect([served(c, 'low'), served(c, 'high'), served(c, 'third')]).toEqual([0, 1, 0]);
    const [taker] = c.recordsOf('high');
    c.crash(`${taker?.id}.0`);
    c.run(120_000);
    expect([served(c, 'low'), served(c, 'high')]).toEqual([0, 1]);
  });

  it('gives the room back when it fails there again and again, and asks for no more', () => {
    const c = cluster([aNode('n1')], [low()]);
    c.models = [low(), high()];
    const crashes = () => {
      const [taker] = c.recordsOf('high');
      if (taker !== undefined && taker.shards.length > 0) c.crash(`${taker.id}.0`);
      return false;
    };
    c.run(900_000, crashes);
    expect([served(c, 'low'), served(c, 'high')]).toEqual([1, 0]);
    expect(c.log.filter((line) => line.includes('high') && line.startsWith('start')).length).toBe(3);
  });

  it('lets the other stay when it is no longer wanted, or finds a place', () => {
    const c = cluster([aNode('n1')], [low()]);
    const [victim] = c.recordsOf('low');
    c.inflight.set(`${victim?.id}@1`, 1);
    c.models = [low(), high()];
    c.run(4_000);
    expect(served(c, 'low')).toBe(0);
    c.models = [low(), high({ replicas: 0 })];
    c.run(4_000);
    expect(c.published()).toEqual([`${victim?.id}@1`]);
    c.models = [low(), high()];
    c.run(4_000);
    expect(served(c, 'low')).toBe(0);
    c.nodes = [...c.nodes, aNode('n2')];
    c.run(60_000);
    expect([served(c, 'low'), served(c, 'high')]).toEqual([1, 1]);
    expect(c.recordsOf('low').map(({ id }) => id)).toEqual([victim?.id]);
    expect(isQuiet(c)).toBe(true);
  });

  it.each([
    ['fewer machines', { shards: 2 }, [aProfile({ shards: 1 })]],
    ['fewer devices', { gpus: 2 }, [aProfile({ gpus: 1 })]],
    ['more machines', { shards: 1 }, [aProfile({ shards: 2 }), aProfile({ name: 'small' })]],
    ['another profile', { shards: 2 }, [aProfile({ name: 'small' })]],
  ])('has no more make room than it needs when it comes to need %s', (_what, was, now) => {
    const lower = low({ replicas: 2 });
    const c = cluster('gpus' in was ? [aNode('n1', 2)] : [aNode('n1'), aNode('n2')], [lower]);
    for (const { id } of c.recordsOf('low')) c.inflight.set(`${id}@1`, 1);
    c.models = [lower, high({ profiles: [aProfile(was)] })];
    c.run(4_000);
    c.models = [lower, high({ profiles: now })];
    c.run(4_000);
    const [taker] = c.recordsOf('high');
    expect(taker?.reserved).toMatchObject({ profile: now.at(-1)?.name, shards: [{}] });
    expect(taker?.reserved?.shards[0]?.gpuUuids).toHaveLength(1);
    expect([taker?.reserved?.victims.length, served(c, 'low')]).toEqual([1, 1]);
    c.inflight.clear();
    c.run(60_000);
    expect([served(c, 'low'), served(c, 'high')]).toEqual([1, 1]);
    expect(isQuiet(c)).toBe(true);
  });

  it('takes nobody while the room of one on its way out is enough', () => {
    const c = cluster([aNode('n1', 2)], [low({ replicas: 1 }), aModel({ name: 'other' })]);
    const [other] = c.recordsOf('other');
    c.inflight.set(`${other?.id}@1`, 1);
    c.models = [low({ replicas: 1 }), aModel({ name: 'other', replicas: 0 }), high()];
    c.run(20_000);
    expect([served(c, 'low'), served(c, 'other')]).toEqual([1, 0]);
    c.inflight.clear();
    c.run(60_000);
    expect([served(c, 'low'), served(c, 'high')]).toEqual([1, 1]);
  });

  it('takes the fewest whole gangs there are', () => {
    const gang = low({ name: 'gang', profiles: [aProfile({ shards: 2 })] });
    const c = cluster([aNode('n1'), aNode('n2'), aNode('n3')], [gang, low({ priority: 60 })]);
    c.models = [gang, low({ priority: 60 }), high()];
    c.run(120_000);
    // One victim either way; the lowest goes, whole.
    expect([served(c, 'gang'), served(c, 'low'), served(c, 'high')]).toEqual([0, 1, 1]);
    expect(isQuiet(c)).toBe(true);
  });

  it('makes a cascade of three priorities end', () => {
    const middle = aModel({ name: 'middle', priority: 100, placement: { mayYield: true } });
    const c = cluster(
      [aNode('n1'), aNode('n2', [{ ...gpu('n2-g0'), type: 'A100' }])],
      [low({ profiles: [aProfile({ gpuType: 'A100' })] })],
    );
    c.models = [...c.models, middle];
    c.run(60_000);
    c.models = [...c.models, high({ profiles: [aProfile({ gpuType: 'H100' })] })];
    c.run(240_000);
    expect([served(c, 'low'), served(c, 'middle'), served(c, 'high')]).toEqual([0, 1, 1]);
    expect(isQuiet(c)).toBe(true);
  });
});

describe('a drain without a spare place', () => {
  it('has a lower one make room, and the model serves throughout', () => {
    const c = cluster([aNode('n1')], [high()]);
    c.nodes = [...c.nodes, aNode('n2')];
    c.models = [high(), low()];
    c.run(60_000);
    c.change('n1', { intent: { target: 'drained', actor: 'ann', atWallMs: 0, sequence: 2 } });
    const least: number[] = [];
    c.run(180_000, () => {
      least.push(served(c, 'high'));
      return false;
    });
    expect(Math.min(...least)).toBe(1);
    expect(c.recordsOf('high').map(({ shards }) => shards[0]?.nodeId)).toEqual(['n2']);
    expect(served(c, 'low')).toBe(0);
    expect(isQuiet(c)).toBe(true);
  });

  it('does not forget the failures of what was moved when its room is given up', () => {
    const c = cluster([aNode('n1')], [high()]);
    c.nodes = [...c.nodes, aNode('n2')];
    c.models = [high(), low()];
    c.run(60_000);
    const drained = { target: 'drained', actor: 'ann', atWallMs: 0, sequence: 2 } as const;
    c.change('n1', { intent: drained });
    c.run(180_000);
    const [moved] = c.recordsOf('high');
    expect(moved?.reserved).toBeDefined();
    c.change('n2', { intent: { ...drained, target: 'cordoned' } });
    c.crash(`${moved?.id}.0`);
    c.run(10_000);
    expect(c.recordsOf('high').map(({ id, reserved }) => [id, reserved])).toEqual([[moved?.id, undefined]]);
    expect([...c.backoffs.values()].map(({ replicaId }) => replicaId)).toEqual([moved?.id]);
  });
});

const gpu = (uuid: string) => ({
  uuid,
  type: 'H100',
  vendor: 'nvidia' as const,
  memoryTotalBytes: 80 * GIB,
  memoryUsedBytes: 0,
  foreign: [],
  health: { state: 'healthy' as const },
  linkedTo: [],
});
