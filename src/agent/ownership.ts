/**
 * Whose engine is a process of? The marker in its environment says it, as long as it is there: vLLM and SGLang write
 * their titles over the environment of their workers, which are the ones that hold the GPUs. What such a process cannot
 * wipe is where its output goes: only an engine writes to a shard's log.
 */
import { dirname } from 'node:path';
import { readMarker, shardMark } from './marker.js';
import type { ProcessTable } from './process-table.js';
import { RunLog } from './run-log.js';
import { shardDirectory } from './shard-directory.js';
import type { ShardSpec } from './shard-spec.js';

export interface EngineOwner {
  /** Mark of the agent, see marker.ts. */
  readonly agent: string;
  /** Directory with one directory per shard, without symbolic links. */
  readonly shardsDir: string;
}

/** One start of one engine, by what its processes can be known by. */
export interface EngineTraces {
  /** `shardId@generation`. */
  readonly mark?: string;
  /** The shard's directory; it has one living start at a time. */
  readonly directory?: string;
}

/** What a process is known by: its marker, or else the directory it writes to. */
export interface Ownership extends EngineTraces {
  readonly spec?: ShardSpec;
}

/** Undefined for anybody else's process. */
export function ownershipOf(owner: EngineOwner, processes: ProcessTable, pid: number): Ownership | undefined {
  const marker = readMarker(owner.agent, processes.environment(pid));
  if (marker !== undefined) return marker;
  const file = processes.output(pid);
  if (file === undefined) return undefined;
  const directory = dirname(file);
  const isLog = [RunLog.currentFile(directory), RunLog.previousFile(directory)].includes(file);
  return isLog && dirname(directory) === owner.shardsDir ? { directory } : undefined;
}

export function tracesOf(owner: EngineOwner, spec: Pick<ShardSpec, 'shardId' | 'generation'>): EngineTraces {
  return { mark: shardMark(spec), directory: shardDirectory(owner.shardsDir, spec.shardId) };
}

/** True when a process belongs to an engine. */
export function belongsTo(ownership: Ownership | undefined, engine: EngineTraces): boolean {
  if (ownership?.mark !== undefined) return ownership.mark === engine.mark;
  return ownership?.directory !== undefined && ownership.directory === engine.directory;
}
