/** What a drain would move where, decided by the code that would decide it, without doing anything. */
import type {
  NodeView,
  PlacementExplanation,
  Reason,
  ReplicaRecord,
  ReplicaView,
  SchedulingIntent,
  Snapshot,
} from '../domain/cluster.js';
import { explainPlacement } from '../domain/reconcile/explain.js';
import type { PassContext } from '../domain/reconcile/pass.js';
import type { ControlPolicy } from '../domain/reconcile/policy.js';
import { usualLoadMs } from '../reconciler/prospects.js';
import type { DrainMoveView } from './views.js';

export interface DrainPreview {
  readonly moves: readonly DrainMoveView[];
  /** Models that would be without a serving replica for a while. */
  readonly gaps: readonly string[];
}

export interface DrainQuestion {
  readonly snapshot: Snapshot;
  readonly policy: ControlPolicy;
  readonly context: PassContext;
  readonly node: NodeView;
  /** The intent that would be set. */
  readonly intent: SchedulingIntent;
  /** Every replica, as seen now. */
  readonly replicas: readonly ReplicaView[];
  readonly inflight: (record: ReplicaRecord) => number;
}

/** Replicas are looked at one after the other, each with the places of the former ones taken. */
export function previewDrain(question: DrainQuestion): DrainPreview {
  const { intent, node } = question;
  const leaving = question.replicas.filter(
    ({ record }) => record.intent === 'run' && standsOn(record, node.id, intent.gpuUuid),
  );
  let snapshot = withIntent(question.snapshot, node.id, intent);
  const moves: DrainMoveView[] = [];
  const gaps = new Set<string>();
  for (const replica of leaving) {
    const explanation = explainPlacement(snapshot, question.policy, question.context, replica.record.model);
    const move = moveOf(question, replica, explanation, leaving);
    moves.push(move);
    if (move.target !== undefined) snapshot = withReplacement(snapshot, replica.record, explanation);
    else if (replica.state === 'ready' && move.gapMs !== 0) gaps.add(replica.record.model);
  }
  return { moves, gaps: [...gaps] };
}

function standsOn(record: ReplicaRecord, nodeId: string, gpuUuid: string | undefined): boolean {
  return record.shards.some(
    (shard) => shard.nodeId === nodeId && (gpuUuid === undefined || shard.gpuUuids.includes(gpuUuid)),
  );
}

function withIntent(snapshot: Snapshot, nodeId: string, intent: SchedulingIntent): Snapshot {
  return {
    ...snapshot,
    nodes: snapshot.nodes.map((node) => (node.id === nodeId ? { ...node, intent } : node)),
  };
}

function withReplacement(
  snapshot: Snapshot,
  record: ReplicaRecord,
  explanation: PlacementExplanation | undefined,
): Snapshot {
  const chosen = explanation?.chosen;
  if (chosen === undefined) return snapshot;
  const { startedWallMs: _started, readyWallMs: _ready, ...rest } = record;
  const id = `${record.id} (replacement)`;
  const replacement: ReplicaRecord = {
    ...rest,
    id,
    profile: chosen.profile,
    generation: 1,
    shards: chosen.shards,
    replaces: record.id,
  };
  return { ...snapshot, replicas: [...snapshot.replicas, replacement] };
}

function moveOf(
  question: DrainQuestion,
  replica: ReplicaView,
  explanation: PlacementExplanation | undefined,
  leaving: readonly ReplicaView[],
): DrainMoveView {
  const { record } = replica;
  const chosen = explanation?.chosen;
  const profile = chosen?.profile ?? record.profile;
  const expectedReadyMs = usualLoadMs({ model: record.model, profile }, question.snapshot.learned);
  const base = {
    replicaId: record.id,
    model: record.model,
    inflight: question.inflight(record),
    ...(expectedReadyMs === undefined ? {} : { expectedReadyMs }),
  };
  if (chosen !== undefined) {
    const nodes = [...new Set(chosen.shards.map((shard) => shard.nodeId))].join(', ');
    return {
      ...base,
      target: {
        profile: chosen.profile,
        shards: chosen.shards.map(({ nodeId, gpuUuids }) => ({ nodeId, gpuUuids })),
      },
      reason: { code: 'fits', message: `profile ${chosen.profile} on ${nodes}` },
      gapMs: 0,
    };
  }
  const gapMs = gapOf(question, replica, leaving, expectedReadyMs);
  return { ...base, reason: whyNowhere(explanation), ...(gapMs === undefined ? {} : { gapMs }) };
}

/** Time the model is without a serving replica; undefined while nobody knows, 0 while another one serves. */
function gapOf(
  question: DrainQuestion,
  replica: ReplicaView,
  leaving: readonly ReplicaView[],
  expectedReadyMs: number | undefined,
): number | undefined {
  if (replica.state !== 'ready') return 0;
  const gone = new Set(leaving.map((one) => one.record.id));
  const others = question.replicas.some(
    (one) => one.record.model === replica.record.model && one.state === 'ready' && !gone.has(one.record.id),
  );
  return others ? 0 : expectedReadyMs;
}

function whyNowhere(explanation: PlacementExplanation | undefined): Reason {
  if (explanation === undefined)
    return { code: 'model_removed', message: 'the catalog no longer has the model' };
  return (
    explanation.blocked ??
    explanation.counterfactual ??
    explanation.profiles.flatMap((profile) => profile.reasons)[0] ?? {
      code: 'no_place',
      message: 'no node has room for it',
    }
  );
}
