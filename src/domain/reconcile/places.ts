/** Giving places to the replicas that wait for one, in a fixed order, each seeing what the ones before it took. */
import type { PlacementExplanation, Reason, ReplicaRecord, StartedWith } from '../cluster.js';
import type { ModelSpec, Profile } from '../model-spec.js';
import { explainDecision, explainNowhere, type Placement, place } from '../placement/place.js';
import { duration } from '../placement/reasons.js';
import type { PlacementQuery } from '../placement/world.js';
import type { Pass } from './pass.js';
import { awaitsRoom } from './rooms.js';
import { because } from './reasons.js';
import { byPriority, units } from './scale.js';
import { isTalking } from './shard-state.js';
import { stateLossWords } from './state-loss.js';
import { awaitedRoom, keptRoom, roomFor, yieldedWords } from './yields.js';

/** Places waiting replicas: higher priority first, then the larger ones, which find holes hardest to come by. */
export function placeReplicas(pass: Pass): void {
  const waits = (model: ModelSpec) => pass.recordsOf(model.name).some((record) => isWaiting(record));
  const blocked = blockedReason(pass);
  if (blocked !== undefined) {
    // What is missing has no record before it may be placed.
    for (const model of pass.snapshot.models)
      if (waits(model) || units(pass, model.name).length < model.replicas)
        pass.notDone.push({ subject: `model/${model.name}`, reason: blocked });
    return;
  }
  const waiting = pass.snapshot.models.filter(waits);
  if (waiting.length === 0) return;
  let left = placeReserved(pass, pass.policy.maxPlacementsPerPass);
  for (const model of byPriority(waiting).toSorted((a, b) => b.priority - a.priority || size(b) - size(a)))
    left = placeModel(pass, model, left);
}

/** Nodes named in one sentence. */
const NAMED_MAX = 4;

/** Why nothing at all is placed in this pass. */
export function blockedReason(pass: Pass): Reason | undefined {
  if (pass.settling) {
    const { judgeFromMs, stateLost } = pass.liveness.memory;
    if (stateLost !== undefined) return because('settling', stateLossWords(stateLost, pass.policy));
    const unheard = [...pass.nodes.values()].filter((node) => (node.lastReportMs ?? -1) < judgeFromMs);
    const names = unheard.slice(0, NAMED_MAX).map(({ id }) => id);
    const more = unheard.length > NAMED_MAX ? ` and ${unheard.length - NAMED_MAX} more` : '';
    const message = `just started or woken up; waiting for the first report of ${names.join(', ')}${more}`;
    return because('settling', message, { missing: unheard.length });
  }
  if (pass.braking) return because('mass_loss', 'so many nodes are silent at once that nothing is moved');
  return undefined;
}

function isWaiting(record: ReplicaRecord): boolean {
  return record.intent === 'run' && record.shards.length === 0;
}

/** Those that others make room for come first: nobody else may have it, so nobody loses by it. */
function placeReserved(pass: Pass, limit: number): number {
  let left = limit;
  for (const record of pass.reserving().filter(awaitsRoom)) {
    const model = pass.models.get(record.model);
    if (model === undefined) continue;
    const why = waitReason(pass, record, left);
    if (why === undefined) {
      pass.openRoom(record);
      if (tryPlace(pass, model, record)) {
        pass.roomsUsed += 1;
        left -= 1;
        continue;
      }
      pass.holdRoom(record);
    }
    pass.notDone.push({ subject: `replica/${record.id}`, reason: why ?? awaitedRoom(pass, record) });
  }
  return left;
}

function size(model: ModelSpec): number {
  const first = model.profiles[0];
  return first === undefined ? 0 : first.shards * first.gpus;
}

function placeModel(pass: Pass, model: ModelSpec, limit: number): number {
  let left = limit;
  // Replicas without failures of their own all ask the same question; once it is answered no, it is answered.
  let full = false;
  for (const record of pass.recordsOf(model.name)) {
    if (!isWaiting(record) || record.reserved !== undefined) continue;
    const plain = pass.backoffsOf(record.id).length === 0;
    const why = waitReason(pass, record, left);
    if (why !== undefined) {
      pass.notDone.push({ subject: `replica/${record.id}`, reason: why });
      continue;
    }
    const asked = full && plain;
    if (!asked && tryPlace(pass, model, record)) {
      left -= 1;
      continue;
    }
    const room = asked ? undefined : roomFor(pass, model, record);
    if (room === undefined && plain) full = true;
    pass.notDone.push({ subject: `replica/${record.id}`, reason: room ?? nowhereBecause(pass, model) });
  }
  return left;
}

/** The nearest change that would help, as the explanation of this pass found it. */
function nowhereBecause(pass: Pass, model: ModelSpec): Reason {
  if (![...pass.nodes.values()].some(({ reported }) => reported))
    return because('no_nodes', 'no agent has reported yet');
  const nearest = pass.explanations.find((one) => one.model === model.name)?.counterfactual;
  const nowhere = nearest === undefined ? 'fits nowhere' : `fits nowhere: ${nearest.message}`;
  const yielded = yieldedWords(pass, model.name);
  return yielded === undefined
    ? because('no_place', nowhere)
    : because('yielded', `${yielded}; for now it ${nowhere}`);
}

/** Why no further engine may begin to load for a move: each load saturates disk and network for the others. */
export function loadsFull(pass: Pass): Reason | undefined {
  const loading = pass.records().filter((record) => pass.isMove(record) && isLoading(pass, record)).length;
  const limit = pass.policy.maxConcurrentLoads;
  if (loading < limit) return undefined;
  const message = `${loading} engines are loading for moves, limit ${limit}`;
  return because('waits_for_load', message, { loading, limit });
}

function isLoading(pass: Pass, record: ReplicaRecord): boolean {
  const seen = pass.observed(record);
  return record.shards.length > 0 && !seen.ready && seen.failure === undefined;
}

/** Why a replica is not even tried now. */
function waitReason(pass: Pass, record: ReplicaRecord, left: number): Reason | undefined {
  const waitMs = (pass.memoryOf(record).retryAtMs ?? 0) - pass.nowMs;
  if (waitMs > 0) return because('backoff', `waits ${duration(waitMs)} after a failure`, { leftMs: waitMs });
  // All ranks of a gang start together, so the last of the former ones must be gone first.
  const old = pass.reports
    .get(record.id)
    ?.find(({ node, report }) => report.phase !== 'exited' && isTalking(node));
  if (old !== undefined)
    return because(
      'waits_for_stop',
      `${old.report.shardId} of generation ${old.report.generation} still runs on ${old.node.id}`,
    );
  const busy = pass.isMove(record) ? loadsFull(pass) : undefined;
  if (busy !== undefined) return busy;
  if (left > 0) return undefined;
  return because('next_pass', `${pass.policy.maxPlacementsPerPass} places were decided in this pass`);
}

function tryPlace(pass: Pass, model: ModelSpec, record: ReplicaRecord): boolean {
  const leaving = leavingNodes(pass, record);
  const generation = nextGeneration(pass, record);
  const query: PlacementQuery = { model, replicaId: record.id, generation, leaving };
  const world = pass.world();
  const placement = place(world, query);
  if (placement === undefined) {
    noteNowhere(pass, query);
    return false;
  }
  const first = placement.shards.map(({ nodeId }) => nodeId).join(', ');
  putPlaced(
    pass,
    record,
    query,
    placement,
    because('placed', `on ${first} by profile ${placement.profile.name}`),
  );
  return true;
}

/**
 * Node verdicts made in one pass for models that fit nowhere. The whole of a fleet of 200 nodes is told for five models in every
 * pass; in a larger one models take turns, and what was found for the others stands a few passes longer.
 */
const NOWHERE_VERDICTS_PER_PASS = 2_000;

/** Explains once per pass and model why there is no place, or says again what was found before. */
function noteNowhere(pass: Pass, query: PlacementQuery): void {
  const { model } = query;
  if (pass.nowhere.has(model.name)) return;
  const memory = pass.snapshot.memory.nowhere;
  const before = memory.get(model.name);
  const known = before?.model === model ? before : undefined;
  let oldestMs = Infinity;
  for (const { atMs } of memory.values()) oldestMs = Math.min(oldestMs, atMs);
  const turn = known === undefined || known.atMs <= oldestMs;
  const explanation = turn ? explainWithin(pass, query) : undefined;
  const told =
    explanation === undefined
      ? (known ?? { model, atMs: -Infinity })
      : { model, atMs: pass.nowMs, explanation };
  pass.nowhere.set(model.name, told);
  if (told.explanation !== undefined) pass.explanations.push(told.explanation);
}

/** The explanation, while this pass may still make one. */
function explainWithin(pass: Pass, query: PlacementQuery): PlacementExplanation | undefined {
  let made = 0;
  for (const { atMs, model } of pass.nowhere.values())
    if (atMs === pass.nowMs) made += pass.nodes.size * model.profiles.length;
  if (made >= NOWHERE_VERDICTS_PER_PASS) return undefined;
  return shortened(explainNowhere(pass.world(), query));
}

/** Nodes told of in an explanation that is kept; the whole one is made on demand. */
const KEPT_NODES_MAX = 64;

function shortened(explanation: PlacementExplanation): PlacementExplanation {
  const nodes = explanation.profiles[0]?.nodes.length ?? 0;
  if (nodes <= KEPT_NODES_MAX) return explanation;
  const profiles = explanation.profiles.map((one) => ({ ...one, nodes: one.nodes.slice(0, KEPT_NODES_MAX) }));
  return { ...explanation, profiles, omittedNodes: nodes - KEPT_NODES_MAX };
}

/** Nodes of the copy that goes when this one is there. */
export function leavingNodes(pass: Pass, record: ReplicaRecord): readonly string[] {
  const replaced = record.replaces === undefined ? undefined : pass.record(record.replaces);
  return replaced === undefined ? [] : replaced.shards.map(({ nodeId }) => nodeId);
}

/** Beyond every generation any agent still shows, also of a start that a restored store knows nothing of. */
export function nextGeneration(pass: Pass, record: ReplicaRecord): number {
  const reported = (pass.reports.get(record.id) ?? []).map(({ report }) => report.generation);
  return Math.max(record.generation, ...reported) + 1;
}

/** Gives a record its place under a new generation, and holds it against the decisions that follow in the pass. */
export function putPlaced(
  pass: Pass,
  record: ReplicaRecord,
  query: PlacementQuery,
  placement: Placement,
  reason: Reason,
): void {
  const explanation = explainDecision(pass.world(), query, placement);
  // A new start is the new copy that was wanted.
  const { restart: _restart, reserved, ...wanted } = record;
  const kept = reserved === undefined ? undefined : keptRoom(reserved, placement);
  const placed: ReplicaRecord = {
    ...wanted,
    ...(kept === undefined ? {} : { reserved: kept }),
    profile: placement.profile.name,
    specDigest: pass.digestOf(record.model, placement.profile.name) ?? '',
    generation: query.generation,
    shards: placement.shards,
    startedWith: startedWith(placement.profile),
    placement: explanation,
  };
  pass.put(placed, reason);
  for (const shard of placement.shards) pass.world().bookings.book(record.model, shard);
}

function startedWith({ engine, maxConcurrency, stopGraceMs }: Profile): StartedWith {
  return { engine, stopGraceMs, ...(maxConcurrency === undefined ? {} : { maxConcurrency }) };
}
