/**
 * What the bytes so far are: `canonical`, the beginning of something that may still become it (`more`), or anything
 * `other`, right or wrong, which this reader does not judge.
 */
export type CanonicalVerdict = 'canonical' | 'more' | 'other';

/** Bytes of a canonical head; real SDKs send less than two thousand. */
export const CANONICAL_HEAD_MAX_BYTES = 8 * 1024;
/** Longest canonical body, as announced. Larger ones cost so much by themselves that who reads their head is no matter. */
export const CANONICAL_BODY_MAX_BYTES = 1024 * 1024;

/** The only method there is, with the blank behind it. */
const METHOD = Buffer.from('POST ');
const VERSION = Buffer.from('HTTP/1.1\r\n');

const CR = 13;
const LF = 10;
const SPACE = 32;
const DEL = 127;
const ZERO = 48;
const COLON = 58;
const QUESTION = 63;

/** Token characters in lower case by byte; 0 for what no header name may hold. */
const NAME = new Uint8Array(256);
for (const char of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
  NAME[char.charCodeAt(0)] = char.toLowerCase().charCodeAt(0);
}
/** Characters of a path and a query that need no second thought. */
const TARGET = new Uint8Array(256);
for (const char of "!$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~") {
  TARGET[char.charCodeAt(0)] = 1;
}

/**
 * Header lines that say how the request or the connection is to be read. Whatever has one of them, beyond what is taken
 * here, is for a parser that knows them all.
 */
const OTHERS = ['transfer-encoding', 'expect', 'upgrade', 'proxy-connection', 'te', 'trailer'];

/** A name that is looked for. */
interface KnownName {
  readonly text: string;
  readonly bytes: Uint8Array;
  readonly kind: 'host' | 'content-length' | 'connection' | 'other' | 'plain';
}

/**
 * Recognises requests in the one form that nearly all clients send and no two parsers read differently: POST of a known
 * path, HTTP/1.1, one Host, one Content-Length, printable ASCII, lines that end in CRLF, nothing about codings, upgrades
 * or expectations. It accepts less than HTTP allows, and never what node's parser refuses or reads otherwise; a test
 * compares the two.
 *
 * What it found is valid until the next `read`, and the texts only while the bytes that were read are as they were.
 */
export class CanonicalReader {
  /** The path, one of those given. */
  path = '';
  /** `?…` as sent, or empty. */
  query = '';
  /** Length of the body, bytes; at least 1. */
  contentLength = 0;
  /** The client does not ask for the connection's end. */
  keepAlive = true;
  /** Index after the head's last byte. */
  bodyFrom = 0;
  /** Header lines with a name that was asked for, in the order sent. */
  count = 0;
  private bytes: Buffer = NOTHING;
  private readonly names: string[] = [];
  private readonly starts: number[] = [];
  private readonly ends: number[] = [];
  private readonly known: (readonly KnownName[] | undefined)[] = [];
  private readonly paths: ReadonlyMap<string, string>;
  private hosts = 0;
  private lengths = 0;
  private connections = 0;

  /**
   * @param paths which are served
   * @param wanted names of the header lines that are asked for, in lower case
   * @param maxLines header lines of a request
   */
  constructor(
    paths: readonly string[],
    wanted: readonly string[],
    private readonly maxLines: number,
  ) {
    this.paths = new Map(paths.map((path) => [path, path]));
    const names = new Set([...wanted, ...OTHERS, 'host', 'content-length', 'connection']);
    for (const text of names) (this.known[text.length] as KnownName[] | undefined) ??= [];
    for (const text of names) {
      (this.known[text.length] as KnownName[]).push({ text, bytes: Buffer.from(text), kind: kindOf(text) });
    }
  }

  /** Looks at `bytes[from..to)`, the first of which begins a request. */
  read(bytes: Buffer, from: number, to: number): CanonicalVerdict {
    this.bytes = bytes;
    this.count = this.hosts = this.lengths = this.connections = 0;
    this.keepAlive = true;
    const end = Math.min(to, from + CANONICAL_HEAD_MAX_BYTES);
    const at = this.requestLine(bytes, from, end);
    const verdict = typeof at === 'number' ? this.headerLines(bytes, at, end) : at;
    return verdict === 'more' && end < to ? 'other' : verdict;
  }

  /** Name of line `i`, in lower case. */
  name(i: number): string {
    return this.names[i] as string;
  }

  /** Its value, without blanks round it. */
  value(i: number): string {
    return this.bytes.toString('latin1', this.starts[i], this.ends[i]);
  }

  /** Index of the first header line, or why there is none. */
  private requestLine(bytes: Buffer, from: number, end: number): number | 'more' | 'other' {
    const targetFrom = matches(bytes, from, end, METHOD);
    if (typeof targetFrom !== 'number') return targetFrom;
    let at = targetFrom;
    let queryFrom = 0;
    while (at < end && TARGET[bytes[at] as number] === 1) {
      if (queryFrom === 0 && bytes[at] === QUESTION) queryFrom = at;
      at++;
    }
    if (at === end) return 'more';
    if (bytes[at] !== SPACE) return 'other';
    const path = this.paths.get(bytes.toString('latin1', targetFrom, queryFrom === 0 ? at : queryFrom));
    if (path === undefined) return 'other';
    this.path = path;
    this.query = queryFrom === 0 ? '' : bytes.toString('latin1', queryFrom, at);
    return matches(bytes, at + 1, end, VERSION);
  }

  private headerLines(bytes: Buffer, from: number, end: number): CanonicalVerdict {
    let at = from;
    for (let lines = 0; ; lines++) {
      if (at >= end) return 'more';
      if (bytes[at] === CR) return this.headEnd(bytes, at, end);
      if (lines === this.maxLines) return 'other';
      const nameFrom = at;
      while (at < end && NAME[bytes[at] as number] !== 0) at++;
      if (at === end) return 'more';
      if (bytes[at] !== COLON || at === nameFrom) return 'other';
      const nameTo = at++;
      while (at < end && bytes[at] === SPACE) at++;
      const valueFrom = at;
      while (at < end && (bytes[at] as number) >= SPACE && (bytes[at] as number) < DEL) at++;
      if (at + 1 >= end) return at === end || bytes[at] === CR ? 'more' : 'other';
      if (bytes[at] !== CR || bytes[at + 1] !== LF) return 'other';
      let valueTo = at;
      while (valueTo > valueFrom && bytes[valueTo - 1] === SPACE) valueTo--;
      if (!this.takeLine(bytes, nameFrom, nameTo, valueFrom, valueTo)) return 'other';
      at += 2;
    }
  }

  private headEnd(bytes: Buffer, at: number, end: number): CanonicalVerdict {
    if (at + 1 === end) return 'more';
    if (bytes[at + 1] !== LF || this.hosts !== 1 || this.lengths !== 1) return 'other';
    this.bodyFrom = at + 2;
    return 'canonical';
  }

  /** False for a line that makes the request another parser's. */
  private takeLine(
    bytes: Buffer,
    nameFrom: number,
    nameTo: number,
    valueFrom: number,
    valueTo: number,
  ): boolean {
    const known = this.find(bytes, nameFrom, nameTo);
    if (known === undefined) return true;
    switch (known.kind) {
      case 'other':
        return false;
      case 'host':
        return ++this.hosts === 1 && valueTo > valueFrom;
      case 'content-length':
        return ++this.lengths === 1 && this.takeLength(bytes, valueFrom, valueTo);
      case 'connection':
        return ++this.connections === 1 && this.takeConnection(bytes, valueFrom, valueTo);
      case 'plain':
        this.names[this.count] = known.text;
        this.starts[this.count] = valueFrom;
        this.ends[this.count++] = valueTo;
        return true;
    }
  }

  private find(bytes: Buffer, from: number, to: number): KnownName | undefined {
    const candidates = this.known[to - from];
    if (candidates === undefined) return undefined;
    for (const candidate of candidates) if (isName(bytes, from, candidate.bytes)) return candidate;
    return undefined;
  }

  private takeLength(bytes: Buffer, from: number, to: number): boolean {
    if (to === from || to - from > 7 || bytes[from] === ZERO) return false;
    let length = 0;
    for (let at = from; at < to; at++) {
      const digit = (bytes[at] as number) - ZERO;
      if (digit < 0 || digit > 9) return false;
      length = length * 10 + digit;
    }
    this.contentLength = length;
    return length <= CANONICAL_BODY_MAX_BYTES;
  }

  private takeConnection(bytes: Buffer, from: number, to: number): boolean {
    this.keepAlive = to - from === KEEP_ALIVE.length && isName(bytes, from, KEEP_ALIVE);
    return this.keepAlive || (to - from === CLOSE.length && isName(bytes, from, CLOSE));
  }
}

const NOTHING = Buffer.alloc(0);
const KEEP_ALIVE = Buffer.from('keep-alive');
const CLOSE = Buffer.from('close');

function kindOf(name: string): KnownName['kind'] {
  switch (name) {
    case 'host':
    case 'content-length':
    case 'connection':
      return name;
    default:
      return OTHERS.includes(name) ? 'other' : 'plain';
  }
}

/** Index after `expected`, if that is what stands at `from`. */
function matches(bytes: Buffer, from: number, end: number, expected: Buffer): number | 'more' | 'other' {
  for (let i = 0; i < expected.length; i++) {
    if (from + i >= end) return 'more';
    if (bytes[from + i] !== expected[i]) return 'other';
  }
  return from + expected.length;
}

/** Whether the token characters at `from` are `name`, in whatever case. */
function isName(bytes: Buffer, from: number, name: Uint8Array): boolean {
  for (let i = 0; i < name.length; i++) if (NAME[bytes[from + i] as number] !== name[i]) return false;
  return true;
}
