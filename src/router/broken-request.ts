import { STATUS_CODES } from 'node:http';
import { API_ERRORS } from '../shared/errors.js';
import { dialectOf, type GatewayError } from './dialects.js';
import { ALL_METHODS, matchRoute, type DialectName } from './routes.js';

/** Bytes of a request's head; node's parser reports more as an overflow. */
export const HEAD_MAX_BYTES = 16 * 1024;

/** What node's parser says of bytes it did not take for a request. */
export interface ParserError extends NodeJS.ErrnoException {
  /** The read in which it happened. */
  readonly rawPacket?: Buffer;
  /** How far into it the parser came. */
  readonly bytesParsed?: number;
  /** What it missed, in words of its own. */
  readonly reason?: string;
}

/** What is answered where no request object exists to answer with. */
export interface Refusal {
  readonly error: GatewayError;
  readonly dialect: DialectName;
  /** With `method_not_allowed`. */
  readonly allow?: string | undefined;
  /** As the client gave it, where that could be seen. */
  readonly requestId?: string | undefined;
}

const refusal = (code: 'bad_request' | 'header_fields_too_large', message: string): Refusal => ({
  error: { code, message },
  dialect: 'openai',
});

const BROKEN = refusal('bad_request', 'the request is not valid HTTP/1.1');
const TOO_LARGE = refusal(
  'header_fields_too_large',
  `the request head is larger than ${HEAD_MAX_BYTES / 1024} KiB`,
);
const TOO_SLOW = refusal('bad_request', 'the request head did not arrive in time');

const notAllowed = (allow: string, dialect: DialectName): Refusal => ({
  error: { code: 'method_not_allowed', message: `this path takes ${allow}` },
  dialect,
  allow,
});

/** CONNECT asks for a tunnel; there is none, whatever the target. */
export const NO_TUNNEL: Refusal = notAllowed(ALL_METHODS, 'openai');

/** A request that could not be read because of what stands in its credential, as far as the last read shows it. */
export interface UnreadableCredential {
  readonly dialect: DialectName;
  /** As the client gave it, if it did and it can be seen. */
  readonly requestId: string | undefined;
}

/**
 * Whether the parser stopped in the value of a credential, on a path that asks for one: then the credential is wrong like
 * any other, and how it is wrong is nobody's business. A line whose beginning came in an earlier read may be one.
 */
export function unreadableCredential(error: ParserError): UnreadableCredential | undefined {
  const { rawPacket, bytesParsed = 0, reason = '' } = error;
  if (rawPacket === undefined) return undefined;
  const read = rawPacket.toString('latin1', 0, bytesParsed).replace(/[\r\n]+$/, '');
  const lineFrom = read.lastIndexOf('\n') + 1;
  const known = lineFrom > 0;
  if (known ? !CREDENTIAL_LINE.test(read.slice(lineFrom)) : !reason.includes('header value'))
    return undefined;
  const headFrom = read.lastIndexOf('\r\n\r\n', lineFrom);
  const head = headFrom < 0 ? read : read.slice(headFrom + 4);
  const requestId = REQUEST_ID_LINE.exec(head)?.[1];
  const line = REQUEST_LINE.exec(head);
  if (line === null) return { dialect: 'openai', requestId };
  const match = matchRoute(line[1] as string, line[2] as string);
  switch (match.kind) {
    case 'engine':
      return { dialect: match.route.dialect, requestId };
    case 'models':
    case 'model':
      return { dialect: 'openai', requestId };
    case 'health':
    case 'preflight':
    case 'methodNotAllowed':
    case 'notFound':
      return undefined;
  }
}

const CREDENTIAL_LINE = /^(?:authorization|x-api-key):/i;
const REQUEST_ID_LINE = /^x-request-id:[ \t]*([\x21-\x7e]{1,128})[ \t]*\r$/im;

/** The answer to bytes that are no request. */
export function refusalOf(error: ParserError): Refusal {
  switch (error.code) {
    case 'HPE_HEADER_OVERFLOW':
      return TOO_LARGE;
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return TOO_SLOW;
    case 'HPE_INVALID_METHOD':
      return unknownMethod(error);
    case undefined:
    default:
      return BROKEN;
  }
}

/** A method that is unknown to node is no worse than one that is unknown here: what counts is which the path takes. */
function unknownMethod({ rawPacket, bytesParsed = 0 }: ParserError): Refusal {
  if (rawPacket === undefined) return BROKEN;
  const text = rawPacket.toString('latin1', 0, bytesParsed + HEAD_MAX_BYTES);
  let from = bytesParsed;
  while (from > 0 && TOKEN_CHAR.test(text[from - 1] as string)) from -= 1;
  const line = text.slice(from);
  const whole = REQUEST_LINE.exec(line);
  if (whole === null) return METHOD_ALONE.test(line) ? NO_TUNNEL : BROKEN;
  const match = matchRoute(whole[1] as string, whole[2] as string);
  if (match.kind === 'methodNotAllowed') return notAllowed(match.allow, match.dialect);
  return {
    error: { code: 'not_found', message: 'this path is not part of the API' },
    dialect: 'openai',
  };
}

const TOKEN_CHAR = /[!#$%&'*+.^_`|~0-9A-Za-z-]/;
const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\/[^ ?]*)(?:\?[^ ]*)? HTTP\/1\.[01]\r\n/;
/** The rest of the line is still on its way; nobody waits for it. */
const METHOD_ALONE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+(?: [^\r\n]*)?$/;

/** The whole answer, after which the connection ends. */
export function refusalBytes({ error, dialect, allow }: Refusal, requestId: string): string {
  const { status } = API_ERRORS[error.code];
  const body = dialectOf(dialect).errorBody(error);
  return (
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n` +
    `x-request-id: ${requestId}\r\ncontent-type: application/json\r\n` +
    (status === 401 ? 'www-authenticate: Bearer\r\n' : '') +
    (allow === undefined ? '' : `allow: ${allow}\r\n`) +
    `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`
  );
}
