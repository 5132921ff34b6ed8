import type { MethodDefinition } from '@grpc/grpc-js';
import { describe, expect, it } from 'vitest';
import type { ShardReport } from '../domain/cluster.js';
import type { Profile } from '../domain/model-spec.js';
import type { StartShardCommand } from '../domain/plan.js';
import { LOG_TAIL_LIMIT_BYTES, tailBytes, tailText } from './log-tail.js';
import type { Hello, NodeReport } from './messages.js';
import { agentPackageDefinition, MESSAGE_LIMIT_BYTES } from './proto.js';
import { parseAgentMessage, parseServerMessage } from './to-domain.js';
import {
  helloToWire,
  probeToWire,
  refusalToWire,
  reportToWire,
  resultToWire,
  startToWire,
  stopToWire,
} from './to-wire.js';
import { negotiateVersion } from './version.js';
import type { WireAgentMessage, WireServerMessage } from './wire.js';

const connect = (
  agentPackageDefinition()['llmgw.agent.v1.AgentGateway'] as unknown as {
    Connect: MethodDefinition<WireAgentMessage, WireServerMessage>;
  }
).Connect;

/** Through the real encoder and decoder, as a message travels. */
const travelUp = (message: WireAgentMessage) => connect.requestDeserialize(connect.requestSerialize(message));
const travelDown = (message: WireServerMessage) =>
  connect.responseDeserialize(connect.responseSerialize(message));

const hello: Hello = {
  protocolVersion: 1,
  minProtocolVersion: 1,
  build: '0.1.0',
  nodeId: 'n1',
  machineId: 'm-1',
  bootId: 'b-1',
  instanceId: 'i-1',
  labels: { zone: 'a', __proto__label: 'x' },
  address: '10.0.0.1',
  hostname: 'host-1',
  highestTerm: 2 ** 53 - 1,
  wallMs: 1_790_000_000_000,
  stateDirId: 'd-1',
  stateDir: '/var/lib/llmgw',
  pid: 42,
};

const shard: ShardReport = {
  shardId: 's1',
  replicaId: 'r1',
  model: 'm1',
  profile: 'p1',
  generation: 3,
  rank: 0,
  phase: 'ready',
  pid: 42,
  gpuUuids: ['GPU-a'],
  ports: { http: 20_000 },
  loadMs: 1_200,
  memoryPeakBytes: 70 * 1024 ** 3,
  phaseAgeMs: 10,
  specDigest: 'd1',
};

const report: NodeReport = {
  sequence: 7,
  complete: true,
  gpus: [
    {
      uuid: 'GPU-a',
      type: 'H100',
      vendor: 'nvidia',
      memoryTotalBytes: 85_899_345_920,
      memoryUsedBytes: 0,
      foreign: [{ pid: 9, name: 'python' }],
      health: { state: 'excluded', reason: 'xid_79', evidence: 'fell off the bus', sinceWallMs: 5 },
      linkedTo: ['GPU-b'],
    },
    {
      uuid: 'GPU-b',
      type: 'H100',
      vendor: 'nvidia',
      foreign: [],
      health: { state: 'healthy' },
      linkedTo: [],
    },
  ],
  shards: [shard],
  engines: [{ kind: 'vllm', version: '0.11' }],
  portsTaken: [20_001],
  weightsPresent: ['Qwen/Qwen3-32B'],
  conditions: [{ type: 'StateDirFull', reason: 'no space', blocksPlacement: true }],
  uptimeMs: 1_000,
};

function problemOf(message: WireAgentMessage) {
  const parsed = parseAgentMessage(message);
  return parsed.ok ? undefined : { code: parsed.problem.code, field: parsed.problem.field };
}

/** A report as it arrives, with some of its fields replaced by what a broken agent might send. */
function brokenReport(change: object): WireAgentMessage {
  return { report: { ...reportToWire(report).report, ...change } } as WireAgentMessage;
}

function brokenGpu(change: object): WireAgentMessage {
  const [first] = reportToWire(report).report?.gpus ?? [];
  return brokenReport({ gpus: [{ ...first, ...change }] });
}

describe('messages of an agent', () => {
  it('arrive as they were sent', () => {
    expect(parseAgentMessage(travelUp(helloToWire(hello)))).toEqual({
      ok: true,
      message: { kind: 'hello', hello },
    });
    expect(parseAgentMessage(travelUp(probeToWire(hello)))).toEqual({
      ok: true,
      message: { kind: 'probe', hello },
    });
    expect(parseAgentMessage(travelUp(reportToWire(report)))).toEqual({
      ok: true,
      message: { kind: 'report', report },
    });
    const result = { commandId: 'c1', outcome: 'refused', verdict: 'notAllowed' } as const;
    expect(parseAgentMessage(travelUp(resultToWire(result)))).toEqual({
      ok: true,
      message: { kind: 'result', result },
    });
  });

  it('keep unknown apart from zero', () => {
    const parsed = parseAgentMessage(travelUp(reportToWire(report)));
    const gpus = parsed.ok && parsed.message.kind === 'report' ? parsed.message.report.gpus : [];
    expect(gpus[0]).toHaveProperty('memoryUsedBytes', 0);
    expect(gpus[1]).not.toHaveProperty('memoryUsedBytes');
  });

  it('with an enum value of a newer agent mean unknown, never the state with the zero number', () => {
    const wire = reportToWire(report).report;
    const [first] = wire?.shards ?? [];
    const [gpu] = wire?.gpus ?? [];
    const parsed = parseAgentMessage(
      travelUp(
        brokenReport({
          shards: [{ ...first, phase: 77, verdict: 'novaFlare' }],
          gpus: [{ ...gpu, health: 9, healthReason: '' }],
          engines: [{ kind: 'tomorrow', version: '', unavailable: '' }],
        }),
      ),
    );
    const got = parsed.ok && parsed.message.kind === 'report' ? parsed.message.report : undefined;
    expect(got?.shards[0]).toMatchObject({ phase: 'unknown', verdict: 'unknown' });
    expect(got?.gpus[0]?.health).toMatchObject({ state: 'suspect', reason: 'unknown_health' });
    expect(got?.engines).toEqual([]);
  });

  it('with an unknown body are reported as such', () => {
    expect(parseAgentMessage(travelUp({}))).toEqual({ ok: true, message: { kind: 'unknown' } });
  });

  it.each([
    ['a hello without a node id', { hello: { ...helloToWire(hello).hello, nodeId: '' } }, 'hello.nodeId'],
    [
      'a node id with a path in it',
      { hello: { ...helloToWire(hello).hello, nodeId: '../n1' } },
      'hello.nodeId',
    ],
    [
      'a label with a line break',
      { hello: { ...helloToWire(hello).hello, labels: { a: 'x\ny' } } },
      'hello.labels.a',
    ],
    ['NaN memory', brokenGpu({ memoryUsedBytes: NaN }), 'report.gpus[0].memoryUsedBytes'],
    ['negative memory', brokenGpu({ memoryTotalBytes: '-5' }), 'report.gpus[0].memoryTotalBytes'],
    [
      'memory beyond exact numbers',
      brokenGpu({ memoryTotalBytes: '18446744073709551615' }),
      'report.gpus[0].memoryTotalBytes',
    ],
    ['a GPU without a UUID', brokenGpu({ uuid: '' }), 'report.gpus[0].uuid'],
    ['a million GPUs', brokenReport({ gpus: Array(1_000_000).fill({}) }), 'report.gpus'],
    [
      'one GPU twice',
      brokenReport({
        gpus: [...(reportToWire(report).report?.gpus ?? []), ...(reportToWire(report).report?.gpus ?? [])],
      }),
      'report.gpus',
    ],
    ['a port that is none', brokenReport({ portsTaken: [70_000] }), 'report.portsTaken[0]'],
    ['a count of GPUs in place of the list', brokenReport({ gpus: -1 }), 'report.gpus'],
    ['a sequence that is no number', brokenReport({ sequence: 'x' }), 'report.sequence'],
  ])('are refused with the field for %s', (_, message, field) => {
    expect(problemOf(message as WireAgentMessage)?.field).toBe(field);
  });

  it('stay below the message limit with 64 shards of 200 KB of log, and keep every state', () => {
    const shards = Array.from({ length: 64 }, (_, index) => ({
      ...shard,
      shardId: `s${index}`,
      logTail: `${'x'.repeat(200_000)}ERROR: out of memory`,
    }));
    const wire = reportToWire({ ...report, shards });
    expect(connect.requestSerialize(wire).length).toBeLessThan(MESSAGE_LIMIT_BYTES);
    const parsed = parseAgentMessage(travelUp(wire));
    const got = parsed.ok && parsed.message.kind === 'report' ? parsed.message.report.shards : [];
    expect(got).toHaveLength(64);
    expect(got.every((one) => one.logTail?.endsWith('ERROR: out of memory'))).toBe(true);
    expect(got[0]?.logTail?.startsWith('[…]')).toBe(true);
  });
});

describe('messages of the server', () => {
  const profile: Profile = {
    name: 'p1',
    engine: 'vllm',
    shards: 2,
    gpus: 1,
    gpuMemoryBytes: 1_000,
    args: ['--x', '', '$(touch pwned)'],
    env: { A: { value: '' }, B: { fromFile: '/run/secrets/b' }, C: { value: 'c' } },
    maxConcurrency: 8,
    startTimeoutMs: 600_000,
    stopGraceMs: 30_000,
    weight: 1,
  };
  const command: StartShardCommand = {
    nodeId: 'n1',
    shardId: 's1',
    replicaId: 'r1',
    generation: 2,
    model: 'm1',
    aliases: ['default'],
    source: 'Qwen/Qwen3',
    profile,
    rank: 1,
    shards: 2,
    gpuUuids: ['GPU-a'],
    ports: { http: 20_000, rendezvous: 20_005 },
    specDigest: 'd1',
    peers: [
      { rank: 0, address: '10.0.0.1', ports: { http: 20_000, rendezvous: 20_005 } },
      { rank: 1, address: '10.0.0.2', ports: { http: 20_000, rendezvous: 20_005 } },
    ],
  };

  it('carry a start command whole', () => {
    const parsed = parseServerMessage(travelDown(startToWire(5, 'c1', command)), 'n1');
    expect(parsed).toEqual({
      ok: true,
      message: { kind: 'start', order: { term: 5, commandId: 'c1', command } },
    });
  });

  it('carry a stop with its term and generation', () => {
    const stop = { nodeId: 'n1', shardId: 's1', replicaId: 'r1', generation: 2, graceMs: 30_000 };
    expect(parseServerMessage(travelDown(stopToWire(5, 'c2', stop, 'scaled down')), 'n1')).toEqual({
      ok: true,
      message: {
        kind: 'stop',
        order: {
          term: 5,
          commandId: 'c2',
          shardId: 's1',
          generation: 2,
          graceMs: 30_000,
          reason: 'scaled down',
        },
      },
    });
  });

  it('carry a refusal with both versions', () => {
    const refusal = {
      code: 'incompatibleVersion',
      message: 'upgrade',
      serverBuild: '1',
      serverProtocolVersion: 2,
    } as const;
    expect(parseServerMessage(travelDown(refusalToWire(refusal)), 'n1')).toEqual({
      ok: true,
      message: { kind: 'refusal', refusal },
    });
  });
});

describe('log tails', () => {
  it('keep the end, never half a character, and mark the cut', () => {
    const bytes = tailBytes('é'.repeat(20_000) + 'end', LOG_TAIL_LIMIT_BYTES);
    expect(bytes.length).toBeLessThanOrEqual(LOG_TAIL_LIMIT_BYTES);
    const text = tailText(bytes, LOG_TAIL_LIMIT_BYTES);
    expect(text).toMatch(/^\[…\]\né+end$/);
  });

  it('take bytes that are no UTF-8', () => {
    expect(tailText(Uint8Array.of(0x61, 0xff, 0x62), 100)).toBe('a\ufffdb');
  });
});

describe('versions', () => {
  const server = { version: 3, min: 2 };
  it.each([
    [{ version: 3, min: 2 }, 3],
    [{ version: 2, min: 1 }, 2],
    [{ version: 4, min: 3 }, 3],
    [{ version: 3, min: 0 }, 3],
  ])('%o work together', (agent, version) => {
    expect(negotiateVersion(server, agent)).toEqual({ ok: true, version });
  });

  it.each([
    [{ version: 1, min: 1 }, /agent speaks protocol 1, the server 2 to 3; upgrade the agent/],
    [{ version: 99, min: 99 }, /agent speaks protocol 99, the server 2 to 3; upgrade the server/],
    [{ version: 0, min: 0 }, /names no protocol version; the server speaks 2 to 3/],
  ])('%o do not, and the sentence names both', (agent, message) => {
    const result = negotiateVersion(server, agent);
    expect(result.ok ? '' : result.message).toMatch(message);
  });
});
