/**
 * Engine output made fit for people: engines print colours, cursor moves, progress bars ended by a carriage return and
 * bytes that are no UTF-8. What leaves here is plain lines without control characters.
 */
import { LOG_LINE_MAX_CHARS } from './limits.js';
import type { Redact } from './redact.js';

// CSI, OSC (ended by BEL or ST), and two-character escapes. An OSC without end takes nothing along: the rest may be the error.
// oxlint-disable-next-line no-control-regex -- control characters are what it looks for
const ESCAPES = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]?/g;
// C0 without tab, DEL, C1, and the characters that reorder text on a terminal.
// oxlint-disable-next-line no-control-regex -- control characters are what it looks for
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;
const CUT = ' …[cut]';

/** A secret that ends behind the longest line must be known as a whole, or its beginning would stay. */
const REDACTED_MAX_CHARS = 4 * LOG_LINE_MAX_CHARS;

/** One line without its end: the last state of a progress bar, no escapes, no controls, redacted, bounded. */
export function cleanLine(raw: string, redact: Redact = (text) => text): string {
  // Whoever watches a terminal sees only what the last carriage return left.
  const shown = raw.replace(/\r+$/, '');
  const last = shown.slice(shown.lastIndexOf('\r') + 1);
  const plain = last.replace(ESCAPES, '').replace(CONTROLS, '').trimEnd();
  const clean = redact(plain.slice(0, REDACTED_MAX_CHARS));
  if (clean.length <= LOG_LINE_MAX_CHARS) return plain.length <= REDACTED_MAX_CHARS ? clean : clean + CUT;
  // Half of a pair is no character.
  return clean.slice(0, LOG_LINE_MAX_CHARS - CUT.length).replace(/[\ud800-\udbff]$/, '') + CUT;
}

/** Beyond this an unfinished line is only kept at its end: a 6 MB line must not live in memory. */
const PENDING_MAX_CHARS = 64 * 1024;

/** Turns chunks of bytes into cleaned lines. A character or a line may be split over chunks. */
export class LineSplitter {
  private readonly decoder = new TextDecoder('utf-8', { fatal: false });
  private pending = '';

  constructor(private readonly redact?: Redact) {}

  /** Lines completed by this chunk. */
  push(chunk: Uint8Array): string[] {
    this.pending += this.decoder.decode(chunk, { stream: true });
    const parts = this.pending.split('\n');
    this.pending = shortened(parts.pop() ?? '');
    return parts.map((part) => cleanLine(part, this.redact)).filter((line) => line !== '');
  }

  /** What stands in the unfinished last line now, e.g. a running progress bar. */
  unfinished(): string {
    return cleanLine(this.pending, this.redact);
  }
}

/** Progress bars never end their line: only what follows the last carriage return matters. */
function shortened(pending: string): string {
  // A return at the very end stays: what it ended is still shown, and the next text must not be glued to it.
  const ended = pending.replace(/\r+$/, '');
  const last = pending.slice(ended.lastIndexOf('\r') + 1);
  return last.length <= PENDING_MAX_CHARS ? last : last.slice(0, PENDING_MAX_CHARS);
}

/** The end of `text` that fits into `maxBytes` of UTF-8, cut at a line; a cut is marked. */
export function tailBytes(lines: readonly string[], maxBytes: number): string {
  const kept: string[] = [];
  const marker = '…[earlier output cut]';
  let bytes = Buffer.byteLength(marker) + 1;
  for (let index = lines.length - 1; index >= 0; index--) {
    const line = lines[index] ?? '';
    bytes += Buffer.byteLength(line) + 1;
    if (bytes > maxBytes) return [marker, ...kept].join('\n');
    kept.unshift(line);
  }
  return kept.join('\n');
}
