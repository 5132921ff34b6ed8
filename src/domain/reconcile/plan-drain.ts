/** What a drain would move where, decided by the code that would decide it, without doing anything. */
import {
  type NodeView,
  type PlacementExplanation,
  type Reason,
  type ReplicaRecord,
  type ReplicaView,
  type SchedulingIntent,
  shardKey,
} from '../cluster.js';
import type { Snapshot } from '../snapshot.js';
import { servedByOthers, withDeadline } from './drain-late.js';
import { moveUnderWay } from './drain-under-way.js';
import { explainPlacement, explainYielding } from './explain.js';
import { withShardStopped } from './forecast.js';
import type { PassContext } from './pass.js';
import type { ControlPolicy } from './policy.js';
import { usualLoadMs } from './learn.js';
import type { YieldProspect } from './yields.js';

/** What becomes of one replica. */
export interface DrainMove {
  readonly replicaId: string;
  readonly model: string;
  readonly inflight: number;
  /** Where it goes; absent with `reason` when there is no place. */
  readonly target?: {
    readonly profile: string;
    readonly shards: readonly { readonly nodeId: string; readonly gpuUuids: readonly string[] }[];
  };
  readonly reason: Reason;
  /** The drain has begun and this is what it does; without a target nothing more is asked of the replica than to end. */
  readonly underWay?: boolean;
  /** There is no place beside it: the target is free only once it has stopped, which needs leave for a gap. */
  readonly stopFirst?: boolean;
  /** Replicas of lower priority that make room for it there. */
  readonly yields?: readonly { readonly replicaId: string; readonly model: string }[];
  /** Time until the new copy is Ready, from learned load times, ms; absent while unknown. */
  readonly expectedReadyMs?: number;
  /** Expected time without a serving replica of the model, ms; 0 = none; absent while unknown. */
  readonly gapMs?: number;
}

export interface DrainPlan {
  readonly moves: readonly DrainMove[];
  /** Models that would be without a serving replica for a while. */
  readonly gaps: readonly string[];
  /**
   * Time until the node is empty, ms: loads, the time each new copy must be steady, and the passes between the steps, for the
   * replicas of a model one after another. Streams still in flight then may add up to the stream grace. Absent while a load
   * time is unknown or a replica has nowhere to go.
   */
  readonly expectedMs?: number;
}

export interface DrainQuestion {
  readonly snapshot: Snapshot;
  readonly policy: ControlPolicy;
  /** Pause between two passes, ms. */
  readonly intervalMs: number;
  readonly context: PassContext;
  readonly node: NodeView;
  /** The intent that would be set. */
  readonly intent: SchedulingIntent;
  /** Every replica, as seen now. */
  readonly replicas: readonly ReplicaView[];
  readonly inflight: (record: ReplicaRecord) => number;
}

/** Replicas are looked at one after the other, each with the places of the former ones taken. */
export function planDrain(question: DrainQuestion): DrainPlan {
  const { intent, node } = question;
  const leaving = question.replicas.filter(({ record }) => standsOn(record, node.id, intent.gpuUuid));
  let snapshot = withIntent(question.snapshot, node.id, intent);
  const moves: DrainMove[] = [];
  const gaps = new Set<string>();
  for (const replica of leaving) {
    const { record } = replica;
    const begun = moveUnderWay(question, replica, leaving);
    if (begun !== undefined) {
      const move = withDeadline(question, replica, leaving, begun);
      moves.push(move);
      // What is on its way out already needs no more leave.
      if (move !== begun) gaps.add(record.model);
      continue;
    }
    const nodeIds = record.shards.map((shard) => shard.nodeId);
    const { policy, context } = question;
    const look = (world: Snapshot) =>
      explainPlacement(world, policy, context, record.model, undefined, nodeIds);
    const beside = look(snapshot);
    const prospect =
      beside === undefined || beside.chosen !== undefined
        ? undefined
        : explainYielding(snapshot, policy, context, record.model);
    if (prospect !== undefined) {
      const yielding = yieldingMove(question, record, prospect);
      const move = withDeadline(question, replica, leaving, yielding);
      moves.push(move);
      if (move !== yielding) gaps.add(record.model);
      snapshot = withRoom(snapshot, record, prospect);
      continue;
    }
    const without = withoutReplica(snapshot, record);
    const instead = beside?.chosen === undefined ? look(without) : undefined;
    const stopFirst = instead?.chosen !== undefined;
    const decided = moveOf(question, replica, stopFirst ? instead : beside, stopFirst, leaving);
    const move = withDeadline(question, replica, leaving, decided);
    moves.push(move);
    if (stopFirst) snapshot = withReplacement(without, record, instead);
    else if (move.target !== undefined) snapshot = withReplacement(snapshot, record, beside);
    if (replica.state === 'ready' && move.gapMs !== 0) gaps.add(record.model);
  }
  const expectedMs = expectedDrainMs(question, moves);
  return { moves, gaps: [...gaps], ...(expectedMs === undefined ? {} : { expectedMs }) };
}

/** Passes that a move waits for beside its events: the one that sees it steady, and the one that sees no request left. */
const PASSES_PER_MOVE = 2;

/** A model moves one replica at a time, models move side by side, and not more engines load at once than allowed. */
function expectedDrainMs(
  { policy, intervalMs }: DrainQuestion,
  moves: readonly DrainMove[],
): number | undefined {
  const chains = new Map<string, number>();
  let loadsMs = 0;
  for (const { model, target, expectedReadyMs, underWay } of moves) {
    // Its streams are all that is left of it, and they come on top.
    if (underWay === true && target === undefined) continue;
    if (target === undefined || expectedReadyMs === undefined) return undefined;
    const moveMs = expectedReadyMs + policy.steadyMs + PASSES_PER_MOVE * intervalMs;
    chains.set(model, (chains.get(model) ?? 0) + moveMs);
    loadsMs += expectedReadyMs;
  }
  return Math.max(0, loadsMs / policy.maxConcurrentLoads, ...chains.values());
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

/** The world once the replica has stopped, its devices empty. */
function withoutReplica(snapshot: Snapshot, record: ReplicaRecord): Snapshot {
  const gone = new Set(record.shards.map(({ shardId }) => shardKey(shardId, record.generation)));
  return {
    ...snapshot,
    replicas: snapshot.replicas.filter(({ id }) => id !== record.id),
    nodes: snapshot.nodes.map((node) =>
      [...gone].reduce((emptied, key) => withShardStopped(emptied, key), node),
    ),
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

/** The new copy waits for room that others make; the old one serves until it is there, so there is no gap. */
function yieldingMove(question: DrainQuestion, record: ReplicaRecord, prospect: YieldProspect): DrainMove {
  const { placement, victims } = prospect.choice;
  const profile = placement.profile.name;
  const nodes = [...new Set(placement.shards.map((shard) => shard.nodeId))].join(', ');
  const who = victims.map(({ replicaId, model }) => `${replicaId} of ${model.name}`).join(' and ');
  const loadMs = usualLoadMs({ model: record.model, profile }, question.snapshot.learned);
  const expectedReadyMs = loadMs === undefined ? undefined : loadMs + roomMs(question, prospect);
  return {
    replicaId: record.id,
    model: record.model,
    inflight: question.inflight(record),
    target: {
      profile,
      shards: placement.shards.map(({ nodeId, gpuUuids }) => ({ nodeId, gpuUuids })),
    },
    reason: { code: 'fits_by_yielding', message: `profile ${profile} on ${nodes} when ${who} has yielded` },
    yields: victims.map(({ replicaId, model }) => ({ replicaId, model: model.name })),
    ...(expectedReadyMs === undefined ? {} : { expectedReadyMs }),
    gapMs: 0,
  };
}

/** Time until the room is made, ms: a victim that can stand elsewhere loads there first, and each is seen to end. */
function roomMs(question: DrainQuestion, { choice }: YieldProspect): number {
  const moves = choice.victims
    .filter(({ movable }) => movable)
    .map(({ model }) => {
      const profile = model.profiles[0]?.name ?? '';
      const loadMs = usualLoadMs({ model: model.name, profile }, question.snapshot.learned) ?? 0;
      return loadMs + question.policy.steadyMs;
    });
  return Math.max(0, ...moves) + PASSES_PER_MOVE * question.intervalMs;
}

/** The next replicas are asked about with this one in line for its room. */
function withRoom(snapshot: Snapshot, record: ReplicaRecord, { choice }: YieldProspect): Snapshot {
  const { startedWallMs: _started, readyWallMs: _ready, ...rest } = record;
  const waiting: ReplicaRecord = {
    ...rest,
    id: `${record.id} (replacement)`,
    generation: 0,
    shards: [],
    replaces: record.id,
    reserved: {
      profile: choice.placement.profile.name,
      shards: choice.placement.shards,
      victims: choice.victims.map(({ replicaId }) => replicaId),
      models: [],
    },
  };
  return { ...snapshot, replicas: [...snapshot.replicas, waiting] };
}

function moveOf(
  question: DrainQuestion,
  replica: ReplicaView,
  explanation: PlacementExplanation | undefined,
  stopFirst: boolean,
  leaving: readonly ReplicaView[],
): DrainMove {
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
  const gapMs = gapOf(question, replica, leaving, expectedReadyMs);
  if (chosen !== undefined) {
    const nodes = [...new Set(chosen.shards.map((shard) => shard.nodeId))].join(', ');
    return {
      ...base,
      target: {
        profile: chosen.profile,
        shards: chosen.shards.map(({ nodeId, gpuUuids }) => ({ nodeId, gpuUuids })),
      },
      ...(stopFirst
        ? {
            stopFirst,
            reason: {
              code: 'stop_first',
              message: `profile ${chosen.profile} on ${nodes}, once ${record.id} has stopped`,
            },
            ...(gapMs === undefined ? {} : { gapMs }),
          }
        : {
            reason: { code: 'fits', message: `profile ${chosen.profile} on ${nodes}` },
            gapMs: 0,
          }),
    };
  }
  // Stopped or not, there is no room elsewhere: nobody knows for how long, unless another one serves.
  return { ...base, reason: whyNowhere(explanation), ...(gapMs === 0 ? { gapMs } : {}) };
}

/** Time the model is without a serving replica; undefined while nobody knows, 0 while another one serves. */
function gapOf(
  question: DrainQuestion,
  replica: ReplicaView,
  leaving: readonly ReplicaView[],
  expectedReadyMs: number | undefined,
): number | undefined {
  if (replica.state !== 'ready') return 0;
  if (servedByOthers(question, replica, leaving)) return 0;
  // Stopped first: its end must be seen and its room given away before the new copy can load.
  return expectedReadyMs === undefined ? undefined : expectedReadyMs + PASSES_PER_MOVE * question.intervalMs;
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
