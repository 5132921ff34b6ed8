import { createServer } from 'node:net';
import { parseAddress } from '../config/address.js';
import type { ServerConfig } from '../config/server-config.js';

const FLAGS = [
  ['listen', '--listen'],
  ['adminListen', '--admin-listen'],
  ['agentListen', '--agent-listen'],
] as const;

type ListenerKey = (typeof FLAGS)[number][0];

/**
 * Throws when one of the server's addresses cannot be bound, naming all that cannot and the flags that move them.
 * Done before anything starts: half a server that then fails on its third listener helps nobody.
 */
export async function checkPortsFree(
  config: Pick<ServerConfig, ListenerKey>,
  /** Those that somebody else has bound for us. */
  except: readonly ListenerKey[] = [],
): Promise<void> {
  const problems: string[] = [];
  for (const [key, flag] of FLAGS) {
    const address = parseAddress(config[key]);
    if (except.includes(key) || !address.ok || address.value.port === 0) continue;
    const code = await bindProblem(address.value.host, address.value.port);
    if (code !== undefined)
      problems.push(
        `${config[key]} ${PROBLEMS[code] ?? `cannot be bound (${code})`}: choose another with ${flag}`,
      );
  }
  if (problems.length > 0) throw new Error(problems.join('\n'));
}

const PROBLEMS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'is already in use',
  EACCES: 'may not be bound by this user',
  EADDRNOTAVAIL: 'is no address of this machine',
  ENOTFOUND: 'is no known host',
};

function bindProblem(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown'));
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve(undefined)));
  });
}
