/**
 * How many copies of each model there should be, and which one goes when there are too many. A replica that is being replaced and
 * its replacement count as one: together they are one wanted copy on its way from one place to another.
 */
import type { Reason, ReplicaRecord } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { counted } from '../placement/reasons.js';
import { isSpread } from '../placement/scores.js';
import { leaveReason } from './leave.js';
import type { Pass, Unit } from './pass.js';
import { unready } from './progress.js';
import { because } from './reasons.js';
import { inflightOf } from './replica-state.js';
import { domainOfRecord } from './spread.js';

/**
 * Keeps what was about to go but is wanted again. Before replicas are taken a step further: one without requests would be stopped
 * in that very step, as a node given up for lost and back again would lose the only copy that serves while the new one loads.
 * Whom it makes one too many is decided afterwards: some of the others may have failed or been lost by now.
 */
export function reviveReplicas(pass: Pass): void {
  if (pass.settling || pass.braking) return;
  for (const model of pass.snapshot.models) reviveDraining(pass, model);
}

/** Sends away what is too much and keeps what was about to go but is wanted again. */
export function scaleModels(pass: Pass): void {
  for (const name of pass.modelsWithRecords()) if (!pass.models.has(name)) removeModel(pass, name);
  if (pass.settling || pass.braking) return;
  // With a waiting replica that is sent away goes the reason of those that make room for it, of models looked at before.
  for (let rooms = Infinity; pass.reserving().length < rooms;) {
    rooms = pass.reserving().length;
    for (const model of pass.snapshot.models) scaleModel(pass, model);
  }
}

function scaleModel(pass: Pass, model: ModelSpec): void {
  reviveDraining(pass, model);
  sendAwaySurplus(pass, model);
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
 * replica that stayed after all, then of copies that are to stand apart one from where most of those stand that are left, then the
 * one with the fewest requests, then the newest. Where copies stand goes before what they do at the moment: requests are let
 * finish, but copies that are left together stay together until somebody moves them.
 */
export function victims(pass: Pass, candidates: readonly Unit[]): readonly Unit[] {
  const ids = new Set(candidates.map(({ record }) => record.id));
  const ranked = candidates
    .map((unit) => ({
      unit,
      rank: victimRank(pass, unit, ids),
      inflight: inflightOf(pass.snapshot, unit.record),
    }))
    .toSorted((a, b) => compareVictims(a, b) || compareAge(a.unit, b.unit));
  const model = pass.models.get(candidates[0]?.record.model ?? '');
  if (model === undefined || !isSpread(model)) return ranked.map(({ unit }) => unit);
  return thinnedOut(pass, model, ranked);
}

interface RankedUnit {
  readonly unit: Unit;
  readonly rank: number;
  readonly inflight: number;
}

function compareVictims(a: RankedUnit, b: RankedUnit): number {
  return a.rank - b.rank || a.inflight - b.inflight;
}

function compareAge({ record: a }: Unit, { record: b }: Unit): number {
  return b.createdWallMs - a.createdWallMs || (a.id < b.id ? 1 : -1);
}

/** Of one rank the fullest domain gives one, then whichever is the fullest without it: what is left stands as far apart as can be. */
function thinnedOut(pass: Pass, model: ModelSpec, ranked: readonly RankedUnit[]): readonly Unit[] {
  const left = [...ranked];
  const crowds = new Map<string, number>();
  const domains = new Map(left.map(({ unit }) => [unit, domainsOfUnit(pass, model, unit)]));
  const count = (unit: Unit, by: number): void => {
    for (const domain of domains.get(unit) ?? []) crowds.set(domain, (crowds.get(domain) ?? 0) + by);
  };
  for (const { unit } of left) count(unit, 1);
  const fuller = (a: Unit, b: Unit): boolean => {
    const [ofA = [], ofB = []] = [domains.get(a), domains.get(b)];
    const sizes = ofA.map((domain, index) => (crowds.get(domain) ?? 0) - (crowds.get(ofB[index] ?? '') ?? 0));
    return (sizes.find((difference) => difference !== 0) ?? 0) > 0;
  };
  const order: Unit[] = [];
  for (let first = left[0]; first !== undefined; first = left[0]) {
    let next = first;
    for (const one of left) {
      if (one.rank !== first.rank) break;
      if (fuller(one.unit, next.unit)) next = one;
    }
    left.splice(left.indexOf(next), 1);
    count(next.unit, -1);
    order.push(next.unit);
  }
  return order;
}

/** Where the copy will stand when its move, if it has one, is done: domain and node. */
function domainsOfUnit(
  pass: Pass,
  { placement }: ModelSpec,
  { record, replacement }: Unit,
): readonly string[] {
  const standing = replacement !== undefined && replacement.shards.length > 0 ? replacement : record;
  if (standing.shards.length === 0) return [];
  const domain = domainOfRecord(pass, standing, placement.spreadBy);
  return placement.strategy === 'spread' ? [domain, `on ${standing.shards[0]?.nodeId}`] : [domain];
}

function victimRank(pass: Pass, { record }: Unit, ids: ReadonlySet<string>): number {
  const seen = pass.observed(record);
  if (seen.failure !== undefined) return 0;
  if (record.shards.length === 0) return 1;
  if (!seen.ready && !seen.silent) return 2;
  // Silent: it may serve or not; between the starting and the surely serving, those last that did serve when last heard of.
  if (!seen.ready) return record.readyWallMs === undefined ? 3 : 4;
  if (leaveReason(pass, record) !== undefined) return 5;
  return replacesAny(record, ids) ? 6 : 7;
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
    const ids = new Set([record.id, ...present.map((unit) => unit.record.id)]);
    const kept = present.filter((unit) => !isWorse(pass, unit, record, ids)).length;
    if (kept >= model.replicas) continue;
    const reason = because('revived', `no longer: ${record.intentReason.message}`);
    pass.put({ ...record, intent: 'run', intentReason: reason, readyWallMs: pass.context.nowWallMs }, reason);
    pass.forget(record, 'drainSinceMs', 'readySinceMs');
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

/**
 * Whether a present copy is a worse keep than a sound one that was about to go, as {@link victims} would choose between them: else
 * it came back only to be sent away again.
 */
function isWorse(pass: Pass, { record }: Unit, than: ReplicaRecord, ids: ReadonlySet<string>): boolean {
  const seen = pass.observed(record);
  if (!seen.ready && !seen.silent) return true;
  if (leaveReason(pass, record) !== undefined) return true;
  return replacesAny(record, ids) && !replacesAny(than, ids);
}

/**
 * One that was to take the place of a copy that stays after all, and is wanted beside it, is nobody's replacement any more: else the
 * next drain of the other were handed over to it at once, and the model one copy short.
 */
export function keepBoth(pass: Pass): void {
  if (pass.settling || pass.braking) return;
  for (const model of pass.snapshot.models) {
    const present = units(pass, model.name);
    if (present.length > model.replicas) continue;
    for (const { record } of present) {
      const { replaces, ...rest } = record;
      const other = replaces === undefined ? undefined : pass.record(replaces);
      if (other?.intent !== 'run') continue;
      pass.put(rest, because('wanted', `${other.id} stays as well; ${model.name} wants both`));
    }
  }
}

/** Whether it was to take the place of one that is there after all. */
function replacesAny({ replaces }: ReplicaRecord, ids: ReadonlySet<string>): boolean {
  return replaces !== undefined && ids.has(replaces);
}
