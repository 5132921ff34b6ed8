/**
 * Whether this server's store has lost state. It then knows too few nodes, or none, to tell whether all have reported: an agent
 * that is still on its way may run what looks missing, and started a second time it would be there twice.
 */
import type { PlanEvent } from '../plan.js';
import type { Snapshot, StateLoss } from '../snapshot.js';
import { duration } from '../placement/reasons.js';
import type { ControlPolicy } from './policy.js';
import { because } from './reasons.js';

export interface StateLossJudgement {
  /** Monotonic ms at which an agent was first heard in this server life. */
  readonly firstHeardMs?: number;
  /** For as long as agents are waited for because of it. */
  readonly stateLost?: StateLoss;
}

/** The loss is told by what agents bring, which has a record as soon as it is taken over: so what was seen once is remembered. */
export function judgeStateLoss(snapshot: Snapshot, policy: ControlPolicy, nowMs: number): StateLossJudgement {
  const { memory, nodes } = snapshot;
  const heard =
    memory.firstHeardMs !== undefined || nodes.some(({ lastReportMs }) => lastReportMs !== undefined);
  const firstHeardMs = heard ? (memory.firstHeardMs ?? nowMs) : undefined;
  // Agents dial at about the same time, so who is not there a while after the first is away for reasons of its own. A server that
  // nobody has reached yet has nothing to start anything on.
  const over = nowMs - (firstHeardMs ?? nowMs) >= policy.settleAfterStartMs;
  const stateLost = over ? undefined : (memory.stateLost ?? snapshot.stateLost ?? unknownEngines(snapshot));
  return {
    ...(firstHeardMs === undefined ? {} : { firstHeardMs }),
    ...(stateLost === undefined ? {} : { stateLost }),
  };
}

function unknownEngines({ nodes, replicas }: Snapshot): StateLoss | undefined {
  const known = new Set(replicas.map(({ id }) => id));
  const unknown = nodes.some(({ shards }) =>
    shards.some(({ phase, replicaId }) => phase !== 'exited' && !known.has(replicaId)),
  );
  return unknown ? 'unknownEngines' : undefined;
}

/** Told once, when it is first noticed. */
export function stateLossEvents(
  { memory }: Snapshot,
  { stateLost }: StateLossJudgement,
  policy: ControlPolicy,
): readonly PlanEvent[] {
  if (stateLost === undefined || memory.stateLost !== undefined) return [];
  return [{ subject: 'cluster', reason: because('state_lost', stateLossWords(stateLost, policy)) }];
}

/** What shows the loss, what is waited for and for how long, and how to wait no longer. */
export function stateLossWords(loss: StateLoss, { settleAfterStartMs }: ControlPolicy): string {
  const waits = `nothing is started until ${duration(settleAfterStartMs)} after the first agent came (control.settleAfterStart; off waits for nobody)`;
  return `${SIGNS[loss]}; other agents may run what looks missing, so ${waits}`;
}

const SIGNS: Readonly<Record<StateLoss, string>> = {
  unknownEngines: 'engines run that the stored state does not know',
  obeyedTerm: 'an agent has obeyed a server that the stored state does not know',
  restored: 'the state was restored from a backup',
};
