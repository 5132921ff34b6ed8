import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FakeTool, type FakeAnswer } from '../../../test/support/agent/fake-tool.js';
import type { GpuProbe } from './driver.js';
import { lacksRoom } from './emptiness.js';
import { KernelLog, normalBusId, parseXid } from './kernel-log.js';
import { NvidiaDriver } from './nvidia.js';
import {
  mibValue,
  numberValue,
  parseComputeApps,
  parseDetails,
  parseMigList,
  parseTopology,
} from './nvidia-text.js';
import { Tool } from './tool.js';

const MIB = 2 ** 20;
const GPU_A = 'GPU-aaaaaaaa-0000-0000-0000-000000000001';
const GPU_B = 'GPU-bbbbbbbb-0000-0000-0000-000000000002';

/** A row in the order the driver asks: needed fields, then those this driver version has. */
const row = (index: number, uuid: string, rest: string, name = 'NVIDIA H100 80GB HBM3'): string =>
  `${index}, ${uuid}, ${name}, 00000000:${index + 1}A:00.0, 575.51.02, ${rest}\n`;
const MODERN = '81559, 12, Disabled, 0, No, No, Not Active';
const TOPOLOGY = [
  '\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity',
  'GPU0\t X \tNV18\tPIX\t0-31\t0',
  'GPU1\tNV18\t X \tSYS\t0-31\t0',
  'NIC0\tPIX\tSYS\t X \t\t',
  '',
  'Legend:',
  '  X    = Self',
].join('\n');

const detailsOf = (uuid: string, inner: string): string =>
  `<gpu id="00000000:1A:00.0"><product_name>X</product_name><uuid>${uuid}</uuid>${inner}</gpu>`;
const log = (...gpus: string[]): string =>
  `<?xml version="1.0" ?><nvidia_smi_log><driver_version>575</driver_version>${gpus.join('')}</nvidia_smi_log>`;
const HEALTHY = `<gpu_reset_status><reset_required>Requested functionality has been deprecated</reset_required></gpu_reset_status>
  <gpu_recovery_action>None</gpu_recovery_action>
  <ecc_errors><aggregate><sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate></ecc_errors>
  <remapped_rows><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure></remapped_rows>`;

describe('the NVIDIA driver', () => {
  let tool: FakeTool;
  let directory: string;
  let driver: NvidiaDriver;

  beforeEach(() => {
    tool = new FakeTool('nvidia-smi');
    directory = mkdtempSync(join(tmpdir(), 'llmgw-nvidia-'));
    driver = new NvidiaDriver({
      tool: new Tool(tool.path),
      kernelLog: new KernelLog(join(directory, 'kmsg'), () => 10_000),
      procDir: join(directory, 'gpus'),
    });
  });
  afterEach(() => {
    tool.remove();
    rmSync(directory, { recursive: true, force: true });
  });

  const quiet: FakeAnswer[] = [
    { when: '-q -x', stdout: log(detailsOf(GPU_A, HEALTHY), detailsOf(GPU_B, HEALTHY)) },
    { when: 'topo -m', stdout: TOPOLOGY },
    { when: 'compute-apps', stdout: '' },
    { when: '-L', stdout: '' },
  ];
  const unknownFieldsOf = (...fields: string[]): FakeAnswer[] =>
    fields.map((field) => ({
      when: field,
      stdout: `Field "${field}" is not a valid field to query.\n`,
      code: 2,
    }));
  const probe = (): Promise<GpuProbe> => driver.probe(AbortSignal.timeout(10_000));

  it('reads a modern driver and remembers what it does not have', async () => {
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: row(0, GPU_A, MODERN) + row(1, GPU_B, MODERN) },
      ...quiet,
    ]);
    const seen = await probe();
    expect(seen.gpus).toMatchObject([
      {
        uuid: GPU_A,
        type: 'H100 80GB HBM3',
        vendor: 'nvidia',
        busId: '00000000:1A:00.0',
        memoryTotalBytes: 81559 * MIB,
        memoryUsedBytes: 12 * MIB,
        linkedTo: [GPU_B],
        signs: { recoveryAction: 'None', remapFailure: false, thermalSlowdown: false, eccUncorrected: 0 },
      },
      { uuid: GPU_B, linkedTo: [GPU_A] },
    ]);
    expect(seen.xids).toBeUndefined();
    const queries = (): string[] => tool.calls.filter((call) => call.includes('query-gpu'));
    expect(queries()).toHaveLength(2);
    await probe();
    expect(queries()).toHaveLength(3);
    expect(queries().at(-1)).not.toContain('clocks_throttle_reasons');
    expect(tool.calls.filter((call) => call === 'topo -m')).toHaveLength(1);
  });

  it('reads an old driver that has neither the new clock reasons nor remapped rows', async () => {
    tool.answer([
      ...unknownFieldsOf(
        'clocks_event_reasons.hw_thermal_slowdown',
        'remapped_rows.pending',
        'remapped_rows.failure',
      ),
      { when: 'query-gpu', stdout: row(0, GPU_A, '15109, 3, [N/A], [N/A], Active', 'Tesla T4') },
      ...quiet,
    ]);
    const [gpu] = (await probe()).gpus;
    expect(gpu).toMatchObject({ type: 'Tesla T4', signs: { thermalSlowdown: true } });
    expect(gpu?.signs.eccUncorrected).toBeUndefined();
  });

  it('asks field by field when the tool refuses without saying which', async () => {
    tool.answer([
      { when: '--query-gpu=uuid,name', stdout: `${GPU_A}, X\n` },
      { when: '--query-gpu=uuid,memory', stdout: `${GPU_A}, 1\n` },
      { when: '--query-gpu=uuid,', stderr: 'Invalid combination', code: 6 },
      {
        when: '--query-gpu=index,uuid,name,pci.bus_id,driver_version,memory.total,memory.used --format',
        stdout: row(0, GPU_A, '100, 1'),
      },
      { when: 'query-gpu', stderr: 'Invalid combination', code: 6 },
      ...quiet,
    ]);
    expect((await probe()).gpus).toMatchObject([{ uuid: GPU_A, memoryUsedBytes: MIB }]);
  });

  it('takes values it cannot read as unknown, never as zero', async () => {
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      {
        when: 'query-gpu',
        stdout: row(0, GPU_A, '[N/A], ERR!, [Not Supported], [N/A], [N/A], [N/A], [N/A]'),
      },
      ...quiet,
    ]);
    const [gpu] = (await probe()).gpus;
    expect(gpu?.memoryTotalBytes).toBeUndefined();
    expect(gpu?.memoryUsedBytes).toBeUndefined();
    expect(gpu?.signs).toMatchObject({ recoveryAction: 'None' });
  });

  it('shows the others when one device is lost', async () => {
    const lostLine = 'Unable to determine the device handle for GPU1: 0000:2A:00.0: GPU is lost.\n';
    for (const [bus, uuid] of [
      ['0000:1a:00.0', GPU_A],
      ['0000:2a:00.0', GPU_B],
    ] as const) {
      mkdirSync(join(directory, 'gpus', bus), { recursive: true });
      writeFileSync(
        join(directory, 'gpus', bus, 'information'),
        `Model: \t\t NVIDIA H100\nIRQ:   \t\t 1\nGPU UUID: \t ${uuid}\nBus Location: \t ${bus}\n`,
      );
    }
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: '-i 0000:1a:00.0 --query-gpu=index', stdout: row(0, GPU_A, MODERN) },
      { when: '-i 0000:2a:00.0', stderr: lostLine, code: 15 },
      { when: '--query-gpu', stdout: lostLine, code: 15 },
      ...quiet,
    ]);
    const seen = await probe();
    expect(seen.gpus).toMatchObject([
      { uuid: GPU_A, signs: { recoveryAction: 'None' } },
      { uuid: GPU_B, signs: { lost: lostLine.trim() } },
    ]);
  });

  it('reports slices instead of a sliced device', async () => {
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: row(0, GPU_A, '81559, [N/A], Enabled, 0, No, No, Not Active') },
      {
        when: '-q -x',
        stdout: log(
          detailsOf(
            GPU_A,
            `<mig_devices><mig_device><index>0</index><fb_memory_usage><total>40448 MiB</total><used>25 MiB</used></fb_memory_usage></mig_device>
             <mig_device><index>1</index><fb_memory_usage><total>40448 MiB</total><used>N/A</used></fb_memory_usage></mig_device></mig_devices>${HEALTHY}`,
          ),
        ),
      },
      {
        when: '-L',
        stdout: `GPU 0: NVIDIA H100 80GB HBM3 (UUID: ${GPU_A})\n  MIG 3g.40gb     Device  0: (UUID: MIG-11111111-2222)\n  MIG 3g.40gb     Device  1: (UUID: MIG-33333333-4444)\n`,
      },
      { when: 'compute-apps', stdout: '' },
    ]);
    const { gpus } = await probe();
    expect(gpus).toMatchObject([
      {
        uuid: 'MIG-11111111-2222',
        type: 'H100 80GB HBM3 MIG 3g.40gb',
        memoryTotalBytes: 40448 * MIB,
        memoryUsedBytes: 25 * MIB,
      },
      { uuid: 'MIG-33333333-4444' },
    ]);
    expect(gpus[1]?.memoryUsedBytes).toBeUndefined();
  });

  // Nobody could tell what held a slice: the short list names only the device that it is cut from.
  it('names who is on which slice', async () => {
    const slice = (index: number, used: string): string =>
      `<mig_device><index>${index}</index><gpu_instance_id>${index + 1}</gpu_instance_id><compute_instance_id>0</compute_instance_id>
       <fb_memory_usage><total>40448 MiB</total><used>${used}</used></fb_memory_usage></mig_device>`;
    const user = (place: number | string, pid: number, name: string, used: string): string =>
      `<process_info><gpu_instance_id>${place}</gpu_instance_id><compute_instance_id>0</compute_instance_id><pid>${pid}</pid>
       <type>C</type><process_name>${name}</process_name><used_memory>${used}</used_memory></process_info>`;
    const uuids = ['MIG-11111111-2222', 'MIG-33333333-4444'] as const;
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: row(0, GPU_A, '81559, [N/A], Enabled, 0, No, No, Not Active') },
      {
        when: '-q -x',
        stdout: log(
          detailsOf(
            GPU_A,
            `<mig_devices>${slice(0, '25 MiB')}${slice(1, '20025 MiB')}</mig_devices>${HEALTHY}<processes>` +
              `${user(2, 4711, '/opt/other engine', '20000 MiB')}${user('N/A', 4712, 'Xorg', '4 MiB')}</processes>`,
          ),
        ),
      },
      {
        when: '-L',
        stdout: `GPU 0: NVIDIA H100 80GB HBM3 (UUID: ${GPU_A})\n${uuids
          .map((uuid, index) => `  MIG 3g.40gb     Device  ${index}: (UUID: ${uuid})`)
          .join('\n')}\n`,
      },
      { when: 'compute-apps', stdout: `${GPU_A}, 4711, 20000, /opt/other engine\n` },
    ]);
    const { gpus, processes } = await probe();
    expect(processes.filter(({ uuid }) => uuid.startsWith('MIG-'))).toEqual([
      { uuid: uuids[1], pid: 4711, name: '/opt/other engine', memoryBytes: 20_000 * MIB },
    ]);
    const picture = {
      beganMs: 0,
      indices: new Map(),
      processes,
      gpus: gpus.map((gpu) => ({ ...gpu, foreign: [], health: { state: 'healthy' as const } })),
    };
    const need = (uuid: string) => lacksRoom({ gpuUuids: [uuid] }, picture, []);
    expect(uuids.map(need)).toEqual([
      undefined,
      `gpu ${uuids[1]} still holds 20025 MiB, pids 4711 (/opt/other engine)`,
    ]);
  });

  it('leaves out devices without a UUID of their own, and says so', async () => {
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: row(0, GPU_A, MODERN) + row(1, GPU_A, MODERN) + row(2, GPU_B, MODERN) },
      ...quiet,
    ]);
    const seen = await probe();
    expect(seen.gpus.map(({ uuid }) => uuid)).toEqual([GPU_B]);
    expect(seen.notes.filter((note) => note.includes('not its own'))).toHaveLength(2);
  });

  it('takes rows that come with a warning about a damaged infoROM', async () => {
    const warning = 'WARNING: infoROM is corrupted at gpu 0000:1A:00.0\n';
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: row(0, GPU_A, MODERN) + warning, code: 14 },
      ...quiet,
    ]);
    const seen = await probe();
    expect(seen.gpus.map(({ uuid }) => uuid)).toEqual([GPU_A]);
    expect(seen.notes).toContain(warning.trim());
  });

  it('takes the word that there is no device when the kernel knows of none either', async () => {
    tool.answer([{ when: 'query-gpu', stdout: 'No devices were found\n', code: 6 }, ...quiet]);
    expect((await probe()).gpus).toEqual([]);
    mkdirSync(join(directory, 'gpus', '0000:1a:00.0'), { recursive: true });
    writeFileSync(
      join(directory, 'gpus', '0000:1a:00.0', 'information'),
      `Model: \t\t NVIDIA H100\nGPU UUID: \t ${GPU_A}\n`,
    );
    expect((await probe()).gpus).toMatchObject([{ uuid: GPU_A, signs: { lost: 'No devices were found' } }]);
  });

  it('names a device that is sliced into nothing', async () => {
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: row(0, GPU_A, '81559, 1, Enabled, 0, No, No, Not Active') },
      ...quiet,
    ]);
    const seen = await probe();
    expect(seen.gpus).toEqual([]);
    expect(seen.notes.some((note) => note.includes('has no slices'))).toBe(true);
  });

  it('follows devices by their UUIDs when their order changes, of the same name as well', async () => {
    const both = (first: string, second: string) => [
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: row(0, first, MODERN) + row(1, second, MODERN) },
      ...quiet,
    ];
    tool.answer(both(GPU_A, GPU_B));
    expect((await probe()).gpus.map(({ uuid, index }) => [uuid, index])).toEqual([
      [GPU_A, 0],
      [GPU_B, 1],
    ]);
    tool.answer(both(GPU_B, GPU_A));
    expect((await probe()).gpus.map(({ uuid, index }) => [uuid, index])).toEqual([
      [GPU_B, 0],
      [GPU_A, 1],
    ]);
  });

  it.each<[string, FakeAnswer[], RegExp]>([
    [
      'an error',
      [{ when: '', stderr: 'NVIDIA-SMI has failed because it could not communicate', code: 9 }],
      /could not communicate/,
    ],
    ['half a line', [{ when: 'query-gpu', stdout: '0, GPU-aaa' }], /GPU-aaa/],
    ['nothing', [{ when: '' }], /exit code 0/],
  ])('fails its probe for %s', async (_what, answers, message) => {
    tool.answer(answers);
    await expect(probe()).rejects.toThrow(message);
  });

  it('kills a tool that hangs, and never has two of them', async () => {
    tool.answer([{ when: '', hang: true }]);
    await expect(driver.probe(AbortSignal.timeout(300))).rejects.toThrow('killed at its deadline');
    tool.answer([{ when: '', stderr: 'x', code: 1 }]);
    await expect(probe()).rejects.toThrow(/x|hangs in the driver/);
  });

  it('reads Xids from a kernel log it may read, each once', async () => {
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: row(0, GPU_A, MODERN) },
      ...quiet,
    ]);
    writeFileSync(
      join(directory, 'kmsg'),
      '6,1,5000000,-;usb 1-1: new device\n3,2,6000000,-;NVRM: Xid (PCI:0000:1a:00): 79, pid=12, GPU has fallen off the bus.\n',
    );
    expect((await probe()).xids).toEqual([
      { busId: '0000:1a:00', xid: 79, text: 'pid=12, GPU has fallen off the bus.', ageMs: 4_000 },
    ]);
    expect((await probe()).xids).toEqual([]);
  });

  describe('of one bad device among good ones', () => {
    const proc = (bus: string, uuid: string): void => {
      mkdirSync(join(directory, 'gpus', bus), { recursive: true });
      writeFileSync(join(directory, 'gpus', bus, 'information'), `Model: \t H100\nGPU UUID: \t ${uuid}\n`);
    };
    const noAlias = unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown');
    const health = async (): Promise<[string, string | undefined][]> =>
      (await probe()).gpus.map(({ uuid, signs }) => [uuid, signs.lost]);

    it.each([
      ['[GPU requires reset]', 'GPU requires reset'],
      ['[Unknown Error]', 'Unknown Error'],
      ['[GPU is lost]', 'GPU is lost'],
      ['ERR!', 'ERR!'],
    ])('shows its neighbour when every value of its row is %s', async (value, lost) => {
      proc('0000:2a:00.0', GPU_B);
      const bad = `1, ${value}, ${value}, 00000000:2A:00.0, 575.51.02, ${Array(7).fill(value).join(', ')}\n`;
      tool.answer([...noAlias, { when: 'query-gpu', stdout: row(0, GPU_A, MODERN) + bad }, ...quiet]);
      expect(await health()).toEqual([
        [GPU_A, undefined],
        [GPU_B, lost],
      ]);
    });

    it('takes a counter that is unknown for unknown, not for a lost device', async () => {
      const rest = '81559, 12, Disabled, [Unknown Error], [N/A], ERR!, Not Active';
      tool.answer([...noAlias, { when: 'query-gpu', stdout: row(0, GPU_A, rest) }, ...quiet]);
      expect(await health()).toEqual([[GPU_A, undefined]]);
    });

    it('keeps the rows that were printed before the tool failed, where the kernel driver lists nothing', async () => {
      const failure = 'Unable to determine the device handle for GPU0000:2A:00.0: Unknown Error\n';
      tool.answer([
        ...noAlias,
        { when: 'query-gpu', stdout: row(0, GPU_A, MODERN) + failure, code: 255 },
        { when: '-L', stdout: failure, code: 255 },
        ...quiet,
      ]);
      const seen = await probe();
      expect(seen.gpus.map(({ uuid }) => uuid)).toEqual([GPU_A]);
      expect(seen.notes.some((note) => note.includes('Unable to determine'))).toBe(true);
    });

    it('asks for those the tool still lists, where the kernel driver lists nothing', async () => {
      const failure =
        'Unable to determine the device handle for GPU 0000:2A:00.0: GPU is lost.  Reboot the system\n';
      tool.answer([
        ...noAlias,
        { when: `-i ${GPU_A} --query-gpu`, stdout: row(0, GPU_A, MODERN) },
        { when: 'query-gpu', stdout: failure, code: 15 },
        { when: '-L', stdout: `GPU 0: NVIDIA H100 80GB HBM3 (UUID: ${GPU_A})\n${failure}` },
        ...quiet,
      ]);
      expect(await health()).toEqual([[GPU_A, undefined]]);
    });

    it('shows the devices when only what is added about them cannot be read', async () => {
      tool.answer([
        ...noAlias,
        { when: 'query-gpu', stdout: row(0, GPU_A, MODERN) },
        { when: '-q -x', flood: 10 * MIB },
        { when: 'compute-apps', code: 255, stderr: 'Failed to initialize NVML: Unknown Error' },
      ]);
      const seen = await probe();
      expect(seen.gpus).toMatchObject([{ uuid: GPU_A, memoryUsedBytes: 12 * MIB }]);
      expect(seen.notes).toContainEqual(expect.stringMatching(/details cannot be read: .*printed more than/));
    });
  });

  it.each<[string, string, string]>([
    ['a byte order mark', '\ufeff', ''],
    ['a warning before', 'Warning: persistence mode is disabled on this device.\n\n', ''],
    ['carriage returns', '', '\r'],
  ])('reads rows with %s', async (_what, before, end) => {
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: before + row(0, GPU_A, MODERN).replace('\n', `${end}\n`) },
      { when: '-q -x', stdout: `${before}${quiet[0]?.stdout ?? ''}` },
      ...quiet,
    ]);
    expect((await probe()).gpus).toMatchObject([
      { uuid: GPU_A, index: 0, signs: { recoveryAction: 'None', thermalSlowdown: false } },
    ]);
  });

  it('reads a slice of a virtual device, which tells next to nothing', async () => {
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown', 'remapped_rows.failure'),
      { when: 'query-gpu', stdout: row(0, GPU_A, '10240, 100, [N/A], [N/A], [N/A], [N/A]', 'GRID A100-10C') },
      { when: '-q -x', stdout: log(detailsOf(GPU_A, '<ecc_mode><current_ecc>N/A</current_ecc></ecc_mode>')) },
      ...quiet,
    ]);
    expect((await probe()).gpus).toMatchObject([
      { uuid: GPU_A, type: 'GRID A100-10C', memoryTotalBytes: 10240 * MIB, signs: {} },
    ]);
  });

  it('reads a machine on which only some devices are sliced', async () => {
    tool.answer([
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      {
        when: 'query-gpu',
        stdout: row(0, GPU_A, MODERN) + row(1, GPU_B, '81559, 1, Enabled, 0, No, No, Not Active'),
      },
      // As drivers before 470 named slices.
      {
        when: '-L',
        stdout: `GPU 0: A100 (UUID: ${GPU_A})\nGPU 1: A100 (UUID: ${GPU_B})\n  MIG 1g.10gb+me Device 0: (UUID: MIG-${GPU_B}/7/0)\n`,
      },
      ...quiet,
    ]);
    expect((await probe()).gpus.map(({ uuid, index }) => [uuid, index])).toEqual([
      [GPU_A, 0],
      [`MIG-${GPU_B}/7/0`, undefined],
    ]);
  });

  it('counts links that carried data and do not any more', async () => {
    const links = (...states: string[]): string =>
      `GPU 0: H100 (UUID: ${GPU_A})\n${states.map((state, link) => `\t Link ${link}: ${state}\n`).join('')}GPU 1: H100 (UUID: ${GPU_B})\n`;
    const with_ = (text: string): FakeAnswer[] => [
      ...unknownFieldsOf('clocks_throttle_reasons.hw_thermal_slowdown'),
      { when: 'query-gpu', stdout: row(0, GPU_A, MODERN) + row(1, GPU_B, MODERN) },
      { when: 'nvlink', stdout: text },
      ...quiet,
    ];
    // A link nobody ever used is no loss: cards are bridged in many ways.
    tool.answer(with_(links('26.562 GB/s', '26.562 GB/s', '<inactive>')));
    expect((await probe()).gpus[0]?.signs.inactiveLinks).toBe(0);
    tool.answer(with_(links('26.562 GB/s', '<inactive>', '<inactive>')));
    for (let count = 0; count < 5; count++) await probe();
    const seen = await probe();
    expect(seen.gpus[0]?.signs.inactiveLinks).toBe(1);
    expect(seen.gpus[1]?.signs.inactiveLinks).toBeUndefined();
  });
});

describe('what nvidia-smi prints', () => {
  it('numbers', () => {
    expect([numberValue('12'), numberValue('1,5'), numberValue('[N/A]'), numberValue('')]).toEqual([
      12,
      undefined,
      undefined,
      undefined,
    ]);
    expect(mibValue('2 MiB')).toBe(2 * MIB);
  });

  it('processes, with commas in their names', () => {
    expect(
      parseComputeApps(
        `${GPU_A}, 4242, 1024, /opt/my, engine\n${GPU_B}, 7, [N/A], [Not Found]\nNo processes\n`,
      ),
    ).toEqual([
      { uuid: GPU_A, pid: 4242, name: '/opt/my,engine', memoryBytes: 1024 * MIB },
      { uuid: GPU_B, pid: 7 },
    ]);
  });

  it('a topology', () => {
    expect([...parseTopology(TOPOLOGY)]).toEqual([
      [0, [1]],
      [1, [0]],
    ]);
    expect([...parseTopology('nothing of the kind')]).toEqual([]);
  });

  it('slices', () => {
    expect(
      parseMigList(
        'GPU 0: A100 (UUID: GPU-1)\nGPU 1: A100 (UUID: GPU-2)\n  MIG 1g.5gb Device 3: (UUID: MIG-x)',
      ),
    ).toEqual([{ uuid: 'MIG-x', parentUuid: 'GPU-2', profile: '1g.5gb', index: 3 }]);
  });

  it('details of a device that needs help', () => {
    const [details] = parseDetails(
      log(
        detailsOf(
          GPU_A,
          '<gpu_recovery_action>Reset</gpu_recovery_action><remapped_row_failure>Yes</remapped_row_failure><channel_repair_pending>Yes</channel_repair_pending>',
        ),
      ),
    );
    expect(details?.signs).toEqual({ recoveryAction: 'Reset', remapFailure: true, remapPending: true });
    expect(parseDetails(log(detailsOf(GPU_A, '<reset_required>Yes</reset_required>')))[0]?.signs).toEqual({
      recoveryAction: 'GPU Reset',
    });
    expect(parseDetails('garbage')).toEqual([]);
  });

  it('pages that wait for a reset, as devices before Ampere have', () => {
    for (const tag of ['pending_retirement', 'pending_blacklist'])
      expect(
        parseDetails(log(detailsOf(GPU_A, `<retired_pages><${tag}>Yes</${tag}></retired_pages>`)))[0]?.signs,
      ).toEqual({ remapPending: true });
  });

  it.each<[string, string, number, string, number]>([
    [
      'a record',
      '3,2,6000000,-;NVRM: Xid (PCI:0000:1a:00): 79, pid=12, GPU has fallen off the bus.',
      79,
      '0000:1a:00',
      4_000,
    ],
    [
      'a record with its caller',
      '4,1339,9500000,-,caller=T311;NVRM: Xid (PCI:0000:C1:00): 48, pid=9, DBE',
      48,
      '0000:c1:00',
      500,
    ],
    [
      'a continued record',
      "4,1340,9500000,c;NVRM: Xid (PCI:0000:1a:00): 63, pid='<unknown>', name=<unknown>, Row Remapper",
      63,
      '0000:1a:00',
      500,
    ],
    [
      'a slice',
      '3,2,6000000,-;NVRM: Xid (PCI:0000:07:00 GPU-I:05): 43, pid=3, Ch 00000010',
      43,
      '0000:07:00',
      4_000,
    ],
    ['an old driver', 'NVRM: Xid (0000:01:00): 31, Ch 00000003, engmask 00000101', 31, '0000:01:00', 0],
    [
      'a printed time',
      '[    6.500000] NVRM: Xid (PCI:0000:1a:00): 13, Graphics Exception',
      13,
      '0000:1a:00',
      3_500,
    ],
    [
      'a priority and a caller before it',
      '<3>[    6.500000,0] NVRM: Xid (PCI:0000:1a:00): 74, NVLink',
      74,
      '0000:1a:00',
      3_500,
    ],
    [
      'a wide domain',
      '3,2,6000000,-;NVRM: Xid (PCI:10000:83:00): 154, GPU recovery action changed',
      154,
      '10000:83:00',
      4_000,
    ],
  ])('a kernel line with %s', (_what, line, number, busId, ageMs) => {
    expect(parseXid(line, 10_000)).toMatchObject({ xid: number, busId, ageMs });
  });

  it.each([
    '6,1,1,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  575.51.02',
    '4,9,1,-;NVRM: GPU at PCI:0000:1a:00: GPU-aaaaaaaa-0000-0000-0000-000000000001',
    'NVRM: Xid (PCI:0000:1a:00): ',
    ' SUBSYSTEM=pci',
    '',
  ])('no error in %j', (line) => {
    expect(parseXid(line, 10_000)).toBeUndefined();
  });

  it('bus ids', () => {
    for (const busId of ['00000000:83:00.0', '0000:83:00', '83:00.0', '0000:83:00.0'])
      expect(normalBusId(busId)).toBe('0000:83:00');
    expect(normalBusId('00010000:83:00.0')).toBe('10000:83:00');
  });
});
