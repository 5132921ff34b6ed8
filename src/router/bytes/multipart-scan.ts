import { isUtf8 } from 'node:buffer';

import { MODEL_NAME_MAX_BYTES, type ByteRange } from './json-scan.js';
import { parseFormDisposition } from './multipart-headers.js';
import { applyEdits, type SplicedBody } from './splice.js';

/** Parts of one form; image edits send about twenty. */
export const PARTS_MAX = 128;

/** Bytes of the headers of one part. */
export const PART_HEADERS_MAX_BYTES = 8 * 1024;

/** RFC 2046 says 70; some libraries go a little beyond. */
export const BOUNDARY_MAX_BYTES = 200;

/** What a scan found in a form that can be routed. */
export interface ScannedForm {
  readonly ok: true;
  readonly model: string;
  /** The value's bytes. */
  readonly modelRange: ByteRange;
  /** True if a `stream` field says `true`; the engine's content-type has the last word. */
  readonly stream: boolean;
}

/** Why a form cannot be routed. `at` is a byte offset. */
export type FormProblem =
  | {
      readonly kind: 'invalid_multipart';
      readonly at: number;
      readonly detail:
        | 'bad_boundary'
        | 'no_parts'
        /** The body ends before the closing delimiter. */
        | 'unterminated'
        /** Text that begins like a delimiter and is none: some readers would take it for one. */
        | 'ambiguous_delimiter'
        | 'bad_part_headers'
        | 'part_headers_too_large'
        | 'too_many_parts';
    }
  | { readonly kind: 'missing_model' }
  | {
      readonly kind: 'invalid_model';
      readonly at: number;
      readonly detail: 'not_utf8' | 'empty' | 'too_long' | 'encoded';
    }
  | { readonly kind: 'duplicate_model'; readonly at: number };

export type FormScan = ScannedForm | { readonly ok: false; readonly problem: FormProblem };

/**
 * Finds the `model` field of a complete multipart/form-data body, wherever it stands among the files, which are only
 * searched for the delimiter. Parts with a file name are files whatever they are called. Strict where readers of such
 * bodies are known to differ: what is authorised here must be what the engine reads.
 *
 * @param contentType the request's content-type header; its media type is the caller's business
 */
export function scanForm(body: Buffer, contentType: string): FormScan {
  const boundary = boundaryOf(contentType);
  if (boundary === undefined) return invalid('bad_boundary', 0);
  return new FormScanner(body, boundary).scan();
}

/** The form with another model name; everything else leaves byte for byte. */
export function spliceForm(body: Buffer, scan: ScannedForm, model: string): SplicedBody {
  if (model === scan.model) return applyEdits(body, []);
  // A line break could begin a delimiter. Names come from the configuration, so this is its fault, not a request's.
  if (/[\r\n]/.test(model)) throw new Error('a model name with a line break cannot be sent in a form');
  return applyEdits(body, [{ range: scan.modelRange, bytes: Buffer.from(model) }]);
}

/** The boundary parameter of a content-type, undefined if it is missing, doubled or unfit. */
export function boundaryOf(contentType: string): string | undefined {
  const found: string[] = [];
  for (const match of contentType.matchAll(PARAMETER)) {
    if (match[1]?.toLowerCase() === 'boundary')
      found.push(match[3] ?? match[2]?.replace(/\\(.)/g, '$1') ?? '');
  }
  const [boundary] = found;
  if (found.length !== 1 || boundary === undefined || boundary.length > BOUNDARY_MAX_BYTES) return undefined;
  return /^[ -~]*[!-~]$/.test(boundary) ? boundary : undefined;
}

/** `; name=token` or `; name="quoted"`. */
const PARAMETER = /;[ \t]*([^\s=;"]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))/g;

class FormScanner {
  readonly #body: Buffer;
  /** CR LF -- boundary. */
  readonly #delimiter: Buffer;
  #model: ByteRange | undefined;
  #stream = false;

  constructor(body: Buffer, boundary: string) {
    this.#body = body;
    this.#delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1');
  }

  scan(): FormScan {
    let at = this.#firstDelimiterEnd();
    if (at < 0) return invalid('no_parts', 0);
    for (let parts = 0; ; parts++) {
      if (this.#body[at] === DASH && this.#body[at + 1] === DASH) return this.#result();
      if (parts === PARTS_MAX) return invalid('too_many_parts', at);
      const headersFrom = this.#lineAfterDelimiter(at);
      if (headersFrom < 0) return invalid('ambiguous_delimiter', at);
      const headersTo = this.#body.indexOf('\r\n\r\n', headersFrom - 2, 'latin1');
      if (headersTo < 0) return invalid('unterminated', headersFrom);
      if (headersTo - headersFrom > PART_HEADERS_MAX_BYTES)
        return invalid('part_headers_too_large', headersFrom);
      const from = headersTo + 4;
      // The blank line may already be the delimiter's: a part that ends with its headers.
      const to = this.#body.indexOf(this.#delimiter, headersTo + 2);
      if (to < 0) return invalid('unterminated', from);
      const problem = this.#part(headersFrom, headersTo, { from, to: Math.max(from, to) });
      if (problem !== undefined) return { ok: false, problem };
      at = to + this.#delimiter.length;
    }
  }

  /** Index after the first delimiter, before which a preamble may stand; -1 if there is none. */
  #firstDelimiterEnd(): number {
    const length = this.#delimiter.length;
    if (this.#body.subarray(0, length - 2).equals(this.#delimiter.subarray(2))) return length - 2;
    const at = this.#body.indexOf(this.#delimiter);
    return at < 0 ? -1 : at + length;
  }

  /** Index after the line of a delimiter that ended at `at`, -1 if more than blanks stands on it. */
  #lineAfterDelimiter(at: number): number {
    let end = at;
    while (this.#body[end] === SPACE || this.#body[end] === TAB) end++;
    return this.#body[end] === CR && this.#body[end + 1] === LF ? end + 2 : -1;
  }

  #part(headersFrom: number, headersTo: number, value: ByteRange): FormProblem | undefined {
    const text = this.#body.toString('latin1', headersFrom, Math.max(headersFrom, headersTo));
    const disposition = parseFormDisposition(text);
    if (disposition === undefined)
      return { kind: 'invalid_multipart', at: headersFrom, detail: 'bad_part_headers' };
    if (disposition.isFile) return undefined;
    if (disposition.name === 'stream') this.#stream = this.#text(value) === 'true';
    if (disposition.name !== 'model') return undefined;
    if (this.#model !== undefined) return { kind: 'duplicate_model', at: value.from };
    if (disposition.isEncoded) return { kind: 'invalid_model', at: value.from, detail: 'encoded' };
    this.#model = value;
    return undefined;
  }

  #result(): FormScan {
    const range = this.#model;
    if (range === undefined) return { ok: false, problem: { kind: 'missing_model' } };
    const at = range.from;
    if (range.to === at) return { ok: false, problem: { kind: 'invalid_model', at, detail: 'empty' } };
    if (range.to - at > MODEL_NAME_MAX_BYTES)
      return { ok: false, problem: { kind: 'invalid_model', at, detail: 'too_long' } };
    if (!isUtf8(this.#body.subarray(at, range.to)))
      return { ok: false, problem: { kind: 'invalid_model', at, detail: 'not_utf8' } };
    return { ok: true, model: this.#text(range), modelRange: range, stream: this.#stream };
  }

  #text(range: ByteRange): string {
    return this.#body.toString('utf8', range.from, Math.min(range.to, range.from + MODEL_NAME_MAX_BYTES));
  }
}

const CR = 13;
const LF = 10;
const TAB = 9;
const SPACE = 32;
const DASH = 45;

function invalid(
  detail: Extract<FormProblem, { kind: 'invalid_multipart' }>['detail'],
  at: number,
): FormScan {
  return { ok: false, problem: { kind: 'invalid_multipart', at, detail } };
}
