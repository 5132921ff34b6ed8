import type { ByteRange, ScannedBody } from './json-scan.js';
import { JSON_BYTE, JsonWalker } from './json-walker.js';

/** One replacement in a body; an empty range is an insertion. */
export interface ByteEdit {
  readonly range: ByteRange;
  readonly bytes: Buffer;
}

/** A body in pieces, ready to be sent: the unchanged pieces are views of the original, nothing large is copied. */
export interface SplicedBody {
  readonly parts: readonly Buffer[];
  /** Sum of the parts' lengths: the new content-length. */
  readonly length: number;
}

/** What the gateway may change in a JSON body. Everything else leaves byte for byte as it came. */
export interface BodyChanges {
  /** The name the engine knows, in place of the alias the client sent. */
  model?: string;
  /** True to have the engine report usage at the end of a stream. */
  includeUsage?: boolean;
  /** Id under which the engine can be asked to give the request up (`rid`); a client's own stays in force. */
  requestId?: string;
}

/** Applies the changes that are needed; with none the original buffer is the only part. */
export function spliceBody(body: Buffer, scan: ScannedBody, changes: BodyChanges): SplicedBody {
  const edits: ByteEdit[] = [];
  if (changes.model !== undefined && changes.model !== scan.model) {
    edits.push({ range: scan.modelRange, bytes: Buffer.from(JSON.stringify(changes.model)) });
  }
  const usageEdit = changes.includeUsage === true ? includeUsageEdit(scan) : undefined;
  if (usageEdit !== undefined) edits.push(usageEdit);
  if (changes.requestId !== undefined) {
    // First, so that a client's own, which comes later, is the one that counts.
    edits.push(insertion(scan.afterOpen, `"rid":${JSON.stringify(changes.requestId)},`));
  }
  return applyEdits(body, edits);
}

/**
 * The edit that makes a body ask for usage, undefined when it does already, or when its `stream_options` is of a
 * type the engine will refuse anyway (then the client must see that refusal, not the effect of a repair).
 */
export function includeUsageEdit(scan: ScannedBody): ByteEdit | undefined {
  const options = scan.streamOptions;
  if (options === undefined) return insertion(scan.afterOpen, '"stream_options":{"include_usage":true},');
  switch (options.kind) {
    case 'null':
      return { range: options.range, bytes: Buffer.from('{"include_usage":true}') };
    case 'other':
      return undefined;
    case 'object':
      break;
  }
  const { includeUsage, includeUsageRange } = options;
  if (includeUsage === 'true' || includeUsage === 'other') return undefined;
  if (includeUsageRange !== undefined) return { range: includeUsageRange, bytes: Buffer.from('true') };
  return insertion(options.range.from + 1, options.empty ? '"include_usage":true' : '"include_usage":true,');
}

/** Applies edits that do not overlap, in any order. */
export function applyEdits(body: Buffer, edits: readonly ByteEdit[]): SplicedBody {
  if (edits.length === 0) return { parts: [body], length: body.length };
  const ordered = edits.toSorted((a, b) => a.range.from - b.range.from);
  const parts: Buffer[] = [];
  let at = 0;
  let length = 0;
  const add = (part: Buffer) => {
    if (part.length === 0) return;
    parts.push(part);
    length += part.length;
  };
  for (const { range, bytes } of ordered) {
    if (range.from < at) throw new Error('edits overlap');
    add(body.subarray(at, range.from));
    add(bytes);
    at = range.to;
  }
  add(body.subarray(at));
  return { parts, length };
}

/**
 * The bytes to cut so that the outermost object of `json` loses every member called `key`, however it is spelled, each with
 * one of the commas next to it. Empty if there is none, or if `json` is no object or broken.
 */
export function memberCuts(json: Buffer, key: string): ByteRange[] {
  const walker = new JsonWalker(json);
  const cuts: ByteRange[] = [];
  let at = walker.skipSpace(0);
  if (json[at] !== JSON_BYTE.OPEN_OBJECT) return [];
  at = walker.skipSpace(at + 1);
  let kept = 0;
  let endOfKept = 0;
  while (json[at] === JSON_BYTE.QUOTE) {
    const keyEnd = walker.skipString(at);
    const valueAt = keyEnd < 0 ? -1 : walker.skipColon(keyEnd);
    const valueEnd = valueAt < 0 ? -1 : walker.skipValue(valueAt, 1);
    if (valueEnd < 0) return [];
    const next = walker.skipSpace(valueEnd);
    const last = json[next] !== JSON_BYTE.COMMA;
    const after = last ? next : walker.skipSpace(next + 1);
    if (!isKey(json, at, keyEnd, key)) {
      kept++;
      endOfKept = valueEnd;
    } else if (!last) cuts.push({ from: at, to: after });
    // The last member takes the comma before it along, and what was cut since the last kept one.
    else cuts.push({ from: kept > 0 ? endOfKept : at, to: valueEnd });
    at = after;
  }
  const isObject = json[at] === JSON_BYTE.CLOSE_OBJECT && walker.skipSpace(at + 1) === json.length;
  return isObject ? withoutOverlaps(cuts) : [];
}

function isKey(json: Buffer, from: number, to: number, key: string): boolean {
  const text = json.toString('latin1', from, to);
  if (!text.includes('\\')) return to - from === key.length + 2 && text.slice(1, -1) === key;
  try {
    return JSON.parse(text) === key;
  } catch {
    return false;
  }
}

function withoutOverlaps(cuts: ByteRange[]): ByteRange[] {
  const last = cuts.at(-1);
  if (last === undefined) return cuts;
  return [...cuts.filter((cut) => cut.to <= last.from), last];
}

function insertion(at: number, text: string): ByteEdit {
  return { range: { from: at, to: at }, bytes: Buffer.from(text) };
}
