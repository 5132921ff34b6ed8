/** A request as it stood on the wire, with the body complete. */
export interface Http1Request {
  readonly method: string;
  /** Path and query exactly as sent. */
  readonly target: string;
  readonly version: '1.0' | '1.1';
  /** Values by lower-case name; a repeated header is joined with `, `. */
  readonly headers: ReadonlyMap<string, string>;
  /** Name and value of each header line, in the order and case they were sent. */
  readonly headerLines: readonly (readonly [name: string, value: string])[];
  /** The head's bytes, the empty line included. */
  readonly head: Buffer;
  /** The body without its transfer coding. */
  readonly body: Buffer;
}

/** The peer broke the protocol; `status` is what to answer before closing. */
export class Http1ReadError extends Error {
  constructor(
    readonly status: 400 | 413 | 431,
    message: string,
  ) {
    super(message);
    this.name = 'Http1ReadError';
  }
}

export interface ReaderLimits {
  /** Longest request head, bytes. */
  readonly maxHeadBytes: number;
  /** Longest request body, bytes. */
  readonly maxBodyBytes: number;
}

const DEFAULT_LIMITS: ReaderLimits = { maxHeadBytes: 64 * 1024, maxBodyBytes: 256 * 1024 * 1024 };

/** Longest line that announces a chunk; extensions are allowed but nobody needs long ones. */
const MAX_CHUNK_LINE_BYTES = 1024;

const EMPTY = Buffer.alloc(0);
const HEAD_END = Buffer.from('\r\n\r\n');

type State = 'head' | 'length' | 'chunk-size' | 'chunk-data' | 'chunk-end' | 'trailers';

type Head = Omit<Http1Request, 'body'>;

/**
 * Reads HTTP/1.x requests from bytes that arrive in any pieces.
 *
 * Written instead of `node:http` because a simulated engine has to own every byte it answers with: half an event, a wrong
 * length, a reset between two bytes. It stands on loopback behind a gateway, so it is strict about framing and short about the rest.
 */
export class RequestReader {
  /** Called when a head asks for `100 Continue` and its body is not here yet. */
  onExpectContinue: (() => void) | undefined;

  private state: State = 'head';
  private pending: Buffer = EMPTY;
  private current: Head | undefined;
  private parts: Buffer[] = [];
  private bodyBytes = 0;
  /** Bytes still to come of the body or of the current chunk. */
  private missing = 0;
  private readonly limits: ReaderLimits;

  constructor(limits: Partial<ReaderLimits> = {}) {
    this.limits = { ...DEFAULT_LIMITS, ...limits };
  }

  /** True between requests with nothing half-read: the peer may close here without harm. */
  get idle(): boolean {
    return this.state === 'head' && this.pending.length === 0;
  }

  /** Takes bytes from the socket. Call `next()` until it gives `undefined`. */
  push(bytes: Buffer): void {
    this.pending = this.pending.length === 0 ? bytes : Buffer.concat([this.pending, bytes]);
  }

  /** The next complete request, or `undefined` while more bytes are needed. Throws `Http1ReadError`. */
  next(): Http1Request | undefined {
    for (;;) {
      switch (this.state) {
        case 'head':
          if (!this.readHead()) return undefined;
          break;
        case 'length':
        case 'chunk-data':
          this.takeBody();
          if (this.missing > 0) return undefined;
          if (this.state === 'length') return this.finish();
          this.state = 'chunk-end';
          break;
        case 'chunk-end':
          if (!this.readChunkEnd()) return undefined;
          break;
        case 'chunk-size':
          if (!this.readChunkSize()) return undefined;
          break;
        case 'trailers': {
          const line = this.readLine(this.limits.maxHeadBytes);
          if (line === undefined) return undefined;
          if (line === '') return this.finish();
          break;
        }
      }
    }
  }

  private readHead(): boolean {
    // Stray line breaks between requests are allowed by the protocol and sent by some old clients.
    let start = 0;
    while (this.pending[start] === 13 || this.pending[start] === 10) start++;
    if (start > 0) this.pending = this.pending.subarray(start);
    const end = this.pending.indexOf(HEAD_END);
    const size = end < 0 ? this.pending.length : end + HEAD_END.length;
    if (size > this.limits.maxHeadBytes) throw new Http1ReadError(431, 'request head is too large');
    if (end < 0) return false;
    const head = parseHead(this.pending.subarray(0, size));
    this.pending = this.pending.subarray(size);
    this.current = head;
    this.startBody(head);
    return true;
  }

  private startBody(head: Head): void {
    const coding = head.headers.get('transfer-encoding');
    const length = head.headers.get('content-length');
    if (coding !== undefined) {
      if (coding.toLowerCase() !== 'chunked')
        throw new Http1ReadError(400, `unknown transfer coding: ${coding}`);
      // Two framings at once is how requests get smuggled; an engine has no reason to be generous here.
      if (length !== undefined)
        throw new Http1ReadError(400, 'both content-length and transfer-encoding are given');
      this.state = 'chunk-size';
    } else {
      if (length !== undefined && !/^\d{1,15}$/.test(length))
        throw new Http1ReadError(400, 'content-length is no number');
      this.missing = Number(length ?? 0);
      if (this.missing > this.limits.maxBodyBytes) throw new Http1ReadError(413, 'request body is too large');
      this.state = 'length';
    }
    const waits = head.headers.get('expect')?.toLowerCase() === '100-continue';
    if (waits && this.pending.length === 0 && (this.missing > 0 || this.state === 'chunk-size')) {
      this.onExpectContinue?.();
    }
  }

  private takeBody(): void {
    if (this.missing === 0) return;
    const part = this.pending.subarray(0, this.missing);
    this.pending = this.pending.length === part.length ? EMPTY : this.pending.subarray(part.length);
    if (part.length === 0) return;
    this.parts.push(part);
    this.bodyBytes += part.length;
    this.missing -= part.length;
  }

  private readChunkSize(): boolean {
    const line = this.readLine(MAX_CHUNK_LINE_BYTES);
    if (line === undefined) return false;
    const digits = /^([0-9a-fA-F]{1,8})[ \t]*(?:;.*)?$/.exec(line)?.[1];
    if (digits === undefined) throw new Http1ReadError(400, 'chunk size is no number');
    this.missing = parseInt(digits, 16);
    if (this.bodyBytes + this.missing > this.limits.maxBodyBytes)
      throw new Http1ReadError(413, 'request body is too large');
    this.state = this.missing === 0 ? 'trailers' : 'chunk-data';
    return true;
  }

  private readChunkEnd(): boolean {
    if (this.pending.length < 2) return false;
    if (this.pending[0] !== 13 || this.pending[1] !== 10) throw new Http1ReadError(400, 'chunk does not end');
    this.pending = this.pending.subarray(2);
    this.state = 'chunk-size';
    return true;
  }

  private readLine(maxBytes: number): string | undefined {
    const end = this.pending.indexOf('\r\n');
    if ((end < 0 ? this.pending.length : end) > maxBytes) throw new Http1ReadError(400, 'line is too long');
    if (end < 0) return undefined;
    const line = this.pending.toString('latin1', 0, end);
    this.pending = this.pending.subarray(end + 2);
    return line;
  }

  private finish(): Http1Request {
    const head = this.current;
    if (head === undefined) throw new Error('a body ended without a head');
    const [first] = this.parts;
    const body = this.parts.length === 1 && first !== undefined ? first : Buffer.concat(this.parts);
    this.current = undefined;
    this.parts = [];
    this.bodyBytes = 0;
    this.state = 'head';
    return { ...head, body };
  }
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP\/1\.([01])$/;

function parseHead(bytes: Buffer): Head {
  const lines = bytes.toString('latin1', 0, bytes.length - HEAD_END.length).split('\r\n');
  const request = REQUEST_LINE.exec(lines[0] ?? '');
  const [, method, target, minor] = request ?? [];
  if (method === undefined || target === undefined)
    throw new Http1ReadError(400, 'request line is malformed');
  const headers = new Map<string, string>();
  const headerLines: (readonly [string, string])[] = [];
  for (let i = 1; i < lines.length; i++) {
    const line = lines[i] ?? '';
    const colon = line.indexOf(':');
    if (colon < 1 || /[\s]/.test(line.slice(0, colon)))
      throw new Http1ReadError(400, 'header line is malformed');
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).trim();
    headerLines.push([name, value]);
    const key = name.toLowerCase();
    const before = headers.get(key);
    if (before !== undefined && key === 'content-length' && before !== value)
      throw new Http1ReadError(400, 'content-length is given twice');
    headers.set(
      key,
      before === undefined || key === 'content-length'
        ? value
        : `${before}${key === 'cookie' ? '; ' : ', '}${value}`,
    );
  }
  return { method, target, version: minor === '0' ? '1.0' : '1.1', headers, headerLines, head: bytes };
}
