/** NVIDIA devices, by `nvidia-smi` and the kernel's log. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { GpuDriver, GpuObservation, GpuProbe, GpuProcess, GpuSigns } from './driver.js';
import { normalBusId, type KernelLog } from './kernel-log.js';
import {
  lostText,
  mibValue,
  numberValue,
  parseActiveLinks,
  parseComputeApps,
  parseCsv,
  parseDetails,
  parseDeviceList,
  parseMigList,
  parseTopology,
  textValue,
  unknownField,
  uuidValue,
  type CsvRow,
  type GpuDetails,
  type MigDevice,
} from './nvidia-text.js';
import type { Tool } from './tool.js';

/** Without these a device cannot be named. */
const NEEDED = ['index', 'uuid', 'name', 'pci.bus_id', 'driver_version'] as const;
/** Each may be missing in some driver; together they are asked for in one call. */
const WANTED = [
  'memory.total',
  'memory.used',
  'mig.mode.current',
  'ecc.errors.uncorrected.volatile.total',
  'remapped_rows.pending',
  'remapped_rows.failure',
  'clocks_event_reasons.hw_thermal_slowdown',
  'clocks_throttle_reasons.hw_thermal_slowdown',
] as const;

/** The tool's exit code for a device whose own description is damaged; it works, and so does everything that was printed. */
const INFOROM_CORRUPTED = 14;
const NO_DEVICES = /No devices? (?:were|was) found/i;

/** The long XML costs a second of driver time, and what it says changes slowly. */
const DETAILS_EVERY = 6;
const NO_LINKS: ReadonlyMap<number, readonly number[]> = new Map();
const NO_COUNTS: ReadonlyMap<string, number> = new Map();
const UUID_UNREADABLE = 'nvidia-smi prints no UUID for it';

export interface NvidiaDeps {
  readonly tool: Tool;
  readonly kernelLog: KernelLog;
  /** Directory in which the kernel driver lists its devices, also those that the tool cannot reach. */
  readonly procDir: string;
}

export class NvidiaDriver implements GpuDriver {
  readonly vendor = 'nvidia';
  /** Fields this driver version refused. */
  private readonly unsupported = new Set<string>();
  private driverVersion: string | undefined;
  private details = new Map<string, GpuDetails>();
  private topology:
    { readonly key: string; readonly links: ReadonlyMap<number, readonly number[]> } | undefined;
  /** Links that carried data, the most ever seen: cards are bridged in many ways, and only a loss is news. */
  private readonly links = new Map<string, number>();
  private inactiveLinks: ReadonlyMap<string, number> = new Map();
  private probes = 0;

  constructor(private readonly deps: NvidiaDeps) {}

  async probe(signal: AbortSignal): Promise<GpuProbe> {
    const { rows, lost, warnings } = await this.query(signal);
    const sliced = rows.some((row) => row['mig.mode.current'] === 'Enabled');
    const notes = [
      ...[...this.unsupported].map((field) => `driver ${this.driverVersion} has no ${field}`),
      ...warnings,
    ];
    /** What is added to the query: without it the devices are still there. */
    const added = async <T>(what: string, without: T, read: () => Promise<T>): Promise<T> => {
      try {
        return await read();
      } catch (error) {
        if (signal.aborted) throw error;
        notes.push(`${what} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
        return without;
      }
    };
    const slow = this.probes++ % DETAILS_EVERY === 0;
    // Only in the details stands what slices use.
    if (slow || sliced) this.details = await added('details', new Map(), () => this.readDetails(signal));
    const links = await added('the topology', NO_LINKS, () => this.readTopology(rows, signal));
    if (slow && links.size > 0)
      this.inactiveLinks = await added('links', NO_COUNTS, () => this.readLinks(signal));
    const mig = sliced ? await added('slices', [], () => this.readMig(signal)) : [];
    const listed = await added('processes', [], () => this.readProcesses(signal));
    const processes = [...listed, ...this.onSlices(mig, listed)];
    const xids = this.deps.kernelLog.read();
    notes.push(...unsliced(rows, mig));
    const whole = rows.flatMap((row) => this.observe(row, rows, links, mig));
    return {
      gpus: dropUnnamed([...whole, ...[...lost].map(([uuid, why]) => lostDevice(uuid, why))], notes),
      processes,
      ...(xids === undefined ? {} : { xids }),
      notes,
    };
  }

  // ------------------------------------------------------------ the query

  /** One call for all devices; when one of them spoils it, one call for each. */
  private async query(
    signal: AbortSignal,
  ): Promise<{ rows: CsvRow[]; lost: Map<string, string>; warnings: readonly string[] }> {
    const all = await this.queryRows([], signal);
    const lost = new Map<string, string>();
    const warnings = all.warning === undefined ? [] : [all.warning];
    const known = listDevices(this.deps.procDir);
    // A device that cannot even tell its name is known to the kernel's driver by its place.
    const rows = all.rows.filter((row) => {
      if (uuidValue(row['uuid']) !== undefined) return true;
      const uuid = known.find(({ busId }) => sameBus(busId, row['pci.bus_id']))?.uuid;
      if (uuid !== undefined) lost.set(uuid, lostText(row) ?? UUID_UNREADABLE);
      return uuid === undefined;
    });
    if (all.failure === undefined) return { rows, lost, warnings };
    // The kernel's driver knows of none either: a machine without GPUs, or one that lost them all, which is remembered.
    if (known.length === 0 && NO_DEVICES.test(all.failure)) return { rows: [], lost, warnings };
    // Containers do not always see the kernel driver's list; the tool's own names those that it reaches.
    const named = (): Promise<string[]> => this.listReached(signal);
    const devices = known.length > 0 ? known : (await named()).map((uuid) => ({ uuid, busId: uuid }));
    if (devices.length === 0 && rows.length === 0) throw new Error(all.failure);
    for (const { uuid, busId } of devices) {
      if (lost.has(uuid) || rows.some((row) => row['uuid'] === uuid)) continue;
      const one = await this.queryRows(['-i', busId], signal);
      if (one.failure === undefined && one.rows.length > 0) rows.push(...one.rows);
      else lost.set(uuid, one.failure ?? 'not listed by nvidia-smi');
    }
    return { rows, lost, warnings: lost.size > 0 ? warnings : [...warnings, all.failure] };
  }

  private async listReached(signal: AbortSignal): Promise<string[]> {
    return parseDeviceList((await this.deps.tool.run(['-L'], signal)).stdout);
  }

  /** Asks without the fields that were refused before; one unknown field rejects a whole query. */
  private async queryRows(
    which: readonly string[],
    signal: AbortSignal,
  ): Promise<{ rows: CsvRow[]; failure?: string; warning?: string }> {
    for (;;) {
      const fields: string[] = [...NEEDED, ...WANTED.filter((field) => !this.unsupported.has(field))];
      const output = await this.deps.tool.run(
        [...which, `--query-gpu=${fields.join(',')}`, '--format=csv,noheader,nounits'],
        signal,
      );
      const said = `${output.stdout}\n${output.stderr}`;
      const unknown = unknownField(said);
      if (unknown !== undefined && fields.includes(unknown) && !isNeeded(unknown)) {
        this.unsupported.add(unknown);
        continue;
      }
      const rows = parseCsv(output.stdout, fields);
      this.noteVersion(rows);
      if (output.code === 0 && rows.length > 0) return { rows };
      if (output.code === INFOROM_CORRUPTED && rows.length > 0)
        return {
          rows,
          warning: /^.*infoROM.*$/im.exec(said)?.[0].trim() ?? 'the infoROM of a device is corrupted',
        };
      if (output.code !== 0 && rows.length === 0 && unknown === undefined && fields.length > NEEDED.length)
        if (await this.findRefused(which, signal)) continue;
      const failure = said
        .split('\n')
        .map((line) => line.trim())
        .find((line) => line !== '' && parseCsv(line, fields).length === 0);
      return { rows, failure: (failure ?? `exit code ${output.code}`).slice(0, 200) };
    }
  }

  /** A version that refuses without naming the field is asked field by field; true when something was learned. */
  private async findRefused(which: readonly string[], signal: AbortSignal): Promise<boolean> {
    const ask = async (field: string): Promise<boolean> => {
      const args = [...which, `--query-gpu=uuid,${field}`, '--format=csv,noheader,nounits'];
      return (await this.deps.tool.run(args, signal)).code === 0;
    };
    // When not even the name can be asked for, the fields are not the trouble.
    if (!(await ask('name'))) return false;
    const before = this.unsupported.size;
    for (const field of WANTED)
      if (!this.unsupported.has(field) && !(await ask(field))) this.unsupported.add(field);
    return this.unsupported.size > before;
  }

  private noteVersion(rows: readonly CsvRow[]): void {
    const version = textValue(rows[0]?.['driver_version']);
    if (version === undefined) return;
    // After an upgrade the new driver is asked everything again.
    if (this.driverVersion !== undefined && version !== this.driverVersion) this.unsupported.clear();
    this.driverVersion = version;
  }

  // ------------------------------------------------------------ what is added to it

  private async readDetails(signal: AbortSignal): Promise<Map<string, GpuDetails>> {
    const output = await this.deps.tool.run(['-q', '-x'], signal);
    return new Map(parseDetails(output.stdout).map((details) => [details.uuid, details]));
  }

  /** How many links of each device carried data before and do not any more. */
  private async readLinks(signal: AbortSignal): Promise<ReadonlyMap<string, number>> {
    const output = await this.deps.tool.run(['nvlink', '--status'], signal);
    if (output.code !== 0) return new Map();
    const active = parseActiveLinks(output.stdout);
    for (const [uuid, count] of active) this.links.set(uuid, Math.max(count, this.links.get(uuid) ?? 0));
    return new Map([...active].map(([uuid, count]) => [uuid, (this.links.get(uuid) ?? 0) - count]));
  }

  private async readTopology(
    rows: readonly CsvRow[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, readonly number[]>> {
    const key = rows.map((row) => row['uuid']).join();
    if (this.topology?.key === key) return this.topology.links;
    const output = rows.length > 1 ? await this.deps.tool.run(['topo', '-m'], signal) : undefined;
    const links = output?.code === 0 ? parseTopology(output.stdout) : new Map<number, readonly number[]>();
    this.topology = { key, links };
    return links;
  }

  private async readMig(signal: AbortSignal): Promise<MigDevice[]> {
    return parseMigList((await this.deps.tool.run(['-L'], signal)).stdout);
  }

  private async readProcesses(signal: AbortSignal): Promise<GpuProcess[]> {
    const output = await this.deps.tool.run(
      ['--query-compute-apps=gpu_uuid,pid,used_memory,process_name', '--format=csv,noheader,nounits'],
      signal,
    );
    return parseComputeApps(output.stdout);
  }

  /** Processes by the slice that they are on; of those on whole devices the short list tells. */
  private onSlices(mig: readonly MigDevice[], listed: readonly GpuProcess[]): GpuProcess[] {
    return mig
      .flatMap(({ uuid, parentUuid, index }) =>
        (this.details.get(parentUuid)?.slices.get(index)?.processes ?? []).map((process) => ({
          uuid,
          ...process,
        })),
      )
      .filter(({ uuid, pid }) => !listed.some((one) => one.uuid === uuid && one.pid === pid));
  }

  // ------------------------------------------------------------ devices

  private observe(
    row: CsvRow,
    rows: readonly CsvRow[],
    links: ReadonlyMap<number, readonly number[]>,
    mig: readonly MigDevice[],
  ): GpuObservation[] {
    const uuid = uuidValue(row['uuid']) ?? '';
    const inactive = this.inactiveLinks.get(uuid);
    const details = this.details.get(uuid);
    const busId = textValue(row['pci.bus_id']);
    const index = numberValue(row['index']);
    const whole: GpuObservation = {
      uuid,
      type: (textValue(row['name']) ?? 'unknown').replace(/^NVIDIA /, ''),
      vendor: 'nvidia',
      ...(busId === undefined ? {} : { busId }),
      ...(index === undefined ? {} : { index }),
      ...memoryOf(mibValue(row['memory.total']), mibValue(row['memory.used'])),
      linkedTo: linkedTo(row, rows, links),
      signs: {
        ...signsOfRow(row),
        ...details?.signs,
        ...(inactive === undefined ? {} : { inactiveLinks: inactive }),
      },
    };
    if (row['mig.mode.current'] !== 'Enabled') return [whole];
    // A sliced device cannot be used as a whole any more: only its slices are devices.
    return mig
      .filter((device) => device.parentUuid === uuid)
      .map((device) => {
        const memory = details?.slices.get(device.index);
        const { memoryTotalBytes: _total, memoryUsedBytes: _used, index: _index, ...rest } = whole;
        return {
          ...rest,
          uuid: device.uuid,
          type: `${whole.type} MIG ${device.profile}`,
          ...memoryOf(memory?.totalBytes, memory?.usedBytes),
          linkedTo: [],
        };
      });
  }
}

/** Devices that were sliced and then given no slice: nobody can use them, and they show nowhere else. */
function unsliced(rows: readonly CsvRow[], mig: readonly MigDevice[]): string[] {
  return rows
    .filter((row) => row['mig.mode.current'] === 'Enabled')
    .filter((row) => !mig.some(({ parentUuid }) => parentUuid === row['uuid']))
    .map((row) => `device ${row['uuid']} is in MIG mode and has no slices: make some, or switch MIG off`);
}

const isNeeded = (field: string): boolean => NEEDED.some((needed) => needed === field);

function signsOfRow(row: CsvRow): GpuSigns {
  const lost = lostText(row);
  const ecc = numberValue(row['ecc.errors.uncorrected.volatile.total']);
  const pending = textValue(row['remapped_rows.pending']);
  const failure = textValue(row['remapped_rows.failure']);
  const thermal =
    textValue(row['clocks_event_reasons.hw_thermal_slowdown']) ??
    textValue(row['clocks_throttle_reasons.hw_thermal_slowdown']);
  return {
    ...(lost === undefined ? {} : { lost }),
    ...(ecc === undefined ? {} : { eccUncorrected: ecc }),
    ...(pending === undefined ? {} : { remapPending: /^(?:yes|[1-9])/i.test(pending) }),
    ...(failure === undefined ? {} : { remapFailure: /^(?:yes|[1-9])/i.test(failure) }),
    ...(thermal === undefined ? {} : { thermalSlowdown: thermal === 'Active' }),
  };
}

function linkedTo(
  row: CsvRow,
  rows: readonly CsvRow[],
  links: ReadonlyMap<number, readonly number[]>,
): string[] {
  const peers = links.get(numberValue(row['index']) ?? -1) ?? [];
  return rows
    .filter((other) => peers.includes(numberValue(other['index']) ?? -1))
    .map((other) => other['uuid'] ?? '')
    .filter((uuid) => uuid !== '');
}

function memoryOf(total: number | undefined, used: number | undefined) {
  return {
    ...(total === undefined ? {} : { memoryTotalBytes: total }),
    ...(used === undefined ? {} : { memoryUsedBytes: used }),
  };
}

function lostDevice(uuid: string, why: string): GpuObservation {
  return { uuid, type: 'unknown', vendor: 'nvidia', linkedTo: [], signs: { lost: why } };
}

/** Assignments are made by UUID: what has none, or shares one, cannot be assigned. */
function dropUnnamed(gpus: readonly GpuObservation[], notes: string[]): GpuObservation[] {
  const counts = new Map<string, number>();
  for (const { uuid } of gpus) counts.set(uuid, (counts.get(uuid) ?? 0) + 1);
  return gpus.filter(({ uuid, busId }) => {
    if (uuid !== '' && counts.get(uuid) === 1) return true;
    notes.push(`device ${busId ?? '?'} is left out: its UUID "${uuid}" is empty or not its own`);
    return false;
  });
}

const sameBus = (one: string, other: string | undefined): boolean =>
  other !== undefined && normalBusId(one) === normalBusId(other);

/** Devices as the kernel driver knows them: it goes on naming one that fell off the bus. */
function listDevices(procDir: string): { readonly uuid: string; readonly busId: string }[] {
  try {
    return readdirSync(procDir).flatMap((busId) => {
      const text = readFileSync(join(procDir, busId, 'information'), 'utf8');
      const uuid = /^GPU UUID:\s*(GPU-[0-9a-f-]+)/im.exec(text)?.[1];
      return uuid === undefined ? [] : [{ uuid, busId }];
    });
  } catch {
    return [];
  }
}
