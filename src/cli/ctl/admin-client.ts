/** Speaks to the admin API of a server and turns what can go wrong into errors with a next step. */
import type { ErrorView } from '../../admin-api/views/answers.js';
import { readFileSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { ADMIN_ERRORS, OperatorError, type AdminErrorCode } from '../../shared/errors.js';

export const DEFAULT_ADMIN_URL = 'http://127.0.0.1:8081';

/** An answer of the admin API is a page of text; more is not the admin API. */
const MAX_ANSWER_BYTES = 256 * 1024 * 1024;

/** A server that does not answer for this long is as good as gone; changes that wait are polled, not held open. */
export const DEFAULT_TIMEOUT_MS = 30_000;

export interface AdminTarget {
  readonly url: URL;
  readonly token?: string;
}

/** Reads `--server` and `--token-file`; a missing scheme is taken as http. */
export function adminTarget(server: string | undefined, tokenFile: string | undefined): AdminTarget {
  const text = server ?? DEFAULT_ADMIN_URL;
  const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`;
  const url = URL.canParse(full) ? new URL(full) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.username !== '') {
    throw new OperatorError(
      'invalid_argument',
      `--server: expected a URL such as ${DEFAULT_ADMIN_URL}, got "${text}"`,
    );
  }
  return tokenFile === undefined ? { url } : { url, token: readToken(tokenFile) };
}

function readToken(file: string): string {
  try {
    const token = readFileSync(file, 'utf8').trim();
    if (token !== '') return token;
  } catch (error) {
    throw new OperatorError('invalid_argument', `--token-file: ${file} cannot be read`, { cause: error });
  }
  throw new OperatorError('invalid_argument', `--token-file: ${file} is empty`);
}

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

export class AdminClient {
  constructor(
    private readonly target: AdminTarget,
    private readonly timeoutMs: number = DEFAULT_TIMEOUT_MS,
  ) {}

  get address(): string {
    return this.target.url.origin;
  }

  async get<T>(path: string, query: Query = {}): Promise<T> {
    return this.call<T>('GET', path, query);
  }

  async put<T>(path: string, body: unknown, query: Query = {}): Promise<T> {
    return this.call<T>('PUT', path, query, body);
  }

  async post<T>(path: string, body: unknown, query: Query = {}): Promise<T> {
    return this.call<T>('POST', path, query, body);
  }

  async delete<T>(path: string, query: Query = {}): Promise<T> {
    return this.call<T>('DELETE', path, query, {});
  }

  /**
   * Hands the bytes of a file to `write`, piece by piece. Gives the SHA-256 the server says they have, as hex;
   * undefined when it says none.
   */
  async download(path: string, write: (chunk: Buffer) => void): Promise<string | undefined> {
    const response = await this.open('GET', path, {}, undefined);
    if (response.statusCode !== 200) throw failureFrom(response, await readAll(response), this.address);
    try {
      for await (const chunk of response as AsyncIterable<Buffer>) write(chunk);
    } catch (error) {
      throw brokenOff(error, this.address);
    }
    const digest = /sha-256=:([^:]+):/.exec(String(response.headers['content-digest']))?.[1];
    return digest === undefined ? undefined : Buffer.from(digest, 'base64').toString('hex');
  }

  /** The data of each server-sent event (or, of a plain stream, each chunk of text) until the server ends it. */
  async *follow(path: string, query: Query = {}): AsyncGenerator<string> {
    const response = await this.open('GET', path, query, undefined);
    response.setEncoding('utf8');
    if (response.statusCode !== 200) throw failureFrom(response, await readAll(response), this.address);
    // Nothing may happen for hours: silence is no failure of what is followed.
    response.socket.setTimeout(0);
    try {
      yield* this.parts(response);
    } catch (error) {
      throw brokenOff(error, this.address);
    }
  }

  private async *parts(response: IncomingMessage): AsyncGenerator<string> {
    const events = String(response.headers['content-type']).startsWith('text/event-stream');
    let rest = '';
    for await (const chunk of response as AsyncIterable<string>) {
      if (!events) {
        yield chunk;
        continue;
      }
      const parts = (rest + chunk).split(/\r?\n\r?\n/);
      rest = parts.pop() ?? '';
      yield* parts.flatMap(eventData);
    }
  }

  private async call<T>(method: string, path: string, query: Query, body?: unknown): Promise<T> {
    const response = await this.open(method, path, query, body);
    // A server that is killed in the middle of an answer is as unreachable as one that is gone.
    const text = await readAll(response).catch((error: unknown) => {
      throw error instanceof OperatorError ? error : brokenOff(error, this.address);
    });
    if (response.statusCode === undefined || response.statusCode >= 300) {
      throw failureFrom(response, text, this.address);
    }
    return parseAnswer(text, this.address) as T;
  }

  private async open(method: string, path: string, query: Query, body: unknown): Promise<IncomingMessage> {
    const url = new URL(`${this.target.url.pathname.replace(/\/+$/, '')}/admin/v1/${path}`, this.target.url);
    for (const [key, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(key, String(value));
    }
    const request = url.protocol === 'https:' ? (await import('node:https')).request : httpRequest;
    const payload = body === undefined ? undefined : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const call = request(url, {
        method,
        timeout: this.timeoutMs,
        headers: {
          accept: 'application/json, text/event-stream',
          // Node announces no length for the body of a DELETE: the server would take it for the next request.
          ...(payload === undefined
            ? {}
            : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) }),
          ...(this.target.token === undefined ? {} : { authorization: `Bearer ${this.target.token}` }),
        },
      });
      call.on('response', resolve);
      call.on('timeout', () =>
        call.destroy(
          new OperatorError('timed_out', `${this.address} did not answer within ${this.timeoutMs} ms`, {
            hint: 'its log says what it does; --timeout waits longer',
          }),
        ),
      );
      call.on('error', (error) => reject(connectFailure(error, this.address)));
      call.end(payload);
    });
  }
}

async function readAll(response: IncomingMessage): Promise<string> {
  response.setEncoding('utf8');
  let text = '';
  for await (const chunk of response as AsyncIterable<string>) {
    text += chunk;
    if (text.length > MAX_ANSWER_BYTES) throw new OperatorError('internal_error', 'the answer is too large');
  }
  return text;
}

function eventData(event: string): string[] {
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith('data:'));
  return lines.length === 0 ? [] : [lines.map((line) => line.slice(5).trimStart()).join('\n')];
}

const brokenOff = (error: unknown, address: string): OperatorError =>
  new OperatorError('unreachable', `the connection to ${address} broke off`, { cause: error });

function connectFailure(error: NodeJS.ErrnoException, address: string): OperatorError {
  if (error instanceof OperatorError) return error;
  const code = error.code ?? '';
  const why = CONNECT_FAILURES[code] ?? error.message;
  return new OperatorError('unreachable', `cannot reach the server at ${address}: ${why}`, {
    hint: connectHint(code, address),
  });
}

/** What helps against a failed connection, by its code. */
function connectHint(code: string, address: string): string {
  const secure = address.startsWith('https:');
  // Somebody is there and speaks something else: HTTP/2 on the agent listener, TLS, or no TLS.
  if (code.startsWith('HPE_')) return `${NO_ADMIN_API}; behind TLS it is https://`;
  if (secure && (code === 'EPROTO' || code.startsWith('ERR_SSL'))) return `without TLS it is http://`;
  if (secure && CERTIFICATE_PROBLEMS.test(code))
    return 'NODE_EXTRA_CA_CERTS names a file with the certificate of your authority';
  return 'start it with `llmgw server`, or name another one with --server URL (env LLMGW_ADMIN_URL)';
}

const NO_ADMIN_API = 'this is not the admin API, which is on port 8081 by default';

const CERTIFICATE_PROBLEMS = /CERT|SIGNED|^UNABLE_TO_/;

const CONNECT_FAILURES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  ENOTFOUND: 'no such host',
  EAI_AGAIN: 'the name cannot be resolved now',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to the network',
  ETIMEDOUT: 'connection timed out',
};

function parseAnswer(text: string, address: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw notTheAdminApi(address);
  }
}

const notTheAdminApi = (address: string): OperatorError =>
  new OperatorError('unreachable', `${address} answers, but not as the admin API of llmgw`, {
    hint: 'name the admin listener (default port 8081) with --server URL',
  });

const theClientListener = (address: string): OperatorError =>
  new OperatorError('unreachable', `${address} is the client listener, which serves no admin API`, {
    hint: 'the admin API is on the admin listener (default port 8081): name it with --server URL',
  });

/** The server's own error with its code; an unknown code, from another version, is judged by the status. */
function failureFrom(response: IncomingMessage, text: string, address: string): OperatorError {
  let body: { error?: Partial<ErrorView['error']> } = {};
  try {
    body = JSON.parse(text) as typeof body;
  } catch {
    // Answered below: whatever this is, it is not our API.
  }
  const { code, message, field, hint, problems } = body.error ?? {};
  if (message === undefined) throw notTheAdminApi(address);
  // Errors of the client API have a type, those of the admin API have none.
  if ('type' in (body.error ?? {})) throw theClientListener(address);
  const known = knownCode(code, response.statusCode ?? 500);
  return new OperatorError(known, message, {
    ...(field === undefined ? {} : { field }),
    ...(problems === undefined ? {} : { problems }),
    ...nextStep(hint ?? NEXT_STEPS[known]),
  });
}

const nextStep = (hint: string | undefined) => (hint === undefined ? {} : { hint });

/** What an operator does next where the server does not say. */
const NEXT_STEPS: Partial<Record<AdminErrorCode, string>> = {
  unauthenticated: 'give a token with --token-file FILE (env LLMGW_TOKEN_FILE)',
  forbidden: 'an admin makes a token that may: llmgw ctl tokens create --name NAME --role ROLE',
  method_not_allowed: 'llmgw ctl version tells whether this command and the server are of one version',
  unsupported_media_type: 'llmgw ctl version tells whether this command and the server are of one version',
  internal_error: 'llmgw ctl status tells what is wrong as far as it knows itself',
};

function knownCode(code: string | undefined, status: number): AdminErrorCode {
  if (code !== undefined && Object.hasOwn(ADMIN_ERRORS, code)) return code as AdminErrorCode;
  const codes = Object.keys(ADMIN_ERRORS) as AdminErrorCode[];
  return codes.find((candidate) => ADMIN_ERRORS[candidate].status === status) ?? 'internal_error';
}
