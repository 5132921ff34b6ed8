import { ConfigError } from '../shared/errors.js';

/** Flags that move each listener, for the error that names a taken port. */
const WAYS_OUT =
  'stop what uses it, or choose other addresses with --listen, --admin-listen and --agent-listen';

/** A start's failure in words that name the address at fault and the way out. */
export function describeStartFailure(error: unknown): unknown {
  if (error instanceof ConfigError || !(error instanceof Error)) return error;
  const { code, address, port } = error as NodeJS.ErrnoException & { address?: string; port?: number };
  const where = port === undefined ? 'the address' : `${address ?? ''}:${port}`;
  if (code === 'EADDRINUSE') return new Error(`${where} is already in use: ${WAYS_OUT}`);
  if (code === 'EACCES' && port !== undefined) {
    return new Error(`this user may not listen on ${where}: choose a port above 1023`);
  }
  if (code === 'EADDRNOTAVAIL') return new Error(`${where} is no address of this machine: ${WAYS_OUT}`);
  return error;
}
