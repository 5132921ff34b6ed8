/** From the wire to the domain, checking everything: what comes out of here can be relied on. */
import {
  VERDICTS,
  type EngineOffer,
  type ForeignProcess,
  type GpuHealth,
  type GpuReport,
  type NodeCondition,
  type ShardPorts,
  type ShardReport,
  type Verdict,
} from '../domain/cluster.js';
import { ENGINE_KINDS, type EngineKind, type EnvValue } from '../domain/model-spec.js';
import type { StartShardCommand } from '../domain/plan.js';
import { REFUSAL_CAUSES, type RefusalCause } from '../domain/reconcile/refusal.js';
import {
  count,
  flag,
  identifier,
  list,
  optionalCount,
  optionalIdentifier,
  optionalInt,
  optionalPort,
  optionalText,
  ProtocolError,
  record,
  textMap,
  unique,
} from './checks.js';
import { gpuHealthStates, gpuVendors, outcomes, refusalCodes, shardPhases } from './enums.js';
import { LOG_TAIL_LIMIT_BYTES, tailText } from './log-tail.js';
import type {
  AgentMessage,
  CommandResult,
  DrainOrder,
  Hello,
  LogChunk,
  LogRequest,
  NodeReport,
  Peer,
  Refusal,
  ServerMessage,
  StartOrder,
  StopOrder,
  Welcome,
} from './messages.js';
import {
  CONDITIONS_MAX,
  ENGINES_MAX,
  FOREIGN_MAX,
  GPUS_MAX,
  PORTS_MAX,
  SHARDS_MAX,
  WEIGHTS_MAX,
} from './message-limits.js';
import type { WireAgentMessage, WireServerMessage } from './wire.js';

const LABELS_MAX = 128;
const PEERS_MAX = 256;
const ARGS_MAX = 512;
const ALIASES_MAX = 256;
const SHOWN_PATH_MAX_CHARS = 256;
/** Largest piece of a log in one message, bytes. */
const LOG_CHUNK_MAX_BYTES = 256 * 1024;

/** A message that was taken, or the reason why it was not. */
export type Parsed<T> =
  { readonly ok: true; readonly message: T } | { readonly ok: false; readonly problem: ProtocolError };

/** What an agent sent. Never throws. */
export function parseAgentMessage(wire: WireAgentMessage): Parsed<AgentMessage> {
  return attempt(() => {
    if (wire.hello) return { kind: 'hello', hello: hello(record(wire.hello, 'hello')) };
    if (wire.report) return { kind: 'report', report: report(record(wire.report, 'report')) };
    if (wire.result) return { kind: 'result', result: result(record(wire.result, 'result')) };
    if (wire.log) return { kind: 'log', chunk: logChunk(record(wire.log, 'log')) };
    if (wire.pong) return { kind: 'pong', nonce: count(wire.pong.nonce, 'pong.nonce') };
    if (wire.probe) return { kind: 'probe', hello: hello(record(wire.probe, 'probe')) };
    return { kind: 'unknown' };
  });
}

/** What the server sent to the agent of `nodeId`. Never throws. */
export function parseServerMessage(wire: WireServerMessage, nodeId: string): Parsed<ServerMessage> {
  return attempt(() => {
    if (wire.welcome) return { kind: 'welcome', welcome: welcome(record(wire.welcome, 'welcome')) };
    if (wire.refusal) return { kind: 'refusal', refusal: refusal(record(wire.refusal, 'refusal')) };
    if (wire.start) return { kind: 'start', order: startOrder(record(wire.start, 'start'), nodeId) };
    if (wire.stop) return { kind: 'stop', order: stopOrder(record(wire.stop, 'stop')) };
    if (wire.drain) return { kind: 'drain', order: drainOrder(record(wire.drain, 'drain')) };
    if (wire.fetchLogs)
      return { kind: 'fetchLogs', request: logRequest(record(wire.fetchLogs, 'fetchLogs')) };
    if (wire.ping) return { kind: 'ping', nonce: count(wire.ping.nonce, 'ping.nonce') };
    if (wire.ack) return { kind: 'ack', sequence: count(wire.ack.sequence, 'ack.sequence') };
    return { kind: 'unknown' };
  });
}

function attempt<T>(parse: () => T): Parsed<T> {
  try {
    return { ok: true, message: parse() };
  } catch (error) {
    if (error instanceof ProtocolError) return { ok: false, problem: error };
    throw error;
  }
}

// ---------------------------------------------------------------- agent → server

function hello(wire: Record<string, unknown>): Hello {
  return {
    protocolVersion: count(wire['protocolVersion'] ?? 0, 'hello.protocolVersion'),
    minProtocolVersion: count(wire['minProtocolVersion'] ?? 0, 'hello.minProtocolVersion'),
    build: optionalIdentifier(wire['build'], 'hello.build') ?? 'unknown',
    nodeId: nodeName(wire['nodeId'], 'hello.nodeId'),
    instanceId: identifier(wire['instanceId'], 'hello.instanceId'),
    labels: textMap(wire['labels'], 'hello.labels', LABELS_MAX),
    highestTerm: count(wire['highestTerm'] ?? 0, 'hello.highestTerm'),
    ...present('machineId', optionalIdentifier(wire['machineId'], 'hello.machineId')),
    ...present('bootId', optionalIdentifier(wire['bootId'], 'hello.bootId')),
    ...present('address', optionalIdentifier(wire['address'], 'hello.address')),
    ...present('hostname', optionalIdentifier(wire['hostname'], 'hello.hostname')),
    ...present('wallMs', wallTime(wire['wallMs'], 'hello.wallMs')),
    ...present('joinToken', optionalIdentifier(wire['joinToken'], 'hello.joinToken')),
    ...present('stateDirId', optionalIdentifier(wire['stateDirId'], 'hello.stateDirId')),
    ...present('stateDir', directory(wire['stateDir'], 'hello.stateDir')),
    ...present('pid', count(wire['pid'] ?? 0, 'hello.pid') || undefined),
  };
}

/** Only ever shown: one that is odd must not keep its agent away. */
function directory(value: unknown, field: string): string | undefined {
  return optionalText(value, field)
    ?.replace(/\p{Cc}/gu, '?')
    .slice(0, SHOWN_PATH_MAX_CHARS);
}

/** Node ids stand in paths, labels and shard ids: letters, digits, dot, dash and underscore only. */
function nodeName(value: unknown, field: string): string {
  const name = identifier(value, field);
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(name)) {
    throw new ProtocolError(
      'malformed',
      field,
      'a node id is made of letters, digits, dot, dash and underscore',
    );
  }
  return name;
}

function report(wire: Record<string, unknown>): NodeReport {
  const ports = list(wire['portsTaken'], 'report.portsTaken', PORTS_MAX, optionalPort);
  return {
    sequence: count(wire['sequence'], 'report.sequence'),
    complete: flag(wire['complete'], 'report.complete'),
    gpus: unique(list(wire['gpus'], 'report.gpus', GPUS_MAX, gpu), 'report.gpus', (one) => one.uuid),
    shards: unique(
      list(wire['shards'], 'report.shards', SHARDS_MAX, shard),
      'report.shards',
      (one) => `${one.shardId} of generation ${one.generation}`,
    ),
    engines: list(wire['engines'], 'report.engines', ENGINES_MAX, engineOffer).filter(
      (one) => one !== undefined,
    ),
    portsTaken: ports.filter((port) => port !== undefined),
    weightsPresent: list(wire['weightsPresent'], 'report.weightsPresent', WEIGHTS_MAX, identifier),
    conditions: list(wire['conditions'], 'report.conditions', CONDITIONS_MAX, condition),
    uptimeMs: count(wire['uptimeMs'] ?? 0, 'report.uptimeMs'),
  };
}

function gpu(value: unknown, field: string): GpuReport {
  const wire = record(value, field);
  return {
    uuid: identifier(wire['uuid'], `${field}.uuid`),
    type: optionalIdentifier(wire['type'], `${field}.type`) ?? 'unknown',
    vendor: gpuVendors.toDomain(wire['vendor']),
    foreign: list(wire['foreign'], `${field}.foreign`, FOREIGN_MAX, foreignProcess),
    health: gpuHealth(wire, field),
    linkedTo: list(wire['linkedTo'], `${field}.linkedTo`, GPUS_MAX, identifier),
    ...present('busId', optionalIdentifier(wire['busId'], `${field}.busId`)),
    ...present('memoryTotalBytes', optionalCount(wire['memoryTotalBytes'], `${field}.memoryTotalBytes`)),
    ...present('memoryUsedBytes', optionalCount(wire['memoryUsedBytes'], `${field}.memoryUsedBytes`)),
  };
}

function gpuHealth(wire: Record<string, unknown>, field: string): GpuHealth {
  const state = gpuHealthStates.toDomain(wire['health']);
  const reason = optionalIdentifier(wire['healthReason'], `${field}.healthReason`);
  const details = {
    ...present('evidence', optionalText(wire['healthEvidence'], `${field}.healthEvidence`)),
    ...present('sinceWallMs', wallTime(wire['healthSinceWallMs'], `${field}.healthSinceWallMs`)),
    ...present('clearedBy', optionalText(wire['healthClearedBy'], `${field}.healthClearedBy`)),
  };
  if (state === 'unknown') return { state: 'suspect', reason: reason ?? 'unknown_health', ...details };
  return { state, ...present('reason', reason), ...details };
}

function foreignProcess(value: unknown, field: string): ForeignProcess {
  const wire = record(value, field);
  return {
    pid: count(wire['pid'], `${field}.pid`),
    ...present('name', optionalText(wire['name'], `${field}.name`)),
    ...present('memoryBytes', optionalCount(wire['memoryBytes'], `${field}.memoryBytes`)),
  };
}

function shard(value: unknown, field: string): ShardReport {
  const wire = record(value, field);
  const pid = count(wire['pid'] ?? 0, `${field}.pid`);
  return {
    shardId: identifier(wire['shardId'], `${field}.shardId`),
    replicaId: identifier(wire['replicaId'], `${field}.replicaId`),
    model: identifier(wire['model'], `${field}.model`),
    profile: identifier(wire['profile'], `${field}.profile`),
    generation: count(wire['generation'], `${field}.generation`),
    rank: count(wire['rank'] ?? 0, `${field}.rank`),
    phase: shardPhases.toDomain(wire['phase']),
    gpuUuids: list(wire['gpuUuids'], `${field}.gpuUuids`, GPUS_MAX, identifier),
    ports: ports(wire, field),
    ...present('pid', pid === 0 ? undefined : pid),
    ...present('progress', optionalText(wire['progress'], `${field}.progress`)),
    ...present('exitCode', optionalInt(wire['exitCode'], `${field}.exitCode`)),
    ...present('exitSignal', optionalIdentifier(wire['exitSignal'], `${field}.exitSignal`)),
    ...present('verdict', verdict(wire['verdict'], `${field}.verdict`)),
    ...present('message', optionalText(wire['message'], `${field}.message`)),
    ...present('logTail', logTail(wire['logTail'], `${field}.logTail`)),
    ...present('memoryPeakBytes', optionalCount(wire['memoryPeakBytes'], `${field}.memoryPeakBytes`)),
    ...present('loadMs', optionalCount(wire['loadMs'], `${field}.loadMs`)),
    ...present('phaseAgeMs', optionalCount(wire['phaseAgeMs'], `${field}.phaseAgeMs`)),
    ...present('specDigest', optionalIdentifier(wire['specDigest'], `${field}.specDigest`)),
  };
}

/** A shard that has not yet been given a port reports 0. */
function ports(wire: Record<string, unknown>, field: string): ShardPorts {
  return {
    http: optionalPort(wire['httpPort'], `${field}.httpPort`) ?? 0,
    ...present('rendezvous', optionalPort(wire['rendezvousPort'], `${field}.rendezvousPort`)),
  };
}

function verdict(value: unknown, field: string): Verdict | undefined {
  const name = optionalIdentifier(value, field);
  if (name === undefined) return undefined;
  return VERDICTS.find((known) => known === name) ?? 'unknown';
}

function logTail(value: unknown, field: string): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (!(value instanceof Uint8Array)) throw new ProtocolError('malformed', field, 'expected bytes');
  return value.length === 0 ? undefined : tailText(value, LOG_TAIL_LIMIT_BYTES);
}

/** An engine kind of a newer agent is left out: nothing of ours can be placed on it. */
function engineOffer(value: unknown, field: string): EngineOffer | undefined {
  const wire = record(value, field);
  const kind = engineKind(wire['kind'], `${field}.kind`);
  if (kind === undefined) return undefined;
  return {
    kind,
    ...present('version', optionalIdentifier(wire['version'], `${field}.version`)),
    ...present('unavailable', optionalText(wire['unavailable'], `${field}.unavailable`)),
  };
}

function engineKind(value: unknown, field: string): EngineKind | undefined {
  const name = identifier(value, field);
  return ENGINE_KINDS.find((known) => known === name);
}

function condition(value: unknown, field: string): NodeCondition {
  const wire = record(value, field);
  return {
    type: identifier(wire['type'], `${field}.type`),
    reason: optionalText(wire['reason'], `${field}.reason`) ?? '',
    blocksPlacement: flag(wire['blocksPlacement'] ?? false, `${field}.blocksPlacement`),
  };
}

function result(wire: Record<string, unknown>): CommandResult {
  return {
    commandId: identifier(wire['commandId'], 'result.commandId'),
    outcome: outcomes.toDomain(wire['outcome']),
    ...present('message', optionalText(wire['message'], 'result.message')),
    ...present('verdict', verdict(wire['verdict'], 'result.verdict')),
    ...present('cause', refusalCause(wire['cause'])),
  };
}

/** A cause of a newer agent is none that we know; its message still tells people. */
function refusalCause(value: unknown): RefusalCause | undefined {
  const name = optionalIdentifier(value, 'result.cause');
  return REFUSAL_CAUSES.find((known) => known === name);
}

function logChunk(wire: Record<string, unknown>): LogChunk {
  const data = wire['data'] ?? new Uint8Array();
  if (!(data instanceof Uint8Array)) throw new ProtocolError('malformed', 'log.data', 'expected bytes');
  if (data.length > LOG_CHUNK_MAX_BYTES) {
    throw new ProtocolError(
      'tooLong',
      'log.data',
      `${data.length} bytes, at most ${LOG_CHUNK_MAX_BYTES} are taken`,
    );
  }
  return {
    requestId: identifier(wire['requestId'], 'log.requestId'),
    data,
    end: flag(wire['end'] ?? false, 'log.end'),
    ...present('error', optionalText(wire['error'], 'log.error')),
  };
}

// ---------------------------------------------------------------- server → agent

function welcome(wire: Record<string, unknown>): Welcome {
  return {
    term: count(wire['term'], 'welcome.term'),
    protocolVersion: count(wire['protocolVersion'], 'welcome.protocolVersion'),
    build: optionalIdentifier(wire['build'], 'welcome.build') ?? 'unknown',
    heartbeatIntervalMs: count(wire['heartbeatIntervalMs'], 'welcome.heartbeatIntervalMs'),
    silenceLimitMs: count(wire['silenceLimitMs'], 'welcome.silenceLimitMs'),
    maxLogTailBytes: count(wire['maxLogTailBytes'], 'welcome.maxLogTailBytes'),
    maxMessageBytes: count(wire['maxMessageBytes'], 'welcome.maxMessageBytes'),
    ...present('wallMs', wallTime(wire['wallMs'], 'welcome.wallMs')),
    ...present('portRange', portRange(wire)),
    ...present('holder', optionalText(wire['holder'], 'welcome.holder')),
  };
}

function portRange(wire: Record<string, unknown>): readonly [number, number] | undefined {
  const first = optionalPort(wire['portFirst'], 'welcome.portFirst');
  const last = optionalPort(wire['portLast'], 'welcome.portLast');
  return first === undefined || last === undefined || last < first ? undefined : [first, last];
}

function refusal(wire: Record<string, unknown>): Refusal {
  return {
    code: refusalCodes.toDomain(wire['code']),
    message: optionalText(wire['message'], 'refusal.message') ?? '',
    serverBuild: optionalIdentifier(wire['serverBuild'], 'refusal.serverBuild') ?? 'unknown',
    serverProtocolVersion: count(wire['serverProtocolVersion'] ?? 0, 'refusal.serverProtocolVersion'),
  };
}

function order(wire: Record<string, unknown>, field: string) {
  return {
    term: count(wire['term'], `${field}.term`),
    commandId: identifier(wire['commandId'], `${field}.commandId`),
    shardId: identifier(wire['shardId'], `${field}.shardId`),
    generation: count(wire['generation'], `${field}.generation`),
  };
}

function drainOrder(wire: Record<string, unknown>): DrainOrder {
  return { ...order(wire, 'drain'), over: wire['over'] === true };
}

function stopOrder(wire: Record<string, unknown>): StopOrder {
  return {
    ...order(wire, 'stop'),
    graceMs: count(wire['graceMs'] ?? 0, 'stop.graceMs'),
    ...present('reason', optionalText(wire['reason'], 'stop.reason')),
  };
}

function startOrder(wire: Record<string, unknown>, nodeId: string): StartOrder {
  const head = order(wire, 'start');
  const gpuUuids = list(wire['gpuUuids'], 'start.gpuUuids', GPUS_MAX, identifier);
  const engine = engineKind(wire['engine'], 'start.engine');
  if (engine === undefined)
    throw new ProtocolError('malformed', 'start.engine', 'this agent knows no such engine');
  const shards = count(wire['shards'], 'start.shards');
  const command: StartShardCommand = {
    nodeId,
    shardId: head.shardId,
    replicaId: identifier(wire['replicaId'], 'start.replicaId'),
    generation: head.generation,
    model: identifier(wire['model'], 'start.model'),
    aliases: list(wire['aliases'], 'start.aliases', ALIASES_MAX, identifier),
    rank: count(wire['rank'] ?? 0, 'start.rank'),
    shards,
    gpuUuids,
    ports: ports(wire, 'start'),
    peers: list(wire['peers'], 'start.peers', PEERS_MAX, peer),
    specDigest: optionalIdentifier(wire['specDigest'], 'start.specDigest') ?? '',
    ...present('source', optionalText(wire['source'], 'start.source')),
    profile: {
      name: identifier(wire['profile'], 'start.profile'),
      engine,
      shards,
      gpus: gpuUuids.length,
      args: list(wire['args'], 'start.args', ARGS_MAX, argument),
      env: environment(wire['env']),
      startTimeoutMs: count(wire['startTimeoutMs'], 'start.startTimeoutMs'),
      stopGraceMs: count(wire['stopGraceMs'], 'start.stopGraceMs'),
      weight: 1,
      ...present('gpuMemoryBytes', optionalCount(wire['gpuMemoryBytes'], 'start.gpuMemoryBytes')),
      ...present('maxConcurrency', optionalCount(wire['maxConcurrency'], 'start.maxConcurrency')),
    },
  };
  return { term: head.term, commandId: head.commandId, command };
}

/** An argument is handed to the engine as it stands: never cut, never empty by mistake. */
function argument(value: unknown, field: string): string {
  if (typeof value !== 'string') throw new ProtocolError('malformed', field, 'expected text');
  if (value.includes('\0')) throw new ProtocolError('malformed', field, 'NUL cannot be part of an argument');
  return value;
}

function environment(value: unknown): Record<string, EnvValue> {
  const result = Object.create(null) as Record<string, EnvValue>;
  for (const [name, entry] of Object.entries(record(value ?? {}, 'start.env'))) {
    const field = `start.env.${name}`;
    const wire = record(entry, field);
    const fromFile = wire['fromFile'];
    result[name] =
      typeof fromFile === 'string' && fromFile !== ''
        ? { fromFile }
        : { value: argument(wire['value'] ?? '', field) };
  }
  return result;
}

function peer(value: unknown, field: string): Peer {
  const wire = record(value, field);
  return {
    rank: count(wire['rank'] ?? 0, `${field}.rank`),
    address: identifier(wire['address'], `${field}.address`),
    ports: ports(wire, field),
  };
}

function logRequest(wire: Record<string, unknown>): LogRequest {
  return {
    requestId: identifier(wire['requestId'], 'fetchLogs.requestId'),
    shardId: identifier(wire['shardId'], 'fetchLogs.shardId'),
    tailLines: count(wire['tailLines'] ?? 0, 'fetchLogs.tailLines'),
    follow: flag(wire['follow'] ?? false, 'fetchLogs.follow'),
    stop: flag(wire['stop'] ?? false, 'fetchLogs.stop'),
    previous: flag(wire['previous'] ?? false, 'fetchLogs.previous'),
  };
}

// ---------------------------------------------------------------- small parts

/** A wall time is only shown; one that makes no sense (before 1970, a clock gone wild) is unknown, never a refusal. */
function wallTime(value: unknown, field: string): number | undefined {
  if (typeof value === 'string' && value.startsWith('-')) return undefined;
  if (typeof value === 'number' && value < 0) return undefined;
  const ms = optionalCount(value, field);
  return ms === 0 ? undefined : ms;
}

/** A property that is left out while its value is unknown: absent and undefined must not differ to readers of JSON. */
function present<K extends string, V>(key: K, value: V | undefined): { readonly [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { readonly [P in K]?: V });
}
