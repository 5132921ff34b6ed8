/**
 * Which nodes live. Judged by silence on our own monotonic clock, and slow to condemn: a stall of ours is not held against
 * anybody, and when half of the fleet falls silent at once we presume that it is us. Quick to believe: one report is life.
 */
import type { NodeLiveness, NodeView, Reason } from '../cluster.js';
import type { PlanEvent } from '../plan.js';
import type { ControlMemory, NodeMemory, Snapshot } from '../snapshot.js';
import { counted, duration } from '../placement/reasons.js';
import type { ControlPolicy } from './policy.js';
import { because, type ReconcileReasonCode } from './reasons.js';
import { judgeStateLoss, stateLossEvents } from './state-loss.js';

export interface LivenessJudgement {
  /** All nodes with the liveness that holds from now on. */
  readonly nodes: readonly NodeView[];
  readonly changes: readonly {
    readonly nodeId: string;
    readonly liveness: NodeLiveness;
    readonly reason: Reason;
  }[];
  /** True while nothing may be moved because too many are silent. */
  readonly braking: boolean;
  readonly events: readonly PlanEvent[];
  readonly memory: Pick<
    ControlMemory,
    'judgeFromMs' | 'firstHeardMs' | 'stateLost' | 'brakeSinceMs' | 'nodes'
  >;
}

/** Reconnects remembered per node: more than any flap limit needs. */
const RECONNECTS_MAX = 16;

export function judgeLiveness(
  snapshot: Snapshot,
  policy: ControlPolicy,
  nowMs: number,
  nowWallMs: number,
): LivenessJudgement {
  const { memory } = snapshot;
  const slept = nowMs - (memory.lastPassMs ?? snapshot.startedMs) > policy.suspendGapMs;
  const judgeFromMs = Math.max(slept ? nowMs : memory.judgeFromMs, snapshot.startedMs);
  // One that has said nothing yet is silent since it is known, not since we began: a new machine is no lost one.
  const silence = (node: NodeView) =>
    nowMs - Math.max(node.lastReportMs ?? node.livenessSinceMs, judgeFromMs);
  const brake = judgeBrake(snapshot, policy, nowMs, silence);

  const nodes: NodeView[] = [];
  const changes: LivenessJudgement['changes'][number][] = [];
  const nodeMemories = new Map<string, NodeMemory>();
  for (const node of snapshot.nodes) {
    const before = memory.nodes.get(node.id);
    const remembered = rememberReconnects(node, before, policy, nowMs);
    const firstPass = memory.lastPassMs === undefined;
    nodeMemories.set(node.id, {
      ...remembered,
      ...rememberDrain(node, before, policy, firstPass ? nowWallMs : undefined, nowMs),
    });
    const verdict = judgeNode(node, silence(node), remembered, policy, nowMs, brake.braking);
    if (verdict.liveness === node.liveness) {
      nodes.push(node);
      continue;
    }
    const reason = because(verdict.code, verdict.message);
    nodes.push({
      ...node,
      liveness: verdict.liveness,
      livenessSinceMs: nowMs,
      livenessReason: reason.message,
    });
    changes.push({ nodeId: node.id, liveness: verdict.liveness, reason });
  }
  const loss = judgeStateLoss(snapshot, policy, nowMs);
  const events = [...brake.events, ...stateLossEvents(snapshot, loss, policy)];
  if (slept)
    events.push({
      subject: 'cluster',
      reason: because(
        'slept',
        `stood still for ${duration(nowMs - (memory.lastPassMs ?? snapshot.startedMs))}; nobody is judged by it`,
      ),
    });
  return {
    nodes,
    changes,
    braking: brake.braking,
    events,
    memory: {
      judgeFromMs,
      nodes: nodeMemories,
      ...loss,
      ...(brake.sinceMs === undefined ? {} : { brakeSinceMs: brake.sinceMs }),
    },
  };
}

interface Verdict {
  readonly liveness: NodeLiveness;
  readonly code: ReconcileReasonCode;
  readonly message: string;
}

function judgeNode(
  node: NodeView,
  silentMs: number,
  memory: NodeMemory,
  policy: ControlPolicy,
  nowMs: number,
  braking: boolean,
): Verdict {
  const unchanged: Verdict = { liveness: node.liveness, code: 'node_connected', message: '' };
  const lost: Verdict = {
    liveness: 'lost',
    code: 'node_lost',
    message: `silent for ${duration(silentMs)}, limit ${duration(policy.lostAfterMs)}`,
  };
  if (!node.reported) return silentMs >= policy.lostAfterMs && !braking ? lost : unchanged;
  // Once judged silent, only a report that came after the judgement is life; a judgement postponed by our own sleep is not.
  const condemned = node.liveness === 'lost' || node.liveness === 'unreachable';
  const heardSince = (node.lastReportMs ?? 0) > node.livenessSinceMs;
  if (condemned && !heardSince) {
    return node.liveness === 'unreachable' && silentMs >= policy.lostAfterMs && !braking ? lost : unchanged;
  }
  if (silentMs >= policy.lostAfterMs && !braking) return lost;
  if (silentMs >= policy.unreachableAfterMs) {
    const message = `silent for ${duration(silentMs)}, limit ${duration(policy.unreachableAfterMs)}`;
    return { liveness: 'unreachable', code: 'node_unreachable', message };
  }
  return judgeTalking(node, memory, policy, nowMs);
}

function judgeTalking(node: NodeView, memory: NodeMemory, policy: ControlPolicy, nowMs: number): Verdict {
  const steadyMs = nowMs - (memory.reconnectsMs.at(-1) ?? -Infinity);
  const flapping =
    node.liveness === 'flapping'
      ? steadyMs < policy.flapSteadyMs
      : memory.reconnectsMs.length >= policy.flapCount && steadyMs < policy.flapSteadyMs;
  if (!flapping) return { liveness: 'connected', code: 'node_connected', message: connectedBecause(node) };
  return {
    liveness: 'flapping',
    code: 'node_flapping',
    message: `reconnected ${memory.reconnectsMs.length} times within ${duration(policy.flapWindowMs)}; must stay for ${duration(policy.flapSteadyMs)}`,
  };
}

/** What a node that is seen for the first time in this server life brings with it: found running is taken as it is. */
function connectedBecause(node: NodeView): string {
  if (node.liveness !== 'unseen') return `reports again, ${node.liveness} before`;
  const found = node.shards.filter(({ phase }) => phase !== 'exited').length;
  return found === 0
    ? 'first report to this server'
    : `first report to this server; ${counted(found, 'engine')} of ours found running and left as they are`;
}

/** A new stream, or a return from silence on the old one, is a reconnect. */
function rememberReconnects(
  node: NodeView,
  before: NodeMemory | undefined,
  policy: ControlPolicy,
  nowMs: number,
): NodeMemory {
  const stream = node.streamSinceMs;
  const known = before?.streamSinceMs;
  const reconnected = stream !== undefined && known !== undefined && stream !== known;
  const returned = node.liveness === 'unreachable' && (node.lastReportMs ?? 0) > node.livenessSinceMs;
  const recent = (before?.reconnectsMs ?? []).filter((atMs) => nowMs - atMs < policy.flapWindowMs);
  const reconnectsMs =
    reconnected || (returned && stream === known) ? [...recent, nowMs].slice(-RECONNECTS_MAX) : recent;
  const latest = stream ?? known;
  return { reconnectsMs, ...(latest === undefined ? {} : { streamSinceMs: latest }) };
}

/** Left to a drain at least after a restart of ours, whatever the wall clock says meanwhile. */
const DRAIN_LEFT_MIN_MS = 60_000;

/**
 * Since when the present drain runs. A restart of ours does not start its hour anew: the wall time of the intent tells how much
 * is gone, and that is the only thing the wall clock is asked, for it may have been set meanwhile.
 */
function rememberDrain(
  node: NodeView,
  before: NodeMemory | undefined,
  policy: ControlPolicy,
  nowWallMs: number | undefined,
  nowMs: number,
): Pick<NodeMemory, 'drainSinceMs' | 'drainDueMs' | 'drainSequence' | 'drainTold'> {
  const { target, sequence, atWallMs, deadlineMs = policy.drainDeadlineMs } = node.intent;
  if (target !== 'drained') return {};
  if (before?.drainSequence === sequence && before.drainSinceMs !== undefined)
    return {
      drainSinceMs: before.drainSinceMs,
      drainDueMs: before.drainSinceMs + deadlineMs,
      drainSequence: sequence,
      ...(before.drainTold === undefined ? {} : { drainTold: before.drainTold }),
    };
  const goneMs = nowWallMs === undefined ? 0 : Math.max(0, nowWallMs - atWallMs);
  const countedMs = Math.min(goneMs, Math.max(0, deadlineMs - DRAIN_LEFT_MIN_MS));
  const drainSinceMs = nowMs - countedMs;
  return { drainSinceMs, drainDueMs: drainSinceMs + deadlineMs, drainSequence: sequence };
}

interface Brake {
  readonly braking: boolean;
  readonly sinceMs?: number;
  readonly events: readonly PlanEvent[];
}

/**
 * Half of the fleet silent at once is far more often our network card, our CPU or our switch than half of the fleet. The loss is
 * believed after a long hold, and only while somebody still talks to us: with nobody left there is nothing to move to anyway.
 */
function judgeBrake(
  snapshot: Snapshot,
  policy: ControlPolicy,
  nowMs: number,
  silence: (node: NodeView) => number,
): Brake {
  const fleet = snapshot.nodes.filter((node) => node.liveness !== 'lost');
  const silent = fleet.filter(
    (node) =>
      silence(node) >= policy.unreachableAfterMs ||
      (node.liveness === 'unreachable' && (node.lastReportMs ?? 0) <= node.livenessSinceMs),
  ).length;
  const heavy = silent >= policy.massLossMinNodes && silent * 2 >= fleet.length;
  const wasSinceMs = snapshot.memory.brakeSinceMs;
  const numbers = { silent, nodes: fleet.length };
  if (!heavy) {
    const message = `${silent} of ${fleet.length} nodes silent; moves go on`;
    const over = { subject: 'cluster', reason: because('brake_off', message, numbers) };
    return { braking: false, events: wasSinceMs === undefined ? [] : [over] };
  }
  const sinceMs = wasSinceMs ?? nowMs;
  const believed = nowMs - sinceMs >= policy.massLossHoldMs && silent < fleet.length;
  const message = `${silent} of ${fleet.length} nodes silent at once: the fault is presumed to be here, nothing is moved`;
  const on = { subject: 'cluster', reason: because('brake_on', message, numbers) };
  return { braking: !believed, sinceMs, events: wasSinceMs === undefined ? [on] : [] };
}
