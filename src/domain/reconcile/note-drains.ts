/** What is told of drains: for each replica that is still there what it waits for, and once that the node is empty or its deadline over. */
import type { NodeView, Reason, ReplicaRecord } from '../cluster.js';
import { counted, duration } from '../placement/reasons.js';
import { drainLeftMs, drainRemains, isDrained } from './drain.js';
import { leaveReason } from './leave.js';
import type { Pass } from './pass.js';
import { blockedReason } from './places.js';
import { because } from './reasons.js';

/** Says what every drain waits for, and tells once when it is over or past its deadline. After all decisions of the pass. */
export function noteDrains(pass: Pass): void {
  for (const node of pass.nodes.values()) {
    if (node.intent.target !== 'drained') continue;
    const remains = drainRemains(node, pass.records());
    for (const record of remains.replicas) sayWhyStillThere(pass, node, record);
    if (pass.settling) {
      // Over before this server began: told by the one that saw its end.
      if (remains.replicas.length === 0) pass.rememberDrainTold(node, 'node_drained');
    } else if (isDrained(remains)) tellDrained(pass, node, remains.lost);
    else if (drainLeftMs(pass, node) <= 0) {
      const left = remains.replicas.length + remains.strays.length;
      const message = `the drain is past its deadline, ${counted(left, 'replica')} still there`;
      pass.tellDrainOnce(node, because('drain_deadline', message, { left }));
    }
  }
}

function tellDrained(pass: Pass, node: NodeView, lost: boolean): void {
  const what = node.intent.gpuUuid ?? node.id;
  const tookMs = pass.nowMs - (pass.drainSinceMs(node) ?? pass.nowMs);
  const message = lost
    ? `${node.id} was given up as lost; that nothing runs there is not confirmed`
    : `nothing of ours runs on ${what} any more; it took ${duration(tookMs)}`;
  pass.tellDrainOnce(node, because('node_drained', message, { tookMs }));
}

/** A state that no other step had a word for. */
function sayWhyStillThere(pass: Pass, node: NodeView, record: ReplicaRecord): void {
  const subject = `replica/${record.id}`;
  if (pass.notDone.some((one) => one.subject === subject)) return;
  pass.notDone.push({ subject, reason: whyStillThere(pass, node, record) });
}

function whyStillThere(pass: Pass, node: NodeView, record: ReplicaRecord): Reason {
  const blocked = blockedReason(pass);
  if (blocked !== undefined) return blocked;
  const seen = pass.observed(record);
  if (record.intent === 'drain')
    return because('waits_for_streams', 'it has just left the router; its requests end first');
  if (seen.silent) return because('unreachable', `${node.id} is silent; waits for its return or loss`);
  if (seen.failure !== undefined)
    return because('failed', `its engine failed (${seen.failure.cause}) and is being cleared away`);
  const leaving = leaveReason(pass, record);
  return because('moving', leaving === undefined ? 'it is on its way' : leaving.message);
}
