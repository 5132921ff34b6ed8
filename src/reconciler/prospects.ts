/** What is on its way for each model: from it the router tells clients whether and how long waiting makes sense. */
import type { LearnedFact, ReplicaView } from '../domain/cluster.js';
import type { Plan } from '../domain/plan.js';
import type { ControlMemory } from '../domain/snapshot.js';
import { usualLoadMs } from '../domain/reconcile/learn.js';
import type { ModelProspect } from './routing-table.js';

/** A promise shorter than this would be no promise: the next pass alone takes as long. */
const EXPECTED_MIN_MS = 1_000;

export interface ProspectInput {
  readonly replicas: readonly ReplicaView[];
  readonly learned: readonly LearnedFact[];
  readonly memory: ControlMemory;
  readonly plan: Pick<Plan, 'explanations'> | undefined;
  /** Decisions are held back after a start; what has no place yet may well get one. */
  readonly settling: boolean;
  readonly nowMs: number;
}

export function modelProspects(input: ProspectInput): ReadonlyMap<string, ModelProspect> {
  const placed = new Set(
    (input.plan?.explanations ?? []).filter((one) => one.chosen !== undefined).map((one) => one.model),
  );
  const byModel = new Map<string, ReplicaView[]>();
  for (const replica of input.replicas) {
    if (replica.record.intent !== 'run') continue;
    const { model } = replica.record;
    byModel.set(model, [...(byModel.get(model) ?? []), replica]);
  }
  return new Map(
    [...byModel].map(([model, replicas]) => {
      const expected = replicas.flatMap((replica) => expectedReadyMs(replica, input) ?? []);
      return [
        model,
        {
          states: replicas.map((replica) => replica.state),
          placementExpected: input.settling || placed.has(model),
          ...(expected.length === 0 ? {} : { expectedReadyMs: Math.min(...expected) }),
        },
      ];
    }),
  );
}

/** Rest of the usual load time, from starts that were measured; undefined without any. */
export function expectedReadyMs(
  replica: Pick<ReplicaView, 'record' | 'state' | 'backoff'>,
  input: Pick<ProspectInput, 'learned' | 'memory' | 'nowMs'>,
): number | undefined {
  const loadMs = usualLoadMs(replica.record, input.learned);
  if (loadMs === undefined) return undefined;
  const memory = input.memory.replicas.get(replica.record.id);
  const waitMs = Math.max(0, (memory?.retryAtMs ?? 0) - input.nowMs);
  const spentMs = memory?.startSinceMs === undefined ? 0 : input.nowMs - memory.startSinceMs;
  return Math.max(EXPECTED_MIN_MS, waitMs + loadMs - spentMs);
}
