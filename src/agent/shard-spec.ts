/**
 * What the agent must know about a shard for as long as it exists. Made from the start command, kept in the state file
 * and in the marker; it holds no environment values and no arguments, so no secret can reach either.
 */
import type { ShardPorts } from '../domain/cluster.js';
import { ENGINE_KINDS, type EngineKind } from '../domain/model-spec.js';
import type { StartShardCommand } from '../domain/plan.js';

export interface ShardSpec {
  readonly shardId: string;
  readonly replicaId: string;
  readonly generation: number;
  readonly model: string;
  readonly aliases: readonly string[];
  readonly source?: string;
  readonly profile: string;
  readonly engine: EngineKind;
  readonly rank: number;
  readonly shards: number;
  readonly gpuUuids: readonly string[];
  /** Booked on each GPU, bytes; undefined = the whole device. */
  readonly gpuMemoryBytes?: number;
  readonly ports: ShardPorts;
  readonly startTimeoutMs: number;
  readonly stopGraceMs: number;
  /** As given in the start command. */
  readonly specDigest: string;
}

export function shardSpecOf(command: StartShardCommand): ShardSpec {
  const { profile } = command;
  return {
    shardId: command.shardId,
    replicaId: command.replicaId,
    generation: command.generation,
    model: command.model,
    aliases: command.aliases,
    ...(command.source === undefined ? {} : { source: command.source }),
    profile: profile.name,
    engine: profile.engine,
    rank: command.rank,
    shards: command.shards,
    gpuUuids: command.gpuUuids,
    ...(profile.gpuMemoryBytes === undefined ? {} : { gpuMemoryBytes: profile.gpuMemoryBytes }),
    ports: command.ports,
    startTimeoutMs: profile.startTimeoutMs,
    stopGraceMs: profile.stopGraceMs,
    specDigest: command.specDigest,
  };
}

/** Reads a spec back from JSON that anybody could have written; undefined unless every needed field is there. */
export function parseShardSpec(json: unknown): ShardSpec | undefined {
  const value = typeof json === 'string' ? parseJson(json) : json;
  if (typeof value !== 'object' || value === null) return undefined;
  const spec = value as Record<keyof ShardSpec, unknown>;
  const texts = [spec.shardId, spec.replicaId, spec.model, spec.profile];
  const numbers = [spec.generation, spec.rank, spec.shards, spec.startTimeoutMs, spec.stopGraceMs];
  const ports = spec.ports as Partial<ShardPorts> | undefined;
  const whole =
    typeof spec.specDigest === 'string' &&
    texts.every((text) => typeof text === 'string' && text !== '') &&
    numbers.every((number) => Number.isSafeInteger(number)) &&
    isStringList(spec.aliases) &&
    isStringList(spec.gpuUuids) &&
    Number.isSafeInteger(ports?.http) &&
    ENGINE_KINDS.some((kind) => kind === spec.engine);
  return whole ? (value as ShardSpec) : undefined;
}

function isStringList(value: unknown): boolean {
  return Array.isArray(value) && value.every((entry) => typeof entry === 'string');
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
