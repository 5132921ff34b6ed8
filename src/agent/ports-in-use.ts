/** Tests of TCP ports on this machine. */
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

/** Ports of an inclusive range that something listens on. */
export async function portsTaken(host: string, from: number, to: number): Promise<number[]> {
  const taken: number[] = [];
  for (let port = from; port <= to; port++) if (!(await canBind({ host, port }))) taken.push(port);
  return taken;
}

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
