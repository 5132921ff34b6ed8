/** What a drain that has begun is really doing: its new copies hold the places a fresh decision would look for in vain. */
import type { ReplicaView } from '../cluster.js';
import { usualLoadMs } from './learn.js';
import type { DrainMove, DrainQuestion } from './plan-drain.js';

/** The move of a replica whose new copy is on its way, or that is on its way out itself; undefined when none has begun. */
export function moveUnderWay(
  question: DrainQuestion,
  replica: ReplicaView,
  leaving: readonly ReplicaView[],
): DrainMove | undefined {
  const { record } = replica;
  const copy = question.replicas.find(
    (one) => one.record.replaces === record.id && one.record.intent === 'run' && !leaving.includes(one),
  );
  const base = { replicaId: record.id, model: record.model, inflight: question.inflight(record) };
  if (record.intent === 'run') {
    if (copy === undefined) return undefined;
    return { ...base, ...towards(question, copy), underWay: true, gapMs: 0 };
  }
  const gapMs = isServedByOthers(question, replica) ? 0 : readyInMs(question, copy);
  return {
    ...base,
    ...(copy === undefined ? {} : towards(question, copy)),
    underWay: true,
    reason: record.intentReason,
    ...(gapMs === undefined ? {} : { gapMs }),
  };
}

function towards(
  question: DrainQuestion,
  copy: ReplicaView,
): Pick<DrainMove, 'target' | 'reason' | 'yields' | 'expectedReadyMs'> {
  const { id, profile, shards, reserved } = copy.record;
  const place = shards.length > 0 ? { profile, shards } : reserved;
  const nodes = [...new Set((place?.shards ?? []).map(({ nodeId }) => nodeId))].join(', ');
  const yields = question.replicas
    .filter(({ record }) => reserved?.victims.includes(record.id))
    .map(({ record }) => ({ replicaId: record.id, model: record.model }));
  const expectedReadyMs = readyInMs(question, copy);
  return {
    ...(place === undefined
      ? {}
      : {
          target: {
            profile: place.profile,
            shards: place.shards.map(({ nodeId, gpuUuids }) => ({ nodeId, gpuUuids })),
          },
        }),
    reason: {
      code: 'under_way',
      message: nodes === '' ? `${id} waits for a place` : `under way: ${id} is ${copy.state} on ${nodes}`,
    },
    ...(yields.length === 0 ? {} : { yields }),
    ...(expectedReadyMs === undefined ? {} : { expectedReadyMs }),
  };
}

/** The usual load less what of it has passed, ms; 0 when it is Ready, undefined while the load time is unknown. */
function readyInMs(question: DrainQuestion, copy: ReplicaView | undefined): number | undefined {
  if (copy === undefined) return undefined;
  if (copy.state === 'ready') return 0;
  const { record } = copy;
  const profile = record.shards.length > 0 ? record.profile : (record.reserved?.profile ?? '');
  const loadMs = usualLoadMs({ model: record.model, profile }, question.snapshot.learned);
  if (loadMs === undefined) return undefined;
  const { startedWallMs = question.context.nowWallMs } = record;
  return Math.max(0, loadMs - (question.context.nowWallMs - startedWallMs));
}

function isServedByOthers({ replicas }: DrainQuestion, { record }: ReplicaView): boolean {
  return replicas.some(
    (one) => one.record.model === record.model && one.record.id !== record.id && one.state === 'ready',
  );
}
