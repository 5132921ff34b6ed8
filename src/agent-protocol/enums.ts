/** Names of the wire's enums beside ours. A name or number that is not listed is newer than this program: unknown. */
import type { GpuHealth, GpuVendor, ShardPhase } from '../domain/cluster.js';
import type { CommandResult, RefusalCode } from './messages.js';
import type { WireEnum } from './wire.js';

const SHARD_PHASE = {
  SHARD_PHASE_UNKNOWN: 'unknown',
  SHARD_PHASE_WAITING_FOR_GPU: 'waitingForGpu',
  SHARD_PHASE_STARTING: 'starting',
  SHARD_PHASE_DOWNLOADING: 'downloading',
  SHARD_PHASE_LOADING: 'loading',
  SHARD_PHASE_COMPILING: 'compiling',
  SHARD_PHASE_PROBING: 'probing',
  SHARD_PHASE_READY: 'ready',
  SHARD_PHASE_UNHEALTHY: 'unhealthy',
  SHARD_PHASE_STOPPING: 'stopping',
  SHARD_PHASE_EXITED: 'exited',
} as const satisfies Record<string, ShardPhase>;

const GPU_VENDOR = {
  GPU_VENDOR_UNKNOWN: 'unknown',
  GPU_VENDOR_NVIDIA: 'nvidia',
  GPU_VENDOR_AMD: 'amd',
  GPU_VENDOR_STATIC: 'static',
} as const satisfies Record<string, GpuVendor>;

/** The reader makes `unknown` of an agent `suspect`: an unknown health is not a healthy one. */
const GPU_HEALTH = {
  GPU_HEALTH_STATE_UNKNOWN: 'unknown',
  GPU_HEALTH_STATE_HEALTHY: 'healthy',
  GPU_HEALTH_STATE_SUSPECT: 'suspect',
  GPU_HEALTH_STATE_EXCLUDED: 'excluded',
} as const satisfies Record<string, GpuHealth['state']>;

const OUTCOME = {
  COMMAND_OUTCOME_UNKNOWN: 'unknown',
  COMMAND_OUTCOME_ACCEPTED: 'accepted',
  COMMAND_OUTCOME_ALREADY: 'already',
  COMMAND_OUTCOME_REFUSED: 'refused',
} as const satisfies Record<string, CommandResult['outcome']>;

const REFUSAL = {
  REFUSAL_CODE_UNKNOWN: 'unknown',
  REFUSAL_CODE_INCOMPATIBLE_VERSION: 'incompatibleVersion',
  REFUSAL_CODE_NODE_ID_TAKEN: 'nodeIdTaken',
  REFUSAL_CODE_UNAUTHENTICATED: 'unauthenticated',
  REFUSAL_CODE_INVALID_HELLO: 'invalidHello',
  REFUSAL_CODE_STALE_TERM: 'staleTerm',
} as const satisfies Record<string, RefusalCode>;

/** One enum in both directions. */
interface Mapping<T extends string> {
  toDomain(wire: unknown): T;
  toWire(value: T): WireEnum;
}

function mapping<T extends string>(table: Readonly<Record<string, T>>, unknown: T): Mapping<T> {
  const fromWire = new Map<unknown, T>(Object.entries(table));
  const fromDomain = new Map(Object.entries(table).map(([wire, value]) => [value, wire]));
  return {
    toDomain: (wire) => fromWire.get(wire) ?? unknown,
    toWire: (value) => fromDomain.get(value) ?? 0,
  };
}

export const shardPhases = mapping<ShardPhase>(SHARD_PHASE, 'unknown');
export const gpuVendors = mapping<GpuVendor>(GPU_VENDOR, 'unknown');
export const gpuHealthStates = mapping<GpuHealth['state']>(GPU_HEALTH, 'unknown');
export const outcomes = mapping<CommandResult['outcome']>(OUTCOME, 'unknown');
export const refusalCodes = mapping<RefusalCode>(REFUSAL, 'unknown');
