import type { ProcessTable } from './process-table.js';

/** Inits of containers: they end with the one program they start. */
const INITS_OF_ONE = new Set(['tini', 'docker-init', 'dumb-init', 'catatonit']);

/**
 * True when everything on this agent's process namespace is killed as soon as the agent ends, as in a container: there
 * engines cannot outlive it.
 */
export function endsWithAgent(
  processes: Pick<ProcessTable, 'name'>,
  own: { readonly pid: number; readonly ppid: number },
): boolean {
  return own.pid === 1 || (own.ppid === 1 && INITS_OF_ONE.has(processes.name(1) ?? ''));
}
