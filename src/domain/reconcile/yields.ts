/**
 * Making room: a replica that fits nowhere may be given the place of replicas of lower priority whose models allow it. The room is
 * reserved in the record of the one that waits. From then on the others have a reason to leave, so they go the way every replica
 * goes: moved where another place is spare, else out of the router, drained and stopped. Nobody else gets the room meanwhile, and
 * when it is no longer asked for, whoever has not gone yet stays.
 */
import type { Reason, ReplicaRecord, ReservedPlace } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { type Placement, place } from '../placement/place.js';
import { counted } from '../placement/reasons.js';
import type { PlacementQuery, PlacementWorld } from '../placement/world.js';
import {
  chooseYield,
  type YieldCandidate,
  type YieldChoice,
  yieldRefusal,
  worldWithout,
} from '../placement/yielding.js';
import type { Pass } from './pass.js';
import { awaitsRoom } from './rooms.js';
import { because } from './reasons.js';
import { inflightOf } from './replica-state.js';

/**
 * A replica that failed this often where it was is given no room of others and loses what it had: they would be thrown out again
 * and again for an engine that does not start.
 */
const FAILURES_MAX = 3;

// ---------------------------------------------------------------- asking

/** Asks others for room for a waiting replica, and says what it waits for then; undefined when nobody can or may make any. */
export function roomFor(pass: Pass, model: ModelSpec, record: ReplicaRecord): Reason | undefined {
  if (!mayTakeFrom(pass, model, record)) return undefined;
  const query = { model, replicaId: record.id, generation: record.generation + 1 };
  const ending = endingFor(pass, query);
  if (ending !== undefined) return ending;
  if (!reserve(pass, query, record, record.intentReason)) return undefined;
  return awaitedRoom(pass, pass.record(record.id) ?? record);
}

/** Puts the new copy of a move that has no place in line for the room of others; false when there is none to be had. */
export function askForRoom(
  pass: Pass,
  model: ModelSpec,
  replacement: ReplicaRecord,
  reason: Reason,
): boolean {
  if (!mayTakeFrom(pass, model, replacement)) return false;
  return reserve(pass, { model, replicaId: replacement.id, generation: 1 }, replacement, reason);
}

/** Whether any model allows it at all; without one nothing is searched. */
function mayTakeFrom(pass: Pass, model: ModelSpec, record: ReplicaRecord): boolean {
  if (failures(pass, record) >= FAILURES_MAX) return false;
  return pass.snapshot.models.some((other) => yieldRefusal(model, other) === undefined);
}

function failures(pass: Pass, record: ReplicaRecord): number {
  return Math.max(0, ...pass.backoffsOf(record.id).map((one) => one.failures));
}

/** What is on its way out anyway may be enough: nobody is sent away on top of it. */
function endingFor(pass: Pass, query: PlacementQuery): Reason | undefined {
  const ending = pass
    .records()
    .filter((one) => one.intent !== 'run' && one.shards.length > 0 && pass.yieldsTo(one.id) === undefined)
    .map((one) => ({ id: one.id, model: { name: one.model }, shards: one.shards }));
  if (ending.length === 0 || place(worldWithout(pass.world(), ending), query) === undefined) return undefined;
  const names = ending.map(({ id }) => id).join(', ');
  return because('waits_for_room', `${names} on the way out, which may be enough`);
}

function reserve(pass: Pass, query: PlacementQuery, record: ReplicaRecord, reason: Reason): boolean {
  const choice = chooseYield(pass.world(), query, yieldCandidates(pass, query.model));
  if (choice === undefined) return false;
  const { victims, placement } = choice;
  const reserved: ReservedPlace = {
    profile: placement.profile.name,
    shards: placement.shards.map(({ nodeId, gpuUuids, gpuMemoryBytes }) => ({
      nodeId,
      gpuUuids,
      ...(gpuMemoryBytes === undefined ? {} : { gpuMemoryBytes }),
    })),
    victims: victims.map(({ replicaId }) => replicaId).toSorted(),
    models: [...new Set(victims.map(({ model }) => model.name))].toSorted(),
  };
  const asking = { ...record, reserved };
  pass.put(asking, reason);
  pass.holdRoom(asking);
  pass.roomsAsked += 1;
  tellAsked(pass, asking, choice);
  return true;
}

function tellAsked(pass: Pass, record: ReplicaRecord, { victims, placement }: YieldChoice): void {
  const on = [...new Set(placement.shards.map(({ nodeId }) => nodeId))].join(', ');
  const who = victims.map(({ replicaId, model }) => `${replicaId} of ${model.name}`).join(', ');
  const asked = because('room_asked', `fits on ${on} when room is made by ${who}`, {
    victims: victims.length,
  });
  pass.events.push({ subject: `replica/${record.id}`, reason: asked });
  const priority = pass.models.get(record.model)?.priority;
  for (const { replicaId, model } of victims) {
    const message = `${replicaId} makes room on ${on} for ${record.id} of ${record.model}: priority ${model.priority} yields to ${priority}`;
    pass.events.push({ subject: `model/${model.name}`, reason: because('yields', message) });
  }
}

/** Replicas of other models that stand somewhere, and whose stop could be confirmed; the rule is not applied yet. */
export function yieldCandidates(
  pass: Pass,
  to: ModelSpec,
  counts = (victim: ModelSpec): boolean => yieldRefusal(to, victim) === undefined,
): readonly YieldCandidate[] {
  return pass.snapshot.models.flatMap((model) => {
    if (model.name === to.name || !counts(model)) return [];
    const records = pass.recordsOf(model.name).filter((record) => couldYield(pass, record));
    if (records.length === 0) return [];
    const query = { model, replicaId: `${model.name} (moved)`, generation: 1 };
    const movable = place(pass.world(), query) !== undefined;
    return records.map((record) => ({
      replicaId: record.id,
      model,
      shards: record.shards,
      serving: record.readyWallMs !== undefined,
      movable,
      inflight: inflightOf(pass.snapshot, record),
      createdWallMs: record.createdWallMs,
    }));
  });
}

function couldYield(pass: Pass, record: ReplicaRecord): boolean {
  if (record.intent !== 'run' || record.shards.length === 0 || pass.isPlacedNow(record)) return false;
  const seen = pass.observed(record);
  // One that has failed gives its place back by itself; one that makes room already makes it for somebody else.
  return !seen.silent && seen.failure === undefined && pass.yieldsTo(record.id) === undefined;
}

// ---------------------------------------------------------------- asking without doing

/** What would fit if others made room, and whether they may. */
export interface YieldProspect {
  readonly allowed: boolean;
  readonly choice: YieldChoice;
  readonly reason: Reason;
}

/**
 * Whether the query, which fits nowhere, would fit in place of others. First those that may be asked; then, so that an operator sees
 * what leave would do, those that are lower or willing, with what keeps them. Undefined when neither helps.
 */
export function prospectOf(pass: Pass, query: PlacementQuery): YieldProspect | undefined {
  const { model } = query;
  const mayGo = chooseYield(pass.world(), query, yieldCandidates(pass, model));
  if (mayGo !== undefined) {
    const message = `fits if ${victimWords(mayGo)} yields: allowed, its priority is below ${model.priority} and its placement.mayYield is on`;
    return { allowed: true, choice: mayGo, reason: { code: 'change_yield', message } };
  }
  const near = (other: ModelSpec) => other.priority < model.priority || other.placement.mayYield === true;
  const choice = chooseYield(pass.world(), query, yieldCandidates(pass, model, near), () => true);
  if (choice === undefined) return undefined;
  const refusals = choice.victims.flatMap((victim) => yieldRefusal(model, victim.model) ?? []);
  const message = `fits if ${victimWords(choice)} yields: not allowed, ${[...new Set(refusals)].join('; ')}`;
  return { allowed: false, choice, reason: { code: 'change_yield', message } };
}

function victimWords({ victims }: YieldChoice): string {
  return victims.map(({ replicaId, model }) => `${replicaId} of ${model.name}`).join(' and ');
}

// ---------------------------------------------------------------- reviewing

/**
 * Gives up every room that is no longer asked for rightly: permission or priority changed, the place went bad, the replica fails
 * there. What was to leave for it and has not gone stays, for its reason to leave is gone.
 */
export function reviewRooms(pass: Pass): void {
  if (pass.settling || pass.braking) return;
  for (const record of pass.reserving()) {
    const why = record.reserved === undefined ? undefined : obsoleteBecause(pass, record, record.reserved);
    if (why !== undefined) giveUpRoom(pass, record, because('room_given_up', why));
    pass.forgetWorld();
  }
}

function giveUpRoom(pass: Pass, record: ReplicaRecord, reason: Reason): void {
  pass.events.push({ subject: `replica/${record.id}`, reason });
  const { reserved: _reserved, ...rest } = record;
  // A new copy without a place keeps its move from looking for one, or for leave to stop first. Once the old one has gone it is
  // a replica like any other, whose failures must not be forgotten with it.
  if (pass.isMove(record) && record.shards.length === 0) pass.remove(record.id, reason);
  else pass.put(rest, reason);
}

function obsoleteBecause(pass: Pass, record: ReplicaRecord, reserved: ReservedPlace): string | undefined {
  if (!awaitsRoom(record)) return undefined;
  const model = pass.models.get(record.model);
  if (model === undefined) return `${record.model} is no longer in the catalog`;
  const count = failures(pass, record);
  if (count >= FAILURES_MAX) return `it failed ${count} times where it was`;
  // A smaller room than it now needs is of no use, and of a larger one some are sent away for nothing.
  if (!isRoomOf(model, reserved)) return `${model.name}/${reserved.profile} has changed`;
  const leaving = reserved.victims.flatMap((id) => pass.record(id) ?? []);
  for (const victim of leaving) {
    const its = pass.models.get(victim.model);
    const refusal = its === undefined || victim.intent === 'stop' ? undefined : yieldRefusal(model, its);
    if (refusal !== undefined) return `${victim.id} may no longer be asked: ${refusal}`;
  }
  // Asked as a replica without failures: while it waits after one, its place is kept.
  const query = { model, replicaId: `${record.id} (room)`, generation: record.generation + 1 };
  if (place(emptyRoom(pass, record, reserved, leaving), query) !== undefined) return undefined;
  return 'its place can no longer be used';
}

/** Whether the profile it was made for still takes as many machines and devices, no more and no fewer. */
function isRoomOf(model: ModelSpec, { profile, shards }: ReservedPlace): boolean {
  const wanted = model.profiles.find(({ name }) => name === profile);
  return shards.length === wanted?.shards && shards.every(({ gpuUuids }) => gpuUuids.length === wanted.gpus);
}

/**
 * The reserved devices as they are to become, and no others of their nodes: those may go to anybody in the next moment. Memory
 * still in use on the devices counts as about to be given back: the one that left may take a moment, and another victim would be
 * one too many.
 */
function emptyRoom(
  pass: Pass,
  record: ReplicaRecord,
  reserved: ReservedPlace,
  leaving: readonly ReplicaRecord[],
): PlacementWorld {
  const nodes = new Set(reserved.shards.map(({ nodeId }) => nodeId));
  const uuids = new Set(reserved.shards.flatMap(({ gpuUuids }) => gpuUuids));
  pass.openRoom(record);
  const gone = leaving.map((one) => ({ model: { name: one.model }, shards: one.shards }));
  const world = worldWithout(
    { ...pass.world(), nodes: pass.liveness.nodes.filter(({ id }) => nodes.has(id)) },
    gone,
  );
  const settled = world.nodes.map((node) => ({
    ...node,
    gpus: node.gpus.filter((gpu) => uuids.has(gpu.uuid)).map((gpu) => ({ ...gpu, memoryUsedBytes: 0 })),
  }));
  return { ...world, nodes: settled };
}

/** The reservation of a replica that has its place now: still its own after a failure there, or gone with another place. */
export function keptRoom(reserved: ReservedPlace, placement: Placement): ReservedPlace | undefined {
  const same =
    placement.shards.length === reserved.shards.length &&
    placement.shards.every(({ nodeId }) => reserved.shards.some((shard) => shard.nodeId === nodeId));
  if (!same) return undefined;
  const shards = placement.shards.map(({ nodeId, gpuUuids, gpuMemoryBytes }) => ({
    nodeId,
    gpuUuids,
    ...(gpuMemoryBytes === undefined ? {} : { gpuMemoryBytes }),
  }));
  return { ...reserved, profile: placement.profile.name, shards, victims: [] };
}

// ---------------------------------------------------------------- telling

/** What a replica with reserved room waits for. */
export function awaitedRoom(pass: Pass, record: ReplicaRecord): Reason {
  const leaving = (record.reserved?.victims ?? []).flatMap((id) => pass.record(id) ?? []);
  if (leaving.length === 0)
    return because('waits_for_room', 'its room was made; it is not free on the devices yet');
  const who = leaving.map(({ id, model }) => `${id} of ${model}`).join(', ');
  return because('waits_for_room', `waits until ${who} made room`, { victims: leaving.length });
}

/** Why a model is short: what it yielded, and to whom; undefined when it yielded nothing. */
export function yieldedWords(pass: Pass, modelName: string): string | undefined {
  const takers = pass
    .reserving()
    .filter(({ reserved, intent }) => intent === 'run' && reserved?.models.includes(modelName) === true);
  if (takers.length === 0) return undefined;
  const names = takers.map(({ id }) => id).toSorted();
  const models = [...new Set(takers.map(({ model }) => model))].toSorted();
  return `yielded to ${models.join(', ')} (${names.join(', ')})`;
}

/** Notes every model that is short of replicas because it yielded some. */
export function noteYields(pass: Pass): void {
  const models = new Set(pass.reserving().flatMap(({ reserved }) => reserved?.models ?? []));
  for (const name of [...models].toSorted()) {
    const waiting = pass
      .recordsOf(name)
      .filter((record) => record.intent === 'run' && record.shards.length === 0).length;
    const words = yieldedWords(pass, name);
    if (waiting === 0 || words === undefined) continue;
    const message = `${counted(waiting, 'replica')} short: ${words}`;
    pass.note(`model/${name}`, because('yielded', message, { waiting }));
  }
}
