/** "Why there?" and "why nowhere?", answered at any time by the code that places. */
import type { PlacementExplanation } from '../cluster.js';
import type { Snapshot } from '../snapshot.js';
import { explain } from '../placement/place.js';
import { judgeLiveness } from './liveness.js';
import { Pass, type PassContext } from './pass.js';
import { blockedReason, leavingNodes } from './places.js';
import type { ControlPolicy } from './policy.js';

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
  const explanation = explain(pass.world(), query);
  const blocked = blockedReason(pass);
  if (blocked === undefined) return explanation;
  const { chosen: _chosen, ...rest } = explanation;
  return { ...rest, blocked };
}
