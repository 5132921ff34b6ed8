/** "Why there?" and "why nowhere?", answered at any time by the code that places. */
import type { PlacementExplanation, ReplicaRecord } from '../cluster.js';
import type { Snapshot } from '../snapshot.js';
import { explain } from '../placement/place.js';
import type { PlacementQuery } from '../placement/world.js';
import { judgeLiveness } from './liveness.js';
import { awaitsRoom } from './rooms.js';
import { Pass, type PassContext } from './pass.js';
import { blockedReason, leavingNodes } from './places.js';
import type { ControlPolicy } from './policy.js';
import { awaitedRoom, prospectOf, type YieldProspect } from './yields.js';

/**
 * Where the next replica of a model would go now, or the given waiting replica. `chosen` is set exactly when the next pass would
 * place it there; `blocked` says what holds it back although it may fit. Undefined for a model the catalog does not have.
 */
export function explainPlacement(
  snapshot: Snapshot,
  policy: ControlPolicy,
  context: PassContext,
  modelName: string,
  replicaId?: string,
  /** Nodes of the copy that goes when the new one is there; of a replica's own record when it replaces one. */
  leaving?: readonly string[],
): PlacementExplanation | undefined {
  const { nowMs, nowWallMs } = context;
  const pass = new Pass(snapshot, policy, context, judgeLiveness(snapshot, policy, nowMs, nowWallMs));
  const model = pass.models.get(modelName);
  if (model === undefined) return undefined;
  const record = replicaId === undefined ? undefined : pass.record(replicaId);
  const query = {
    model,
    // A replica nobody has asked for yet has no failures of its own.
    replicaId: record?.id ?? `${modelName} (next)`,
    generation: (record?.generation ?? 0) + 1,
    leaving: leaving ?? (record === undefined ? [] : leavingNodes(pass, record)),
  };
  if (record !== undefined) pass.openRoom(record);
  const explanation = explain(pass.world(), query);
  const blocked = blockedReason(pass);
  if (blocked === undefined) return withYielding(pass, query, record, explanation);
  const { chosen: _chosen, ...rest } = explanation;
  return { ...rest, blocked };
}

/** Who would make room for the next replica of a model that fits nowhere; undefined when nobody may. */
export function explainYielding(
  snapshot: Snapshot,
  policy: ControlPolicy,
  context: PassContext,
  modelName: string,
): YieldProspect | undefined {
  const { nowMs, nowWallMs } = context;
  const pass = new Pass(snapshot, policy, context, judgeLiveness(snapshot, policy, nowMs, nowWallMs));
  const model = pass.models.get(modelName);
  if (model === undefined || blockedReason(pass) !== undefined) return undefined;
  const prospect = prospectOf(pass, { model, replicaId: `${modelName} (next)`, generation: 1 });
  return prospect?.allowed === true ? prospect : undefined;
}

/** What nothing fits beside may fit in place of others: said as the nearest change where it is allowed, beside it where it is not. */
function withYielding(
  pass: Pass,
  query: PlacementQuery,
  record: ReplicaRecord | undefined,
  explanation: PlacementExplanation,
): PlacementExplanation {
  const { counterfactual } = explanation;
  if (counterfactual === undefined) return explanation;
  if (record !== undefined && awaitsRoom(record))
    return { ...explanation, counterfactual: awaitedRoom(pass, record) };
  const prospect = prospectOf(pass, query);
  if (prospect === undefined) return explanation;
  if (prospect.allowed) return { ...explanation, counterfactual: prospect.reason };
  const message = `${counterfactual.message}; or ${prospect.reason.message}`;
  return { ...explanation, counterfactual: { ...counterfactual, message } };
}
