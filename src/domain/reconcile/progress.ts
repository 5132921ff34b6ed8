/**
 * What happened to the replicas we have: first reports, readiness, failures, ends. Each record is taken one step further
 * by what is seen, never by what was hoped for when a command was sent.
 */
import { replicaKey, type ReplicaRecord, shardKey, type ShardReport, type Verdict } from '../cluster.js';
import { counted, duration } from '../placement/reasons.js';
import { countFailure, type Failure, healthyResetMs, leftAfterRestartMs } from './backoff.js';
import { stopShards } from './commands.js';
import { drainIntents, drainOver, promisedDrainOver } from './drain.js';
import { learnFrom } from './learn.js';
import { leaveReason } from './leave.js';
import { leaveOccupied } from './occupied.js';
import type { Pass } from './pass.js';
import { because } from './reasons.js';
import { inflightOf, isHung, type ObservedReplica } from './replica-state.js';
import { isStopped, type ShardStatus } from './shard-state.js';

export function progressReplicas(pass: Pass): void {
  for (const record of pass.records()) {
    switch (record.intent) {
      case 'run':
        progressRunning(pass, record);
        break;
      case 'drain':
        progressDraining(pass, record);
        break;
      case 'stop':
        break;
    }
    // What is gone makes room for the decisions that follow, also when that is seen only now.
    const now = pass.record(record.id);
    if (now?.intent === 'stop' && pass.observed(now).stopped) forgetStopped(pass, now);
  }
}

/** Takes every replica that is to stop one step further; after all decisions, so that the newest are carried out at once. */
export function stopReplicas(pass: Pass): void {
  for (const record of pass.records()) if (record.intent === 'stop') progressStopping(pass, record);
}

// ---------------------------------------------------------------- run

function progressRunning(pass: Pass, record: ReplicaRecord): void {
  recallRetry(pass, record);
  if (record.shards.length === 0) return;
  const seen = pass.observed(record);
  const gone = seen.removedNodeId ?? seen.lostNodeId;
  if (gone !== undefined) return giveUp(pass, record, seen, gone);
  if (seen.failure === undefined) {
    const stopped = stoppedShard(seen);
    if (stopped !== undefined) return endAsAsked(pass, record, stopped);
    if (leaveOccupied(pass, record)) return;
    noteStarted(pass, record, seen);
    const failure = findFailure(pass, pass.record(record.id) ?? record, seen);
    if (failure !== undefined) noteFailure(pass, record, failure);
  }
  const now = pass.record(record.id) ?? record;
  if (pass.observed(now).failure !== undefined) return clearAway(pass, now);
  noteReadiness(pass, now, pass.observed(now));
}

/** A whole replica goes with any of its nodes; the copy that takes its place is created like any missing one. */
function giveUp(pass: Pass, record: ReplicaRecord, seen: ObservedReplica, nodeId: string): void {
  const removed = seen.removedNodeId !== undefined;
  const reason = removed
    ? because('node_removed', `${nodeId} was removed`)
    : because('node_lost', `${nodeId} was given up`);
  // A lone shard on a lost node may come back whole and is then worth keeping; a broken gang is not, and what is left of one
  // that failed looks like a lone shard.
  const broken = record.shards.length > 1 || seen.failure !== undefined;
  const intent = removed || broken ? 'stop' : 'drain';
  pass.put({ ...unready(record), intent, intentReason: reason }, reason);
  pass.forget(record, 'readySinceMs', 'unhealthySinceMs', 'startSinceMs');
}

/** Stopped because its agent was asked to: nothing is wrong with it, and nobody here asked. */
function stoppedShard({ shards }: ObservedReplica): ObservedReplica['shards'][number] | undefined {
  return shards.find(
    ({ status }) =>
      status.kind === 'seen' && status.report.phase === 'exited' && status.report.verdict === 'stopped',
  );
}

/**
 * An agent stops its engines when it ends, and a stop may have been sent by a server whose decisions were lost since. Neither is a
 * crash: the copy is over with all its ranks, and where one is wanted a new one is placed without any wait.
 */
function endAsAsked(pass: Pass, record: ReplicaRecord, { shard }: ObservedReplica['shards'][number]): void {
  const message = `${shard.nodeId} stopped it as asked: by its own agent on ending, or by a server whose state was lost`;
  const reason = because('stopped_by_others', message);
  pass.put({ ...unready(record), intent: 'stop', intentReason: reason }, reason);
  pass.forget(record, 'readySinceMs', 'unhealthySinceMs', 'startSinceMs');
}

function noteStarted(pass: Pass, record: ReplicaRecord, seen: ObservedReplica): void {
  const all = seen.shards.every(({ status }) => status.kind === 'seen');
  if (all && record.startedWallMs === undefined) {
    const reason = because('started', `all ${record.shards.length} shards are reported`);
    pass.put({ ...record, startedWallMs: pass.context.nowWallMs }, reason);
  }
  const waiting = seen.shards.some(({ status }) => status.kind === 'absent' || status.kind === 'unsettled');
  const sinceMs = pass.memoryOf(record).startSinceMs;
  if (!waiting || pass.settling) pass.forget(record, 'startSinceMs');
  else if (sinceMs === undefined) pass.remember(record, { startSinceMs: pass.nowMs });
  const unhealthy = seen.shards.some(
    ({ status }) => status.kind === 'seen' && status.report.phase === 'unhealthy',
  );
  if (!unhealthy) pass.forget(record, 'unhealthySinceMs');
  else if (pass.memoryOf(record).unhealthySinceMs === undefined)
    pass.remember(record, { unhealthySinceMs: pass.nowMs });
}

function noteReadiness(pass: Pass, record: ReplicaRecord, seen: ObservedReplica): void {
  if (!seen.ready) {
    pass.forget(record, 'readySinceMs');
    // Silence is not unreadiness: the data path may still prove life, and the last known readiness is what it confirms. But
    // steady it is not.
    if (seen.silent) return;
    if (record.readyWallMs !== undefined) pass.put(unready(record), because('not_ready', 'no longer Ready'));
    return;
  }
  if (record.readyWallMs === undefined) {
    pass.put({ ...record, readyWallMs: pass.context.nowWallMs }, because('became_ready', 'every rank is up'));
  }
  learnFrom(pass, record, seen, record.readyWallMs === undefined);
  const readySinceMs = pass.memoryOf(record).readySinceMs;
  if (readySinceMs === undefined) pass.remember(record, { readySinceMs: pass.nowMs });
  else resetBackoffs(pass, record, pass.nowMs - readySinceMs);
}

function resetBackoffs(pass: Pass, record: ReplicaRecord, healthyMs: number): void {
  const known = pass.backoffsOf(record.id).filter((one) => !one.permanent);
  if (known.length === 0 || healthyMs < healthyResetMs(known, pass.policy)) return;
  const reason = because('healthy_again', `healthy for ${duration(healthyMs)}`, { healthyMs });
  for (const one of known) pass.clearBackoff(one, reason);
}

// ---------------------------------------------------------------- failures

/** A server that has just started has no memory of the failure, only the record of it. */
function recallRetry(pass: Pass, record: ReplicaRecord): void {
  const { failure } = pass.observed(record);
  if (failure === undefined || pass.memoryOf(record).retryAtMs !== undefined) return;
  const leftMs = leftAfterRestartMs(failure, pass.context.nowWallMs);
  pass.remember(record, { retryAtMs: pass.nowMs + leftMs });
}

/** The failure that ends this generation, the root cause first. */
function findFailure(pass: Pass, record: ReplicaRecord, seen: ObservedReplica): Failure | undefined {
  const failures: Failure[] = [];
  for (const { shard, status } of seen.shards) {
    const failure = shardFailure(pass, record, shard.nodeId, shard.shardId, status);
    if (failure !== undefined) failures.push(failure);
  }
  // The rank that was killed because its peer died tells nothing; the peer does.
  const root = failures.find(({ cause }) => cause !== 'peerRankExited') ?? failures[0];
  if (root !== undefined) return root;
  const evidence = pass.snapshot.evidence.get(replicaKey(record.id, record.generation));
  const head = record.shards[0];
  if (head !== undefined && seen.ready && isHung(evidence, pass.policy)) {
    const message = `${evidence?.firstTokenTimeouts ?? 0} requests in a row waited for a first token in vain`;
    return { nodeId: head.nodeId, cause: 'hung', message };
  }
  return undefined;
}

function shardFailure(
  pass: Pass,
  record: ReplicaRecord,
  nodeId: string,
  shardId: string,
  status: ShardStatus,
): Failure | undefined {
  switch (status.kind) {
    case 'seen':
      return reportedFailure(pass, record, nodeId, status.report);
    case 'absent': {
      const refusal = pass.snapshot.refusals.get(shardKey(shardId, record.generation));
      if (refusal !== undefined)
        return { nodeId, cause: refusal.verdict, message: refusal.message ?? 'the agent refused the start' };
      return absentFailure(pass, record, nodeId);
    }
    case 'unsettled':
    case 'silent':
    case 'removed':
      return undefined;
  }
}

function reportedFailure(
  pass: Pass,
  record: ReplicaRecord,
  nodeId: string,
  report: ShardReport,
): Failure | undefined {
  if (report.phase === 'unhealthy') {
    const sinceMs = pass.memoryOf(record).unhealthySinceMs ?? pass.nowMs;
    const forMs = pass.nowMs - sinceMs;
    if (forMs < pass.policy.unhealthyRestartMs) return undefined;
    const said = report.message === undefined ? '' : `: ${report.message}`;
    return { nodeId, cause: report.verdict ?? 'hung', message: `unhealthy for ${duration(forMs)}${said}` };
  }
  if (report.phase !== 'exited') return undefined;
  // A server process has no business ending, whatever its exit code says.
  const cause: Verdict = report.verdict ?? (report.exitCode === 0 ? 'exitedCleanly' : 'crashed');
  return {
    nodeId,
    cause,
    message: report.message ?? exitSentence(report),
    ...(report.logTail === undefined ? {} : { logTail: report.logTail }),
    ...(report.exitCode === undefined ? {} : { exitCode: report.exitCode }),
    ...(report.exitSignal === undefined ? {} : { exitSignal: report.exitSignal }),
  };
}

function exitSentence(report: ShardReport): string {
  if (report.exitSignal !== undefined) return `ended by ${report.exitSignal}`;
  return report.exitCode === undefined ? 'ended' : `exited with code ${report.exitCode}`;
}

/** Missing from a full report: dead when it had been there, refused by silence when it never came. */
function absentFailure(pass: Pass, record: ReplicaRecord, nodeId: string): Failure | undefined {
  if (record.startedWallMs !== undefined)
    return { nodeId, cause: 'unknown', message: 'its agent no longer has it (machine or agent restarted)' };
  const waitedMs = pass.nowMs - (pass.memoryOf(record).startSinceMs ?? pass.nowMs);
  if (waitedMs < pass.policy.startMissingMs) return undefined;
  return { nodeId, cause: 'unknown', message: `its agent did not start it within ${duration(waitedMs)}` };
}

function noteFailure(pass: Pass, record: ReplicaRecord, failure: Failure): void {
  const { nowWallMs, random } = pass.context;
  const known = pass.backoffsOf(record.id);
  const backoff = countFailure(record, failure, known, pass.policy, nowWallMs, random);
  const reason = because('failed', `${failure.cause} on ${failure.nodeId}: ${failure.message}`, {
    failures: backoff.failures,
    delayMs: backoff.delayMs,
  });
  pass.putBackoff(backoff, reason);
  pass.remember(record, { retryAtMs: pass.nowMs + backoff.delayMs });
}

/** A failed generation: every rank is stopped, and once that is sure its place is given back. */
function clearAway(pass: Pass, record: ReplicaRecord): void {
  const seen = pass.observed(record);
  const { failure } = seen;
  if (failure === undefined) return;
  pass.forget(record, 'readySinceMs', 'unhealthySinceMs', 'startSinceMs');
  if (!seen.stopped) {
    if (record.readyWallMs !== undefined) pass.put(unready(record), because('not_ready', 'failed'));
    releaseStopped(pass, pass.record(record.id) ?? record);
    const now = pass.record(record.id) ?? record;
    stopShards(pass, now, because('failed', `generation ${record.generation} failed: ${failure.cause}`));
    return;
  }
  const { startedWallMs: _started, ...rest } = unready(record);
  pass.put({ ...rest, shards: [] }, because('released', 'every shard is confirmed gone'));
}

// ---------------------------------------------------------------- drain and stop

/** Out of the router since an earlier pass; stops when its requests have ended, or must. */
function progressDraining(pass: Pass, record: ReplicaRecord): void {
  const memory = pass.memoryOf(record);
  // In-flight of a snapshot made before the router was told was counted while the replica could still be chosen.
  if (memory.drainSinceMs === undefined) pass.remember(record, { drainSinceMs: pass.nowMs });
  const sinceMs = memory.drainSinceMs ?? pass.nowMs;
  if (pass.nowMs <= sinceMs) return;
  const seen = pass.observed(record);
  if (seen.removedNodeId !== undefined) {
    return stopNow(pass, record, because('node_removed', `${seen.removedNodeId} was removed`));
  }
  if (seen.shards.some(({ status }) => isStopped(status)))
    return stopNow(pass, record, because('stopped', 'its engine has ended'));
  if (seen.silent) {
    // Nothing can be said to it, and whether its streams have ended is not known either.
    const reason = because('unreachable', 'its node is silent; waits for its return or loss');
    pass.notDone.push({ subject: `replica/${record.id}`, reason });
    return;
  }
  if ((pass.settling || pass.braking) && leaveReason(pass, record) === undefined) {
    // Its node is back, or the others may have failed meanwhile: it may be wanted again, which nothing can decide yet.
    const until = pass.settling ? 'all nodes have reported' : 'fewer nodes are silent';
    const reason = because('settling', `whether it is wanted again is decided when ${until}`);
    pass.notDone.push({ subject: `replica/${record.id}`, reason });
    return;
  }
  const inflight = inflightOf(pass.snapshot, record);
  if (inflight === 0) return stopNow(pass, record, because('drained', 'no request in flight'));
  if (promisedDrainOver(pass, record) && record.intentReason.code !== 'drain_deadline') {
    const message = `${counted(inflight, 'request')} still in flight at the deadline of the drain`;
    const reason = because('drain_deadline', message, { inflight });
    pass.tellOnce(record, reason);
    return stopNow(pass, record, reason);
  }
  const graceMs = drainGraceMs(pass, record);
  const waitedMs = pass.nowMs - sinceMs;
  if (waitedMs >= graceMs) {
    const message = `${counted(inflight, 'request')} still in flight after ${duration(waitedMs)}`;
    const reason = because('stream_grace_over', message, { inflight, graceMs });
    pass.tellOnce(record, reason);
    return stopNow(pass, record, reason);
  }
  const reason = because('waits_for_streams', `${counted(inflight, 'request')} in flight`, {
    inflight,
    leftMs: graceMs - waitedMs,
  });
  pass.notDone.push({ subject: `replica/${record.id}`, reason });
}

/** The shortest stream grace any operator set on a node the replica drains from, longer or shorter than the general one. */
function drainGraceMs(pass: Pass, record: ReplicaRecord): number {
  // The operator may have taken the drain back since.
  if (record.intentReason.code === 'drain_deadline' && drainOver(pass, record)) return 0;
  const graces = drainIntents(pass, record).flatMap(({ streamGraceMs }) => streamGraceMs ?? []);
  return graces.length === 0 ? pass.policy.streamGraceMs : Math.min(...graces);
}

function stopNow(pass: Pass, record: ReplicaRecord, reason: ReturnType<typeof because>): void {
  pass.put({ ...unready(record), intent: 'stop' }, reason);
}

function forgetStopped(pass: Pass, record: ReplicaRecord): void {
  pass.remove(record.id, because('stopped', `${record.intentReason.message}; all shards are stopped`));
}

function progressStopping(pass: Pass, before: ReplicaRecord): void {
  if (pass.observed(before).stopped) return forgetStopped(pass, before);
  releaseStopped(pass, before);
  const record = pass.record(before.id) ?? before;
  const seen = pass.observed(record);
  stopShards(pass, record, record.intentReason);
  const left = seen.shards.filter(({ status }) => status.kind === 'silent').map(({ shard }) => shard.nodeId);
  const where = left.length === 0 ? '' : `; ${left.join(', ')} silent`;
  const reason = because('waits_for_stop', `its stop is not confirmed yet${where}`);
  pass.notDone.push({ subject: `replica/${record.id}`, reason });
}

/**
 * Writes down which shards of an ending gang are gone, so that their places are free for good: seen once is enough, their node may
 * fall silent the next moment and could then no longer be asked.
 */
function releaseStopped(pass: Pass, record: ReplicaRecord): void {
  const left = pass.observed(record).shards.filter(({ status }) => !isStopped(status));
  if (left.length === record.shards.length) return;
  const count = record.shards.length - left.length;
  const shards = left.map(({ shard }) => shard);
  pass.put({ ...record, shards }, because('released', `${count} of its shards are confirmed gone`));
}

/** The record as it is when not Ready. */
export function unready(record: ReplicaRecord): ReplicaRecord {
  const { readyWallMs: _ready, ...rest } = record;
  return rest;
}
