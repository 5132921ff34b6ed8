/** How an agent introduces itself to the server. */
import { statSync } from 'node:fs';
import { createHash } from 'node:crypto';
import type { Hello } from '../agent-protocol/messages.js';
import { OUR_VERSIONS } from '../agent-protocol/version.js';
import type { AgentConfig } from '../config/agent-config.js';
import type { NodeIdentity } from './node-facts.js';
import type { ProcessTable } from './process-table.js';

export interface StateDirectory {
  readonly path: string;
  readonly id: string;
}

export interface HelloFacts {
  readonly config: Pick<AgentConfig, 'labels'>;
  readonly node: NodeIdentity;
  readonly processes: Pick<ProcessTable, 'bootId'>;
  /** Undefined while there is none yet. */
  readonly stateDir: StateDirectory | undefined;
  readonly build: string;
  readonly instanceId: string;
  readonly highestTerm: number;
  readonly wallMs: number;
}

export function helloOf(facts: HelloFacts): Omit<Hello, 'joinToken'> {
  const { node, stateDir } = facts;
  const bootId = facts.processes.bootId();
  return {
    protocolVersion: OUR_VERSIONS.version,
    minProtocolVersion: OUR_VERSIONS.min,
    build: facts.build,
    nodeId: node.nodeId,
    ...(node.machineId === undefined ? {} : { machineId: node.machineId }),
    ...(bootId === undefined ? {} : { bootId }),
    instanceId: facts.instanceId,
    labels: facts.config.labels,
    address: node.address,
    hostname: node.hostname,
    highestTerm: facts.highestTerm,
    wallMs: facts.wallMs,
    ...(stateDir === undefined ? {} : { stateDir: stateDir.path, stateDirId: stateDir.id }),
    pid: process.pid,
  };
}

/**
 * Names a state directory that is there by its place on the disk, as its lock does: a path says nothing between two containers, and what
 * is written into a directory is copied with it.
 */
export function stateDirectory(path: string): StateDirectory {
  const { dev, ino } = statSync(path, { bigint: true });
  return { path, id: createHash('sha256').update(`${dev}:${ino}`).digest('hex').slice(0, 16) };
}
