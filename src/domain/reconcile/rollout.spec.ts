import { describe, expect, it } from 'vitest';
import { aModel, aNode, aProfile } from '../../../test/support/cluster-builder.js';
import { IdealCluster } from '../../../test/support/ideal-cluster.js';
import type { ModelSpec } from '../model-spec.js';

function cluster(models: readonly ModelSpec[], gpus: number, nodes = 1): IdealCluster {
  const made = Object.assign(new IdealCluster(), {
    models,
    nodes: Array.from({ length: nodes }, (_, index) => aNode(`n${index + 1}`, gpus)),
  });
  made.run(40_000);
  made.log.length = 0;
  return made;
}

const withArgs = (name: string, arg: string, change: Partial<ModelSpec> = {}): ModelSpec =>
  aModel({ name, profiles: [aProfile({ args: [arg] })], ...change });
const ids = (c: IdealCluster, model: string) =>
  c.recordsOf(model).map(({ id, generation }) => `${id}@${generation}`);

/** Passes until nothing happens any more; the fewest copies published of a model on the way. */
function fewest(c: IdealCluster, model: string, forMs = 200_000): number {
  let least = Infinity;
  for (let left = forMs; left > 0; left -= 2_000) {
    const { published } = c.tick();
    least = Math.min(least, published.filter((one) => one.model === model).length);
  }
  return least;
}

describe('a changed profile', () => {
  it('rolls its model one copy at a time, never below what was, and touches no other', () => {
    const c = cluster([withArgs('a', '--x', { replicas: 2 }), withArgs('b', '--x')], 4);
    const [a, b] = [ids(c, 'a'), ids(c, 'b')];
    c.models = [withArgs('a', '--y', { replicas: 2 }), withArgs('b', '--x')];
    expect(fewest(c, 'a')).toBe(2);
    expect(ids(c, 'a').some((id) => a.includes(id))).toBe(false);
    expect(ids(c, 'a')).toHaveLength(2);
    expect(ids(c, 'b')).toEqual(b);
  });

  it('keeps the old copy without room for the new one, and says so', () => {
    const c = cluster([withArgs('a', '--x')], 1);
    const before = ids(c, 'a');
    c.models = [withArgs('a', '--y')];
    expect(fewest(c, 'a')).toBe(1);
    expect(ids(c, 'a')).toEqual(before);
    expect(c.plans.at(-1)?.notDone.map(({ reason }) => reason.code)).toContain('no_surge');
  });

  it('stops first where the model allows it', () => {
    const c = cluster([withArgs('a', '--x', { onNoSurge: 'swap' })], 1);
    const before = ids(c, 'a');
    c.models = [withArgs('a', '--y', { onNoSurge: 'swap' })];
    expect(fewest(c, 'a')).toBe(0);
    expect(c.published()).toHaveLength(1);
    expect(ids(c, 'a')).not.toEqual(before);
  });

  it('that changes again gives up the new copy that is not what is wanted any more', () => {
    const c = cluster([withArgs('a', '--x')], 2);
    c.models = [withArgs('a', '--y')];
    c.loadMs = 100_000_000;
    c.run(10_000);
    expect(c.recordsOf('a')).toHaveLength(2);
    c.models = [withArgs('a', '--z')];
    c.loadMs = 20_000;
    // The copy of the second profile never becomes Ready in time: it is not what is waited for.
    for (const engine of c.engines.values())
      if (engine.report.phase === 'loading') Object.assign(engine, { startedMs: 1e12 });
    expect(fewest(c, 'a', 80_000)).toBe(1);
    expect(c.published()).toHaveLength(1);
    expect(c.recordsOf('a')).toHaveLength(1);
    const [now] = c.recordsOf('a');
    expect(now?.specDigest).not.toBe('');
    expect(c.tick().notDone).toEqual([]);
  });

  it('that cannot start leaves the old copy serving and tells why; the file put back ends it', () => {
    const c = cluster([withArgs('a', '--x')], 2);
    const before = ids(c, 'a');
    c.models = [withArgs('a', '--bad')];
    for (let pass = 0; pass < 10; pass += 1) {
      c.tick();
      for (const record of c.recordsOf('a').filter(({ replaces }) => replaces !== undefined))
        c.crash(`${record.id}.0`, { exitCode: 2, verdict: 'badFlag', message: 'unknown flag --bad' });
    }
    expect(c.published()).toEqual(before);
    const told = c.plans
      .at(-1)
      ?.notDone.map(({ reason }) => reason.message)
      .join('\n');
    expect(told).toContain('unknown flag --bad');
    c.models = [withArgs('a', '--x')];
    c.run(30_000);
    expect(ids(c, 'a')).toEqual(before);
    expect(c.published()).toEqual(before);
    expect(c.tick().notDone).toEqual([]);
  });

  it('of the GPU type moves a copy that stands on another type, and no other', () => {
    const c = cluster([aModel({ name: 'a' })], 2);
    const before = ids(c, 'a');
    const type = c.nodes[0]?.gpus[0]?.type ?? '';
    c.models = [aModel({ name: 'a', profiles: [aProfile({ gpuType: `${type.slice(0, 1)}*` })] })];
    c.run(60_000);
    expect(ids(c, 'a')).toEqual(before);
    c.models = [aModel({ name: 'a', profiles: [aProfile({ gpuType: 'elsewhere' })] })];
    c.run(60_000);
    expect(ids(c, 'a')).toEqual(before);
    expect(c.plans.at(-1)?.notDone.map(({ reason }) => reason.code)).toContain('no_surge');
  });

  it('of a model that comes back while it leaves keeps its engines', () => {
    const c = cluster([withArgs('a', '--x'), withArgs('b', '--x')], 3);
    const before = ids(c, 'a');
    c.inflight.set(before[0] ?? '', 1);
    c.models = [withArgs('b', '--x')];
    c.run(10_000);
    expect(c.published().some((one) => before.includes(one))).toBe(false);
    c.models = [withArgs('a', '--x'), withArgs('b', '--x')];
    c.run(10_000);
    expect(c.published()).toEqual(expect.arrayContaining([...before]));
    expect(c.log.filter((line) => line.startsWith('st'))).toEqual([]);
  });
});

describe('a restart of one replica', () => {
  it('puts a new copy beside it first and touches no other', () => {
    const c = cluster([withArgs('a', '--x', { replicas: 2 })], 3);
    const [first, second] = c.recordsOf('a');
    c.records.set(first?.id ?? '', { ...first!, restart: { actor: 'ann', atWallMs: c.wallMs } });
    expect(fewest(c, 'a')).toBe(2);
    const now = c.recordsOf('a').map(({ id }) => id);
    expect(now).toContain(second?.id);
    expect(now).not.toContain(first?.id);
    expect(now).toHaveLength(2);
    expect(c.tick().notDone).toEqual([]);
  });

  it('is answered by a crash on the way too', () => {
    const c = cluster([withArgs('a', '--x')], 1);
    const [only] = c.recordsOf('a');
    c.records.set(only?.id ?? '', { ...only!, restart: { actor: 'ann', atWallMs: c.wallMs } });
    c.tick();
    expect(c.plans.at(-1)?.notDone.map(({ reason }) => reason.code)).toContain('no_surge');
    c.crash(`${only?.id}.0`);
    c.run(60_000);
    expect(ids(c, 'a')).toEqual([`${only?.id}@2`]);
    expect(c.tick().notDone).toEqual([]);
  });
});

describe('an old copy', () => {
  const of = (change: Parameters<typeof aProfile>[0]): ModelSpec =>
    aModel({ name: 'a', profiles: [aProfile(change)] });

  it('is published with the limit it was started with, its replacement with the new one', () => {
    const c = cluster([of({ maxConcurrency: 8 })], 2);
    c.models = [of({ maxConcurrency: 4 })];
    c.loadMs = 10_000;
    const limits: (number | undefined)[] = [];
    for (let pass = 0; pass < 30; pass += 1)
      for (const { maxConcurrency } of c.tick().published) limits.push(maxConcurrency);
    expect(new Set(limits)).toEqual(new Set([8, 4]));
    expect(limits[0]).toBe(8);
    expect(limits.at(-1)).toBe(4);
    // Between the two both serve: none was given the other's limit.
    expect(c.plans.some(({ published }) => published.length === 2)).toBe(true);
  });

  it.each([
    ['of a removed model', []],
    ['of a removed profile', [of({ name: 'q', stopGraceMs: 5_000 })]],
  ])('%s has its own time to stop', (_, models) => {
    const c = cluster([of({ stopGraceMs: 123_000 })], 2);
    c.models = models;
    c.run(60_000);
    const graces = c.plans.flatMap(({ actions }) =>
      actions.flatMap((action) => (action.kind === 'stopShard' ? [action.command.graceMs] : [])),
    );
    expect(graces).toEqual([123_000]);
  });

  it('has the time that the file says now, which restarts nothing', () => {
    const c = cluster([of({ stopGraceMs: 123_000 })], 2);
    c.models = [aModel({ name: 'a', replicas: 0, profiles: [aProfile({ stopGraceMs: 7_000 })] })];
    c.run(20_000);
    const graces = c.plans.flatMap(({ actions }) =>
      actions.flatMap((action) => (action.kind === 'stopShard' ? [action.command.graceMs] : [])),
    );
    expect(graces).toEqual([7_000]);
  });
});

describe('the order in which copies go', () => {
  it('is failed, starting, about to leave anyway, fewest requests, newest', () => {
    const c = cluster([withArgs('a', '--x', { replicas: 3 })], 2, 2);
    const [r1, r2, r3] = c.recordsOf('a');
    c.inflight.set(`${r1?.id}@1`, 3);
    c.inflight.set(`${r2?.id}@1`, 1);
    c.inflight.set(`${r3?.id}@1`, 2);
    c.models = [withArgs('a', '--x', { replicas: 2 })];
    c.tick();
    expect(c.records.get(r2?.id ?? '')?.intent).toBe('drain');
    c.inflight.clear();
    c.models = [withArgs('a', '--x', { replicas: 1 })];
    c.run(4_000);
    // Equal in everything else, the newest.
    expect([...c.recordsOf('a')].filter(({ intent }) => intent === 'run').map(({ id }) => id)).toHaveLength(
      1,
    );
    c.run(20_000);
    c.models = [withArgs('a', '--x', { replicas: 2 })];
    c.tick();
    const starting = c
      .recordsOf('a')
      .find(({ readyWallMs, intent }) => intent === 'run' && readyWallMs === undefined);
    expect(starting).toBeDefined();
    c.models = [withArgs('a', '--x', { replicas: 1 })];
    c.run(10_000);
    expect(c.records.has(starting?.id ?? '')).toBe(false);
  });
});

describe('a restart with leave for a gap', () => {
  const restarted = (c: IdealCluster, change: Partial<ModelSpec> = {}): ModelSpec =>
    withArgs('a', '--x', { restartedWallMs: c.wallMs, ...change });

  it('stops first where nothing is spare; without leave the old copy serves on', () => {
    const c = cluster([withArgs('a', '--x')], 1);
    const before = ids(c, 'a');
    c.models = [restarted(c)];
    expect(fewest(c, 'a')).toBe(1);
    expect(ids(c, 'a')).toEqual(before);
    c.models = [{ ...restarted(c), restartAllowsGap: true }];
    expect(fewest(c, 'a')).toBe(0);
    expect(ids(c, 'a')).not.toEqual(before);
    expect(c.published()).toHaveLength(1);
  });

  it('still has the new copy first where there is room', () => {
    const c = cluster([withArgs('a', '--x')], 2);
    c.models = [restarted(c, { restartAllowsGap: true })];
    expect(fewest(c, 'a')).toBe(1);
    expect(ids(c, 'a')).toHaveLength(1);
  });

  it('is leave for that restart, not for what the file says later', () => {
    const c = cluster([withArgs('a', '--x')], 1);
    const model = restarted(c, { restartAllowsGap: true });
    c.models = [model];
    c.run(100_000);
    const after = ids(c, 'a');
    expect(c.published()).toHaveLength(1);
    c.models = [{ ...model, profiles: [aProfile({ args: ['--y'] })] }];
    expect(fewest(c, 'a')).toBe(1);
    expect(ids(c, 'a')).toEqual(after);
  });

  it('says who wanted it; a change of the model says that it has changed', () => {
    const why = (change: Partial<ModelSpec>): readonly string[] => {
      const c = cluster([withArgs('a', '--x')], 1);
      c.models = [restarted(c, { restartedBy: 'ann', ...change })];
      return c.tick().notDone.map(({ reason }) => reason.message);
    };
    expect(why({})).toEqual([
      expect.stringMatching(/it goes on serving: ann wants a new copy in its place$/),
    ]);
    expect(why({ profiles: [aProfile({ args: ['--y'] })] })).toEqual([
      expect.stringMatching(/it goes on serving: a\/p has changed since it was started$/),
    ]);
  });

  it('of one replica is its own', () => {
    const c = cluster([withArgs('a', '--x')], 1);
    const [record] = c.recordsOf('a');
    if (record === undefined) throw new Error('no replica');
    c.records.set(record.id, { ...record, restart: { actor: 'ann', atWallMs: c.wallMs, allowGap: true } });
    expect(fewest(c, 'a')).toBe(0);
    expect(c.published()).toHaveLength(1);
  });
});
