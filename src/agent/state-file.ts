/**
 * What must survive the agent: which engines it started, the highest term it obeyed, which GPUs the node had.
 * Written to a temporary file, synced and renamed, so that a crash or a full disk leaves the old content whole.
 */
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Verdict } from '../domain/cluster.js';
import { errorCode } from './errno.js';
import type { Held } from './gpu/health-policy.js';
import { parseShardSpec, type ShardSpec } from './shard-spec.js';
import type { ProcessExit, ProcessIdentity } from './supervisor.js';

/** Grows when a reader of the old form would misunderstand the new one. */
const STATE_VERSION = 1;

export interface StoredShard {
  readonly spec: ShardSpec;
  /** Undefined between the decision to start and the start: then only the marker can tell whether it ran. */
  readonly process?: ProcessIdentity;
  /** It had produced a token. */
  readonly ready: boolean;
  readonly loadMs?: number;
  readonly memoryPeakBytes?: number;
  /** Present once it has ended. */
  readonly end?: StoredEnd;
}

export interface StoredEnd extends ProcessExit {
  /** Undefined when it was stopped as asked. */
  readonly verdict?: Verdict;
  readonly message: string;
}

/** One GPU this node once had, with the findings a restart of the agent must not forget. */
export interface StoredGpu {
  readonly uuid: string;
  readonly type: string;
  readonly busId?: string;
  readonly held: readonly Omit<Held, 'seenMs'>[];
}

export interface AgentState {
  readonly highestTerm: number;
  /** Highest generation seen of each shard, newest last: a late start of an old one must not come to life. */
  readonly generations: readonly (readonly [shardId: string, generation: number])[];
  readonly shards: readonly StoredShard[];
  readonly gpus: readonly StoredGpu[];
}

export const EMPTY_STATE: AgentState = { highestTerm: 0, generations: [], shards: [], gpus: [] };

export interface LoadedState {
  readonly state: AgentState;
  /** Where an unreadable file was put; the processes must then be looked for by their markers. */
  readonly movedAside?: string;
}

export class StateFile {
  private readonly path: string;
  private lastError: string | undefined;

  constructor(directory: string) {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    this.path = join(directory, 'agent-state.json');
  }

  /** Why the last write failed; undefined while writing works. Starts are refused meanwhile. */
  get writeError(): string | undefined {
    return this.lastError;
  }

  /** Reads the state; one that cannot be understood is moved aside, never overwritten: a person may want to see it. */
  load(wallMs: number): LoadedState {
    let text: string;
    try {
      text = readFileSync(this.path, 'utf8');
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return { state: EMPTY_STATE };
      throw error;
    }
    const state = parseState(text);
    if (state !== undefined) return { state };
    const movedAside = `${this.path}.unreadable-${wallMs}`;
    renameSync(this.path, movedAside);
    return { state: EMPTY_STATE, movedAside };
  }

  /** Returns false when the state could not be made durable; the reason is in `writeError`. */
  save(state: AgentState): boolean {
    const temporary = `${this.path}.tmp`;
    try {
      const fd = openSync(temporary, 'w', 0o600);
      try {
        writeFileSync(fd, JSON.stringify({ version: STATE_VERSION, ...state }));
        fsyncSync(fd);
      } finally {
        closeSync(fd);
      }
      renameSync(temporary, this.path);
      this.lastError = undefined;
      return true;
    } catch (error) {
      this.lastError = error instanceof Error ? error.message : String(error);
      discard(temporary);
      return false;
    }
  }
}

/** A half-written temporary file would keep the last bytes of a full disk occupied. */
function discard(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // Whatever stands there is not ours to remove; the error that counts is told already.
  }
}

function parseState(text: string): AgentState | undefined {
  try {
    const value = JSON.parse(text) as Partial<AgentState> & { version?: unknown };
    if (value.version !== STATE_VERSION || !Number.isSafeInteger(value.highestTerm)) return undefined;
    if (!Array.isArray(value.shards) || !Array.isArray(value.gpus)) return undefined;
    const shards = value.shards as StoredShard[];
    if (!shards.every((shard) => parseShardSpec(shard?.spec) !== undefined)) return undefined;
    const generations = Array.isArray(value.generations) ? value.generations : [];
    return { highestTerm: value.highestTerm ?? 0, generations, shards, gpus: value.gpus.filter(isStoredGpu) };
  } catch {
    return undefined;
  }
}

function isStoredGpu(value: unknown): value is StoredGpu {
  const gpu = value as Partial<StoredGpu> | null;
  return typeof gpu?.uuid === 'string' && typeof gpu.type === 'string' && Array.isArray(gpu.held);
}
