/** Whole stories of a fleet: faults that other systems of this kind had, and what must happen here instead. */
import { describe, expect, it } from 'vitest';
import { aGpu, aModel, aNode, aProfile, GIB } from '../../../test/support/cluster-builder.js';
import { IdealCluster } from '../../../test/support/ideal-cluster.js';
import { seededRandom } from '../../shared/random.js';
import type { NodeView, SchedulingIntent } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { explainPlacement } from './explain.js';
import { judgeLiveness } from './liveness.js';
import { DEFAULT_POLICY } from './policy.js';

function cluster(models: readonly ModelSpec[], nodes: readonly NodeView[]): IdealCluster {
  return Object.assign(new IdealCluster(), { models, nodes });
}

const intent = (target: SchedulingIntent['target'], change: Partial<SchedulingIntent> = {}) => ({
  intent: { target, actor: 'ann', atWallMs: 1_700_000_000_000, sequence: 1, ...change },
});

const explain = (c: IdealCluster, model: string) =>
  explainPlacement(
    c.snapshot(),
    c.policy,
    { nowMs: c.nowMs, nowWallMs: c.wallMs, random: seededRandom(1) },
    model,
  );

const startsOf = (c: IdealCluster) => c.log.filter((line) => line.startsWith('start '));
const stopsOf = (c: IdealCluster) => c.log.filter((line) => line.startsWith('stop '));
const nodesOf = (c: IdealCluster, model = 'm') =>
  c
    .recordsOf(model)
    .filter((record) => record.intent === 'run')
    .flatMap(({ shards }) => shards.map(({ nodeId }) => nodeId))
    .toSorted((a, b) => (a < b ? -1 : 1));

/** The machine goes with everything on it. */
function powerOff(c: IdealCluster, nodeId: string): void {
  c.silent.add(nodeId);
  for (const [key, engine] of c.engines) if (engine.nodeId === nodeId) c.engines.delete(key);
}

describe('what is held', () => {
  it('counts on every node of a gang: another model waits, and explain names the holders; freed, it is placed', () => {
    const gang = aModel({ name: 'g', priority: 200, profiles: [aProfile({ shards: 2, gpus: 2 })] });
    const c = cluster([gang, aModel()], [aNode('n1', 2), aNode('n2', 2)]);
    c.run(40_000);
    const held = explain(c, 'm')?.profiles[0]?.nodes.flatMap(({ gpus }) =>
      gpus.flatMap(({ heldBy }) => heldBy),
    );
    const [id = ''] = c.recordsOf('g').map((record) => record.id);
    expect(held).toEqual([`${id}.0`, `${id}.0`, `${id}.1`, `${id}.1`]);
    expect(nodesOf(c)).toEqual([]);
    c.models = [aModel()];
    c.run(40_000);
    expect(nodesOf(c)).toHaveLength(1);
    expect(c.published()).toHaveLength(1);
  });

  it('leaves the largest hole: four small replicas on one node, the four-GPU one fits on the other', () => {
    const small = aModel({ name: 's', replicas: 4 });
    const c = cluster([small], [aNode('n1', 4), aNode('n2', 4)]);
    c.run(40_000);
    expect(new Set(nodesOf(c, 's')).size).toBe(1);
    c.models = [small, aModel({ profiles: [aProfile({ gpus: 4 })] })];
    c.run(40_000);
    expect(nodesOf(c)).toHaveLength(1);
  });

  it('in two holes of two is no hole of four, and explain says so with the numbers', () => {
    const spread = aModel({ name: 's', replicas: 4, placement: { strategy: 'spread' } });
    const c = cluster(
      [spread, aModel({ profiles: [aProfile({ gpus: 4 })], priority: 50 })],
      [aNode('n1', 4), aNode('n2', 4)],
    );
    c.run(40_000);
    expect(explain(c, 'm')?.counterfactual).toMatchObject({
      message: expect.stringContaining('n1 2 free, n2 2 free (largest hole 2)') as unknown,
      numbers: { needed: 4, largestHole: 2 },
    });
  });

  it('is nothing for a gang that cannot be whole; a smaller one beside it is placed', () => {
    const two = aModel({ name: 'two', profiles: [aProfile({ shards: 2, gpus: 2 })] });
    const three = aModel({ name: 'three', profiles: [aProfile({ shards: 3, gpus: 2 })] });
    const c = cluster([three, two], [aNode('n1', 2), aNode('n2', 2)]);
    c.run(40_000);
    expect(nodesOf(c, 'two')).toEqual(['n1', 'n2']);
    expect(nodesOf(c, 'three')).toEqual([]);
  });

  it('of one type and size: each rejected device says which number was compared', () => {
    const b = (uuid: string) => aGpu(uuid, { type: 'B', memoryTotalBytes: 24 * GIB });
    const node = aNode('n1', [aGpu('a0'), aGpu('a1'), b('b0'), b('b1')]);
    const tp4 = aModel({ name: 'tp4', profiles: [aProfile({ gpus: 4 })] });
    const tp2 = aModel({ name: 'tp2', profiles: [aProfile({ gpus: 2, gpuMemoryBytes: 40 * GIB })] });
    const onB = aModel({ name: 'on-b', profiles: [aProfile({ gpuType: 'B' })] });
    const c = cluster([tp4, tp2, onB], [node]);
    c.run(40_000);
    expect(explain(c, 'tp4')?.profiles[0]?.nodes[0]?.reasons[0]?.message).toContain(
      'needs 4 GPUs of one type',
    );
    expect(c.recordsOf('tp2')[0]?.shards[0]?.gpuUuids).toEqual(['a0', 'a1']);
    expect(c.recordsOf('on-b')[0]?.shards[0]?.gpuUuids[0]).toMatch(/^b/);
    const devices = explain(cluster([tp2], [node]), 'tp2')?.profiles[0]?.nodes[0]?.gpus ?? [];
    expect(devices.map(({ fits, reasons }) => (fits ? 'fits' : reasons[0]?.message))).toEqual([
      'fits',
      'fits',
      'needs 40 GiB, 24 GiB of 24 GiB free',
      'needs 40 GiB, 24 GiB of 24 GiB free',
    ]);
  });
});

describe('one device under two names', () => {
  const devices = [aGpu('GPU-a'), aGpu('GPU-b')];

  it('is given once, though two agents of its machine report it', () => {
    const c = cluster([aModel({ replicas: 3 })], [aNode('n1', devices), aNode('n2', devices)]);
    c.run(40_000);
    const uuids = c.recordsOf('m').flatMap(({ shards }) => shards.flatMap(({ gpuUuids }) => gpuUuids));
    expect(uuids.toSorted()).toEqual(['GPU-a', 'GPU-b']);
    const held = explain(c, 'm')?.profiles[0]?.nodes.map(({ gpus }) =>
      gpus.map(({ heldBy }) => heldBy.length),
    );
    expect(held).toEqual([
      [1, 1],
      [1, 1],
    ]);
  });

  it('stays held under the old name of a node that came back without its engines, until that is lost', () => {
    const c = cluster([aModel({ replicas: 2 })], [aNode('n1', devices)]);
    c.run(40_000);
    expect(c.published()).toHaveLength(2);
    c.silent.add('n1');
    c.nodes = [...c.nodes, aNode('n1b', devices)];
    c.models = [aModel({ replicas: 2 }), aModel({ name: 'other' })];
    c.run(DEFAULT_POLICY.lostAfterMs - 10_000);
    expect(nodesOf(c)).toEqual(['n1', 'n1']);
    expect(nodesOf(c, 'other')).toEqual([]);
    c.run(60_000);
    const places = [...nodesOf(c), ...nodesOf(c, 'other')];
    expect(places.filter((node) => node === 'n1b')).toHaveLength(2);
  });

  it('that is only declared may have the name of another', () => {
    const declared = [aGpu('gpu0', { vendor: 'static' })];
    const c = cluster([aModel({ replicas: 2 })], [aNode('n1', declared), aNode('n2', declared)]);
    c.run(40_000);
    expect(nodesOf(c)).toEqual(['n1', 'n2']);
  });
});

describe('explain', () => {
  it('lists every node once with all its reasons, and a pinned node nobody knows', () => {
    const big = aModel({
      profiles: [aProfile({ gpuMemoryBytes: 70 * GIB })],
      placement: { nodeSelector: { zone: 'a' } },
    });
    const zone = { labels: { zone: 'a' } };
    const c = cluster(
      [{ ...big, replicas: 0 }],
      [
        aNode('n1', 8, { ...zone, ...intent('cordoned', { reason: 'fans' }) }),
        aNode('n2', [aGpu('n2-g0', { memoryTotalBytes: 24 * GIB })], zone),
        aNode('n3', 1, { ...zone, liveness: 'unreachable', livenessSinceMs: 1_000_000 }),
        aNode('n4', 1, intent('cordoned')),
        aNode('n5', [aGpu('n5-g0', { health: { state: 'excluded', reason: 'xid_79' } })], zone),
      ],
    );
    c.silent.add('n3');
    c.nowMs += 20_000;
    const nodes = explain(c, 'm')?.profiles[0]?.nodes ?? [];
    expect(nodes.map(({ nodeId, reasons }) => [nodeId, reasons.map(({ code }) => code)])).toEqual([
      ['n1', ['node_cordoned']],
      ['n2', ['gpus_too_few']],
      ['n3', ['node_unreachable']],
      ['n4', ['node_cordoned', 'label_mismatch']],
      ['n5', ['gpus_too_few']],
    ]);
    c.models = [aModel({ placement: { nodeSelector: { node: 'n9' } } })];
    expect(explain(c, 'm')?.profiles[0]?.nodes.at(-1)).toMatchObject({
      nodeId: 'n9',
      reasons: [{ code: 'node_unknown' }],
    });
  });
});

describe('a crash loop', () => {
  it('slows down: about eighteen starts in an hour, the first already delayed, and the next try is known', () => {
    const c = cluster([aModel()], [aNode('n1')]);
    c.loadMs = 1_000_000;
    for (let pass = 0; pass < 1_800; pass += 1) {
      c.tick();
      for (const { report } of c.engines.values()) c.crash(report.shardId);
    }
    expect(startsOf(c).length).toBeGreaterThanOrEqual(14);
    expect(startsOf(c).length).toBeLessThanOrEqual(25);
    const [last] = c.backoffs.values();
    expect(last).toMatchObject({ cause: 'crashed', lastExitCode: 1, permanent: false });
    expect(last?.untilWallMs).toBeGreaterThan(last?.lastFailureWallMs ?? Infinity);
  });

  it('of a cause that cannot pass is not tried twice on the same node', () => {
    const c = cluster([aModel()], [aNode('n1'), aNode('n2')]);
    c.loadMs = 1_000_000;
    for (let pass = 0; pass < 300; pass += 1) {
      c.tick();
      for (const { report } of c.engines.values())
        c.crash(report.shardId, { exitCode: 127, verdict: 'binaryMissing' });
    }
    expect(
      startsOf(c)
        .map((line) => line.split(' ').at(-1))
        .toSorted((a = '', b = '') => (a < b ? -1 : 1)),
    ).toEqual(['n1', 'n2']);
  });
});

describe('a node that is gone', () => {
  it('takes its gang with it: unpublished, replaced elsewhere, the rank that is left stopped and its GPU freed', () => {
    const gang = aModel({ profiles: [aProfile({ shards: 2 })] });
    const c = cluster([gang], [aNode('n1'), aNode('n2'), aNode('n3'), aNode('n4')]);
    c.run(40_000);
    const [gone = '', left = ''] = nodesOf(c).toReversed();
    powerOff(c, gone);
    c.run(20_000);
    expect(c.published()).toEqual([]);
    c.run(140_000);
    expect(c.published()).toHaveLength(1);
    expect(nodesOf(c)).not.toContain(gone);
    expect(stopsOf(c).length).toBeGreaterThan(0);
    expect(
      [...c.engines.values()].filter(
        ({ nodeId, report }) =>
          nodeId === left && report.generation === 1 && report.replicaId !== c.recordsOf('m')[0]?.id,
      ),
    ).toEqual([]);
  });

  it('and is back before it is given up keeps what runs there: nothing is started, nothing stopped', () => {
    const c = cluster([aModel()], [aNode('n1'), aNode('n2')]);
    c.run(40_000);
    const [before] = c.recordsOf('m');
    c.silent.add(nodesOf(c)[0] ?? '');
    c.run(60_000);
    c.silent.clear();
    c.run(30_000);
    expect(c.recordsOf('m').map(({ id, generation }) => [id, generation])).toEqual([[before?.id, 1]]);
    expect(startsOf(c)).toHaveLength(1);
    expect(stopsOf(c)).toEqual([]);
    expect(c.published()).toEqual([`${before?.id}@1`]);
  });

  it.each([
    ['while its replacement loads: the healthy one is kept and the other let go', 20_000, true],
    ['after its replacement is Ready: one of the two goes', 200_000, false],
  ])('and is back %s', (_, loadMs, kept) => {
    const c = cluster([aModel()], [aNode('n1'), aNode('n2')]);
    c.run(40_000);
    const [before] = c.recordsOf('m');
    c.loadMs = kept ? 1_000_000 : 20_000;
    c.silent.add(nodesOf(c)[0] ?? '');
    c.run(90_000 + loadMs);
    c.silent.clear();
    c.run(200_000);
    const running = c.recordsOf('m').filter(({ intent: wanted }) => wanted === 'run');
    expect(running).toHaveLength(1);
    expect(c.engines.size).toBe(1);
    if (kept) expect(running[0]?.id).toBe(before?.id);
    expect(c.published()).toEqual([`${running[0]?.id}@${running[0]?.generation}`]);
  });
});

describe('the fleet seen from a server that is sick itself', () => {
  const ten = () => Array.from({ length: 10 }, (_, index) => aNode(`n${index}`));

  // Each machine that was added to a server of more than a few minutes was first of all told of as lost.
  it('machines that have just said hello are neither lost nor silent, however long the server runs', () => {
    const c = cluster([aModel()], [aNode('n1')]);
    c.run(10 * 60_000);
    const fresh = { liveness: 'unseen', reported: false, livenessSinceMs: c.nowMs } as const;
    const { lastReportMs: _never, ...silent } = aNode('n2', 1, fresh);
    const news = ['n2', 'n3', 'n4'].map((id) => ({ ...silent, id }));
    const snapshot = c.snapshot();
    const seen = { ...snapshot, nodes: [...snapshot.nodes, ...news] };
    const judged = (afterMs: number) =>
      judgeLiveness(
        { ...seen, memory: { ...seen.memory, lastPassMs: c.nowMs + afterMs - 2_000 } },
        DEFAULT_POLICY,
        c.nowMs + afterMs,
        c.wallMs + afterMs,
      );
    const soon = judged(2_000);
    expect([soon.changes, soon.events, soon.braking]).toEqual([[], [], false]);
  });

  it('eight of ten silent at once: nothing is moved', () => {
    const c = cluster([aModel({ replicas: 5, placement: { strategy: 'spread' } })], ten());
    c.run(60_000);
    const before = c.recordsOf('m').map(({ id }) => id);
    for (let index = 0; index < 8; index += 1) c.silent.add(`n${index}`);
    c.run(300_000);
    expect(c.recordsOf('m').map(({ id }) => id)).toEqual(before);
    expect(c.log.filter((line) => line.endsWith(' lost'))).toEqual([]);
    expect(c.published()).toHaveLength(5);
  });

  it('forty seconds of standing still are held against nobody', () => {
    const c = cluster([aModel({ replicas: 2 })], ten());
    c.run(60_000);
    for (const { id } of c.nodes) c.silent.add(id);
    c.tick(40_000);
    c.silent.clear();
    c.run(20_000);
    expect(c.log.filter((line) => / (unreachable|lost)$/.test(line))).toEqual([]);
  });

  it('a node that comes and goes is flapping, says so, and is given nothing until it has stayed', () => {
    const c = cluster([aModel()], [aNode('n1')]);
    c.models = [];
    c.tick();
    for (let round = 0; round < 6; round += 1) {
      c.silent.add('n1');
      c.run(36_000);
      c.silent.delete('n1');
      c.run(20_000);
    }
    expect(c.nodes[0]).toMatchObject({ liveness: 'flapping' });
    c.models = [aModel()];
    c.tick();
    expect(explain(c, 'm')?.profiles[0]?.nodes[0]?.reasons[0]?.code).toBe('node_flapping');
    c.run(400_000);
    expect(c.nodes[0]).toMatchObject({ liveness: 'connected' });
    expect(nodesOf(c)).toEqual(['n1']);
  });
});

describe('drains', () => {
  it('of two nodes at once do not take one spare place twice, and never go below what is wanted', () => {
    const c = cluster([aModel({ replicas: 2 })], [aNode('n1'), aNode('n2')]);
    c.run(40_000);
    c.nodes = [...c.nodes, aNode('n3')];
    c.change('n1', intent('drained'));
    c.change('n2', intent('drained'));
    const ready: number[] = [];
    for (let pass = 0; pass < 60; pass += 1) ready.push(c.tick().published.length);
    expect(Math.min(...ready)).toBe(2);
    expect(nodesOf(c).filter((id) => id === 'n3')).toHaveLength(1);
    expect(c.plans.at(-1)?.notDone.map(({ reason }) => reason.code)).toEqual(['no_target']);
  });

  it('are cancelled by an uncordon: the original serves on, no stop is sent, one copy is left', () => {
    const c = cluster([aModel()], [aNode('n1'), aNode('n2')]);
    c.run(40_000);
    const [original] = c.recordsOf('m');
    const from = nodesOf(c)[0] ?? '';
    c.change(from, intent('drained'));
    c.run(6_000);
    expect(c.recordsOf('m')).toHaveLength(2);
    c.change(from, intent('schedulable', { sequence: 2 }));
    c.run(60_000);
    expect(c.recordsOf('m').map(({ id }) => id)).toEqual([original?.id]);
    expect(stopsOf(c).filter((line) => line.includes(`${original?.id}.`))).toEqual([]);
    expect(c.published()).toEqual([`${original?.id}@1`]);
  });

  it('a cordon alone moves nothing', () => {
    const c = cluster([aModel()], [aNode('n1'), aNode('n2')]);
    c.run(40_000);
    c.change(nodesOf(c)[0] ?? '', intent('cordoned'));
    c.log.length = 0;
    c.run(60_000);
    expect(c.log).toEqual([]);
  });
});

describe('a device', () => {
  it('that falls off the bus takes only what ran on it; the rest of the node stays usable, and nothing moves onto it', () => {
    const c = cluster([aModel()], [aNode('n1', 2)]);
    c.run(40_000);
    const [bad = ''] = c.recordsOf('m')[0]?.shards[0]?.gpuUuids ?? [];
    const health = { state: 'excluded', reason: 'not_reported', evidence: 'reported before' } as const;
    c.nodes = c.nodes.map((node) => ({
      ...node,
      gpus: node.gpus.map((gpu) => (gpu.uuid === bad ? { ...gpu, health } : gpu)),
    }));
    for (const { report } of c.engines.values()) c.crash(report.shardId, { verdict: 'xid' });
    c.run(60_000);
    const [now] = c.recordsOf('m');
    expect(now?.shards[0]?.gpuUuids).toHaveLength(1);
    expect(now?.shards[0]?.gpuUuids).not.toContain(bad);
    expect(c.published()).toHaveLength(1);
  });
});
