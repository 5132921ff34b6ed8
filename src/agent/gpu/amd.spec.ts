import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { FakeTool } from '../../../test/support/agent/fake-tool.js';
import { AmdSmiDriver, AmdSysfsDriver, amdUuid, RocmSmiDriver } from './amd.js';
import { Tool } from './tool.js';

const MIB = 2 ** 20;
const signal = (): AbortSignal => AbortSignal.timeout(10_000);

const STATIC = [
  {
    gpu: 0,
    asic: { market_name: 'AMD Instinct MI300X', asic_serial: '0x284BE4A8F4A9A3AA' },
    bus: { bdf: '0000:0c:00.0' },
    vram: { size: { value: 196288, unit: 'MB' } },
  },
  { gpu: 1, asic: { market_name: 'AMD Instinct MI300X', asic_serial: 'N/A' }, bus: { bdf: '0000:0d:00.0' } },
];
const METRIC = [
  {
    gpu: 0,
    mem_usage: { total_vram: { value: 196288, unit: 'MB' }, used_vram: { value: 2531, unit: 'MB' } },
    ecc: { total_uncorrectable_count: 3 },
  },
];
const EXPECTED = {
  uuid: 'GPU-284be4a8f4a9a3aa',
  type: 'AMD Instinct MI300X',
  vendor: 'amd',
  busId: '0000:0c:00.0',
  memoryTotalBytes: 196288 * MIB,
  memoryUsedBytes: 2531 * MIB,
  signs: { eccUncorrected: 3 },
};

describe('amdUuid', () => {
  it('gives the name the runtime takes, however the serial is printed', () => {
    for (const serial of ['0x284BE4A8F4A9A3AA', '284be4a8f4a9a3aa', 'GPU-284be4a8f4a9a3aa'])
      expect(amdUuid(serial)).toBe('GPU-284be4a8f4a9a3aa');
    for (const serial of ['N/A', '', undefined, 0, '0x0000000000000000'])
      expect(amdUuid(serial)).toBeUndefined();
  });
});

describe('the AMD drivers', () => {
  let tool: FakeTool | undefined;
  let directory: string | undefined;
  afterEach(() => {
    tool?.remove();
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
  });

  it.each([
    ['bare lists', (value: unknown) => value],
    ['lists in gpu_data', (value: unknown) => ({ gpu_data: value })],
  ])('read amd-smi with %s', async (_what, shape) => {
    tool = new FakeTool('amd-smi');
    const processes = [
      {
        gpu: 0,
        process_list: [
          {
            process_info: {
              name: 'python3',
              pid: 4242,
              memory_usage: { vram_mem: { value: 100, unit: 'MB' } },
            },
          },
          { process_info: { name: 'N/A', pid: '77', mem_usage: { value: 5, unit: 'B' } } },
        ],
      },
      { gpu: 1, process_list: [{ process_info: 'No running processes detected' }] },
    ];
    tool.answer([
      { when: 'static', stdout: `WARNING: something\n[WARN] {else}\n${JSON.stringify(shape(STATIC))}` },
      { when: 'metric', stdout: JSON.stringify(shape(METRIC)) },
      { when: 'process', stdout: JSON.stringify(shape(processes)) },
    ]);
    const seen = await new AmdSmiDriver(new Tool(tool.path)).probe(signal());
    expect(seen.gpus).toMatchObject([EXPECTED]);
    expect(seen.notes).toEqual(['device 1 is left out: its serial is missing or not its own']);
    expect(seen.processes).toEqual([
      { uuid: EXPECTED.uuid, pid: 4242, name: 'python3', memoryBytes: 100 * MIB },
      { uuid: EXPECTED.uuid, pid: 77, memoryBytes: 5 },
    ]);
  });

  it('show devices of which amd-smi tells nothing more, and say so', async () => {
    tool = new FakeTool('amd-smi');
    tool.answer([
      { when: 'static', stdout: JSON.stringify(STATIC.slice(0, 1)) },
      { when: 'metric', stdout: 'Traceback (most recent call last):\n', code: 1 },
      { when: 'process', stderr: 'ERROR: user is missing permissions', code: 1 },
    ]);
    const seen = await new AmdSmiDriver(new Tool(tool.path)).probe(signal());
    expect(seen.gpus).toMatchObject([
      { uuid: EXPECTED.uuid, memoryTotalBytes: EXPECTED.memoryTotalBytes, signs: {} },
    ]);
    expect(seen.gpus[0]?.memoryUsedBytes).toBeUndefined();
    expect(seen.notes).toEqual([
      expect.stringContaining('amd-smi metric'),
      expect.stringContaining('missing permissions'),
    ]);
  });

  it('leave out two devices that claim one serial', async () => {
    tool = new FakeTool('amd-smi');
    const [first] = STATIC;
    tool.answer([
      { when: 'static', stdout: JSON.stringify([first, { ...first, gpu: 1 }]) },
      { when: '', stdout: '[]' },
    ]);
    await expect(new AmdSmiDriver(new Tool(tool.path)).probe(signal())).rejects.toThrow('names no device');
  });

  it('take values of one device that cannot be read for unknown', async () => {
    tool = new FakeTool('amd-smi');
    const [first] = STATIC;
    const other = {
      ...first,
      gpu: 1,
      asic: { market_name: 'X', asic_serial: '0x1111222233334444' },
      vram: 'N/A',
    };
    tool.answer([
      { when: 'static', stdout: JSON.stringify([first, other]) },
      {
        when: 'metric',
        stdout: JSON.stringify([
          ...METRIC,
          { gpu: 1, mem_usage: 'N/A', ecc: { total_uncorrectable_count: 'N/A' } },
        ]),
      },
      { when: '', stdout: '[]' },
    ]);
    const [good, bad] = (await new AmdSmiDriver(new Tool(tool.path)).probe(signal())).gpus;
    expect(good).toMatchObject(EXPECTED);
    expect(bad).toEqual({
      ...{ uuid: 'GPU-1111222233334444', type: 'X', vendor: 'amd', busId: '0000:0c:00.0' },
      ...{ linkedTo: [], signs: {} },
    });
  });

  it('fail when amd-smi prints no list', async () => {
    tool = new FakeTool('amd-smi');
    tool.answer([{ when: '', stderr: 'ERROR: user is missing permissions', code: 1 }]);
    await expect(new AmdSmiDriver(new Tool(tool.path)).probe(signal())).rejects.toThrow(
      /missing permissions/,
    );
  });

  it('read rocm-smi', async () => {
    tool = new FakeTool('rocm-smi');
    tool.answer([
      { when: '--showpids', stdout: '{"system": {"PID28389": "llama-server, 1, 2353860608, 11011, 0"}}' },
      {
        when: '--showproductname',
        stdout: JSON.stringify({
          card0: {
            'Unique ID': '0x284be4a8f4a9a3aa',
            'Card Series': 'AMD Instinct MI300X',
            'PCI Bus': '0000:0C:00.0',
            'VRAM Total Memory (B)': String(196288 * MIB),
            'VRAM Total Used Memory (B)': String(2531 * MIB),
          },
          system: { 'Driver version': '6.4' },
        }),
      },
    ]);
    const seen = await new RocmSmiDriver(new Tool(tool.path)).probe(signal());
    expect(seen.gpus).toMatchObject([{ ...EXPECTED, busId: '0000:0C:00.0', signs: {} }]);
    expect(seen.processes).toEqual([
      { uuid: EXPECTED.uuid, pid: 28389, name: 'llama-server', memoryBytes: 2353860608 },
    ]);
  });

  it('read sysfs', async () => {
    directory = mkdtempSync(join(tmpdir(), 'llmgw-drm-'));
    const card = (name: string, files: Record<string, string>): void => {
      const device = join(directory ?? '', name, 'device');
      mkdirSync(join(device, 'ras'), { recursive: true });
      for (const [file, text] of Object.entries(files)) writeFileSync(join(device, file), `${text}\n`);
    };
    card('card0', { vendor: '0x8086' });
    card('card1', {
      vendor: '0x1002',
      unique_id: '284be4a8f4a9a3aa',
      product_name: 'AMD Instinct MI300X',
      uevent: 'DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0c:00.0',
      mem_info_vram_total: String(196288 * MIB),
      mem_info_vram_used: String(2531 * MIB),
      'ras/umc_err_count': 'ue: 3\nce: 9',
    });
    expect((await new AmdSysfsDriver(directory).probe(signal())).gpus).toMatchObject([EXPECTED]);
    rmSync(join(directory, 'card1'), { recursive: true });
    await expect(new AmdSysfsDriver(directory).probe(signal())).rejects.toThrow(/no AMD device/);
  });
});
