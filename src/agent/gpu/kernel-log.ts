/** Reads NVIDIA's Xid messages from the kernel's log, where this user may. */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { errorCode } from '../errno.js';
import type { XidEvent } from './driver.js';

/** One record is at most 8 KiB, and the device refuses smaller buffers. */
const RECORD_MAX_BYTES = 8 * 1024;
/** Records taken in one look: a driver in trouble prints thousands. */
const RECORDS_MAX = 10_000;

const XID = /NVRM: Xid \(PCI:([0-9a-f:.]+)\): (\d+)(.*)$/i;

/** Reads one record of /dev/kmsg (`priority,sequence,microseconds,flags;text`) or a plain line. */
export function parseXid(record: string): XidEvent | undefined {
  const match = XID.exec(record.split('\n', 1)[0] ?? '');
  if (match === null) return undefined;
  const [, bus = '', xid = '', text = ''] = match;
  const micros = Number(record.split(';', 1)[0]?.split(',')[2]);
  return {
    busId: normalBusId(bus),
    xid: Number(xid),
    text: text.replace(/^[,\s]+/, '').slice(0, 200),
    bootMs: Number.isFinite(micros) ? micros / 1000 : 0,
  };
}

/** `00000000:83:00.0`, `0000:83:00` and `83:00.0` name one device; this is its common form `0000:83:00`. */
export function normalBusId(busId: string): string {
  const parts = busId
    .toLowerCase()
    .replace(/\.\d+$/, '')
    .split(':');
  const [device = '00', bus = '00', domain = '0'] = parts.reverse();
  return `${domain.slice(-4).padStart(4, '0')}:${bus}:${device}`;
}

export class KernelLog {
  private fd: number | undefined;
  private readonly path: string;

  constructor(path = '/dev/kmsg') {
    this.path = path;
  }

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
    for (let count = 0; count < RECORDS_MAX; count++) {
      const bytes = readRecord(fd, buffer);
      if (bytes === 0) break;
      if (bytes === undefined) continue;
      // The device gives one record at a time, a file several lines.
      for (const line of buffer.toString('utf8', 0, bytes).split('\n')) {
        const event = parseXid(line);
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
