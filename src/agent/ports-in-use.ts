/** Tests of TCP ports on this machine. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { Clock } from '../shared/clock.js';
import type { EngineAddress } from './engine-http.js';
import { errorCode } from './errno.js';

/** True when the address can be listened on right now. */
export function canBind({ host, port }: EngineAddress): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error) => {
      // Any other error (no such address) is for the engine to report: it says more about it.
      resolve(errorCode(error) !== 'EADDRINUSE');
    });
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}

const TCP_LISTEN = '0A';

interface Listener {
  readonly port: number;
  readonly inode: string;
}

/** Sockets somebody listens on, from the kernel's tables; empty where there are none to read. */
function listeners(tables: readonly (string | undefined)[]): Listener[] {
  return tables.flatMap((table) =>
    (table?.split('\n').slice(1) ?? []).flatMap((line): Listener[] => {
      const [, local = '', , state, , , , , , inode = ''] = line.trim().split(/\s+/);
      const port = Number.parseInt(local.slice(local.lastIndexOf(':') + 1), 16);
      return state === TCP_LISTEN && Number.isInteger(port) ? [{ port, inode }] : [];
    }),
  );
}

const socketTables = (): (string | undefined)[] => ['/proc/net/tcp', '/proc/net/tcp6'].map(readText);

/** Lower ones are no business of a shard. */
const LOWEST_PORT = 1024;
const PORTS_LISTED_MAX = 2_048;

/** Ports somebody listens on. */
export function listeningPorts(tables: readonly (string | undefined)[] = socketTables()): number[] {
  const ports = new Set(listeners(tables).map(({ port }) => port));
  return [...ports]
    .filter((port) => port >= LOWEST_PORT)
    .sort((a, b) => a - b)
    .slice(0, PORTS_LISTED_MAX);
}

/** The process that listens on a port; undefined when it is nobody this user may look at. */
export function listenerOf(port: number): number | undefined {
  const inode = listeners(socketTables()).find((listener) => listener.port === port)?.inode;
  if (inode === undefined || inode === '0') return undefined;
  const link = `socket:[${inode}]`;
  const pids = readList('/proc').filter((name) => /^\d+$/.test(name));
  const pid = pids.find((name) =>
    readList(`/proc/${name}/fd`).some((fd) => readLink(`/proc/${name}/fd/${fd}`) === link),
  );
  return pid === undefined ? undefined : Number(pid);
}

/** A process may end between any two reads; that is an answer, not an error. */
function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
const readText = (path: string): string | undefined => attempt(() => readFileSync(path, 'utf8'));
const readList = (path: string): string[] => attempt(() => readdirSync(path)) ?? [];
const readLink = (path: string): string | undefined => attempt(() => readlinkSync(path));

/** True when somebody accepts connections there. */
export function listens({ host, port }: EngineAddress, clock: Clock, limitMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const done = (answer: boolean): void => {
      timer.cancel();
      socket.destroy();
      resolve(answer);
    };
    const timer = clock.setTimer(limitMs, () => done(false));
    socket.once('connect', () => done(true));
    socket.once('error', () => done(false));
  });
}
