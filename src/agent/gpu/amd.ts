/** AMD devices, by `amd-smi`, else `rocm-smi`, else what the kernel shows in /sys. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { GpuDriver, GpuObservation, GpuProbe, GpuProcess, GpuSigns } from './driver.js';
import type { Tool, ToolOutput } from './tool.js';

type Json = Readonly<Record<string, unknown>>;

/**
 * The name by which the runtime takes a device (`ROCR_VISIBLE_DEVICES`): `GPU-` and its serial in hexadecimal.
 * The serial is printed with and without `0x` and leading zeros.
 */
export function amdUuid(serial: unknown): string | undefined {
  if (typeof serial !== 'string') return undefined;
  const hex = serial.trim().toLowerCase().replace(/^gpu-/, '').replace(/^0x/, '');
  return /^[0-9a-f]{4,16}$/.test(hex) && !/^0+$/.test(hex) ? `GPU-${hex.padStart(16, '0')}` : undefined;
}

// ---------------------------------------------------------------- amd-smi

/** One driver per tool; the first that exists is taken. */
export class AmdSmiDriver implements GpuDriver {
  readonly vendor = 'amd';
  constructor(private readonly tool: Tool) {}

  async probe(signal: AbortSignal): Promise<GpuProbe> {
    const notes: string[] = [];
    const ask = async (...args: string[]): Promise<readonly Json[]> =>
      entries(await this.tool.run([...args, '--json'], signal));
    /** Permissions and versions differ by subcommand; without what it adds the devices are still there. */
    const askMore = async (...args: string[]): Promise<readonly Json[]> => {
      try {
        return await ask(...args);
      } catch (error) {
        if (signal.aborted) throw error;
        notes.push(`amd-smi ${args[0]}: ${error instanceof Error ? error.message : String(error)}`);
        return [];
      }
    };
    const identities = await ask('static', '--asic', '--bus', '--vram');
    const metrics = await askMore('metric', '--mem-usage', '--ecc');
    const processes = await askMore('process');
    const names = namesOf(identities, notes);
    const gpus = identities.flatMap((entry) => {
      const uuid = names.get(entry['gpu']);
      if (uuid === undefined) return [];
      const metric = metrics.find((candidate) => candidate['gpu'] === entry['gpu']);
      return [observation(uuid, entry, metric)];
    });
    if (gpus.length === 0) throw new Error('amd-smi names no device');
    return {
      gpus,
      processes: processes.flatMap((entry) => processesOf(names.get(entry['gpu']), entry)),
      notes,
    };
  }
}

/** Names of devices by their number; what has none, or shares one, cannot be assigned, and is told of. */
function namesOf(identities: readonly Json[], notes: string[]): ReadonlyMap<unknown, string> {
  const all = identities.map((entry) => [entry['gpu'], uuidOf(entry)] as const);
  return new Map(
    all.flatMap(([gpu, uuid]) => {
      if (uuid !== undefined && all.filter(([, other]) => other === uuid).length === 1)
        return [[gpu, uuid] as const];
      notes.push(`device ${String(gpu)} is left out: its serial is missing or not its own`);
      return [];
    }),
  );
}

/** Newer versions wrap the list: `{"gpu_data": [...]}`; older print it bare. */
function entries(output: ToolOutput): readonly Json[] {
  const value = parseJson(output.stdout);
  const list = Array.isArray(value) ? value : dig(value, 'gpu_data');
  if (!Array.isArray(list)) {
    const said = `${output.stderr}${output.stdout}`.trim().split('\n', 1)[0] ?? '';
    throw new Error(`amd-smi printed no list (exit code ${output.code}): ${said.slice(0, 200)}`);
  }
  return list.filter((entry): entry is Json => typeof entry === 'object' && entry !== null);
}

function uuidOf(entry: Json): string | undefined {
  return amdUuid(dig(entry, 'hip_uuid')) ?? amdUuid(dig(entry, 'asic', 'asic_serial'));
}

function observation(uuid: string, identity: Json, metric: Json | undefined): GpuObservation {
  const total = bytes(dig(metric, 'mem_usage', 'total_vram')) ?? bytes(dig(identity, 'vram', 'size'));
  const used = bytes(dig(metric, 'mem_usage', 'used_vram'));
  const ecc = count(dig(metric, 'ecc', 'total_uncorrectable_count'));
  const bus = dig(identity, 'bus', 'bdf');
  const type = dig(identity, 'asic', 'market_name');
  return {
    uuid,
    type: typeof type === 'string' ? type : 'unknown',
    vendor: 'amd',
    ...(typeof bus === 'string' ? { busId: bus } : {}),
    ...memory(total, used),
    linkedTo: [],
    signs: ecc === undefined ? {} : { eccUncorrected: ecc },
  };
}

function processesOf(uuid: string | undefined, entry: Json): GpuProcess[] {
  const list = dig(entry, 'process_list');
  if (uuid === undefined || !Array.isArray(list)) return [];
  return list.flatMap((item): GpuProcess[] => {
    // "No running processes detected" stands where a process would.
    const info = dig(item, 'process_info');
    const pid = count(dig(info, 'pid'));
    if (pid === undefined) return [];
    const name = dig(info, 'name');
    const used =
      bytes(dig(info, 'memory_usage', 'vram_mem')) ??
      bytes(dig(info, 'vram_mem')) ??
      bytes(dig(info, 'mem_usage'));
    return [
      {
        uuid,
        pid,
        ...(typeof name === 'string' && name !== 'N/A' ? { name } : {}),
        ...(used === undefined ? {} : { memoryBytes: used }),
      },
    ];
  });
}

const UNITS: Readonly<Record<string, number>> = { B: 1, KB: 2 ** 10, MB: 2 ** 20, GB: 2 ** 30 };

/** `{"value": 196288, "unit": "MB"}`; the tool's megabytes are 2^20. */
function bytes(value: unknown): number | undefined {
  const amount = count(dig(value, 'value'));
  const unit = dig(value, 'unit');
  const factor = typeof unit === 'string' ? UNITS[unit.toUpperCase()] : undefined;
  return amount === undefined || factor === undefined ? undefined : amount * factor;
}

// ---------------------------------------------------------------- rocm-smi

export class RocmSmiDriver implements GpuDriver {
  readonly vendor = 'amd';
  constructor(private readonly tool: Tool) {}

  async probe(signal: AbortSignal): Promise<GpuProbe> {
    const args = ['--showproductname', '--showuniqueid', '--showbus', '--showmeminfo', 'vram', '--json'];
    const output = await this.tool.run(args, signal);
    const value = parseJson(output.stdout);
    if (typeof value !== 'object' || value === null)
      throw new Error(`rocm-smi printed no JSON (exit code ${output.code})`);
    const cards = Object.entries(value as Json).filter(([name]) => /^card\d+$/.test(name));
    const gpus = cards.flatMap(([, card]) => rocmCard(card));
    if (gpus.length === 0) throw new Error('rocm-smi names no device');
    const processes = await this.processes(gpus, signal);
    return { gpus, processes, notes: [] };
  }

  /** The tool names processes, not their devices: with one device it is that one, else nothing is claimed. */
  private async processes(gpus: readonly GpuObservation[], signal: AbortSignal): Promise<GpuProcess[]> {
    const [only, second] = gpus;
    if (only === undefined || second !== undefined) return [];
    const output = await this.tool.run(['--showpids', '--json'], signal);
    const system = dig(parseJson(output.stdout), 'system');
    if (typeof system !== 'object' || system === null) return [];
    return Object.entries(system as Json).flatMap(([key, value]) => {
      const pid = /^PID(\d+)$/.exec(key)?.[1];
      if (pid === undefined || typeof value !== 'string') return [];
      const [name = '', , vram = ''] = value.split(/\s*,\s*/);
      const used = count(vram);
      return [
        { uuid: only.uuid, pid: Number(pid), name, ...(used === undefined ? {} : { memoryBytes: used }) },
      ];
    });
  }
}

/** Names of fields changed their capitals over the versions. */
function rocmCard(card: unknown): GpuObservation[] {
  if (typeof card !== 'object' || card === null) return [];
  const fields = new Map(Object.entries(card as Json).map(([name, value]) => [name.toLowerCase(), value]));
  const text = (...names: string[]): string | undefined =>
    names.map((name) => fields.get(name)).find((value): value is string => typeof value === 'string');
  const uuid = amdUuid(text('unique id'));
  if (uuid === undefined) return [];
  const busId = text('pci bus');
  return [
    {
      uuid,
      type: text('card series', 'card model', 'device name') ?? 'unknown',
      vendor: 'amd',
      ...(busId === undefined ? {} : { busId }),
      ...memory(count(text('vram total memory (b)')), count(text('vram total used memory (b)'))),
      linkedTo: [],
      signs: {},
    },
  ];
}

// ---------------------------------------------------------------- sysfs

const AMD_VENDOR = '0x1002';

export class AmdSysfsDriver implements GpuDriver {
  readonly vendor = 'amd';
  private reading: Promise<GpuProbe> | undefined;

  constructor(private readonly drmDir = '/sys/class/drm') {}

  async probe(signal: AbortSignal): Promise<GpuProbe> {
    // Even reading a file may hang in the driver; a second read on top would hang as well.
    if (this.reading !== undefined) throw new Error('an earlier read of /sys hangs in the driver');
    this.reading = this.read().finally(() => (this.reading = undefined));
    const over = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(new Error('reading /sys took too long')), { once: true });
    });
    return Promise.race([this.reading, over]);
  }

  private async read(): Promise<GpuProbe> {
    const cards = (await readdir(this.drmDir)).filter((name) => /^card\d+$/.test(name));
    const gpus = (await Promise.all(cards.map((card) => readCard(join(this.drmDir, card, 'device'))))).flat();
    if (gpus.length === 0) throw new Error('no AMD device with a serial in /sys');
    return { gpus, processes: [], notes: [] };
  }
}

async function readCard(device: string): Promise<GpuObservation[]> {
  const field = async (name: string): Promise<string | undefined> => {
    try {
      return (await readFile(join(device, name), 'utf8')).trim();
    } catch {
      return undefined;
    }
  };
  if ((await field('vendor')) !== AMD_VENDOR) return [];
  const uuid = amdUuid(await field('unique_id'));
  if (uuid === undefined) return [];
  const busId = /^PCI_SLOT_NAME=(.*)$/m.exec((await field('uevent')) ?? '')?.[1];
  return [
    {
      uuid,
      type: (await field('product_name')) || 'AMD GPU',
      vendor: 'amd',
      ...(busId === undefined ? {} : { busId }),
      ...memory(count(await field('mem_info_vram_total')), count(await field('mem_info_vram_used'))),
      linkedTo: [],
      signs: rasSigns(await field('ras/umc_err_count')),
    },
  ];
}

/** `ue: 0\nce: 3`: uncorrectable and correctable errors. */
function rasSigns(text: string | undefined): GpuSigns {
  const uncorrected = count(/ue:\s*(\d+)/.exec(text ?? '')?.[1]);
  return uncorrected === undefined ? {} : { eccUncorrected: uncorrected };
}

// ---------------------------------------------------------------- values

function memory(total: number | undefined, used: number | undefined) {
  return {
    ...(total === undefined ? {} : { memoryTotalBytes: total }),
    ...(used === undefined ? {} : { memoryUsedBytes: used }),
  };
}

/** A number, also when it is printed as text; undefined for "N/A" and the like. */
function count(value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined;
  return typeof value === 'string' && /^\d+(?:\.\d+)?$/.test(value.trim()) ? Number(value) : undefined;
}

function dig(value: unknown, ...path: readonly string[]): unknown {
  let at = value;
  for (const key of path) {
    if (typeof at !== 'object' || at === null) return undefined;
    at = (at as Json)[key];
  }
  return at;
}

/** Places where JSON may begin that are tried. */
const BEGINNINGS_MAX = 16;

/** The tools print warnings before their JSON, some of them in brackets. */
function parseJson(text: string): unknown {
  for (const { index } of [...text.matchAll(/^[[{]/gm)].slice(0, BEGINNINGS_MAX)) {
    try {
      return JSON.parse(text.slice(index));
    } catch {
      // A warning; or JSON that was cut off, and what is indented in it is no beginning.
    }
  }
  return undefined;
}
