/** A TCP proxy that can fall silent without closing anything, as a pulled cable or a forgetful NAT does, or be cut. */
import { connect, createServer, type Server, type Socket } from 'node:net';

export class TcpProxy {
  private readonly sockets = new Set<Socket>();
  connections = 0;
  private silent = false;
  private refusing = false;

  private constructor(
    private readonly server: Server,
    readonly port: number,
  ) {}

  static listen(targetPort: number): Promise<TcpProxy> {
    return new Promise((resolve) => {
      const server = createServer();
      server.listen(0, '127.0.0.1', () => {
        const address = server.address();
        const port = typeof address === 'object' && address !== null ? address.port : 0;
        const proxy = new TcpProxy(server, port);
        server.on('connection', (socket) => proxy.join(socket, targetPort));
        resolve(proxy);
      });
    });
  }

  /** Drops every byte both ways from now on, also of new connections; nothing is closed. */
  fallSilent(): void {
    this.silent = true;
  }
  wake(): void {
    this.silent = false;
  }

  /** Resets every connection and each new one, as a firewall does, until {@link heal}. */
  cut(): void {
    this.refusing = true;
    for (const socket of this.sockets) socket.resetAndDestroy();
  }
  heal(): void {
    this.refusing = false;
  }

  close(): void {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
  }

  private join(client: Socket, targetPort: number): void {
    this.connections += 1;
    if (this.refusing) {
      client.on('error', () => {});
      client.resetAndDestroy();
      return;
    }
    const target = connect(targetPort, '127.0.0.1');
    for (const [from, to] of [
      [client, target],
      [target, client],
    ] as const) {
      this.sockets.add(from);
      from.on('data', (chunk) => {
        if (!this.silent) to.write(chunk);
      });
      from.on('error', () => {});
      from.on('close', () => {
        this.sockets.delete(from);
        if (!this.silent) to.destroy();
      });
    }
  }
}
