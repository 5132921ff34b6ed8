/** A bound TCP socket that nobody accepts from here, held open to be handed from one process to the next. */
import net from 'node:net';

/** What `net` offers its own cluster module: a socket that is bound and does not accept. A server of ours would accept. */
interface BoundHandle {
  readonly fd: number;
  getsockname(into: { address?: string; port?: number }): number;
  close(): void;
}
const { _createServerHandle: createHandle } = net as unknown as {
  _createServerHandle: (address: string, port: number, addressType: 4 | 6) => BoundHandle | number;
};

export class HeldSocket {
  private constructor(
    private readonly handle: BoundHandle,
    readonly port: number,
  ) {}

  static bind(address = '127.0.0.1'): HeldSocket {
    const handle = createHandle(address, 0, 4);
    if (typeof handle === 'number') throw new Error(`cannot bind: ${handle}`);
    const name: { port?: number } = {};
    handle.getsockname(name);
    return new HeldSocket(handle, name.port ?? 0);
  }

  get fd(): number {
    return this.handle.fd;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  close(): void {
    this.handle.close();
  }
}
