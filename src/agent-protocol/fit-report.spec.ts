import { describe, expect, it } from 'vitest';
import { emptyReport } from '../../test/support/agent/empty-report.js';
import type { GpuReport } from '../domain/cluster.js';
import { fitReport } from './fit-report.js';
import type { NodeReport } from './messages.js';
import { agentPackageDefinition } from './proto.js';
import { parseAgentMessage } from './to-domain.js';
import { reportToWire } from './to-wire.js';
import type { WireAgentMessage } from './wire.js';

const { Connect: connect } = agentPackageDefinition()['llmgw.agent.v1.AgentGateway'] as unknown as {
  Connect: {
    requestSerialize: (message: WireAgentMessage) => Buffer;
    requestDeserialize: (bytes: Buffer) => WireAgentMessage;
  };
};
const travelUp = (message: WireAgentMessage) => connect.requestDeserialize(connect.requestSerialize(message));

const gpu = (uuid: string, change: Partial<GpuReport> = {}): GpuReport => ({
  uuid,
  type: 'H100',
  vendor: 'nvidia',
  foreign: [],
  health: { state: 'healthy' },
  linkedTo: [],
  ...change,
});

describe('a report of a machine with odd things on it', () => {
  /** What arrives at the server; fails when the report as a whole is refused. */
  function arrived(change: Partial<NodeReport>): NodeReport {
    const parsed = parseAgentMessage(travelUp(reportToWire(emptyReport(change))));
    if (!parsed.ok || parsed.message.kind !== 'report')
      throw new Error(parsed.ok ? parsed.message.kind : parsed.problem.message);
    return parsed.message.report;
  }

  it('is taken with files under a model root whose names are no names', () => {
    const deep = `/models/${'deep/'.repeat(60)}m.gguf`;
    const { weightsPresent } = arrived({ weightsPresent: ['a/b', deep, 'line\nbreak.gguf', ''] });
    expect(weightsPresent).toEqual(['a/b']);
  });

  it('is taken with more of everything than is taken', () => {
    const many = <T>(count: number, make: (n: number) => T): T[] =>
      Array.from({ length: count }, (_, n) => make(n));
    const seen = arrived({
      portsTaken: many(20_000, (n) => n + 1),
      weightsPresent: many(9_000, (n) => `m${n}`),
      gpus: many(300, (n) =>
        gpu(`GPU-${n}`, { foreign: many(400, (pid) => ({ pid: pid + 1, memoryBytes: pid })) }),
      ),
      conditions: [
        ...many(100, (n) => ({ type: 'OrphanStopped', reason: `${n}`, blocksPlacement: false })),
        { type: 'StateDirFull', reason: 'no space', blocksPlacement: true },
      ],
    });
    expect(seen.conditions[0]?.type).toBe('StateDirFull');
    // Whoever holds most stays.
    expect(seen.gpus[0]?.foreign[0]).toMatchObject({ pid: 400 });
  });

  it('is taken with what a broken tool says of a device, and of the others all', () => {
    const broken = {
      type: 'H\u001b[31m',
      busId: '0000:\r01',
      memoryTotalBytes: -1,
      memoryUsedBytes: 1e300,
      linkedTo: ['GPU-b', '\n'],
      foreign: [{ pid: -4 }, { pid: 8e24 }, { pid: 7, memoryBytes: Number.NaN }],
    };
    const whole = gpu('GPU-b', { memoryTotalBytes: 5, memoryUsedBytes: 1.5 });
    const { gpus } = arrived({
      gpus: [gpu('GPU-a', broken), whole, gpu(''), gpu('GPU-\nc'), gpu('GPU-b', { type: 'twice' })],
    });
    expect(gpus).toEqual([
      gpu('GPU-a', { type: 'unknown', linkedTo: ['GPU-b'], foreign: [{ pid: 7 }] }),
      { ...whole, memoryUsedBytes: 1 },
    ]);
  });

  it('is left as it is when nothing is odd', () => {
    const plain = {
      ...emptyReport(),
      gpus: [gpu('GPU-a'), gpu('GPU-b')],
      portsTaken: [1],
      weightsPresent: ['m'],
    };
    expect(fitReport(plain)).toEqual(plain);
  });
});
