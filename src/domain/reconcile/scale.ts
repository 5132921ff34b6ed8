/**
 * How many copies of each model there should be, and which one goes when there are too many. A replica that is being replaced and
 * its replacement count as one: together they are one wanted copy on its way from one place to another.
 */
import type { Reason, ReplicaRecord } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { counted } from '../placement/reasons.js';
import { leaveReason } from './leave.js';
import type { Pass, Unit } from './pass.js';
import { unready } from './progress.js';
import { because } from './reasons.js';
import { inflightOf } from './replica-state.js';

/**
 * Keeps what was about to go but is wanted again. Before replicas are taken a step further: one without requests would be stopped
 * in that very step, as a node given up for lost and back again would lose the only copy that serves while the new one loads.
 */
export function reviveReplicas(pass: Pass): void {
  if (pass.settling || pass.braking) return;
  for (const model of pass.snapshot.models) reviveDraining(pass, model);
}

/** Sends away what is too much and keeps what was about to go but is wanted again. */
export function scaleModels(pass: Pass): void {
  for (const name of pass.modelsWithRecords()) if (!pass.models.has(name)) removeModel(pass, name);
  if (pass.settling || pass.braking) return;
  for (const model of pass.snapshot.models) {
    reviveDraining(pass, model);
    const surplus = units(pass, model.name).length - model.replicas;
    if (surplus > 0) sendAway(pass, model, surplus);
  }
}

/** Creates what is missing, also what the moves of this pass took away. */
export function fillModels(pass: Pass): void {
  if (pass.settling || pass.braking) return;
  for (const model of pass.snapshot.models) {
    const missing = model.replicas - units(pass, model.name).length;
    if (missing > 0) createMissing(pass, model, missing);
  }
}

function removeModel(pass: Pass, name: string): void {
  if (pass.settling) return;
  for (const record of pass.recordsOf(name)) {
    if (record.intent === 'run')
      leave(pass, record, because('model_removed', `${name} is no longer in the catalog`));
  }
}

/** Higher priority first; equal ones by name, so that the order never depends on the file's. */
export function byPriority(models: readonly ModelSpec[]): readonly ModelSpec[] {
  return models.toSorted((a, b) => b.priority - a.priority || (a.name < b.name ? -1 : 1));
}

/** The wanted copies a model has now; worked out once for as long as its records stay as they are. */
export function units(pass: Pass, modelName: string): readonly Unit[] {
  const records = pass.recordsOf(modelName);
  const known = pass.unitsOf.get(records);
  if (known !== undefined) return known;
  const found = findUnits(pass, records);
  pass.unitsOf.set(records, found);
  return found;
}

function findUnits(pass: Pass, records: readonly ReplicaRecord[]): readonly Unit[] {
  const running = records.filter((record) => record.intent === 'run');
  const leaving = new Set(running.filter((one) => leaveReason(pass, one) !== undefined).map(({ id }) => id));
  const replacements = new Map<string, ReplicaRecord>();
  for (const record of running) {
    const original = record.replaces;
    if (original !== undefined && leaving.has(original) && !replacements.has(original))
      replacements.set(original, record);
  }
  const shadows = new Set([...replacements.values()].map(({ id }) => id));
  return running
    .filter(({ id }) => !shadows.has(id))
    .map((record) => {
      const replacement = replacements.get(record.id);
      return replacement === undefined ? { record } : { record, replacement };
    });
}

function createMissing(pass: Pass, model: ModelSpec, missing: number): void {
  const reason = because(
    'wanted',
    `${model.name} wants ${counted(model.replicas, 'replica')}, ${missing} missing`,
    {
      desired: model.replicas,
      missing,
    },
  );
  for (let index = 0; index < missing; index += 1) pass.put(pendingRecord(pass, model, reason), reason);
}

/** A record that waits for a place. */
export function pendingRecord(
  pass: Pass,
  model: ModelSpec,
  reason: Reason,
  replaces?: string,
): ReplicaRecord {
  return {
    id: freshId(pass, model.name),
    model: model.name,
    profile: '',
    specDigest: '',
    generation: 0,
    intent: 'run',
    intentReason: reason,
    shards: [],
    createdWallMs: pass.context.nowWallMs,
    ...(replaces === undefined ? {} : { replaces }),
  };
}

const ID_LETTERS = 'bcdfghjkmnpqrstvwxz23456789';
const ID_LENGTH = 5;

/** A name people can say and type; never one that a record or a reported engine already has. */
function freshId(pass: Pass, modelName: string): string {
  const stem = modelName
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 40);
  for (;;) {
    let tail = '';
    for (let index = 0; index < ID_LENGTH; index += 1)
      tail += ID_LETTERS[Math.floor(pass.context.random() * ID_LETTERS.length)] ?? 'x';
    const id = `${stem === '' ? 'model' : stem}-${tail}`;
    if (pass.record(id) === undefined && !pass.reports.has(id)) return id;
  }
}

// ---------------------------------------------------------------- too many

function sendAway(pass: Pass, model: ModelSpec, surplus: number): void {
  const reason = because(
    'scale_down',
    `${model.name} wants ${counted(model.replicas, 'replica')}, has ${surplus} more`,
    {
      desired: model.replicas,
      surplus,
    },
  );
  for (const { record, replacement } of victims(pass, units(pass, model.name)).slice(0, surplus)) {
    leave(pass, record, reason);
    if (replacement !== undefined) leave(pass, replacement, reason);
  }
}

/**
 * The order in which copies go: failed, then not yet Ready, then those that must leave their place anyway, then replacements of a
 * replica that stayed after all, then the one with the fewest requests, then the newest.
 */
export function victims(pass: Pass, candidates: readonly Unit[]): readonly Unit[] {
  const ids = new Set(candidates.map(({ record }) => record.id));
  const ranked = candidates.map((unit) => ({ unit, rank: victimRank(pass, unit, ids) }));
  return ranked
    .toSorted(
      (a, b) =>
        a.rank - b.rank ||
        inflightOf(pass.snapshot, a.unit.record) - inflightOf(pass.snapshot, b.unit.record) ||
        b.unit.record.createdWallMs - a.unit.record.createdWallMs ||
        (a.unit.record.id < b.unit.record.id ? 1 : -1),
    )
    .map(({ unit }) => unit);
}

function victimRank(pass: Pass, { record }: Unit, ids: ReadonlySet<string>): number {
  const seen = pass.observed(record);
  if (seen.failure !== undefined) return 0;
  if (record.shards.length === 0) return 1;
  if (!seen.ready && !seen.silent) return 2;
  // Silent: it may serve or not; between the starting and the surely serving.
  if (!seen.ready) return 3;
  if (leaveReason(pass, record) !== undefined) return 4;
  return record.replaces !== undefined && ids.has(record.replaces) ? 5 : 6;
}

/** Sends a replica away: what serves is drained, what never served is stopped. */
export function leave(pass: Pass, record: ReplicaRecord, reason: Reason): void {
  if (record.shards.length === 0) {
    pass.remove(record.id, reason);
    return;
  }
  const served = record.readyWallMs !== undefined;
  const intent = served ? 'drain' : 'stop';
  pass.put({ ...unready(record), intent, intentReason: reason }, reason);
  // The plan of this pass takes it out of the router, so in-flight counts of the next snapshot are proof.
  pass.remember(record, { drainSinceMs: pass.nowMs });
}

// ---------------------------------------------------------------- change of mind

/**
 * A replica on its way out whose reason has gone (uncordoned, scaled up again, change reverted, node back) stays, as long
 * as no stop was sent: it serves already, which any new one would first have to learn.
 */
function reviveDraining(pass: Pass, model: ModelSpec): void {
  const draining = pass
    .recordsOf(model.name)
    .filter((record) => record.intent === 'drain' && isSound(pass, record));
  for (const record of draining) {
    const present = units(pass, model.name);
    const wanted = present.length < model.replicas || present.some((unit) => isWorse(pass, unit, record));
    if (!wanted) continue;
    const reason = because('revived', `no longer: ${record.intentReason.message}`);
    pass.put({ ...record, intent: 'run', intentReason: reason, readyWallMs: pass.context.nowWallMs }, reason);
    pass.forget(record, 'drainSinceMs', 'readySinceMs');
    sendAwaySurplus(pass, model);
  }
}

function sendAwaySurplus(pass: Pass, model: ModelSpec): void {
  const surplus = units(pass, model.name).length - model.replicas;
  if (surplus > 0) sendAway(pass, model, surplus);
}

function isSound(pass: Pass, record: ReplicaRecord): boolean {
  const seen = pass.observed(record);
  const steady = record.shards.every(({ nodeId }) => pass.nodes.get(nodeId)?.liveness === 'connected');
  return seen.ready && seen.failure === undefined && steady && leaveReason(pass, record) === undefined;
}

/** Whether a present copy is a worse keep than a sound one that was about to go. */
function isWorse(pass: Pass, { record }: Unit, than: ReplicaRecord): boolean {
  const seen = pass.observed(record);
  if (!seen.ready && !seen.silent) return true;
  return leaveReason(pass, record) !== undefined || record.replaces === than.id;
}
