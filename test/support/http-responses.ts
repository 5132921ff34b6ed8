/** A response as it was found in received bytes; `complete` is false when the bytes end before it does. */
export interface ParsedResponse {
  readonly status: number;
  readonly reason: string;
  readonly version: string;
  /** Name and value of each header line, in the order and case they were sent. */
  readonly headerLines: readonly (readonly [name: string, value: string])[];
  /** Values by lower-case name; repeated ones are joined with `, `. */
  readonly headers: ReadonlyMap<string, string>;
  readonly head: Buffer;
  /** The body without its transfer coding. */
  readonly body: Buffer;
  /** The body's chunks, when it came chunked. */
  readonly chunks: readonly Buffer[];
  readonly framing: 'length' | 'chunked' | 'close' | 'none';
  readonly complete: boolean;
  /** Where the next response starts in the bytes given. */
  readonly endOffset: number;
}

export interface ParseOptions {
  /** The request was a HEAD: a length is announced, no body follows. */
  readonly head?: boolean;
  /** The connection has ended: a body framed by the close is complete. */
  readonly closed?: boolean;
}

/** Every response in `bytes`, interim (1xx) ones included; the last may be incomplete. Throws on bytes that are no HTTP. */
export function parseResponses(bytes: Buffer, options: ParseOptions = {}): ParsedResponse[] {
  const found: ParsedResponse[] = [];
  let offset = 0;
  while (offset < bytes.length) {
    const response = parseOne(bytes, offset, options);
    if (response === undefined) break;
    found.push(response);
    if (!response.complete) break;
    offset = response.endOffset;
  }
  return found;
}

function parseOne(bytes: Buffer, offset: number, options: ParseOptions): ParsedResponse | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n', offset);
  if (headEnd < 0) return undefined;
  const bodyStart = headEnd + 4;
  const lines = bytes.toString('latin1', offset, headEnd).split('\r\n');
  const start = /^HTTP\/(\d\.\d) (\d{3})(?: (.*))?$/.exec(lines[0] ?? '');
  if (start === null) throw new Error(`no status line: ${JSON.stringify(lines[0])}`);
  const headerLines = lines.slice(1).map((line): readonly [string, string] => {
    const colon = line.indexOf(':');
    if (colon < 1) throw new Error(`no header line: ${JSON.stringify(line)}`);
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  const headers = new Map<string, string>();
  for (const [name, value] of headerLines) {
    const before = headers.get(name.toLowerCase());
    headers.set(name.toLowerCase(), before === undefined ? value : `${before}, ${value}`);
  }
  const status = Number(start[2]);
  return {
    status,
    reason: start[3] ?? '',
    version: start[1] ?? '',
    headerLines,
    headers,
    head: bytes.subarray(offset, bodyStart),
    ...readBody(bytes, bodyStart, status, headers, options),
  };
}

type Body = Pick<ParsedResponse, 'body' | 'chunks' | 'framing' | 'complete' | 'endOffset'>;

function readBody(
  bytes: Buffer,
  start: number,
  status: number,
  headers: ReadonlyMap<string, string>,
  options: ParseOptions,
): Body {
  if (status < 200 || status === 204 || status === 304 || options.head === true) {
    return { body: Buffer.alloc(0), chunks: [], framing: 'none', complete: true, endOffset: start };
  }
  if (headers.get('transfer-encoding')?.toLowerCase() === 'chunked') return readChunks(bytes, start);
  const length = headers.get('content-length');
  const end = length === undefined ? bytes.length : start + Number(length);
  return {
    body: bytes.subarray(start, end),
    chunks: [],
    framing: length === undefined ? 'close' : 'length',
    complete: length === undefined ? options.closed === true : end <= bytes.length,
    endOffset: Math.min(end, bytes.length),
  };
}

function readChunks(bytes: Buffer, start: number): Body {
  const chunks: Buffer[] = [];
  let offset = start;
  const result = (complete: boolean): Body => ({
    body: Buffer.concat(chunks),
    chunks,
    framing: 'chunked',
    complete,
    endOffset: complete ? offset : bytes.length,
  });
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', offset);
    if (lineEnd < 0) return result(false);
    const line = bytes.toString('latin1', offset, lineEnd);
    if (!/^[0-9a-fA-F]+(?:;.*)?$/.test(line)) throw new Error(`no chunk size: ${JSON.stringify(line)}`);
    const size = parseInt(line, 16);
    offset = lineEnd + 2;
    if (size === 0) break;
    chunks.push(bytes.subarray(offset, Math.min(offset + size, bytes.length)));
    if (offset + size + 2 > bytes.length) return result(false);
    if (bytes.toString('latin1', offset + size, offset + size + 2) !== '\r\n')
      throw new Error('chunk does not end');
    offset += size + 2;
  }
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', offset);
    if (lineEnd < 0) return result(false);
    const empty = lineEnd === offset;
    offset = lineEnd + 2;
    if (empty) return result(true);
  }
}

/** The `data:` payloads of an event stream's complete events, comments left out. */
export function eventData(body: Buffer | string): string[] {
  return body
    .toString()
    .split('\n\n')
    .slice(0, -1)
    .flatMap((event) => {
      const lines = event.split('\n').filter((line) => line.startsWith('data:'));
      return lines.length === 0 ? [] : [lines.map((line) => line.slice(5).replace(/^ /, '')).join('\n')];
    });
}
