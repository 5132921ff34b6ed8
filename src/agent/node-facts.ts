/** What the machine is: names, addresses, ports in use, disk, weights. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname, networkInterfaces } from 'node:os';
import type { AgentConfig } from '../config/agent-config.js';
import type { EngineOffer, NodeCondition } from '../domain/cluster.js';
import type { EngineCatalog } from './engines/catalog.js';
import { hubCacheDir, weightsPresent } from './engines/model-source.js';
import { DISK_FREE_MIN_BYTES, WEIGHTS_LISTED_MAX } from './limits.js';
import { freeBytes } from './start-checks.js';

export interface NodeIdentity {
  readonly nodeId: string;
  readonly hostname: string;
  readonly machineId?: string;
  /** Address under which the node's engines are reached. */
  readonly address: string;
  /** Address engines listen on. */
  readonly bindHost: string;
  readonly interfaceName?: string;
}

/** Throws when the configured interface has no address: engines would be told to listen nowhere. */
export function identifyNode(config: AgentConfig): NodeIdentity {
  const name = hostname();
  const machineId = readMachineId();
  return {
    nodeId: config.nodeId ?? name,
    hostname: name,
    ...(machineId === undefined ? {} : { machineId }),
    ...(config.mgmtInterface === undefined ? {} : { interfaceName: config.mgmtInterface }),
    ...addresses(config.address, config.mgmtInterface, networkInterfaces()),
  };
}

type Interfaces = ReturnType<typeof networkInterfaces>;

/** Where engines listen and under which address they are reached: never wider than what was configured. */
export function addresses(
  configured: string | undefined,
  interfaceName: string | undefined,
  interfaces: Interfaces,
): { readonly address: string; readonly bindHost: string } {
  if (interfaceName !== undefined) {
    const own = interfaces[interfaceName];
    const found = own?.find(({ family }) => family === 'IPv4') ?? own?.find(({ scopeid }) => !scopeid);
    if (found === undefined) {
      const known = Object.keys(interfaces).join(', ');
      throw new Error(`mgmtInterface ${interfaceName} has no address; this machine has ${known}`);
    }
    return { address: configured ?? found.address, bindHost: found.address };
  }
  if (configured === undefined || configured === 'localhost')
    return { address: configured ?? '127.0.0.1', bindHost: '127.0.0.1' };
  const local = Object.values(interfaces)
    .flatMap((list) => list ?? [])
    .some((entry) => entry.address === configured);
  if (local || configured.startsWith('127.')) return { address: configured, bindHost: configured };
  // A name or a translated address is none of ours to listen on.
  return { address: configured, bindHost: configured.includes(':') ? '::' : '0.0.0.0' };
}

/** Hashed: the raw machine id is meant to stay on the machine. */
function readMachineId(): string | undefined {
  for (const path of ['/etc/machine-id', '/var/lib/dbus/machine-id']) {
    const id = readText(path)?.trim();
    if (id !== undefined && id !== '')
      return createHash('sha256').update(`llmgw:${id}`).digest('hex').slice(0, 32);
  }
  return undefined;
}

/** Facts that change slowly; reading them costs more than a report may. */
export interface SlowFacts {
  readonly weightsPresent: readonly string[];
  readonly engines: readonly EngineOffer[];
  readonly conditions: readonly NodeCondition[];
}

export const NO_SLOW_FACTS: SlowFacts = { weightsPresent: [], engines: [], conditions: [] };

/** Reads without blocking anybody; takes as long as the slowest file server. */
export async function readSlowFacts(
  config: Pick<AgentConfig, 'modelRoots' | 'stateDir'>,
  engines: Pick<EngineCatalog, 'offers'>,
): Promise<SlowFacts> {
  const free = await freeBytes(config.stateDir);
  const full = free !== undefined && free < DISK_FREE_MIN_BYTES;
  return {
    weightsPresent: await weightsPresent(config.modelRoots, hubCacheDir(process.env), WEIGHTS_LISTED_MAX),
    engines: await engines.offers(),
    conditions: full
      ? [
          {
            type: 'StateDirFull',
            reason: `${Math.round(free / 2 ** 20)} MiB are free in ${config.stateDir}`,
            blocksPlacement: true,
          },
        ]
      : [],
  };
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
