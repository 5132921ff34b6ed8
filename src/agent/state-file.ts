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

const STATE_FILE = 'agent-state.json';
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
  /** Absent in files of agents that knew no word for a stop as asked. */
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
  /** First and last port of engines, as the server last told. */
  readonly portRange?: readonly [number, number];
}

export const EMPTY_STATE: AgentState = { highestTerm: 0, generations: [], shards: [], gpus: [] };

export interface LoadedState {
  readonly state: AgentState;
  /** There is no record to go by: what runs must be looked for by its markers. */
  readonly lost: boolean;
  /** Where an unreadable file was put. */
  readonly movedAside?: string;
}

export class StateFile {
  private readonly path: string;
  private lastError: string | undefined;

  constructor(directory: string) {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    this.path = join(directory, STATE_FILE);
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
      // A first start, or somebody removed it under engines that serve on.
      if (errorCode(error) === 'ENOENT') return { state: EMPTY_STATE, lost: true };
      throw error;
    }
    const state = parseState(text);
    if (state !== undefined) return { state, lost: false };
    const movedAside = `${this.path}.unreadable-${wallMs}`;
    renameSync(this.path, movedAside);
    return { state: EMPTY_STATE, lost: true, movedAside };
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

/** The state as it stands, for somebody who only looks; undefined when there is none that can be read. */
export function peekState(directory: string): AgentState | undefined {
  try {
    return parseState(readFileSync(join(directory, STATE_FILE), 'utf8'));
  } catch {
    return undefined;
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
    if (!value.shards.every(isStoredShard)) return undefined;
    const generations: readonly unknown[] = Array.isArray(value.generations) ? value.generations : [];
    return {
      highestTerm: value.highestTerm ?? 0,
      generations: generations.filter(isGeneration),
      shards: value.shards,
      gpus: value.gpus.filter(isStoredGpu),
      ...(isPortRange(value.portRange) ? { portRange: value.portRange } : {}),
    };
  } catch {
    return undefined;
  }
}

/** A half-understood record could lead to a stranger's pid. */
function isStoredShard(value: unknown): value is StoredShard {
  const shard = value as Partial<StoredShard> | null;
  const { process, end } = shard ?? {};
  return (
    parseShardSpec(shard?.spec) !== undefined &&
    typeof shard?.ready === 'boolean' &&
    (process === undefined ||
      (Number.isSafeInteger(process?.pid) && Number.isSafeInteger(process?.startTicks))) &&
    (end === undefined || typeof end?.message === 'string')
  );
}

function isGeneration(value: unknown): value is AgentState['generations'][number] {
  return Array.isArray(value) && typeof value[0] === 'string' && Number.isSafeInteger(value[1]);
}

function isStoredGpu(value: unknown): value is StoredGpu {
  const gpu = value as Partial<StoredGpu> | null;
  return typeof gpu?.uuid === 'string' && typeof gpu.type === 'string' && Array.isArray(gpu.held);
}

function isPortRange(value: unknown): value is readonly [number, number] {
  return Array.isArray(value) && value.length === 2 && value.every((port) => Number.isSafeInteger(port));
}
