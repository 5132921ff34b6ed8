/** What the server is told of one shard. */
import type { ShardPhase, ShardReport } from '../domain/cluster.js';
import { LOG_TAIL_MAX_BYTES } from './limits.js';
import { tailBytes } from './log-text.js';
import { optional } from './optional.js';
import type { ShardSpec } from './shard-spec.js';
import type { StoredEnd } from './state-file.js';

/** A shard as its runner knows it. */
export interface ShardSeen {
  readonly phase: ShardPhase;
  readonly phaseAgeMs: number;
  /** What the phase waits for, how far it is, or why it is unhealthy. */
  readonly text: string | undefined;
  readonly pid: number | undefined;
  readonly end: StoredEnd | undefined;
  readonly loadMs: number | undefined;
  readonly memoryPeakBytes: number | undefined;
  /** Cleaned output, oldest line first. */
  readonly lines: readonly string[];
}

/** Logs travel only with what went wrong. */
export function shardReport(spec: ShardSpec, seen: ShardSeen): ShardReport {
  const { end, text, phase } = seen;
  const unhealthy = phase === 'unhealthy';
  const wentWrong = unhealthy || (end !== undefined && end.verdict !== 'stopped');
  const tail = wentWrong ? tailBytes(seen.lines, LOG_TAIL_MAX_BYTES) : '';
  return {
    shardId: spec.shardId,
    replicaId: spec.replicaId,
    model: spec.model,
    profile: spec.profile,
    generation: spec.generation,
    rank: spec.rank,
    phase,
    gpuUuids: spec.gpuUuids,
    ports: spec.ports,
    specDigest: spec.specDigest,
    phaseAgeMs: Math.round(seen.phaseAgeMs),
    ...optional('pid', seen.pid),
    ...optional('progress', end === undefined && !unhealthy ? text : undefined),
    ...optional('exitCode', end?.code),
    ...optional('exitSignal', end?.signal),
    ...optional('verdict', end?.verdict ?? (unhealthy ? 'hung' : undefined)),
    ...optional('message', end?.message ?? (unhealthy ? text : undefined)),
    ...optional('logTail', tail === '' ? undefined : tail),
    ...optional('memoryPeakBytes', seen.memoryPeakBytes),
    ...optional('loadMs', seen.loadMs),
  };
}
