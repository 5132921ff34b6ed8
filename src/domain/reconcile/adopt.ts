/**
 * Reports that fit no record. A server that restarts finds its engines where it left them and needs nothing here. What remains:
 * leftovers of older generations (stopped), engines the store has forgotten because it was restored from an older copy (taken
 * over whole, never killed for our loss of memory), and pieces that cannot be taken over (stopped after a grace, and told).
 */
import { type ReplicaRecord, type ShardAssignment, shardKey } from '../cluster.js';
import { duration } from '../placement/reasons.js';
import { stopReported } from './commands.js';
import type { LocatedReport, Pass } from './pass.js';
import { because } from './reasons.js';
import { isTalking } from './shard-state.js';

export function adoptReports(pass: Pass): void {
  for (const [replicaId, reports] of pass.reports) {
    const live = reports.filter(({ node, report }) => report.phase !== 'exited' && isTalking(node));
    if (live.length === 0) continue;
    const record = pass.record(replicaId);
    const highest = Math.max(...live.map(({ report }) => report.generation));
    if (highest > (record?.generation ?? 0) && !holdsOwn(pass, record))
      takeOver(pass, replicaId, record, live, highest);
    for (const located of live) judgeStray(pass, located);
  }
}

/** A record whose own shards run, or may run, keeps them: taking over another set would leave these as strays. */
function holdsOwn(pass: Pass, record: ReplicaRecord | undefined): boolean {
  return record !== undefined && !pass.observed(record).stopped;
}

/** Takes over a complete gang of a generation the store does not know. */
function takeOver(
  pass: Pass,
  replicaId: string,
  record: ReplicaRecord | undefined,
  live: readonly LocatedReport[],
  generation: number,
): void {
  const gang = completeGang(pass, live, generation);
  if (gang !== undefined) {
    const adopted = adoptedRecord(pass, replicaId, record, gang, generation);
    const why =
      record === undefined
        ? because('adopted', `engines of ${replicaId} run without a record; taken over as they are`)
        : because(
            'generation_ahead',
            `agents run generation ${generation}, the store knew ${record.generation}; taken over as it is`,
          );
    pass.put(adopted, why);
    pass.tellOnce(adopted, why);
  } else if (record !== undefined && !pass.settling) {
    // Not whole: its pieces are stopped like any stray, but the number must never be given out again.
    const why = because(
      'generation_ahead',
      `agents knew generation ${generation}, the store ${record.generation}`,
    );
    const { readyWallMs: _ready, startedWallMs: _started, ...rest } = record;
    pass.put({ ...rest, shards: [], generation }, why);
  }
}

function completeGang(
  pass: Pass,
  live: readonly LocatedReport[],
  generation: number,
): readonly LocatedReport[] | undefined {
  const gang = live
    .filter(({ report }) => report.generation === generation)
    .toSorted((a, b) => a.report.rank - b.report.rank);
  const first = gang[0]?.report;
  if (first === undefined) return undefined;
  const profile = pass.models.get(first.model)?.profiles.find(({ name }) => name === first.profile);
  const whole =
    profile !== undefined &&
    gang.length === profile.shards &&
    gang.every(({ report }, rank) => report.rank === rank && report.phase !== 'stopping') &&
    gang.every(({ report }) => report.model === first.model && report.profile === first.profile) &&
    gang.every(({ report }) => report.ports.http > 0);
  return whole ? gang : undefined;
}

function adoptedRecord(
  pass: Pass,
  replicaId: string,
  record: ReplicaRecord | undefined,
  gang: readonly LocatedReport[],
  generation: number,
): ReplicaRecord {
  const reports = gang.map(({ report }) => report);
  const { model = '', profile = '', specDigest = '' } = reports[0] ?? {};
  const memory = pass.models.get(model)?.profiles.find(({ name }) => name === profile)?.gpuMemoryBytes;
  const shards = gang.map(({ node, report }): ShardAssignment => ({
    shardId: report.shardId,
    rank: report.rank,
    nodeId: node.id,
    gpuUuids: report.gpuUuids,
    ...(memory === undefined ? {} : { gpuMemoryBytes: memory }),
    ports: report.ports,
  }));
  return {
    id: replicaId,
    model,
    profile,
    // Unknown to an agent that does not keep digests: then it differs from the catalog's and the replica rolls, gently.
    specDigest,
    generation,
    intent: 'run',
    intentReason: because('adopted', 'taken over from the agents'),
    shards,
    createdWallMs: record?.createdWallMs ?? pass.context.nowWallMs,
    startedWallMs: pass.context.nowWallMs,
  };
}

/** Stops what is neither the record's present generation nor could become it. */
function judgeStray(pass: Pass, located: LocatedReport): void {
  const { node, report } = located;
  const record = pass.record(report.replicaId);
  const assigned = record?.shards.some(
    (shard) => shard.shardId === report.shardId && shard.nodeId === node.id,
  );
  if (record !== undefined && record.generation === report.generation && assigned) return;
  const key = shardKey(report.shardId, report.generation);
  const sinceMs = pass.snapshot.memory.orphans.get(key) ?? pass.nowMs;
  pass.orphans.set(key, sinceMs);
  if (pass.settling || pass.braking) return;
  if (record !== undefined && isSpent(pass, record, report.generation)) {
    const why = `runs generation ${report.generation}, which is over; the record is at ${record.generation}`;
    stopReported(pass, located, because('stale_generation', why));
    return;
  }
  const leftMs = sinceMs + pass.policy.orphanGraceMs - pass.nowMs;
  const subject = `shard/${report.shardId}`;
  if (leftMs <= 0) {
    stopReported(
      pass,
      located,
      because('orphan', `on ${node.id} without a record, and not whole enough to take over`),
    );
  } else {
    const reason = because(
      'orphan',
      `on ${node.id} without a record; will be stopped in ${duration(leftMs)}`,
      {
        leftMs,
      },
    );
    pass.notDone.push({ subject, reason });
    if (sinceMs === pass.nowMs) pass.events.push({ subject, reason });
  }
}

/** A generation that was replaced or has failed is never wanted again. */
function isSpent(pass: Pass, record: ReplicaRecord, generation: number): boolean {
  return (
    generation < record.generation ||
    (generation === record.generation && pass.observed(record).failure !== undefined)
  );
}
