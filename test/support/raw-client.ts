import net from 'node:net';
import { type ParsedResponse, type ParseOptions, parseResponses } from './http-responses.js';
import { waitFor, type WaitOptions } from './wait-for.js';

/** Bytes of one read with the moment they arrived. */
export interface Arrival {
  /** Monotonic milliseconds (`performance.now()`). */
  readonly atMs: number;
  readonly bytes: Buffer;
}

/**
 * How the peer ended the connection: in order, by a reset, or not at all; `local` when this side ended it.
 * A reset that arrives in the same poll as data is reported by libuv as a plain end, so `fin` right after data proves little.
 */
export type Ending = 'open' | 'fin' | 'rst' | 'local';

/**
 * A client that sends exactly the bytes it is told to and keeps exactly what came back, and when.
 * An HTTP library would hide what these tests are about: where a write ended, which byte was missing, how a socket died.
 */
export class RawClient {
  readonly arrivals: Arrival[] = [];
  /** How the connection ended, from the peer's side; `local` when this side destroyed it first. */
  ending: Ending = 'open';
  /** When the connection ended, monotonic milliseconds. */
  endedAtMs: number | undefined;

  private constructor(readonly socket: net.Socket) {
    socket.setNoDelay(true);
    socket.on('data', (bytes) => this.arrivals.push({ atMs: performance.now(), bytes }));
    socket.on('end', () => this.note('fin'));
    socket.on('error', () => this.note('rst'));
    socket.on('close', () => this.note('local'));
  }

  /** @param localAddress by which the peer is to know this client; any of 127.0.0.0/8 */
  static connect(port: number, host = '127.0.0.1', localAddress?: string): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      // Half-open, so that a peer that ends first does not end this side too: the test decides.
      const socket = net.connect({
        port,
        host,
        allowHalfOpen: true,
        ...(localAddress !== undefined && { localAddress }),
      });
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new RawClient(socket));
      });
    });
  }

  private note(ending: Ending): void {
    if (this.ending !== 'open') return;
    this.ending = ending;
    this.endedAtMs = performance.now();
  }

  /** Sends bytes; settles when the kernel has them. */
  send(bytes: string | Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.socket.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
  }

  /** Sends a POST with a JSON body, or a string as it is; `headers` are added after the usual ones. */
  post(path: string, body: unknown, headers: Record<string, string> = {}): Promise<void> {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const lines = Object.entries({
      host: '127.0.0.1',
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(text)),
      ...headers,
    }).map(([name, value]) => `${name}: ${value}\r\n`);
    return this.send(`POST ${path} HTTP/1.1\r\n${lines.join('')}\r\n${text}`);
  }

  /** Sends a GET without a body. */
  get(path: string, headers: Record<string, string> = {}): Promise<void> {
    const lines = Object.entries({ host: '127.0.0.1', ...headers }).map(
      ([name, value]) => `${name}: ${value}\r\n`,
    );
    return this.send(`GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`);
  }

  /** Everything received so far. */
  get received(): Buffer {
    return Buffer.concat(this.arrivals.map((arrival) => arrival.bytes));
  }

  get text(): string {
    return this.received.toString();
  }

  /** The responses found in what was received so far; the last may be incomplete. */
  responses(options: ParseOptions = {}): ParsedResponse[] {
    return parseResponses(this.received, { closed: this.ending !== 'open', ...options });
  }

  /** Waits for the final (not 1xx) response number `index` to be complete. */
  response(index = 0, options: WaitOptions & ParseOptions = {}): Promise<ParsedResponse> {
    const pick = () => this.responses(options).filter((response) => response.status >= 200)[index];
    return waitFor(
      () => {
        const response = pick();
        return response?.complete === true ? response : undefined;
      },
      { what: `response ${index} to be complete`, ...options },
    ).catch((error: unknown) => {
      throw new Error(
        `no complete response ${index}; received: ${JSON.stringify(this.text.slice(0, 2000))}`,
        {
          cause: error,
        },
      );
    });
  }

  /** Waits until the received bytes hold `text`. */
  async waitForText(text: string, options: WaitOptions = {}): Promise<void> {
    const what = `the bytes ${JSON.stringify(text)}`;
    await waitFor(() => this.received.includes(text), { what, ...options }).catch((error: unknown) => {
      throw new Error(`${what} did not come; received: ${JSON.stringify(this.text.slice(-2000))}`, {
        cause: error,
      });
    });
  }

  /** Waits until the connection is over and says how it ended. */
  waitClosed(options: WaitOptions = {}): Promise<Ending> {
    return waitFor(() => (this.ending === 'open' ? '' : this.ending), {
      what: 'the connection to end',
      ...options,
    });
  }

  /** Cuts the connection with a TCP reset. */
  rst(): void {
    this.note('local');
    this.socket.resetAndDestroy();
  }

  /** Sends FIN and stays able to read. */
  halfClose(): void {
    this.socket.end();
  }

  /** Closes both directions in order. */
  destroy(): void {
    this.note('local');
    this.socket.destroy();
  }

  /** Stops reading: the kernel's buffers fill and the peer feels back-pressure. */
  pause(): void {
    this.socket.pause();
  }

  resume(): void {
    this.socket.resume();
  }
}
