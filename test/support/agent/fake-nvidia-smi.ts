/**
 * An `nvidia-smi` whose devices are held by real processes: what a holder has is in use as long as its process lives, and
 * free when that is gone, as with a real driver.
 */
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { waitFor } from '../wait-for.js';

export interface HeldMemory {
  readonly uuid: string;
  readonly mib: number;
  /** Without one the memory is held by nobody that the tool can see. */
  readonly pid?: number;
}

const TOTAL_MIB = 81_559;

const PROGRAM = `#!${process.execPath}
const { appendFileSync, readFileSync } = require('node:fs');
const { join } = require('node:path');
const directory = DIRECTORY;
const args = process.argv.slice(2).join(' ');
const { gpus, held } = JSON.parse(readFileSync(join(directory, 'devices.json'), 'utf8'));
const read = (path) => { try { return readFileSync(path, 'utf8'); } catch { return undefined; } };
const lives = ({ pid }) => {
  if (pid === undefined) return true;
  const stat = read('/proc/' + pid + '/stat');
  return stat !== undefined && !/\\) [ZX] /.test(stat);
};
const now = held.filter(lives);
const used = (uuid) => now.reduce((sum, one) => sum + (one.uuid === uuid ? one.mib : 0), 12);
const print = (lines) => process.stdout.write(lines.map((line) => line.join(', ') + '\\n').join(''));
if (args.includes('--query-gpu=')) {
  const fields = /--query-gpu=(\\S+)/.exec(args)[1].split(',');
  const value = (uuid, index) => ({
    index, uuid, name: 'NVIDIA H100 80GB HBM3', 'pci.bus_id': '00000000:' + (index + 1) + 'A:00.0',
    driver_version: '575.51.02', 'memory.total': ${TOTAL_MIB}, 'memory.used': used(uuid), 'mig.mode.current': 'Disabled',
    'ecc.errors.uncorrected.volatile.total': 0, 'remapped_rows.pending': 'No', 'remapped_rows.failure': 'No',
  });
  print(gpus.map((uuid, index) => fields.map((field) => value(uuid, index)[field] ?? 'Not Active')));
} else if (args.includes('--query-compute-apps=')) {
  print(now.filter(({ pid }) => pid !== undefined)
    .map(({ uuid, pid, mib }) => [uuid, pid, mib, (read('/proc/' + pid + '/comm') ?? '?').trim()]));
  appendFileSync(join(directory, 'probes'), '.');
}
`;

export class FakeNvidiaSmi {
  readonly directory = mkdtempSync(join(tmpdir(), 'llmgw-smi-'));
  private held: readonly HeldMemory[] = [];

  constructor(private readonly gpus: readonly string[]) {
    const bin = join(this.directory, 'bin');
    mkdirSync(bin);
    const path = join(bin, 'nvidia-smi');
    writeFileSync(path, PROGRAM.replace('DIRECTORY', JSON.stringify(this.directory)));
    chmodSync(path, 0o755);
    writeFileSync(join(this.directory, 'probes'), '');
    this.hold();
  }

  /** A search path on which this tool comes first. */
  get path(): string {
    return `${join(this.directory, 'bin')}${delimiter}${process.env['PATH'] ?? ''}`;
  }

  /** Says who holds what from now on; nobody without arguments. */
  hold(...held: readonly HeldMemory[]): void {
    this.held = held;
    // The tool may be reading it.
    const next = join(this.directory, 'next.json');
    writeFileSync(next, JSON.stringify({ gpus: this.gpus, held: this.held }));
    renameSync(next, join(this.directory, 'devices.json'));
  }

  /** Settles right after a whole probe: the next one is a probe interval away. */
  async probed(): Promise<void> {
    const before = this.probes;
    await waitFor(() => this.probes > before, { deadlineMs: 30_000, what: 'a GPU probe' });
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }

  private get probes(): number {
    return readFileSync(join(this.directory, 'probes'), 'utf8').length;
  }
}
