/** Sockets that a supervisor bound and hands over, as systemd's socket units do: LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES. */
import { ConfigError } from '../shared/errors.js';

/** The first descriptor that is handed over; fixed by the protocol. */
const FIRST_FD = 3;
const VARIABLES = ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES'] as const;
/** Name of the socket for clients where several are handed over (`FileDescriptorName=` of the socket unit). */
const CLIENT_NAME = 'listen';

/**
 * Descriptor of the listening socket for clients, or undefined when this process was given none. Removes the variables
 * from `env`, so that no child takes them for its own.
 *
 * @throws ConfigError when what is handed over cannot be understood: serving somewhere else instead would look well and
 * lose every request
 */
export function takeClientSocket(env: NodeJS.ProcessEnv, pid: number): number | undefined {
  const [forPid, count, names] = VARIABLES.map((name) => env[name]);
  for (const name of VARIABLES) delete env[name];
  // Meant for another process: a wrapper that was not replaced by this one (`exec`), or an older start.
  if (count === undefined || Number(forPid) !== pid) return undefined;
  const sockets = Number(count);
  if (!Number.isInteger(sockets) || sockets < 0) throw refusal(`LISTEN_FDS is "${count}"`);
  if (sockets <= 1) return sockets === 1 ? FIRST_FD : undefined;
  const named = (names ?? '').split(':').slice(0, sockets).indexOf(CLIENT_NAME);
  if (named < 0) throw refusal(`of ${sockets} sockets none is named "${CLIENT_NAME}" (got "${names ?? ''}")`);
  return FIRST_FD + named;
}

const refusal = (what: string): ConfigError =>
  new ConfigError([
    {
      source: 'environment',
      message: `${what}: hand over one socket, or name the one for clients "${CLIENT_NAME}"`,
    },
  ]);
