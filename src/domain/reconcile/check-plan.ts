/**
 * A second pair of eyes on every plan before it is carried out. It shares no code with the decisions and knows nothing of why; it
 * only holds the plan against what must never happen. A plan with a violation is refused and alarmed, and the cluster stays as
 * it is, which is nearly always safe.
 */
import { type NodeView, replicaKey, type ReplicaRecord, shardKey } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import type { Plan } from '../plan.js';
import type { Snapshot } from '../snapshot.js';
import { actionsOf, After, talks } from './plan-outcome.js';
import { checkStarts } from './check-starts.js';
import { checkYields } from './check-yields.js';

export const VIOLATIONS = [
  'wrong_term',
  'plan_not_next',
  'gpu_double_booked',
  'gpu_memory_overbooked',
  'port_double_booked',
  'place_blocked',
  'gpu_unfit',
  'gang_incomplete',
  'start_without_record',
  'start_while_older_runs',
  'start_in_taken_place',
  'published_not_ready',
  'published_twice',
  'stop_while_published',
  'stop_with_inflight',
  'stop_of_wanted',
  'generation_went_back',
  'below_desired',
  'deleted_while_running',
  'yield_not_allowed',
  'reserved_room_taken',
] as const;
export type ViolationCode = (typeof VIOLATIONS)[number];

export interface Violation {
  readonly code: ViolationCode;
  readonly subject: string;
  readonly message: string;
}

/** Everything that is wrong with the plan; empty for a sound one. */
export function checkPlan(snapshot: Snapshot, plan: Plan): readonly Violation[] {
  const after = new After(snapshot, plan);
  return [
    ...checkNumbers(snapshot, plan),
    ...checkHoldings(after),
    ...checkPlaces(after),
    ...checkStarts(after),
    ...checkPublished(after),
    ...checkStops(after),
    ...checkRecords(after),
    ...checkYields(after),
  ];
}

// ---------------------------------------------------------------- numbers

function checkNumbers(snapshot: Snapshot, plan: Plan): readonly Violation[] {
  const found: Violation[] = [];
  if (plan.term !== snapshot.term)
    found.push({
      code: 'wrong_term',
      subject: 'plan',
      message: `term ${plan.term}, ours is ${snapshot.term}`,
    });
  if (plan.number <= snapshot.planNumber)
    found.push({
      code: 'plan_not_next',
      subject: 'plan',
      message: `number ${plan.number} after ${snapshot.planNumber}`,
    });
  return found;
}

// ---------------------------------------------------------------- GPUs and ports

interface Holding {
  readonly shard: string;
  readonly memoryBytes: number | undefined;
}

function checkHoldings(after: After): readonly Violation[] {
  const gpus = new Map<string, Holding[]>();
  const ports = new Map<string, string>();
  // What two engines already share is a fact that no refusal of ours undoes; only new places are judged.
  const placed = newlyPlaced(after);
  if (placed.length === 0) return [];
  const fresh = new Set(
    placed.flatMap((record) => record.shards.map((shard) => shardKey(shard.shardId, record.generation))),
  );
  const touched = new Set(placed.flatMap((record) => record.shards.map(({ nodeId }) => nodeId)));
  const found: Violation[] = [];
  const hold = (nodeId: string, shard: string, uuids: readonly string[], memoryBytes: number | undefined) => {
    for (const uuid of uuids) {
      const key = `${nodeId}/${uuid}`;
      const list = gpus.get(key);
      if (list === undefined) gpus.set(key, [{ shard, memoryBytes }]);
      else list.push({ shard, memoryBytes });
    }
  };
  const holdPort = (nodeId: string, shard: string, port: number | undefined) => {
    if (port === undefined || port === 0) return;
    const key = `${nodeId}:${port}`;
    const other = ports.get(key);
    if (other !== undefined && other !== shard && (fresh.has(shard) || fresh.has(other)))
      found.push({ code: 'port_double_booked', subject: key, message: `${other} and ${shard}` });
    ports.set(key, shard);
  };
  for (const record of after.records.values()) {
    for (const shard of record.shards) {
      if (!touched.has(shard.nodeId)) continue;
      const ended = record.intent !== 'run' || endedBefore(after, record);
      if (ended && after.isGone(shard.nodeId, shard.shardId, record.generation)) continue;
      const name = shardKey(shard.shardId, record.generation);
      hold(shard.nodeId, name, shard.gpuUuids, shard.gpuMemoryBytes);
      holdPort(shard.nodeId, name, shard.ports.http);
      holdPort(shard.nodeId, name, shard.ports.rendezvous);
    }
  }
  for (const nodeId of touched) {
    const node = after.nodes.get(nodeId);
    for (const report of node?.shards ?? []) {
      if (node === undefined || report.phase === 'exited') continue;
      const record = after.records.get(report.replicaId);
      const own = record?.shards.some(
        (shard) =>
          shard.nodeId === node.id &&
          shard.shardId === report.shardId &&
          record.generation === report.generation,
      );
      if (own === true) continue;
      const name = shardKey(report.shardId, report.generation);
      hold(node.id, name, report.gpuUuids, undefined);
      holdPort(node.id, name, report.ports.http);
      holdPort(node.id, name, report.ports.rendezvous);
    }
  }
  for (const [key, holdings] of gpus)
    if (holdings.some(({ shard }) => fresh.has(shard))) found.push(...checkGpu(after, key, holdings));
  return found;
}

/** A generation whose failure is on record is never started again. */
function endedBefore(after: After, record: ReplicaRecord): boolean {
  const counted = actionsOf(after.plan, 'putBackoff').map((action) => action.record);
  return [...after.snapshot.backoffs, ...counted].some(
    (one) => one.replicaId === record.id && one.generation === record.generation,
  );
}

function checkGpu(after: After, key: string, holdings: readonly Holding[]): readonly Violation[] {
  if (holdings.length < 2) return [];
  const names = holdings.map(({ shard }) => shard).join(', ');
  if (holdings.some(({ memoryBytes }) => memoryBytes === undefined))
    return [{ code: 'gpu_double_booked', subject: key, message: names }];
  const [nodeId = '', ...uuid] = key.split('/');
  const gpu = after.nodes.get(nodeId)?.gpus.find((one) => one.uuid === uuid.join('/'));
  const booked = holdings.reduce((sum, { memoryBytes }) => sum + (memoryBytes ?? 0), 0);
  if (gpu?.memoryTotalBytes === undefined || booked <= gpu.memoryTotalBytes) return [];
  const message = `${booked} of ${gpu.memoryTotalBytes} bytes by ${names}`;
  return [{ code: 'gpu_memory_overbooked', subject: key, message }];
}

// ---------------------------------------------------------------- places

/** Records that got a place in this plan. */
function newlyPlaced(after: After): readonly ReplicaRecord[] {
  return [...after.records.values()].filter((record) => {
    const before = after.before.get(record.id);
    return (
      record.shards.length > 0 &&
      record.startedWallMs === undefined &&
      before?.generation !== record.generation
    );
  });
}

function checkPlaces(after: After): readonly Violation[] {
  return newlyPlaced(after).flatMap((record) => {
    const nodes = record.shards.map(({ nodeId }) => nodeId);
    const profile = after.models.get(record.model)?.profiles.find(({ name }) => name === record.profile);
    const found = record.shards.flatMap((shard) => checkPlace(after, record, shard, profile?.gpus));
    const whole = profile !== undefined && new Set(nodes).size === profile.shards;
    if (!whole) {
      const message = `${new Set(nodes).size} nodes for ${profile?.shards ?? 'no'} shards`;
      found.push({ code: 'gang_incomplete', subject: record.id, message });
    }
    return found;
  });
}

function checkPlace(
  after: After,
  record: ReplicaRecord,
  shard: ReplicaRecord['shards'][number],
  gpus: number | undefined,
): Violation[] {
  const subject = `${record.id} on ${shard.nodeId}`;
  const node = after.nodes.get(shard.nodeId);
  const blocked = node === undefined ? 'unknown node' : blockedWhy(node);
  const found: Violation[] = [];
  if (blocked !== undefined) found.push({ code: 'place_blocked', subject, message: blocked });
  if (gpus !== undefined && shard.gpuUuids.length !== gpus)
    found.push({ code: 'gpu_unfit', subject, message: `${shard.gpuUuids.length} GPUs instead of ${gpus}` });
  const devices = shard.gpuUuids.map((uuid) => node?.gpus.find((gpu) => gpu.uuid === uuid));
  for (const [index, gpu] of devices.entries()) {
    const uuid = shard.gpuUuids[index] ?? '';
    if (gpu?.health.state !== 'healthy')
      found.push({
        code: 'gpu_unfit',
        subject,
        message: `${uuid} is ${gpu?.health.state ?? 'not reported'}`,
      });
    else if (node?.intent.gpuUuid === uuid && node.intent.target !== 'schedulable')
      found.push({ code: 'gpu_unfit', subject, message: `${uuid} is ${node.intent.target}` });
  }
  if (new Set(devices.map((gpu) => gpu?.type)).size > 1)
    found.push({ code: 'gpu_unfit', subject, message: 'GPUs of several types' });
  return found;
}

function blockedWhy(node: NodeView): string | undefined {
  if (node.liveness !== 'connected') return node.liveness;
  if (!node.reported) return 'not reported';
  if (node.intent.target !== 'schedulable' && node.intent.gpuUuid === undefined) return node.intent.target;
  return node.conditions.find((condition) => condition.blocksPlacement)?.type;
}

// ---------------------------------------------------------------- commands

function checkPublished(after: After): readonly Violation[] {
  const found: Violation[] = [];
  const seen = new Set<string>();
  const addresses = new Map<string, string>();
  for (const one of after.plan.published) {
    const subject = replicaKey(one.replicaId, one.generation);
    if (seen.has(one.replicaId))
      found.push({ code: 'published_twice', subject, message: 'the replica is published twice' });
    seen.add(one.replicaId);
    const address = `${one.nodeId}:${one.port}`;
    const other = addresses.get(address);
    if (other !== undefined)
      found.push({ code: 'published_twice', subject, message: `${address} is also ${other}` });
    addresses.set(address, subject);
    const why = notReadyWhy(after, one.replicaId, one.generation);
    if (why !== undefined) found.push({ code: 'published_not_ready', subject, message: why });
  }
  return found;
}

function notReadyWhy(after: After, replicaId: string, generation: number): string | undefined {
  const record = after.records.get(replicaId);
  if (record === undefined) return 'no record';
  if (record.generation !== generation)
    return `generation ${generation}, the record is at ${record.generation}`;
  if (record.intent !== 'run') return `intent is ${record.intent}`;
  for (const shard of record.shards) {
    const node = after.nodes.get(shard.nodeId);
    if (node === undefined || node.liveness === 'lost') return `${shard.nodeId} is gone`;
    const report = after.report(shard.nodeId, shard.shardId, generation);
    if (talks(node) && report === undefined) return `${shard.shardId} is not reported`;
    if (report !== undefined && ['exited', 'stopping', 'unhealthy'].includes(report.phase))
      return `${shard.shardId} is ${report.phase}`;
    if (shard.rank === 0 && talks(node) && report?.phase !== 'ready')
      return `rank 0 is ${report?.phase ?? 'not reported'}`;
    if (!talks(node) && record.readyWallMs === undefined)
      return `${shard.nodeId} is silent and it was not Ready`;
  }
  return undefined;
}

function checkStops(after: After): readonly Violation[] {
  const published = new Set(after.plan.published.map((one) => replicaKey(one.replicaId, one.generation)));
  const aborted = new Set(
    actionsOf(after.plan, 'abortInflight').map((one) => replicaKey(one.replicaId, one.generation)),
  );
  return actionsOf(after.plan, 'stopShard').flatMap(({ command }) => {
    const key = replicaKey(command.replicaId, command.generation);
    const subject = shardKey(command.shardId, command.generation);
    const found: Violation[] = [];
    // A store set back to an older copy can give a number out twice; the stray on the other node is nobody's endpoint.
    const before = after.before.get(command.replicaId);
    if (before !== undefined && !before.shards.some(({ nodeId }) => nodeId === command.nodeId)) return found;
    if (published.has(key)) found.push({ code: 'stop_while_published', subject, message: 'still published' });
    const inflight = after.snapshot.inflight.get(key) ?? 0;
    const known = before?.generation === command.generation;
    if (known && inflight > 0 && !aborted.has(key))
      found.push({ code: 'stop_with_inflight', subject, message: `${inflight} requests in flight` });
    const now = after.records.get(command.replicaId);
    if (now?.intent === 'run' && now.generation === command.generation && !after.hasFailed(now))
      found.push({
        code: 'stop_of_wanted',
        subject,
        message: 'its record wants it to run, and it has not failed',
      });
    return found;
  });
}

// ---------------------------------------------------------------- records

function checkRecords(after: After): readonly Violation[] {
  const found: Violation[] = [];
  for (const [id, before] of after.before) {
    const now = after.records.get(id);
    if (now !== undefined && now.generation < before.generation)
      found.push({
        code: 'generation_went_back',
        subject: id,
        message: `${before.generation} to ${now.generation}`,
      });
    if (now !== undefined) continue;
    const running = before.shards.filter(
      (shard) => !after.isGone(shard.nodeId, shard.shardId, before.generation),
    );
    if (running.length > 0)
      found.push({
        code: 'deleted_while_running',
        subject: id,
        message: running.map(({ shardId }) => shardId).join(', '),
      });
  }
  const byModel = new Map<string, ReplicaRecord[]>();
  for (const record of after.records.values()) {
    const list = byModel.get(record.model);
    if (list === undefined) byModel.set(record.model, [record]);
    else list.push(record);
  }
  for (const model of after.models.values())
    found.push(...checkDesired(after, model, byModel.get(model.name) ?? []));
  return found;
}

/** Reasons that may take a model below what it wants: somebody allowed it, or what is taken did not serve. */
const ALLOWED_BELOW = new Set(['stop_first', 'drain_deadline', 'node_lost', 'node_removed', 'yielded']);

/** Our own moves never take a serving copy away while that leaves fewer than wanted and another could have gone. */
function checkDesired(
  after: After,
  model: ModelSpec,
  records: readonly ReplicaRecord[],
): readonly Violation[] {
  const serving = records.filter(
    (record) => record.intent === 'run' && record.readyWallMs !== undefined,
  ).length;
  const taken = records.filter((record) => {
    const before = after.before.get(record.id);
    return (
      before?.intent === 'run' &&
      before.readyWallMs !== undefined &&
      record.intent === 'drain' &&
      !ALLOWED_BELOW.has(record.intentReason.code) &&
      // A move that was made by surge takes nothing away, whatever became of the model's other copies meanwhile.
      !isTakenOver(records, record.id)
    );
  });
  // Beside one that goes by leave, as by a deadline given by hand, another may be one too many all the same.
  const byLeave = records.filter(
    ({ id, intent, intentReason }) =>
      after.before.get(id)?.intent === 'run' && intent === 'drain' && ALLOWED_BELOW.has(intentReason.code),
  ).length;
  if (taken.length === 0 || serving + byLeave >= model.replicas) return [];
  const message = `${taken.map(({ id }) => id).join(', ')} leaves with ${serving} of ${model.replicas} serving`;
  return [{ code: 'below_desired', subject: model.name, message }];
}

/** Whether what took its place serves or made room by leave, or was itself taken over from in the same way. */
function isTakenOver(records: readonly ReplicaRecord[], id: string): boolean {
  const heirs = [id];
  // What is added to a list that is walked is walked too; each record joins it once at most.
  for (const heir of heirs) {
    for (const one of records) {
      if (one.replaces !== heir || heirs.includes(one.id)) continue;
      if (one.intent === 'run' && one.readyWallMs !== undefined) return true;
      if (one.intentReason.code === 'yielded') return true;
      if (one.intent === 'drain' && one.intentReason.code === 'replaced') heirs.push(one.id);
    }
  }
  return false;
}
