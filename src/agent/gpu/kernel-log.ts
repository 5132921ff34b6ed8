/** Reads NVIDIA's Xid messages from the kernel's log, where this user may. */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { uptime } from 'node:os';
import { errorCode } from '../errno.js';
import type { XidEvent } from './driver.js';

/** One record is at most 8 KiB, and the device refuses smaller buffers. */
const RECORD_MAX_BYTES = 8 * 1024;
/** Records taken in one look: a driver in trouble prints thousands. */
const RECORDS_MAX = 10_000;

/** Old drivers leave `PCI:` out; of a slice's error the device is named as `0000:07:00 GPU-I:05`. */
const XID = /NVRM: Xid \((?:PCI:)?([0-9a-f]+:[0-9a-f:.]+)[^)]*\): (\d+)(.*)$/i;
/** `6,1234,5000000,-,caller=T42;text`: the time is in microseconds since boot. */
const KMSG_TIME = /^\d+,\d+,(\d+),/;
/** `[ 5000.000000] text`, as dmesg prints it, behind a priority `<6>` where it was asked for raw. */
const PRINTED_TIME = /^(?:<\d+>)?\[\s*(\d+\.\d+)(?:\]|,)/;

/** Reads one record of /dev/kmsg or a plain line, `sinceBootMs` after the start of this kernel. */
export function parseXid(record: string, sinceBootMs: number): XidEvent | undefined {
  const match = XID.exec(record.split('\n', 1)[0] ?? '');
  if (match === null) return undefined;
  const [, bus = '', xid = '', text = ''] = match;
  const atMs = timeMs(record);
  return {
    busId: normalBusId(bus),
    xid: Number(xid),
    text: text.replace(/^[,\s]+/, '').slice(0, 200),
    ageMs: atMs === undefined ? 0 : Math.max(0, sinceBootMs - atMs),
  };
}

function timeMs(record: string): number | undefined {
  const micros = KMSG_TIME.exec(record)?.[1];
  if (micros !== undefined) return Number(micros) / 1000;
  const seconds = PRINTED_TIME.exec(record)?.[1];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}

/** `00000000:83:00.0`, `0000:83:00` and `83:00.0` name one device; this is its common form `0000:83:00`. */
export function normalBusId(busId: string): string {
  const parts = busId
    .toLowerCase()
    .replace(/\.\d+$/, '')
    .split(':');
  const [device = '00', bus = '00', domain = '0'] = parts.reverse();
  // Some hosts have domains of five digits, with the same buses below them.
  return `${domain.replace(/^0+/, '').padStart(4, '0')}:${bus}:${device}`;
}

export class KernelLog {
  private fd: number | undefined;

  constructor(
    private readonly path = '/dev/kmsg',
    private readonly sinceBootMs: () => number = () => uptime() * 1000,
  ) {}

  /** Xids since the last call (at first: since boot, as far as the kernel kept them); undefined = not observable. */
  read(): XidEvent[] | undefined {
    try {
      this.fd ??= openSync(this.path, constants.O_RDONLY | constants.O_NONBLOCK);
      return this.drain(this.fd);
    } catch {
      this.close();
      return undefined;
    }
  }

  close(): void {
    if (this.fd !== undefined) closeSync(this.fd);
    this.fd = undefined;
  }

  private drain(fd: number): XidEvent[] {
    const buffer = Buffer.alloc(RECORD_MAX_BYTES);
    const events: XidEvent[] = [];
    const sinceBootMs = this.sinceBootMs();
    for (let count = 0; count < RECORDS_MAX; count++) {
      const bytes = readRecord(fd, buffer);
      if (bytes === 0) break;
      if (bytes === undefined) continue;
      // The device gives one record at a time, a file several lines.
      for (const line of buffer.toString('utf8', 0, bytes).split('\n')) {
        const event = parseXid(line, sinceBootMs);
        if (event !== undefined) events.push(event);
      }
    }
    return events;
  }
}

/** Bytes read, 0 at the end, undefined when records were overwritten before they were read. */
function readRecord(fd: number, buffer: Buffer): number | undefined {
  try {
    return readSync(fd, buffer, 0, buffer.length, null);
  } catch (error) {
    if (errorCode(error) === 'EAGAIN') return 0;
    if (errorCode(error) === 'EPIPE') return undefined;
    throw error;
  }
}
