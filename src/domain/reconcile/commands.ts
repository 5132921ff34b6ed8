/**
 * Turning what should be into commands, each sent once and again only when it may have been lost. An unanswered command is
 * repeated after `commandResendMs`, at once on a new stream (the old one's commands died with it), and is harmless to repeat:
 * agents know it by shard and generation.
 */
import {
  type NodeView,
  type Reason,
  replicaKey,
  type ReplicaRecord,
  type ShardAssignment,
  shardKey,
} from '../cluster.js';
import type { Profile } from '../model-spec.js';
import type { StartShardCommand } from '../plan.js';
import type { LocatedReport, Pass } from './pass.js';
import { because } from './reasons.js';
import { isTalking } from './shard-state.js';

/** Grace given to a shard of which no profile and no record is known. */
const STOP_GRACE_UNKNOWN_MS = 30_000;
/** Beyond its grace an agent kills; a shard still `stopping` this long after that deserves another word. */
const STOP_REPEAT_SLACK_MS = 30_000;

/** Starts the shards of every placed replica that no report shows yet; a gang's all at once or none. */
export function startShards(pass: Pass): void {
  if (pass.settling) return;
  for (const record of pass.records()) {
    if (record.intent !== 'run' || record.shards.length === 0) continue;
    const seen = pass.observed(record);
    if (seen.failure !== undefined || seen.silent) continue;
    const missing = seen.shards.filter(
      ({ status }) => status.kind === 'absent' || status.kind === 'unsettled',
    );
    if (missing.length === 0) continue;
    const profile = pass.models.get(record.model)?.profiles.find(({ name }) => name === record.profile);
    if (profile === undefined || !pass.isCurrent(record)) continue;
    const closed = record.shards.find((shard) => pass.nodes.get(shard.nodeId)?.streamSinceMs === undefined);
    if (closed !== undefined) {
      const reason = because('no_stream', `waits for the stream of ${closed.nodeId}`);
      pass.notDone.push({ subject: `replica/${record.id}`, reason });
      continue;
    }
    for (const { shard } of missing) startShard(pass, record, profile, shard);
  }
}

function startShard(pass: Pass, record: ReplicaRecord, profile: Profile, shard: ShardAssignment): void {
  const node = pass.nodes.get(shard.nodeId);
  const key = `start:${shardKey(shard.shardId, record.generation)}`;
  if (node === undefined || !mayRepeat(pass, node, key, pass.policy.commandResendMs, false)) return;
  pass.starts.push({
    kind: 'startShard',
    command: startCommand(pass, record, profile, shard),
    reason: because('placed', `rank ${shard.rank} of ${record.id} on ${shard.nodeId}`),
  });
}

function startCommand(
  pass: Pass,
  record: ReplicaRecord,
  profile: Profile,
  shard: ShardAssignment,
): StartShardCommand {
  const model = pass.models.get(record.model);
  return {
    nodeId: shard.nodeId,
    shardId: shard.shardId,
    replicaId: record.id,
    generation: record.generation,
    model: record.model,
    aliases: model?.aliases ?? [],
    ...(model?.source === undefined ? {} : { source: model.source }),
    profile,
    rank: shard.rank,
    shards: record.shards.length,
    gpuUuids: shard.gpuUuids,
    ports: shard.ports,
    peers: record.shards.map((peer) => ({
      rank: peer.rank,
      address: pass.nodes.get(peer.nodeId)?.address ?? '',
      ports: peer.ports,
    })),
    specDigest: record.specDigest,
  };
}

/** Sends a stop for every shard of the record not yet proven stopped, and ends what still runs through it. */
export function stopShards(pass: Pass, record: ReplicaRecord, reason: Reason): void {
  const seen = pass.observed(record);
  const key = replicaKey(record.id, record.generation);
  let sent = false;
  for (const { shard, status } of seen.shards) {
    const running =
      status.kind === 'unsettled' || (status.kind === 'seen' && status.report.phase !== 'exited');
    if (!running) continue;
    const stopping = status.kind === 'seen' && status.report.phase === 'stopping';
    const node = pass.nodes.get(shard.nodeId);
    if (node !== undefined) sent = stopShard(pass, node, record, shard.shardId, stopping, reason) || sent;
  }
  if (sent && (pass.snapshot.inflight.get(key) ?? 0) > 0)
    pass.aborts.push({
      kind: 'abortInflight',
      replicaId: record.id,
      generation: record.generation,
      reason,
    });
}

function stopShard(
  pass: Pass,
  node: NodeView,
  record: Pick<ReplicaRecord, 'id' | 'model' | 'profile' | 'generation' | 'startedWith'>,
  shardId: string,
  stopping: boolean,
  reason: Reason,
): boolean {
  const profile = pass.models.get(record.model)?.profiles.find(({ name }) => name === record.profile);
  const graceMs = profile?.stopGraceMs ?? record.startedWith?.stopGraceMs ?? STOP_GRACE_UNKNOWN_MS;
  const resendMs = stopping ? graceMs + STOP_REPEAT_SLACK_MS : pass.policy.commandResendMs;
  const key = `stop:${shardKey(shardId, record.generation)}`;
  if (node.streamSinceMs === undefined || !mayStop(pass, node, key, resendMs, stopping)) return false;
  pass.stops.push({
    kind: 'stopShard',
    command: { nodeId: node.id, shardId, replicaId: record.id, generation: record.generation, graceMs },
    reason,
  });
  return true;
}

/** Stops a reported shard that belongs to no present assignment. */
export function stopReported(pass: Pass, { node, report }: LocatedReport, reason: Reason): void {
  if (!isTalking(node)) return;
  const { model, profile, generation, replicaId } = report;
  const record = { id: replicaId, model, profile, generation };
  stopShard(pass, node, record, report.shardId, report.phase === 'stopping', reason);
}

/** An agent that is already stopping the shard without our asking needs no command before its grace is over. */
function mayStop(pass: Pass, node: NodeView, key: string, resendMs: number, stopping: boolean): boolean {
  if (stopping && !pass.snapshot.memory.commands.has(key)) {
    pass.commands.set(key, { sentMs: pass.nowMs, times: 0 });
    return false;
  }
  return mayRepeat(pass, node, key, resendMs, stopping);
}

function mayRepeat(pass: Pass, node: NodeView, key: string, resendMs: number, obeyed: boolean): boolean {
  // Two steps of one pass may both want it gone.
  if (pass.commands.has(key)) return false;
  const before = pass.snapshot.memory.commands.get(key);
  const onOldStream = before !== undefined && !obeyed && (node.streamSinceMs ?? 0) > before.sentMs;
  if (before !== undefined && !onOldStream && pass.nowMs - before.sentMs < resendMs) {
    pass.commands.set(key, before);
    return false;
  }
  pass.commands.set(key, { sentMs: pass.nowMs, times: (before?.times ?? 0) + 1 });
  return true;
}
