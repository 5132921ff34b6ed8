/** Reads what `nvidia-smi` prints. It changes from version to version, so every value is one that may be missing. */
import type { GpuProcess, GpuSigns } from './driver.js';

/** Words that stand where a value would, of late in brackets: not a number, and not "healthy" either. */
const NO_VALUE =
  /^(?:\[.*\]|N\/A|Not Supported|Not Available|Unknown Error|Insufficient Permissions|ERR!|GPU is lost|GPU requires reset|Requested functionality has been deprecated)$/i;
/** Words that say the device itself cannot be reached, in whatever field. */
const LOST = /GPU is lost|GPU requires reset/i;
/** Says so only where every device has a value: some fields are unknown on devices that work. */
const UNREACHABLE = /Unknown Error|ERR!/i;

export type CsvRow = Readonly<Record<string, string>>;

/** Rows of `--format=csv,noheader,nounits`, by the fields that were asked for; rows of another length are left out. */
export function parseCsv(text: string, fields: readonly string[]): CsvRow[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .map((line) => line.split(/\s*,\s*/))
    .filter((values) => values.length === fields.length)
    .map((values) => Object.fromEntries(fields.map((field, index) => [field, values[index] ?? ''])));
}

export function textValue(raw: string | undefined): string | undefined {
  const value = raw?.trim();
  return value === undefined || value === '' || NO_VALUE.test(value) ? undefined : value;
}

/** A number; undefined for anything that is none, never zero. */
export function numberValue(raw: string | undefined): number | undefined {
  const text = textValue(raw);
  if (text === undefined || !/^-?\d+(?:\.\d+)?$/.test(text)) return undefined;
  return Number(text);
}

/** MiB as printed with `nounits`, or `24576 MiB` as in XML. */
export function mibValue(raw: string | undefined): number | undefined {
  const mib = numberValue(raw?.replace(/\s*MiB$/, ''));
  return mib === undefined ? undefined : mib * 2 ** 20;
}

/** The tool's words for a device it cannot reach; undefined when it can. */
export function lostText(row: CsvRow): string | undefined {
  const certain = [row['uuid'], row['memory.total'], row['memory.used']].join(' ');
  return LOST.exec(Object.values(row).join(' '))?.[0] ?? UNREACHABLE.exec(certain)?.[0];
}

const NAME_MAX_CHARS = 200;
const UUID = /^GPU-[0-9a-f-]+$/i;

/** The UUID of a device; undefined where the tool prints something else in its place. */
export function uuidValue(raw: string | undefined): string | undefined {
  const value = textValue(raw);
  return value !== undefined && UUID.test(value) ? value : undefined;
}

/** UUIDs of whole devices in `nvidia-smi -L`, which names those it reaches when a query fails because of another. */
export function parseDeviceList(text: string): string[] {
  return [...text.matchAll(/^GPU \d+:.*\(UUID: (GPU-[\w-]+)\)/gm)].map(([, uuid = '']) => uuid);
}

/** Links that carry data, by device, of `nvidia-smi nvlink --status`; devices without links are not in it. */
export function parseActiveLinks(text: string): ReadonlyMap<string, number> {
  const active = new Map<string, number>();
  let uuid: string | undefined;
  for (const line of text.split('\n')) {
    uuid = /^GPU \d+:.*\(UUID: (GPU-[\w-]+)\)/.exec(line)?.[1] ?? uuid;
    const link = /^\s+Link \d+:\s*(.*)$/.exec(line)?.[1];
    if (uuid === undefined || link === undefined) continue;
    active.set(uuid, (active.get(uuid) ?? 0) + (/inactive/i.test(link) ? 0 : 1));
  }
  return active;
}

/** The one field of a query that this version does not know. */
export function unknownField(text: string): string | undefined {
  return /Field "([^"]+)" is not a valid field to query/.exec(text)?.[1];
}

/** Lines of `--query-compute-apps=gpu_uuid,pid,used_memory,process_name`; a name may hold commas. */
export function parseComputeApps(text: string): GpuProcess[] {
  return text.split('\n').flatMap((line) => {
    const [uuid = '', pid = '', memory = '', ...name] = line.trim().split(/\s*,\s*/);
    if (!/^[1-9]\d{0,9}$/.test(pid)) return [];
    const memoryBytes = mibValue(memory);
    const shown = textValue(name.join(','));
    return [
      {
        uuid,
        pid: Number(pid),
        ...(shown === undefined ? {} : { name: shown.slice(0, NAME_MAX_CHARS) }),
        ...(memoryBytes === undefined ? {} : { memoryBytes }),
      },
    ];
  });
}

/** NVLink pairs of `topo -m` by index: a cell `NV4` joins its row and its column. */
export function parseTopology(text: string): ReadonlyMap<number, readonly number[]> {
  // The header is underlined with escapes where it thinks that it talks to a terminal.
  // oxlint-disable-next-line no-control-regex -- control characters are what it looks for
  const lines = text.replaceAll(/\x1b\[[\d;]*m/g, '').split('\n');
  const header = lines.find((line) => /^\s*GPU\d+\s/.test(line) && !/\bX\b/.test(line));
  const columns = (header?.trim().split(/\t+|\s{2,}|\s(?=GPU|NIC|CPU)/) ?? []).map((cell) => cell.trim());
  const links = new Map<number, number[]>();
  for (const line of lines) {
    const row = /^GPU(\d+)\s+(.*)$/.exec(line);
    if (row === null || !/\bX\b/.test(line)) continue;
    const cells = (row[2] ?? '').trim().split(/\s+/);
    const joined = columns.flatMap((column, index) => {
      const peer = /^GPU(\d+)$/.exec(column)?.[1];
      return peer !== undefined && /^NV\d+$/.test(cells[index] ?? '') ? [Number(peer)] : [];
    });
    links.set(Number(row[1]), joined);
  }
  return links;
}

/** A MIG device: a slice that is a GPU of its own for whoever uses it. */
export interface MigDevice {
  readonly uuid: string;
  readonly parentUuid: string;
  readonly profile: string;
  readonly index: number;
}

/** MIG devices of `nvidia-smi -L`. */
export function parseMigList(text: string): MigDevice[] {
  const devices: MigDevice[] = [];
  let parentUuid = '';
  for (const line of text.split('\n')) {
    parentUuid = /^GPU \d+:.*\(UUID: (GPU-[\w-]+)\)/.exec(line)?.[1] ?? parentUuid;
    const mig = /^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[\w/-]+)\)/.exec(line);
    if (mig === null) continue;
    const [, profile = '', index = '0', uuid = ''] = mig;
    devices.push({ uuid, parentUuid, profile, index: Number(index) });
  }
  return devices;
}

/** What `-q -x` adds for one device. */
export interface GpuDetails {
  readonly uuid: string;
  readonly signs: GpuSigns;
  /** What its MIG devices use, by their index. */
  readonly slices: ReadonlyMap<number, SliceUse>;
}

/** What the long XML tells of one MIG device. */
export interface SliceUse {
  readonly totalBytes?: number;
  readonly usedBytes?: number;
  /** Processes on it; the short list names only the device that they are on a slice of. */
  readonly processes: readonly Omit<GpuProcess, 'uuid'>[];
}

/** Reads `nvidia-smi -q -x` device by device; what one device lacks costs the others nothing. */
export function parseDetails(xml: string): GpuDetails[] {
  return xml
    .split(/<gpu id="/)
    .slice(1)
    .map((part) => part.split('</gpu>', 1)[0] ?? '')
    .flatMap((part) => {
      const mig = block(part, 'mig_devices') ?? '';
      const own = part.replace(mig, '');
      const uuid = textValue(tag(own, 'uuid'));
      return uuid === undefined ? [] : [{ uuid, signs: signsOf(own), slices: slicesOf(mig, own) }];
    });
}

function signsOf(xml: string): GpuSigns {
  const recoveryAction = textValue(tag(xml, 'gpu_recovery_action'));
  // Retired pages are what there was before rows could be remapped; their tag had two names.
  const repairPending = [
    'channel_repair_pending',
    'tpc_repair_pending',
    'pending_retirement',
    'pending_blacklist',
  ].some((name) => isYes(tag(xml, name)));
  const signs = {
    recoveryAction,
    remapFailure: yesNo(tag(xml, 'remapped_row_failure')),
    remapPending: repairPending ? true : yesNo(tag(xml, 'remapped_row_pending')),
    sramThresholdExceeded: yesNo(tag(xml, 'sram_threshold_exceeded')),
    unrepairableMemory: yesNo(/<\w*unrepairable\w*>([^<]*)</.exec(xml)?.[1]),
    // Old drivers say it here; new ones print that the field is deprecated.
    resetRequired: yesNo(tag(xml, 'reset_required')),
  };
  const { resetRequired, ...rest } = signs;
  const known = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
  return resetRequired === true && recoveryAction === undefined
    ? { ...known, recoveryAction: 'GPU Reset' }
    : known;
}

function slicesOf(mig: string, own: string): ReadonlyMap<number, SliceUse> {
  const running = own.split('<process_info>').slice(1).flatMap(readProcess);
  return new Map(
    mig
      .split('<mig_device>')
      .slice(1)
      .flatMap((device) => {
        const index = numberValue(tag(device, 'index'));
        if (index === undefined) return [];
        const place = placeOf(device);
        const processes = running.filter((one) => place !== undefined && one.place === place);
        return [
          [
            index,
            { ...sliceMemory(device), processes: processes.map(({ place: _place, ...facts }) => facts) },
          ] as const,
        ];
      }),
  );
}

function sliceMemory(device: string): Pick<SliceUse, 'totalBytes' | 'usedBytes'> {
  const memory = block(device, 'fb_memory_usage') ?? '';
  const totalBytes = mibValue(tag(memory, 'total'));
  const usedBytes = mibValue(tag(memory, 'used'));
  return {
    ...(totalBytes === undefined ? {} : { totalBytes }),
    ...(usedBytes === undefined ? {} : { usedBytes }),
  };
}

/** Where on a sliced device something is: one compute instance of one GPU instance; undefined where that is not told. */
function placeOf(xml: string): string | undefined {
  const gpu = numberValue(tag(xml, 'gpu_instance_id'));
  const compute = numberValue(tag(xml, 'compute_instance_id'));
  return gpu === undefined || compute === undefined ? undefined : `${gpu}/${compute}`;
}

function readProcess(xml: string): (Omit<GpuProcess, 'uuid'> & { readonly place?: string })[] {
  const info = xml.split('</process_info>', 1)[0] ?? '';
  const pid = numberValue(tag(info, 'pid'));
  if (pid === undefined) return [];
  const place = placeOf(info);
  const name = textValue(tag(info, 'process_name'));
  const memoryBytes = mibValue(tag(info, 'used_memory'));
  return [
    {
      pid,
      ...(place === undefined ? {} : { place }),
      ...(name === undefined ? {} : { name: name.slice(0, NAME_MAX_CHARS) }),
      ...(memoryBytes === undefined ? {} : { memoryBytes }),
    },
  ];
}

const isYes = (value: string | undefined): boolean => /^yes$/i.test(value?.trim() ?? '');

function yesNo(value: string | undefined): boolean | undefined {
  if (isYes(value)) return true;
  return /^no$/i.test(value?.trim() ?? '') ? false : undefined;
}

function tag(xml: string, name: string): string | undefined {
  return new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1];
}

function block(xml: string, name: string): string | undefined {
  return new RegExp(`<${name}>[\\s\\S]*?</${name}>`).exec(xml)?.[0];
}
