/** Forgetting what no longer concerns anything: back-offs of gone replicas, parks of profiles that have changed. */
import type { BackoffRecord } from '../cluster.js';
import type { Pass } from './pass.js';
import { because } from './reasons.js';

export function forgetObsolete(pass: Pass): void {
  if (pass.settling) return;
  for (const record of pass.allBackoffs()) {
    const why = obsoleteBecause(pass, record);
    if (why !== undefined) pass.clearBackoff(record, because('obsolete', why));
  }
}

/**
 * A park outlives its replica, or a new replica would run into the same wall again; an ordinary back-off does not outlive the
 * replica it slowed down.
 */
function obsoleteBecause(pass: Pass, record: BackoffRecord): string | undefined {
  if (!pass.nodes.has(record.nodeId)) return `${record.nodeId} is gone`;
  if (record.permanent) {
    const digest = pass.digestOf(record.model, record.profile);
    if (digest === record.specDigest) return undefined;
    return `${record.model}/${record.profile} has changed`;
  }
  return pass.record(record.replicaId) === undefined ? `${record.replicaId} is gone` : undefined;
}
