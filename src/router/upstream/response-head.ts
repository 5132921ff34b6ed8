/** Why a response was refused; the `problem` of an UpstreamError of kind `protocol_error`. */
export type ResponseProblem =
  | 'bad_status_line'
  | 'head_too_large'
  | 'too_many_headers'
  | 'bad_header_name'
  | 'bad_header_value'
  | 'bad_line_ending'
  | 'folded_header'
  | 'bad_content_length'
  | 'duplicate_content_length'
  | 'content_length_with_transfer_encoding'
  | 'unsupported_transfer_encoding'
  | 'too_many_interim_responses'
  | 'unexpected_upgrade'
  | 'bad_chunk_size'
  | 'bad_chunk_framing'
  | 'chunk_extension_too_long'
  | 'bad_trailer'
  | 'trailers_too_large';

/**
 * How the end of the payload is known: `none` there is no payload, `length` by content-length,
 * `chunked` by the last chunk, `close` by the end of the connection.
 */
export type ResponseFraming = 'none' | 'length' | 'chunked' | 'close';

/** Header lines of one response; engines send about ten. More is a fault or an attack, never a real engine. */
export const HEADERS_MAX = 128;

/** Digits of a content-length that are still exact as a JavaScript number. */
const CONTENT_LENGTH = /^[0-9]{1,15}$/;

/** Anything a header value may not hold: controls other than TAB (so also CR, LF and NUL) and DEL. */
// oxlint-disable-next-line no-control-regex
const BAD_VALUE = /[\0-\x08\x0a-\x1f\x7f]/;

/** The token characters of a header name, by char code. */
const TOKEN = new Uint8Array(256);
for (const char of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
  TOKEN[char.charCodeAt(0)] = 1;
}

const CR = 13;
const LF = 10;
const SPACE = 32;
const TAB = 9;
const COLON = 58;

/** The head of a final (not 1xx) response from an engine, already checked. */
export class UpstreamHead {
  /** 200..599. */
  status = 0;
  /** The reason phrase as sent; may be empty. */
  reason = '';
  /** 0 or 1: the minor version of HTTP/1.x. */
  minorVersion = 1;
  /** Name, value, name, value … in the order received; names in lower case, values trimmed, latin1. */
  readonly headers: string[] = [];
  /** Value of content-type, undefined when absent. The last one if sent twice. */
  contentType: string | undefined;
  /** The content-length as sent. Describes the payload only where `framing` is `length`. */
  contentLength: number | undefined;
  framing: ResponseFraming = 'close';
  /** True if the engine lets the connection serve another request after this one. */
  keepAlive = true;
  /** `Keep-Alive: timeout=N` in milliseconds, undefined when not announced. */
  keepAliveTimeoutMs: number | undefined;

  /** First value of a header (name in lower case), undefined when absent. */
  get(name: string): string | undefined {
    const headers = this.headers;
    for (let i = 0; i < headers.length; i += 2) if (headers[i] === name) return headers[i + 1];
    return undefined;
  }
}

/**
 * Parses a complete head: `text` is everything before the empty line, without the final CRLF CRLF, as latin1.
 * Stricter than most clients on purpose: an answer that two readers may read differently is refused,
 * since the bytes after it would be taken for the next client's answer.
 *
 * @param noBody true if the request was a HEAD, whose answer has no payload whatever its head says
 */
export function parseResponseHead(text: string, noBody: boolean): UpstreamHead | ResponseProblem {
  const head = new UpstreamHead();
  const statusEnd = lineEnd(text, 0);
  const statusProblem = statusEnd < 0 ? 'bad_line_ending' : readStatusLine(head, text, statusEnd);
  if (statusProblem !== undefined) return statusProblem;
  const lines = new FramingLines();
  for (let at = statusEnd + 2, count = 0; at < text.length; count++) {
    if (count === HEADERS_MAX) return 'too_many_headers';
    const first = text.charCodeAt(at);
    if (first === SPACE || first === TAB) return 'folded_header';
    const colon = nameEnd(text, at);
    if (colon === at || text.charCodeAt(colon) !== COLON) return 'bad_header_name';
    const end = lineEnd(text, colon + 1);
    if (end < 0) return 'bad_line_ending';
    const value = trimmed(text, colon + 1, end);
    if (BAD_VALUE.test(value)) return 'bad_header_value';
    const name = text.slice(at, colon).toLowerCase();
    head.headers.push(name, value);
    const problem = lines.note(head, name, value);
    if (problem !== undefined) return problem;
    at = end + 2;
  }
  return lines.decide(head, noBody) ?? head;
}

/** The header lines that say where the payload ends and whether the connection lives on. */
class FramingLines {
  #chunked = false;
  #close = false;
  #keepAlive = false;

  note(head: UpstreamHead, name: string, value: string): ResponseProblem | undefined {
    switch (name.length) {
      case 10:
        if (name === 'connection') this.#noteConnection(value);
        else if (name === 'keep-alive') noteKeepAlive(head, value);
        return undefined;
      case 12:
        if (name === 'content-type') head.contentType = value;
        return undefined;
      case 14:
        return name === 'content-length' ? noteContentLength(head, value) : undefined;
      case 17:
        return name === 'transfer-encoding' ? this.#noteTransferEncoding(value) : undefined;
      default:
        return undefined;
    }
  }

  decide(head: UpstreamHead, noBody: boolean): ResponseProblem | undefined {
    // A length together with chunks is the classic ground of response smuggling; HTTP/1.0 knows no chunks.
    if (this.#chunked && head.contentLength !== undefined) return 'content_length_with_transfer_encoding';
    if (this.#chunked && head.minorVersion === 0) return 'unsupported_transfer_encoding';
    const bodiless = noBody || head.status === 204 || head.status === 304;
    if (bodiless) head.framing = 'none';
    else if (this.#chunked) head.framing = 'chunked';
    else if (head.contentLength !== undefined) head.framing = head.contentLength === 0 ? 'none' : 'length';
    else head.framing = 'close';
    head.keepAlive = !this.#close && (head.minorVersion === 1 || this.#keepAlive);
    if (head.framing === 'close') head.keepAlive = false;
    // A 204 that announces a payload may send one all the same: nothing after it can be trusted.
    if (head.status === 204 && (this.#chunked || (head.contentLength ?? 0) > 0)) head.keepAlive = false;
    return undefined;
  }

  #noteConnection(value: string): void {
    if (value === 'keep-alive') this.#keepAlive = true;
    else if (value === 'close') this.#close = true;
    else {
      for (const token of value.toLowerCase().split(',')) {
        if (token.trim() === 'close') this.#close = true;
        else if (token.trim() === 'keep-alive') this.#keepAlive = true;
      }
    }
  }

  #noteTransferEncoding(value: string): ResponseProblem | undefined {
    // `gzip, chunked` or a second line would need a decoder nobody asked for: requests announce none.
    if (this.#chunked || value.toLowerCase() !== 'chunked') return 'unsupported_transfer_encoding';
    this.#chunked = true;
    return undefined;
  }
}

function noteContentLength(head: UpstreamHead, value: string): ResponseProblem | undefined {
  if (head.contentLength !== undefined) return 'duplicate_content_length';
  if (!CONTENT_LENGTH.test(value)) return 'bad_content_length';
  head.contentLength = Number(value);
  return undefined;
}

function noteKeepAlive(head: UpstreamHead, value: string): void {
  const seconds = /(?:^|[,\s])timeout\s*=\s*"?([0-9]{1,6})\b/i.exec(value)?.[1];
  if (seconds !== undefined) head.keepAliveTimeoutMs = Number(seconds) * 1000;
}

/** `HTTP/1.x SP 3DIGIT [SP reason]`. */
function readStatusLine(head: UpstreamHead, text: string, end: number): ResponseProblem | undefined {
  const minor = text.charCodeAt(7) - 48;
  if (!text.startsWith('HTTP/1.') || (minor !== 0 && minor !== 1)) return 'bad_status_line';
  if (text.charCodeAt(8) !== SPACE) return 'bad_status_line';
  const status = digit(text, 9) * 100 + digit(text, 10) * 10 + digit(text, 11);
  // 1xx has its own way (see isInterim); below 100 or above 599 no front can send it on.
  if (!(status >= 100 && status <= 599)) return 'bad_status_line';
  if (end > 12 && text.charCodeAt(12) !== SPACE) return 'bad_status_line';
  const reason = text.slice(13, end);
  if (end < 12 || BAD_VALUE.test(reason)) return 'bad_status_line';
  head.status = status;
  head.reason = reason;
  head.minorVersion = minor;
  return undefined;
}

function digit(text: string, at: number): number {
  const value = text.charCodeAt(at) - 48;
  return value >= 0 && value <= 9 ? value : Number.NaN;
}

function nameEnd(text: string, from: number): number {
  let at = from;
  while (TOKEN[text.charCodeAt(at)] === 1) at++;
  return at;
}

/** Index of the CR that ends the line, `text.length` for the last line, -1 if a CR or LF stands alone. */
function lineEnd(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === CR) return text.charCodeAt(at + 1) === LF ? at : -1;
    if (char === LF) return -1;
  }
  return text.length;
}

function trimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start++;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

function isBlank(char: number): boolean {
  return char === SPACE || char === TAB;
}
