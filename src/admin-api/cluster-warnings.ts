/** What of the cluster needs an operator's eye, worst first: the part of `ctl status` that is empty when all is well. */
import type { Reason, ReplicaView } from '../domain/cluster.js';
import type { ModelSpec } from '../domain/model-spec.js';
import type { ClusterReading } from './cluster-reader.js';

/** Replicas, and models, told of one by one; the lists have them all. */
const TOLD_EACH = 8;

/** Failures in a row from which a replica that is tried again is told of: once or twice happens. */
const CRASH_LOOP_FAILURES = 3;

export function clusterWarnings(reading: ClusterReading): readonly Reason[] {
  const { pass } = reading;
  const silent = reading.snapshot.nodes.filter(
    ({ liveness }) => liveness !== 'connected' && !(liveness === 'unseen' && reading.settling),
  );
  const short = reading.snapshot.models.filter((model) => isShort(reading, model));
  return [
    ...(pass?.refused === undefined
      ? []
      : [{ code: 'plan_refused', message: `the last plan was refused: ${pass.refused.message}` }]),
    ...silent.map((node) => ({
      code: `node_${node.liveness}`,
      message: `node ${node.id} is ${node.liveness}${node.livenessReason === undefined ? '' : `: ${node.livenessReason}`}`,
    })),
    ...short.map((model) => ({
      code: 'model_short',
      message: `model ${model.name} has fewer Ready replicas than the ${model.replicas} desired`,
    })),
    ...failedReplicas(reading),
    ...standTogether(reading),
  ];
}

/** Fewer Ready than wanted, those not counted that a server that has just started has not heard of yet. */
function isShort(reading: ClusterReading, model: ModelSpec): boolean {
  const counted = reading
    .replicasOf(model.name)
    .filter(
      ({ state, reason }) => state === 'ready' || (reading.settling && reason?.code === 'awaits_agent'),
    );
  const held = reading.notDone(`model/${model.name}`).some(({ code }) => code === 'settling');
  return counted.length < model.replicas && !held;
}

/** Copies that do not come up. While a roll waits for one its model is not short: the old copies serve, and nothing else would say it. */
function failedReplicas({ replicas }: ClusterReading): readonly Reason[] {
  const failed = replicas.filter(isStuck);
  const left = failed.length - TOLD_EACH;
  return [
    ...failed.slice(0, TOLD_EACH).map(failedReason),
    ...(left > 0 ? [{ code: 'replica_failed', message: `and ${left} more: llmgw ctl replicas` }] : []),
  ];
}

function isStuck({ record, state, backoff }: ReplicaView): boolean {
  if (record.intent !== 'run' || state === 'ready') return false;
  return state === 'failed' || (backoff !== undefined && backoff.failures >= CRASH_LOOP_FAILURES);
}

function failedReason({ record, state, backoff, reason }: ReplicaView): Reason {
  const { id, shards } = record;
  const why =
    backoff === undefined
      ? (reason?.message ?? '')
      : `${backoff.cause}: ${backoff.lastMessage ?? 'no message'}`;
  const failures = backoff?.failures ?? 1;
  const times = state === 'failed' ? 'failed' : `failed ${failures} times and is tried again`;
  const logs = `llmgw ctl logs ${id}${shards.length === 0 ? '' : ' --previous'}`;
  return {
    code: 'replica_failed',
    message: `replica ${id} ${times}: ${why}; see ${logs}`,
    numbers: { failures },
  };
}

/** Serving copies that were to be kept apart: nothing moves them, so somebody has to be told what would. */
function standTogether(reading: ClusterReading): readonly Reason[] {
  return reading.snapshot.models
    .flatMap(({ name }) =>
      reading
        .conditions(name)
        .filter(({ code }) => code === 'spread_not_met')
        .map((reason) => ({ ...reason, message: `model ${name}: ${reason.message}` })),
    )
    .slice(0, TOLD_EACH);
}
