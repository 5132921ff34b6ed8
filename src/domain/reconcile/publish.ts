/** What the router may use: the complete list, made anew in every pass. What is not in it is out before anything is stopped. */
import { replicaKey, type ReplicaRecord, type StartedWith } from '../cluster.js';
import type { PublishedReplica } from '../plan.js';
import type { Pass } from './pass.js';
import { type ObservedReplica, provesLife } from './replica-state.js';
import { isAlivePhase } from './shard-state.js';

export function publishReplicas(pass: Pass): void {
  const list: PublishedReplica[] = [];
  for (const record of pass.records()) {
    const one = isPublishable(pass, pass.observed(record)) ? published(pass, record) : undefined;
    if (one !== undefined) list.push(one);
  }
  pass.published = list.sort((a, b) => (a.replicaId < b.replicaId ? -1 : 1));
}

/** Ready and wanted; or known to have been Ready, its node silent, and still proven or presumed alive. */
function isPublishable(pass: Pass, seen: ObservedReplica): boolean {
  const { record } = seen;
  if (record.intent !== 'run' || record.shards.length === 0 || seen.failure !== undefined) return false;
  if (seen.ready) return true;
  return seen.silent && record.readyWallMs !== undefined && outlivesSilence(pass, seen);
}

/**
 * The link to an agent is not the engine. While a node is merely silent its replicas stay for as long as the data path proves that
 * they live, and in the first moments of a server or during a mass loss, when silence is presumed to be our own fault.
 */
function outlivesSilence(pass: Pass, seen: ObservedReplica): boolean {
  // Also the last word of a silent one counts: it may have come while this server itself stood still.
  const others = seen.shards.every(({ status }) => {
    const report = status.kind === 'seen' || status.kind === 'silent' ? status.report : undefined;
    if (report === undefined) return status.kind === 'silent';
    return report.phase === 'ready' || isAlivePhase(report.phase);
  });
  if (!others || seen.lostNodeId !== undefined) return false;
  const unseen = seen.shards.every(
    ({ shard, status }) => status.kind === 'seen' || pass.nodes.get(shard.nodeId)?.liveness === 'unseen',
  );
  if (pass.braking || (pass.settling && unseen)) return true;
  const { record } = seen;
  const evidence = pass.snapshot.evidence.get(replicaKey(record.id, record.generation));
  return provesLife(evidence, pass.policy, pass.nowMs);
}

/** Of a copy that nobody can say anything about; what the router cannot know it does not need. */
const UNKNOWN: Omit<StartedWith, 'stopGraceMs'> = { engine: 'command' };

function published(pass: Pass, record: ReplicaRecord): PublishedReplica | undefined {
  const head = record.shards.find(({ rank }) => rank === 0);
  const node = head === undefined ? undefined : pass.nodes.get(head.nodeId);
  if (head === undefined || node === undefined) return undefined;
  const profile = pass.models.get(record.model)?.profiles.find(({ name }) => name === record.profile);
  // An old copy serves by what it was started with until its replacement is there, whatever the catalog says meanwhile.
  const { engine, maxConcurrency } = record.startedWith ?? profile ?? UNKNOWN;
  return {
    replicaId: record.id,
    generation: record.generation,
    model: record.model,
    profile: record.profile,
    nodeId: node.id,
    address: node.address,
    port: head.ports.http,
    engine,
    ...(maxConcurrency === undefined ? {} : { maxConcurrency }),
    weight: profile?.weight ?? 1,
  };
}
