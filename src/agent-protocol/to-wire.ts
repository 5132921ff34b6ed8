/** From the domain to the wire. Senders keep within the limits here, so that no message is ever refused for its size. */
import type { GpuReport, ShardReport } from '../domain/cluster.js';
import type { EnvValue } from '../domain/model-spec.js';
import type { StartShardCommand, StopShardCommand } from '../domain/plan.js';
import { gpuHealthStates, gpuVendors, outcomes, refusalCodes, shardPhases } from './enums.js';
import { fitReport } from './fit-report.js';
import { LOG_TAIL_LIMIT_BYTES, tailBytes } from './log-tail.js';
import type {
  CommandResult,
  DrainOrder,
  Hello,
  LogChunk,
  LogRequest,
  NodeReport,
  Refusal,
  Welcome,
} from './messages.js';
import { MESSAGE_LIMIT_BYTES } from './proto.js';
import type {
  WireAgentMessage,
  WireEnvValue,
  WireGpu,
  WireHello,
  WireServerMessage,
  WireShard,
} from './wire.js';

/** Part of a message kept free of log tails: GPUs, ports, weights and the shards' other fields. */
const REPORT_TAILS_LIMIT_BYTES = MESSAGE_LIMIT_BYTES / 2;

// ---------------------------------------------------------------- agent → server

export function helloToWire(hello: Hello): WireAgentMessage {
  return { hello: wireHello(hello) };
}

export function probeToWire(hello: Hello): WireAgentMessage {
  return { probe: wireHello(hello) };
}

function wireHello(hello: Hello): WireHello {
  return {
    protocolVersion: hello.protocolVersion,
    minProtocolVersion: hello.minProtocolVersion,
    build: hello.build,
    nodeId: hello.nodeId,
    machineId: hello.machineId ?? '',
    bootId: hello.bootId ?? '',
    instanceId: hello.instanceId,
    labels: hello.labels,
    address: hello.address ?? '',
    hostname: hello.hostname ?? '',
    highestTerm: hello.highestTerm,
    wallMs: hello.wallMs ?? 0,
    joinToken: hello.joinToken ?? '',
    stateDirId: hello.stateDirId ?? '',
    stateDir: hello.stateDir ?? '',
    pid: hello.pid ?? 0,
  };
}

/**
 * A report that fits into one message: each tail is cut to its own limit, and all of them share what is left, so that
 * one shard's log never costs the node's other states.
 */
export function reportToWire(whole: NodeReport): WireAgentMessage {
  const report = fitReport(whole);
  const tails = report.shards.filter((shard) => shard.logTail !== undefined).length;
  const tailLimitBytes = Math.min(
    LOG_TAIL_LIMIT_BYTES,
    Math.floor(REPORT_TAILS_LIMIT_BYTES / Math.max(1, tails)),
  );
  return {
    report: {
      sequence: report.sequence,
      complete: report.complete,
      gpus: report.gpus.map(gpuToWire),
      shards: report.shards.map((shard) => shardToWire(shard, tailLimitBytes)),
      engines: report.engines.map((offer) => ({
        kind: offer.kind,
        version: offer.version ?? '',
        unavailable: offer.unavailable ?? '',
      })),
      portsTaken: report.portsTaken,
      weightsPresent: report.weightsPresent,
      conditions: report.conditions,
      uptimeMs: Math.round(report.uptimeMs),
    },
  };
}

function gpuToWire(gpu: GpuReport): WireGpu {
  return {
    uuid: gpu.uuid,
    type: gpu.type,
    vendor: gpuVendors.toWire(gpu.vendor),
    busId: gpu.busId ?? '',
    ...(gpu.memoryTotalBytes === undefined ? {} : { memoryTotalBytes: gpu.memoryTotalBytes }),
    ...(gpu.memoryUsedBytes === undefined ? {} : { memoryUsedBytes: gpu.memoryUsedBytes }),
    foreign: gpu.foreign.map((process) => ({
      pid: process.pid,
      name: process.name ?? '',
      ...(process.memoryBytes === undefined ? {} : { memoryBytes: process.memoryBytes }),
    })),
    health: gpuHealthStates.toWire(gpu.health.state),
    healthReason: gpu.health.reason ?? '',
    healthEvidence: gpu.health.evidence ?? '',
    healthSinceWallMs: gpu.health.sinceWallMs ?? 0,
    healthClearedBy: gpu.health.clearedBy ?? '',
    linkedTo: gpu.linkedTo,
  };
}

function shardToWire(shard: ShardReport, tailLimitBytes: number): WireShard {
  return {
    shardId: shard.shardId,
    replicaId: shard.replicaId,
    model: shard.model,
    profile: shard.profile,
    generation: shard.generation,
    rank: shard.rank,
    phase: shardPhases.toWire(shard.phase),
    pid: shard.pid ?? 0,
    gpuUuids: shard.gpuUuids,
    httpPort: shard.ports.http,
    rendezvousPort: shard.ports.rendezvous ?? 0,
    progress: shard.progress ?? '',
    ...(shard.exitCode === undefined ? {} : { exitCode: shard.exitCode }),
    exitSignal: shard.exitSignal ?? '',
    verdict: shard.verdict ?? '',
    message: shard.message ?? '',
    logTail: shard.logTail === undefined ? new Uint8Array() : tailBytes(shard.logTail, tailLimitBytes),
    ...(shard.memoryPeakBytes === undefined ? {} : { memoryPeakBytes: shard.memoryPeakBytes }),
    ...(shard.loadMs === undefined ? {} : { loadMs: Math.round(shard.loadMs) }),
    phaseAgeMs: Math.round(shard.phaseAgeMs ?? 0),
    specDigest: shard.specDigest ?? '',
  };
}

export function resultToWire(result: CommandResult): WireAgentMessage {
  return {
    result: {
      commandId: result.commandId,
      outcome: outcomes.toWire(result.outcome),
      message: result.message ?? '',
      verdict: result.verdict ?? '',
      cause: result.cause ?? '',
    },
  };
}

export function logChunkToWire(chunk: LogChunk): WireAgentMessage {
  return { log: { requestId: chunk.requestId, data: chunk.data, end: chunk.end, error: chunk.error ?? '' } };
}

export function pongToWire(nonce: number): WireAgentMessage {
  return { pong: { nonce } };
}

// ---------------------------------------------------------------- server → agent

export function welcomeToWire(welcome: Welcome): WireServerMessage {
  const { portRange: [portFirst, portLast] = [0, 0], wallMs = 0, holder = '', ...rest } = welcome;
  return { welcome: { ...rest, wallMs, portFirst, portLast, holder } };
}

export function refusalToWire(refusal: Refusal): WireServerMessage {
  return { refusal: { ...refusal, code: refusalCodes.toWire(refusal.code) } };
}

export function startToWire(term: number, commandId: string, command: StartShardCommand): WireServerMessage {
  const { profile } = command;
  return {
    start: {
      term,
      commandId,
      shardId: command.shardId,
      replicaId: command.replicaId,
      generation: command.generation,
      model: command.model,
      aliases: command.aliases,
      source: command.source ?? '',
      engine: profile.engine,
      profile: profile.name,
      args: profile.args,
      env: environmentToWire(profile.env),
      rank: command.rank,
      shards: command.shards,
      gpuUuids: command.gpuUuids,
      ...(profile.gpuMemoryBytes === undefined ? {} : { gpuMemoryBytes: profile.gpuMemoryBytes }),
      httpPort: command.ports.http,
      rendezvousPort: command.ports.rendezvous ?? 0,
      specDigest: command.specDigest,
      peers: command.peers.map((peer) => ({
        rank: peer.rank,
        address: peer.address,
        httpPort: peer.ports.http,
        rendezvousPort: peer.ports.rendezvous ?? 0,
      })),
      startTimeoutMs: profile.startTimeoutMs,
      stopGraceMs: profile.stopGraceMs,
      ...(profile.maxConcurrency === undefined ? {} : { maxConcurrency: profile.maxConcurrency }),
    },
  };
}

function environmentToWire(env: Readonly<Record<string, EnvValue>>): Record<string, WireEnvValue> {
  // Null prototype, because names come from a file: `__proto__` must stay a name.
  const wire = Object.create(null) as Record<string, WireEnvValue>;
  for (const [name, value] of Object.entries(env)) wire[name] = value;
  return wire;
}

export function stopToWire(
  term: number,
  commandId: string,
  command: StopShardCommand,
  reason: string,
): WireServerMessage {
  return {
    stop: {
      term,
      commandId,
      shardId: command.shardId,
      generation: command.generation,
      graceMs: command.graceMs,
      reason,
    },
  };
}

export function drainToWire(order: DrainOrder): WireServerMessage {
  const { term, commandId, shardId, generation, over } = order;
  return { drain: { term, commandId, shardId, generation, over } };
}

export function logRequestToWire(request: LogRequest): WireServerMessage {
  return { fetchLogs: request };
}

export function pingToWire(nonce: number): WireServerMessage {
  return { ping: { nonce } };
}

export function ackToWire(sequence: number): WireServerMessage {
  return { ack: { sequence } };
}
