/** The columns of every list that `ctl` shows. */
import type { ModelSummaryView } from '../../admin-api/views/models.js';
import type { GpuView, NodeSummaryView } from '../../admin-api/views/nodes.js';
import type { EndpointView, ReplicaSummaryView, ShardView } from '../../admin-api/views/replicas.js';
import type { EventView } from '../../admin-api/views/status.js';
import { toneOf } from './style.js';
import type { Column } from './table.js';
import { age, ago, bytes, count, labels, plain, span, tally, until } from './values.js';

/** `Ready,cordoned`: liveness and scheduling in one word pair, as operators read nodes elsewhere. */
const nodeState = ({ state, scheduling }: NodeSummaryView): string =>
  scheduling.state === 'schedulable' ? state : `${state},${scheduling.state}`;

export const NODE_COLUMNS: readonly Column<NodeSummaryView>[] = [
  { title: 'NODE', cell: (node) => node.id },
  {
    title: 'STATE',
    cell: nodeState,
    tone: ({ state, scheduling }) =>
      toneOf(state === 'connected' && scheduling.state !== 'schedulable' ? scheduling.state : state),
  },
  { title: 'GPUS', cell: ({ gpus }) => (gpus.total === 0 ? '0' : `${gpus.free} of ${gpus.total} empty`) },
  { title: 'REPLICAS', cell: ({ replicas }) => replicas.length, right: true },
  {
    title: 'ENGINES',
    cell: ({ engines }) =>
      engines
        .filter((engine) => engine.unavailable === undefined)
        .map(({ kind }) => kind)
        .join(','),
    shrinks: true,
  },
  { title: 'ADDRESS', cell: (node) => node.address },
  { title: 'SINCE', cell: (node, { nowMs }) => age(node.stateSince, nowMs), right: true },
  { title: 'REPORT', cell: (node, { nowMs }) => age(node.lastReportAt, nowMs), right: true, wide: true },
  { title: 'AGENT', cell: (node) => node.agentVersion, wide: true },
  { title: 'LABELS', cell: (node) => labels(node.labels), wide: true },
  { title: 'NOTE', cell: nodeNote, shrinks: true },
];

function nodeNote(node: NodeSummaryView): string {
  const conditions = node.conditions.map(({ type, reason }) => `${type}: ${reason}`);
  const refused = node.refused?.at(-1);
  return [
    node.stateReason ?? '',
    ...conditions,
    node.gpus.healthy < node.gpus.total
      ? `${count(node.gpus.total - node.gpus.healthy, 'GPU')} not healthy`
      : '',
    refused === undefined ? '' : `refused ${refused.count}x: ${refused.reason.message}`,
  ]
    .filter((part) => part !== '')
    .join('; ');
}

export const GPU_COLUMNS: readonly Column<GpuView>[] = [
  { title: 'GPU', cell: (gpu) => gpu.uuid },
  { title: 'NODE', cell: (gpu) => gpu.nodeId },
  { title: 'TYPE', cell: (gpu) => gpu.type, shrinks: true },
  { title: 'HEALTH', cell: ({ health }) => health.state, tone: 'state' },
  { title: 'USED', cell: (gpu) => bytes(gpu.memoryUsedBytes), right: true },
  { title: 'TOTAL', cell: (gpu) => bytes(gpu.memoryTotalBytes), right: true },
  {
    title: 'HELD BY',
    cell: ({ heldBy }) => heldBy.map((held) => `${held.replicaId} (${held.model})`).join(', '),
    shrinks: true,
  },
  {
    title: 'FOREIGN',
    cell: ({ foreign }) => foreign.map(({ pid, name }) => `${name ?? 'process'}:${pid}`).join(', '),
    shrinks: true,
  },
  { title: 'BUS', cell: (gpu) => gpu.busId, wide: true },
  { title: 'LINKED TO', cell: ({ linkedTo }) => linkedTo.join(','), wide: true },
  {
    title: 'NOTE',
    cell: ({ health }) => [health.reason, health.evidence].filter((part) => part !== undefined).join(': '),
    shrinks: true,
  },
];

export const MODEL_COLUMNS: readonly Column<ModelSummaryView>[] = [
  { title: 'MODEL', cell: (model) => model.name },
  {
    title: 'READY',
    // Nobody wants replicas of a model that only static endpoints serve.
    cell: ({ ready, desired, staticEndpoints }) =>
      ready === 0 && desired === 0 && staticEndpoints.length > 0 ? undefined : `${ready}/${desired}`,
    right: true,
    tone: ({ ready, desired }) => (ready >= desired ? 'good' : ready === 0 ? 'bad' : 'busy'),
  },
  {
    title: 'SERVES',
    cell: ({ outlook, expectedReadyMs }) =>
      expectedReadyMs === undefined || outlook !== 'coming' ? outlook : `coming in ${span(expectedReadyMs)}`,
    tone: 'state',
  },
  { title: 'REPLICAS', cell: ({ byState }) => tally(byState) },
  { title: 'STATIC', cell: ({ staticEndpoints }) => staticEndpoints.length, right: true },
  { title: 'ROUTING', cell: (model) => model.routingProfile },
  { title: 'ALIASES', cell: ({ aliases }) => aliases.join(','), shrinks: true },
  { title: 'SOURCE', cell: (model) => model.source, wide: true },
  {
    title: 'NOTE',
    cell: ({ reason, conditions }) => [reason, ...conditions].flatMap((one) => one?.message ?? []).join('; '),
    shrinks: true,
  },
];

export const REPLICA_COLUMNS: readonly Column<ReplicaSummaryView>[] = [
  { title: 'REPLICA', cell: (replica) => replica.id },
  { title: 'MODEL', cell: (replica) => replica.model },
  { title: 'PROFILE', cell: (replica) => replica.profile },
  { title: 'STATE', cell: (replica) => replica.state, tone: 'state' },
  { title: 'NODES', cell: ({ nodes }) => nodes.join(',') },
  { title: 'IN FLIGHT', cell: (replica) => replica.inflight, right: true },
  { title: 'RESTARTS', cell: (replica) => replica.restarts, right: true },
  { title: 'AGE', cell: (replica, { nowMs }) => age(replica.createdAt, nowMs), right: true },
  { title: 'GEN', cell: (replica) => replica.generation, right: true, wide: true },
  { title: 'INTENT', cell: (replica) => replica.intent, wide: true },
  { title: 'ROUTED', cell: ({ published }) => (published ? 'yes' : 'no'), wide: true },
  { title: 'ADDRESS', cell: (replica) => replica.address, wide: true },
  { title: 'ENGINE', cell: (replica) => replica.engine, wide: true },
  { title: 'NOTE', cell: (replica, { nowMs }) => replicaNote(replica, nowMs), shrinks: true },
];

function replicaNote(replica: ReplicaSummaryView, nowMs: number): string {
  const parts = [
    replica.progress,
    replica.reason?.message,
    // A reason of the server's that says it already is not told twice.
    replica.nextTryAt === undefined || replica.reason?.message.includes('next try')
      ? undefined
      : `next try ${until(replica.nextTryAt, nowMs)}`,
    replica.replaces === undefined ? undefined : `replaces ${replica.replaces}`,
    replica.intent === 'run' ? undefined : replica.intentReason.message,
  ];
  return parts.filter((part) => part !== undefined && part !== '').join('; ');
}

export const ENDPOINT_COLUMNS: readonly Column<EndpointView>[] = [
  { title: 'ENDPOINT', cell: (endpoint) => endpoint.id },
  { title: 'STATE', cell: (endpoint) => endpoint.state, tone: 'state' },
  { title: 'MODELS', cell: ({ models }) => models.join(','), shrinks: true },
  { title: 'URL', cell: (endpoint) => endpoint.url },
  {
    title: 'IN FLIGHT',
    cell: ({ inflight, maxConcurrency }) =>
      maxConcurrency === undefined ? inflight : `${inflight}/${maxConcurrency}`,
    right: true,
  },
  { title: 'REQUESTS', cell: (endpoint) => endpoint.requestsTotal, right: true },
  {
    title: 'FAILED',
    cell: (endpoint) => endpoint.failuresTotal,
    right: true,
    tone: ({ failuresTotal }) => (failuresTotal > 0 ? 'busy' : undefined),
  },
  {
    title: 'LAST BYTE',
    cell: ({ lastByteAgeMs }) => (lastByteAgeMs === undefined ? undefined : ago(lastByteAgeMs)),
    right: true,
  },
  { title: 'POOL', cell: (endpoint) => endpoint.pool, wide: true },
  { title: 'WEIGHT', cell: (endpoint) => endpoint.weight, right: true, wide: true },
  { title: 'ENGINE', cell: (endpoint) => endpoint.engine, wide: true },
  { title: 'RUNNING', cell: (endpoint) => endpoint.engineRunning, right: true, wide: true },
  { title: 'WAITING', cell: (endpoint) => endpoint.engineWaiting, right: true, wide: true },
  { title: 'TOKENS DUE', cell: (endpoint) => endpoint.outstandingTokens, right: true, wide: true },
  { title: 'NODE', cell: (endpoint) => endpoint.nodeId },
  { title: 'NOTE', cell: (endpoint) => endpoint.reason, shrinks: true },
];

export const EVENT_COLUMNS: readonly Column<EventView>[] = [
  { title: 'AGE', cell: (event, { nowMs }) => age(event.at, nowMs), right: true },
  { title: 'LEVEL', cell: (event) => event.severity, tone: 'state' },
  { title: 'WHAT', cell: (event) => event.type },
  { title: 'SUBJECT', cell: ({ subject }) => `${subject.kind}/${subject.id}` },
  { title: 'BY', cell: (event) => event.actor, wide: true },
  { title: 'AT', cell: (event) => event.at, wide: true },
  { title: 'SEQ', cell: (event) => event.sequence, right: true, wide: true },
  { title: 'WHY', cell: ({ reason }) => reason.message, shrinks: true },
];

export const SHARD_COLUMNS: readonly Column<ShardView>[] = [
  { title: 'SHARD', cell: (shard) => shard.id },
  { title: 'RANK', cell: (shard) => shard.rank, right: true },
  { title: 'NODE', cell: (shard) => shard.nodeId },
  { title: 'PHASE', cell: (shard) => shard.phase ?? 'unknown', tone: 'state' },
  { title: 'FOR', cell: (shard) => span(shard.phaseAgeMs), right: true },
  { title: 'PID', cell: (shard) => shard.pid, right: true },
  { title: 'PORT', cell: (shard) => shard.httpPort, right: true },
  { title: 'GPUS', cell: ({ gpuUuids }) => gpuUuids.join(','), shrinks: true },
  { title: 'NOTE', cell: shardNote, shrinks: true },
];

function shardNote(shard: ShardView): string {
  const exit = shard.exitSignal ?? (shard.exitCode === undefined ? undefined : `exit code ${shard.exitCode}`);
  const parts = [
    shard.progress,
    shard.verdict,
    shard.message,
    exit,
    shard.wanted ? undefined : 'nobody asks for it',
  ];
  return plain(parts.filter((part) => part !== undefined && part !== '').join('; '));
}
