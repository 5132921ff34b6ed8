import { STATUS_CODES } from 'node:http';
import type { ByteRuns } from './byte-runs.js';
import { chunkedLength, writeChunkSize, writeCrLf, writeLastChunk } from './bytes/chunk-framing.js';
import type { HeaderList } from './front.js';
import { outbox } from './outbox.js';

/** Whether an answer has no body, whatever its headers say. */
export const isBodilessStatus = (status: number): boolean => status === 204 || status === 304;

/** One buffer with everything that goes on the wire: head, chunk size, payload and, at the end, the last chunk. */
export function framedAnswer(head: string, runs: ByteRuns, chunked: boolean, last: boolean): Buffer {
  if (!chunked) {
    const plain = outbox.take(head.length + runs.length);
    runs.copyTo(plain, head === '' ? 0 : plain.write(head, 0, 'latin1'));
    return plain;
  }
  const framed = outbox.take(head.length + chunkedLength(runs.length, last));
  let at = head === '' ? 0 : framed.write(head, 0, 'latin1');
  if (runs.length > 0) at = writeCrLf(framed, runs.copyTo(framed, writeChunkSize(framed, at, runs.length)));
  if (last) writeLastChunk(framed, at);
  return framed;
}

/** What an answer's head says beside its own headers. */
export interface HeadEnd {
  /** Bytes of the body, or `chunked`; undefined where there is none. */
  readonly length: number | 'chunked' | undefined;
  /** `Date` and, on connections that go on, what says so; see {@link ConnectionLines}. */
  readonly connectionLines: string;
}

/** The text of a head, with the lines and in the order that node:http would give it. */
export function answerHead(
  status: number,
  headers: HeaderList,
  { length, connectionLines }: HeadEnd,
): string {
  let text = STATUS_LINES[status] ?? `HTTP/1.1 ${status} unknown\r\n`;
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  if (length === 'chunked') text += 'transfer-encoding: chunked\r\n';
  else if (length !== undefined) text += `content-length: ${length}\r\n`;
  return text + connectionLines;
}

const STATUS_LINES: Record<number, string> = {};
for (const [status, reason] of Object.entries(STATUS_CODES)) {
  STATUS_LINES[Number(status)] = `HTTP/1.1 ${status} ${reason}\r\n`;
}

/** The last lines of heads; their text changes once a second. */
export class ConnectionLines {
  private secondMs = Number.NaN;
  private keepAliveMs = Number.NaN;
  private goingOn = '';
  private ending = '';

  /** With the blank line that ends the head. */
  text(wallMs: number, keepAliveMs: number, last: boolean): string {
    if (!(wallMs >= this.secondMs && wallMs < this.secondMs + 1_000) || keepAliveMs !== this.keepAliveMs) {
      this.compose(wallMs, keepAliveMs);
    }
    return last ? this.ending : this.goingOn;
  }

  private compose(wallMs: number, keepAliveMs: number): void {
    this.secondMs = Math.floor(wallMs / 1_000) * 1_000;
    this.keepAliveMs = keepAliveMs;
    const date = `Date: ${new Date(wallMs).toUTCString()}\r\n`;
    const seconds = Math.floor(keepAliveMs / 1_000);
    this.goingOn = `${date}Connection: keep-alive\r\nKeep-Alive: timeout=${seconds}\r\n\r\n`;
    this.ending = `${date}Connection: close\r\n\r\n`;
  }
}
