import { describe, expect, it } from 'vitest';
import { aGpu, aModel, aNode, aProfile, GIB } from '../../../test/support/cluster-builder.js';
import { specDigest } from '../catalog/spec-digest.js';
import type { BackoffRecord, GpuReport, NodeView, Reason } from '../cluster.js';
import type { ModelSpec, Profile } from '../model-spec.js';
import { Bookings, type GpuHolder } from './bookings.js';
import { GPU_FILTERS, gpuCandidate, NODE_FILTERS, type NodeCandidate, reasonsOf } from './filters.js';
import type { PlacementReasonCode } from './reasons.js';
import { Failures, Learned, type PlacementWorld } from './world.js';

interface Given {
  readonly node?: Partial<NodeView>;
  readonly model?: Parameters<typeof aModel>[0];
  readonly profile?: Partial<Profile>;
  readonly backoffs?: readonly Partial<BackoffRecord>[];
  readonly held?: readonly (Partial<GpuHolder> & { readonly model: string })[];
  readonly portsHeld?: readonly number[];
}

const NOW_WALL_MS = 1_700_000_000_000;
const PEAK = { profile: 'p', gpuType: 'H100', memoryPeakBytes: 60 * GIB, loadMs: [] };

function backoff(model: ModelSpec, profile: Profile, change: Partial<BackoffRecord>): BackoffRecord {
  return {
    replicaId: 'm-a',
    model: model.name,
    profile: profile.name,
    nodeId: 'n1',
    cause: 'crashed',
    failures: 3,
    delayMs: 40_000,
    untilWallMs: NOW_WALL_MS + 30_000,
    permanent: false,
    lastFailureWallMs: NOW_WALL_MS - 10_000,
    generation: 1,
    specDigest: specDigest(model, profile),
    ...change,
  };
}

function candidate(given: Given): NodeCandidate {
  const profile = aProfile(given.profile);
  const model = aModel({ ...given.model, profiles: [profile] });
  const node = aNode('n1', given.node?.gpus ?? [aGpu('g0')], given.node);
  const bookings = new Bookings();
  for (const [index, holder] of (given.held ?? []).entries())
    bookings.book(holder.model, {
      shardId: holder.shardId ?? `held-${index}`,
      nodeId: 'n1',
      gpuUuids: ['g0'],
      ...(holder.memoryBytes === undefined ? {} : { gpuMemoryBytes: holder.memoryBytes }),
      ports: { http: 0 },
    });
  for (const http of given.portsHeld ?? [])
    bookings.book('other', { shardId: `port-${http}`, nodeId: 'n1', gpuUuids: [], ports: { http } });
  const world: PlacementWorld = {
    nodes: [node],
    bookings,
    failures: new Failures((given.backoffs ?? []).map((one) => backoff(model, profile, one))),
    learned: new Learned([
      { model: 'learned', ...PEAK },
      { model: 'changed', ...PEAK, memoryPeakOf: 'of-another' },
    ]),
    portRange: [20_000, 20_001],
    nowWallMs: NOW_WALL_MS,
  };
  const query = { model, replicaId: 'm-a', generation: 2 };
  return { world, query, model, profile, node, bookings: bookings.on('n1') };
}

const nodeReasons = (given: Given) => reasonsOf(NODE_FILTERS, candidate(given));

function gpuReasons(given: Given): readonly Reason[] {
  const one = candidate(given);
  const [gpu] = one.node.gpus;
  if (gpu === undefined) throw new Error('no GPU given');
  return reasonsOf(GPU_FILTERS, gpuCandidate(one, gpu));
}

const gpu = (change: Partial<GpuReport>): Given => ({ node: { gpus: [aGpu('g0', change)] } });

type Row = [
  code: PlacementReasonCode,
  fits: Given,
  blocked: Given,
  sentence: string,
  numbers?: Reason['numbers'],
];

const rows = (table: readonly Row[]) =>
  table.map(([code, fits, blocked, message, numbers]) => ({ code, fits, blocked, message, numbers }));

describe('node filters', () => {
  const intent = (target: 'cordoned' | 'drained', gpuUuid?: string): Given => ({
    node: {
      intent: {
        target,
        actor: 'ann',
        reason: 'fans',
        atWallMs: 0,
        sequence: 1,
        ...(gpuUuid === undefined ? {} : { gpuUuid }),
      },
    },
  });

  it.each(
    rows([
      [
        'node_unreachable',
        {},
        { node: { liveness: 'unreachable', livenessReason: 'silent for 20 s' } },
        'no report reaches us: silent for 20 s',
      ],
      [
        'node_lost',
        {},
        { node: { liveness: 'lost', livenessReason: 'silent for 2 min' } },
        'given up: silent for 2 min',
      ],
      ['node_flapping', {}, { node: { liveness: 'flapping' } }, 'comes and goes too often'],
      [
        'node_unseen',
        {},
        { node: { liveness: 'unseen', lastSeenWallMs: NOW_WALL_MS - 90_000 } },
        "waiting for the agent's first report to this server, last seen 90 s ago",
      ],
      [
        'node_disconnected',
        {},
        { node: { streamSinceMs: undefined } },
        'its stream is closed at this moment',
      ],
      ['node_not_reported', {}, { node: { reported: false } }, 'no full report has arrived yet'],
      ['node_cordoned', intent('cordoned', 'g0'), intent('cordoned'), 'cordoned by ann: fans'],
      ['node_draining', intent('drained', 'g0'), intent('drained'), 'being drained by ann: fans'],
      [
        'node_condition',
        { node: { conditions: [{ type: 'Slow', reason: 'disk', blocksPlacement: false }] } },
        {
          node: {
            conditions: [{ type: 'GpuProbeFailing', reason: 'no answer in 10 s', blocksPlacement: true }],
          },
        },
        'GpuProbeFailing (no answer in 10 s)',
      ],
      [
        'engine_not_offered',
        { profile: { engine: 'sim' } },
        { profile: { engine: 'vllm' } },
        'does not offer vllm; offers sim',
      ],
      [
        'engine_unavailable',
        { node: { engines: [{ kind: 'sim', version: '1' }] } },
        { node: { engines: [{ kind: 'sim', unavailable: 'no such file' }] } },
        'sim: no such file',
      ],
      [
        'label_mismatch',
        {
          node: { labels: { zone: 'a' } },
          model: { placement: { nodeSelector: { zone: 'a', node: 'n1' } } },
        },
        {
          node: { labels: { zone: 'b' } },
          model: { placement: { nodeSelector: { zone: 'a', disk: 'ssd' } } },
        },
        'wants zone=a, has zone=b; wants disk=ssd, has none',
      ],
      [
        'anti_affinity',
        { held: [{ model: 'other' }], model: { placement: { antiAffinity: true } } },
        { held: [{ model: 'm' }], model: { placement: { antiAffinity: true } } },
        'already runs 1 of m',
        { count: 1 },
      ],
      [
        'parked',
        { backoffs: [{ permanent: true, cause: 'badFlag', specDigest: 'of an older profile' }] },
        { backoffs: [{ permanent: true, cause: 'badFlag', lastMessage: '--x is unknown' }] },
        'p cannot work here (badFlag): --x is unknown; a changed profile or a restart of the model clears it',
      ],
      [
        'backoff',
        // The wall clock was set back: a wait is never longer than the delay was.
        { backoffs: [{ untilWallMs: NOW_WALL_MS + 3_600_000 }] },
        { backoffs: [{}] },
        'm-a failed here 3 times, last by crashed; next try in 30 s',
        { failures: 3, leftMs: 30_000 },
      ],
      [
        'no_free_port',
        { portsHeld: [20_000] },
        { portsHeld: [20_000], node: { portsTaken: [20_001] } },
        'needs 1 of 20000-20001, 0 free',
        { needed: 1, free: 0 },
      ],
    ]),
  )('$code', ({ code, fits, blocked, message, numbers }) => {
    expect(nodeReasons(fits)).toEqual([]);
    expect(nodeReasons(blocked)).toEqual([{ code, message, ...(numbers === undefined ? {} : { numbers }) }]);
  });

  it('tells every reason that holds, not the first', () => {
    const codes = nodeReasons({
      node: {
        liveness: 'unreachable',
        labels: {},
        intent: { target: 'cordoned', actor: 'ann', atWallMs: 0, sequence: 1 },
      },
      model: { placement: { nodeSelector: { zone: 'a' } } },
      profile: { engine: 'vllm' },
    }).map(({ code }) => code);
    expect(codes).toEqual(['node_unreachable', 'node_cordoned', 'engine_not_offered', 'label_mismatch']);
  });
});

describe('GPU filters', () => {
  it.each(
    rows([
      [
        'gpu_type_mismatch',
        { profile: { gpuType: 'nvidia/h1?0*' } },
        { profile: { gpuType: 'A100*' } },
        'is nvidia/H100, wants A100*',
      ],
      [
        'gpu_excluded',
        gpu({}),
        gpu({
          health: {
            state: 'excluded',
            reason: 'xid_79',
            evidence: 'fell off the bus',
            clearedBy: 'a reboot',
          },
        }),
        'xid_79; fell off the bus; cleared by a reboot',
      ],
      ['gpu_suspect', gpu({}), gpu({ health: { state: 'suspect', reason: 'xid_13' } }), 'xid_13'],
      [
        'gpu_not_reported',
        gpu({}),
        gpu({ health: { state: 'unknown', reason: 'not_yet_reported' } }),
        'not_yet_reported',
      ],
      [
        'gpu_draining',
        { node: { intent: { target: 'drained', actor: 'ann', atWallMs: 0, sequence: 1, gpuUuid: 'g9' } } },
        { node: { intent: { target: 'drained', actor: 'ann', atWallMs: 0, sequence: 1, gpuUuid: 'g0' } } },
        'being drained by ann',
      ],
      [
        'gpu_shared',
        { profile: { gpuMemoryBytes: 20 * GIB }, held: [{ model: 'o', memoryBytes: 20 * GIB }] },
        { held: [{ model: 'o', memoryBytes: 20 * GIB }] },
        'partly held by held-0; the profile declares no memory need',
      ],
      [
        'gpu_foreign',
        { ...gpu({ foreign: [{ pid: 7 }] }), profile: { gpuMemoryBytes: GIB } },
        gpu({ memoryUsedBytes: 2 * GIB, foreign: [{ pid: 7, name: 'x', memoryBytes: 2 * GIB }] }),
        'used by pid 7 (x) 2 GiB; the profile declares no memory need',
      ],
      [
        'gpu_in_use',
        gpu({ memoryUsedBytes: GIB }),
        gpu({ memoryUsedBytes: 3 * GIB }),
        '3 GiB in use by no process we see',
        { usedBytes: 3 * GIB },
      ],
      [
        'gpu_memory_short',
        // Exactly what is free fits; a byte more does not.
        { ...gpu({ memoryUsedBytes: 10 * GIB }), profile: { gpuMemoryBytes: 70 * GIB } },
        {
          ...gpu({ memoryUsedBytes: 10 * GIB, foreign: [{ pid: 7, memoryBytes: 10 * GIB }] }),
          profile: { gpuMemoryBytes: 76 * GIB },
        },
        'needs 76 GiB, 70 GiB of 80 GiB free, used by pid 7 10 GiB',
        { neededBytes: 76 * GIB, freeBytes: 70 * GIB, shortBytes: 6 * GIB },
      ],
    ]),
  )('$code', ({ code, fits, blocked, message, numbers }) => {
    expect(gpuReasons(fits)).toEqual([]);
    expect(gpuReasons(blocked)).toEqual([{ code, message, ...(numbers === undefined ? {} : { numbers }) }]);
  });

  it.each<[string, Given, readonly PlacementReasonCode[]]>([
    ['a device held whole has nothing left', { held: [{ model: 'o' }] }, ['gpu_held']],
    [
      'nor for one that wants a part',
      { held: [{ model: 'o' }], profile: { gpuMemoryBytes: GIB } },
      ['gpu_held', 'gpu_memory_short'],
    ],
    [
      'bookings count before their engines have taken anything',
      { held: [{ model: 'o', memoryBytes: 79 * GIB }], profile: { gpuMemoryBytes: 2 * GIB } },
      ['gpu_memory_short'],
    ],
    [
      'what is really used counts when it is more than booked',
      {
        ...gpu({ memoryUsedBytes: 79 * GIB }),
        held: [{ model: 'o', memoryBytes: GIB }],
        profile: { gpuMemoryBytes: 2 * GIB },
      },
      ['gpu_memory_short'],
    ],
    [
      'a stranger of unknown size counts as all that is in use',
      { ...gpu({ memoryUsedBytes: 79 * GIB, foreign: [{ pid: 1 }] }), profile: { gpuMemoryBytes: 2 * GIB } },
      ['gpu_memory_short'],
    ],
    [
      'unknown is not zero',
      { ...gpu({ vendor: 'amd', memoryUsedBytes: undefined as never }), profile: { gpuMemoryBytes: GIB } },
      ['gpu_memory_unknown'],
    ],
    [
      'a measured peak refines what was declared',
      {
        model: { name: 'learned' },
        ...gpu({ memoryUsedBytes: 30 * GIB }),
        profile: { gpuMemoryBytes: 40 * GIB },
      },
      ['gpu_memory_short'],
    ],
    [
      'one that was measured before the model changed says nothing of it',
      {
        model: { name: 'changed' },
        ...gpu({ memoryUsedBytes: 30 * GIB }),
        profile: { gpuMemoryBytes: 40 * GIB },
      },
      [],
    ],
  ])('%s', (_, given, codes) => {
    expect(gpuReasons(given).map(({ code }) => code)).toEqual(codes);
  });
});
