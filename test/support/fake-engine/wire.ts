import type net from 'node:net';
import { nextTurn, waitFor, type WaitOptions } from '../wait-for.js';

/** How one connection came to its end, seen from the engine's side. */
export type ConnectionEnding = 'peer-fin' | 'peer-rst' | 'engine' | 'open';

/** One accepted connection, as the records keep it. */
export interface RecordedConnection {
  /** Counted from 1 in the order of acceptance. */
  readonly id: number;
  readonly openedAtMs: number;
  /** How many requests were read from it so far. */
  requests: number;
  /** When the peer's end (or our own cut) was seen, monotonic milliseconds. */
  endedAtMs: number | undefined;
  ending: ConnectionEnding;
  /** True once the socket is gone in both directions. */
  closed: boolean;
}

/**
 * The engine's pen: writes exactly the bytes it is told to on one connection, and tells when the peer is gone.
 * Writes to a connection that has ended are dropped, as a kernel would drop them.
 */
export class Wire {
  /** Writes the kernel has not taken; one listener settles them all when the socket goes. */
  private readonly pendingWrites = new Set<() => void>();

  constructor(
    private readonly socket: net.Socket,
    readonly connection: RecordedConnection,
  ) {
    socket.on('close', () => {
      for (const settle of this.pendingWrites) settle();
    });
  }

  /** True once the peer has ended or reset the connection. */
  get peerGone(): boolean {
    return this.connection.ending === 'peer-fin' || this.connection.ending === 'peer-rst';
  }

  /** Bytes handed to the socket that the kernel has not taken yet: grows when the peer stops reading. */
  get unsentBytes(): number {
    return this.socket.writableLength;
  }

  /** Writes bytes as one write; settles when the kernel has them or the connection is gone. */
  write(bytes: string | Uint8Array): Promise<void> {
    return new Promise((resolve) => {
      if (this.socket.destroyed || this.socket.writableEnded) return resolve();
      this.pendingWrites.add(resolve);
      this.socket.write(bytes, () => {
        this.pendingWrites.delete(resolve);
        resolve();
      });
    });
  }

  /**
   * Writes each piece (each byte, of a buffer or string) as its own write and awaits `step` after it, so that pieces leave
   * as separate segments. The default step lets the event loop turn once.
   */
  async writeEach(
    pieces: string | Uint8Array | readonly (string | Uint8Array)[],
    step: (index: number) => Promise<unknown> = nextTurn,
  ): Promise<void> {
    const list = Array.isArray(pieces) ? pieces : splitBytes(pieces as string | Uint8Array);
    for (const [index, piece] of list.entries()) {
      await this.write(piece);
      await step(index);
    }
  }

  /** A response head plus, when given, a body with its content-length. */
  respond(status: number, body: string | Uint8Array, headers: Record<string, string> = {}): Promise<void> {
    const bytes = Buffer.from(body as Uint8Array);
    const all = { 'content-type': 'application/json', 'content-length': String(bytes.length), ...headers };
    return this.write(Buffer.concat([Buffer.from(renderHead(status, all)), bytes]));
  }

  /** The head of a chunked event stream. */
  startStream(headers: Record<string, string> = {}): Promise<void> {
    return this.write(
      renderHead(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked', ...headers }),
    );
  }

  /** One chunk of a chunked body, in one write. */
  chunk(bytes: string | Uint8Array): Promise<void> {
    return this.write(encodeChunk(bytes));
  }

  /** The end of a chunked body; the connection stays. */
  lastChunk(): Promise<void> {
    return this.write('0\r\n\r\n');
  }

  /** Ends this side in order (FIN) after what was written. */
  end(): void {
    this.socket.end();
  }

  /** Cuts the connection with a TCP reset. */
  rst(): void {
    this.endByEngine();
    this.socket.resetAndDestroy();
  }

  /** Destroys the socket: FIN, or a reset when unread bytes were waiting. */
  destroy(): void {
    this.endByEngine();
    this.socket.destroy();
  }

  /** Stops reading from the peer. The peer's leaving is then noticed only after `resume()`. */
  pause(): void {
    this.socket.pause();
  }

  resume(): void {
    this.socket.resume();
  }

  /** Waits until the connection is over, by whichever side. */
  async waitClosed(options: WaitOptions = {}): Promise<ConnectionEnding> {
    const what = `connection ${this.connection.id} to end`;
    await waitFor(() => this.connection.ending !== 'open', { what, ...options });
    return this.connection.ending;
  }

  /** Waits for anything: the script's way to say "not before". */
  until<T>(condition: () => T | Promise<T>, options: WaitOptions = {}): Promise<unknown> {
    return waitFor(condition, options);
  }

  private endByEngine(): void {
    if (this.connection.ending !== 'open') return;
    this.connection.ending = 'engine';
    this.connection.endedAtMs = performance.now();
  }
}

/** A response head; a header value of several lines is the caller's own fault, on purpose. */
export function renderHead(status: number, headers: Record<string, string>): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} X\r\n${lines.join('')}\r\n`;
}

/** One chunk in chunked transfer coding. */
export function encodeChunk(bytes: string | Uint8Array): Buffer {
  const data = Buffer.from(bytes as Uint8Array);
  return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
}

function splitBytes(bytes: string | Uint8Array): Uint8Array[] {
  const buffer = Buffer.from(bytes as Uint8Array);
  return Array.from(buffer, (_, index) => buffer.subarray(index, index + 1));
}
