/**
 * Rolling moves, for drains, bad GPUs and changed profiles alike: the new copy is placed first, must be Ready and steady, only
 * then does the old one leave the router, lets its requests end and stops. Never the other way round unless an operator allowed it,
 * never silently stuck.
 */
import type { Reason, ReplicaRecord } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { place } from '../placement/place.js';
import { duration } from '../placement/reasons.js';
import { drainIntents, drainOver } from './drain.js';
import { isRollReason, leaveReason } from './leave.js';
import { loadP95Ms } from './learn.js';
import type { Pass, Unit } from './pass.js';
import { loadsFull, putPlaced } from './places.js';
import { because } from './reasons.js';
import { replicaState } from './replica-state.js';
import { byPriority, leave, pendingRecord, units } from './scale.js';
import { askForRoom } from './yields.js';

/** Takes every replica that must leave one step further. Ends moves first, so that what they free counts for those that begin. */
export function moveReplicas(pass: Pass): void {
  if (pass.settling || pass.braking) return;
  for (const model of pass.snapshot.models) endMoves(pass, model);
  for (const model of byPriority(pass.snapshot.models)) beginMoves(pass, model);
}

/**
 * A copy that took over may by then have been replaced itself, so its own end comes to light when the one before it is gone: the
 * chain goes link by link, in one pass.
 */
function endMoves(pass: Pass, model: ModelSpec): void {
  const done = new Set<string>();
  for (let known = -1; known < done.size;) {
    known = done.size;
    for (const unit of units(pass, model.name)) {
      if (done.has(unit.record.id)) continue;
      done.add(unit.record.id);
      endMove(pass, unit);
    }
  }
}

function endMove(pass: Pass, unit: Unit): void {
  const reason = leaveReason(pass, unit.record);
  if (reason === undefined) return;
  if (!pass.observed(unit.record).ready) moveUnready(pass, unit, reason);
  else if (unit.replacement !== undefined) handOver(pass, unit.record, unit.replacement, reason);
}

function beginMoves(pass: Pass, model: ModelSpec): void {
  const present = units(pass, model.name);
  let moving = present.filter(({ replacement }) => replacement !== undefined).length;
  for (const { record, replacement } of present) {
    const reason = leaveReason(pass, record);
    if (reason === undefined || replacement !== undefined || !pass.observed(record).ready) continue;
    if (beginMove(pass, model, record, reason, moving)) moving += 1;
  }
}

/** What does not serve loses nothing by stopping first. A silent one is left alone: it may serve. */
function moveUnready(pass: Pass, { record }: Unit, reason: Reason): void {
  const seen = pass.observed(record);
  if (seen.silent || seen.failure !== undefined) return;
  if (record.readyWallMs === undefined) leave(pass, record, reason);
}

/** The old copy goes once the new one has been Ready for a while. */
function handOver(pass: Pass, record: ReplicaRecord, replacement: ReplicaRecord, reason: Reason): void {
  const readySinceMs = pass.memoryOf(replacement).readySinceMs;
  const steadyMs = readySinceMs === undefined ? 0 : pass.nowMs - readySinceMs;
  const goes = drainOver(pass, replacement) && mayForceOut(pass, replacement);
  const steady = readySinceMs !== undefined && steadyMs >= pass.policy.steadyMs;
  if (pass.observed(replacement).ready && steady && !goes) {
    leave(pass, record, because('replaced', `${reason.message}; ${replacement.id} is Ready and steady`));
    return;
  }
  if (drainOver(pass, record)) {
    forceOut(pass, record);
    return;
  }
  if (goes) {
    // Handing over to one that must go this moment would leave neither.
    forceOut(pass, replacement);
    return;
  }
  if (giveUpReplacement(pass, replacement)) return;
  const waitedMs = pass.nowMs - pass.memoryOf(replacement).sinceMs;
  const boundMs = replacementBoundMs(pass, replacement);
  if (waitedMs >= boundMs && reason.code === 'yields') {
    leave(pass, record, because('yielded', `${reason.message}; ${replacement.id} takes too long elsewhere`));
  } else if (waitedMs >= boundMs) {
    const message = `${replacement.id} is not Ready after ${duration(waitedMs)}, bound ${duration(boundMs)}; ${record.id} goes on serving`;
    const overdue = because('replacement_overdue', message, { waitedMs, boundMs });
    pass.tellOnce(replacement, overdue);
    pass.notDone.push({ subject: `replica/${record.id}`, reason: overdue });
  } else {
    const message = `${replacement.id} must be Ready and steady first: ${howFar(pass, replacement)}`;
    const waits = because('waits_for_replacement', message, { steadyMs, leftMs: boundMs - waitedMs });
    pass.notDone.push({ subject: `replica/${record.id}`, reason: waits });
  }
}

/** How far the new copy is, in words. */
function howFar(pass: Pass, replacement: ReplicaRecord): string {
  const seen = pass.observed(replacement);
  const on = [...new Set(replacement.shards.map(({ nodeId }) => nodeId))].join(', ');
  if (replacement.shards.length === 0) {
    const wait =
      (pass.memoryOf(replacement).retryAtMs ?? 0) > pass.nowMs ? 'it failed and waits' : 'it waits';
    return `${wait} for a place`;
  }
  if (seen.failure !== undefined) return `it failed on ${on} (${seen.failure.cause})`;
  if (seen.silent) return `${on} is silent`;
  return seen.ready ? `Ready on ${on}` : `${replicaState(seen, 0)} on ${on}`;
}

/** A new copy that is itself not wanted any more, before it ever served: waiting for it would be waiting for nothing. */
function giveUpReplacement(pass: Pass, replacement: ReplicaRecord): boolean {
  const reason = leaveReason(pass, replacement);
  const seen = pass.observed(replacement);
  if (reason === undefined || seen.ready || seen.silent || replacement.readyWallMs !== undefined)
    return false;
  leave(pass, replacement, reason);
  return true;
}

/** Time a replacement may take: twice the learned p95 of its load, at least the floor. */
export function replacementBoundMs(pass: Pass, replacement: ReplicaRecord): number {
  const facts = [...pass.nodes.values()]
    .filter((node) => replacement.shards.some(({ nodeId }) => nodeId === node.id))
    .flatMap((node) =>
      node.gpus.map(({ type }) => pass.learned.of(replacement.model, replacement.profile, type)),
    );
  const p95 = Math.max(0, ...facts.map((fact) => loadP95Ms(fact) ?? 0));
  return Math.max(pass.policy.replacementFloorMs, 2 * p95);
}

/** Places the new copy, or says why not yet. True when it is on its way. */
function beginMove(
  pass: Pass,
  model: ModelSpec,
  record: ReplicaRecord,
  reason: Reason,
  moving: number,
): boolean {
  if (drainOver(pass, record)) {
    forceOut(pass, record);
    return false;
  }
  const wait = moveMustWait(pass, model, moving);
  if (wait !== undefined) {
    pass.notDone.push({ subject: `replica/${record.id}`, reason: wait });
    return false;
  }
  const replacement = pendingRecord(pass, model, reason, record.id);
  const leaving = record.shards.map(({ nodeId }) => nodeId);
  const query = { model, replicaId: replacement.id, generation: 1, leaving };
  const placement = place(pass.world(), query);
  if (placement === undefined) return withoutTarget(pass, model, record, reason, replacement);
  putPlaced(pass, replacement, query, placement, reason);
  return true;
}

function moveMustWait(pass: Pass, model: ModelSpec, moving: number): Reason | undefined {
  if (moving > 0) return because('waits_for_turn', `another replica of ${model.name} is being moved`);
  return loadsFull(pass);
}

/** Nothing is spare: others make room, or it stops first where that was allowed, else say so and keep serving. */
function withoutTarget(
  pass: Pass,
  model: ModelSpec,
  record: ReplicaRecord,
  reason: Reason,
  replacement: ReplicaRecord,
): boolean {
  const ending = pass.recordsOf(model.name).find((one) => one.intent !== 'run' && !pass.observed(one).silent);
  if (ending !== undefined) {
    const why = because('waits_for_turn', `${ending.id} is on its way out, its room may be enough`);
    pass.notDone.push({ subject: `replica/${record.id}`, reason: why });
    return false;
  }
  if (reason.code === 'yields') {
    leave(pass, record, because('yielded', `${reason.message}; it fits nowhere else`));
    return false;
  }
  const rolling = isRollReason(reason);
  // A change of one model is no reason to take from another: there `onNoSurge` decides.
  if (!rolling && askForRoom(pass, model, replacement, reason)) return true;
  const allowed = rolling
    ? maySwap(pass, model, record)
    : drainIntents(pass, record).some((intent) => intent.allowGap === true);
  if (allowed) {
    leave(
      pass,
      record,
      because('stop_first', `${reason.message}; nothing is spare, stopping first was allowed`),
    );
    return false;
  }
  const code = rolling ? 'no_surge' : 'no_target';
  const what = rolling ? 'no room for the new copy beside the old one' : 'no place to move it to';
  pass.notDone.push({
    subject: `replica/${record.id}`,
    reason: because(code, `${what}; it goes on serving: ${reason.message}`),
  });
  return false;
}

/** Swapping in place takes one copy at a time, and only while every other wanted one serves. */
function maySwap(pass: Pass, model: ModelSpec, record: ReplicaRecord): boolean {
  if (model.onNoSurge !== 'swap' && !restartAllowsGap(model, record)) return false;
  const ready = units(pass, model.name).filter(({ record }) => pass.observed(record).ready).length;
  return ready >= model.replicas;
}

/** Whoever wanted the restart accepted a gap for it: for the copies that were there, and for no change that came later. */
function restartAllowsGap(model: ModelSpec, { restart, startedWallMs }: ReplicaRecord): boolean {
  if (restart?.allowGap === true) return true;
  return (
    model.restartAllowsGap === true &&
    startedWallMs !== undefined &&
    startedWallMs < (model.restartedWallMs ?? 0)
  );
}

/**
 * The deadline is over. A deadline an operator gave by hand is a word: the machine goes at that time. The default one is not, so
 * without leave for a gap the copy goes on serving and the operator is told what is missing.
 */
function forceOut(pass: Pass, record: ReplicaRecord): void {
  if (mayForceOut(pass, record)) {
    const reason = because('drain_deadline', 'the deadline of the drain is over');
    pass.tellOnce(record, reason);
    leave(pass, record, reason);
    return;
  }
  const reason = because(
    'gap_not_allowed',
    `the deadline of the drain is over, but ${record.model} would lose this copy; repeat the drain with leave for a gap, or uncordon`,
  );
  pass.tellOnce(record, reason);
  pass.notDone.push({ subject: `replica/${record.id}`, reason });
}

function mayForceOut(pass: Pass, record: ReplicaRecord): boolean {
  return drainIntents(pass, record).some(
    ({ allowGap, deadlineMs }) => allowGap === true || deadlineMs !== undefined,
  );
}
