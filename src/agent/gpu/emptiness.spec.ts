import { describe, expect, it } from 'vitest';
import type { GpuReport } from '../../domain/cluster.js';
import { lacksRoom, stillHeld } from './emptiness.js';
import type { GpuPicture } from './monitor.js';

const GIB = 2 ** 30;

function picture(
  gpus: readonly (Partial<GpuReport> & { uuid: string })[],
  processes: GpuPicture['processes'] = [],
): GpuPicture {
  return {
    beganMs: 0,
    indices: new Map(),
    processes,
    gpus: gpus.map((gpu) => ({
      type: 'H100',
      vendor: 'nvidia',
      memoryTotalBytes: 80 * GIB,
      memoryUsedBytes: 0,
      foreign: [],
      health: { state: 'healthy' },
      linkedTo: [],
      ...gpu,
    })),
  };
}
const whole = { gpuUuids: ['A', 'B'] };

describe('lacksRoom', () => {
  it('finds room on empty devices, and needs no picture without devices', () => {
    expect(lacksRoom(whole, picture([{ uuid: 'A' }, { uuid: 'B' }]), [])).toBeUndefined();
    expect(lacksRoom({ gpuUuids: [] }, undefined, [])).toBeUndefined();
  });

  it('looks at every device of the set and names who holds it', () => {
    const held = picture(
      [{ uuid: 'A' }, { uuid: 'B', memoryUsedBytes: 60 * GIB }],
      [{ uuid: 'B', pid: 4242, name: 'python3', memoryBytes: 60 * GIB }],
    );
    expect(lacksRoom(whole, held, [])).toBe('gpu B still holds 61440 MiB, pids 4242 (python3)');
    const ghost = picture([{ uuid: 'A', memoryUsedBytes: 60 * GIB }, { uuid: 'B' }]);
    expect(lacksRoom(whole, ghost, [])).toBe('gpu A still holds 61440 MiB, no visible process');
  });

  it('takes a little memory that nobody holds for idle', () => {
    expect(
      lacksRoom({ gpuUuids: ['A'] }, picture([{ uuid: 'A', memoryUsedBytes: 0.6 * GIB }]), []),
    ).toBeUndefined();
  });

  it('asks for no more than was booked', () => {
    const half = { gpuUuids: ['A'], memoryBytes: 40 * GIB };
    const used = picture([{ uuid: 'A', memoryUsedBytes: 30 * GIB }], [{ uuid: 'A', pid: 5 }]);
    const other = [{ shardId: 's2', gpuUuids: ['A'], memoryBytes: 30 * GIB }];
    expect(lacksRoom(half, used, other)).toBeUndefined();
    expect(lacksRoom({ ...half, memoryBytes: 60 * GIB }, used, other)).toMatch(
      /51200 MiB free of 61440 MiB needed/,
    );
  });

  it('waits for another shard that holds a whole device', () => {
    const other = [{ shardId: 's2', gpuUuids: ['B'] }];
    expect(lacksRoom(whole, picture([{ uuid: 'A' }, { uuid: 'B' }]), other)).toBe(
      'gpu B is still held by shard s2',
    );
  });

  it('decides nothing on what nobody knows', () => {
    expect(lacksRoom(whole, undefined, [])).toMatch(/gives no answer/);
    expect(lacksRoom(whole, picture([{ uuid: 'A' }]), [])).toBe('gpu B is not reported on this node');
    const { memoryUsedBytes: _used, ...unknown } = picture([{ uuid: 'A' }]).gpus[0] as GpuReport;
    expect(
      lacksRoom({ gpuUuids: ['A'] }, { beganMs: 0, indices: new Map(), processes: [], gpus: [unknown] }, []),
    ).toBe('gpu A: memory in use is unknown');
  });
});

describe('stillHeld', () => {
  it('sees memory that no process explains', () => {
    expect(stillHeld(whole, picture([{ uuid: 'A', memoryUsedBytes: 60 * GIB }, { uuid: 'B' }]), [])).toBe(
      'gpu A still holds 61440 MiB',
    );
  });

  it('does not wait for strangers, for neighbours on a shared device, or for a lost device', () => {
    const used = [{ uuid: 'A', memoryUsedBytes: 60 * GIB }, { uuid: 'B' }];
    expect(stillHeld(whole, picture(used, [{ uuid: 'A', pid: 9 }]), [])).toBeUndefined();
    expect(stillHeld(whole, picture(used), [{ shardId: 's2', gpuUuids: ['A'] }])).toBeUndefined();
    expect(stillHeld(whole, picture([{ uuid: 'B' }]), [])).toBeUndefined();
  });
});
