/**
 * One pass of the control plane: from everything that is wanted, decided and seen, to one plan. Pure and level-triggered: it
 * compares, it does not react, so running it twice changes nothing, and whatever it missed it sees the next time.
 */
import type { Plan } from '../plan.js';
import type { Snapshot } from '../snapshot.js';
import { adoptReports } from './adopt.js';
import { startShards } from './commands.js';
import { judgeLiveness } from './liveness.js';
import { moveReplicas } from './moves.js';
import { noteDrains } from './note-drains.js';
import { Pass, type PassContext } from './pass.js';
import { placeReplicas } from './places.js';
import type { ControlPolicy } from './policy.js';
import { progressReplicas, stopReplicas } from './progress.js';
import { publishReplicas } from './publish.js';
import { fillModels, reviveReplicas, scaleModels } from './scale.js';
import { noteSpread } from './spread.js';
import { forgetObsolete } from './tidy.js';

/** Decides. The plan's `memory` belongs into the next snapshot once the plan was carried out. */
export function reconcile(snapshot: Snapshot, policy: ControlPolicy, context: PassContext): Plan {
  const { nowMs, nowWallMs } = context;
  const pass = new Pass(snapshot, policy, context, judgeLiveness(snapshot, policy, nowMs, nowWallMs));
  // First what is true, then what should be, then what to do about it.
  adoptReports(pass);
  reviveReplicas(pass);
  progressReplicas(pass);
  scaleModels(pass);
  moveReplicas(pass);
  fillModels(pass);
  stopReplicas(pass);
  placeReplicas(pass);
  noteSpread(pass);
  forgetObsolete(pass);
  publishReplicas(pass);
  startShards(pass);
  noteDrains(pass);
  return pass.plan();
}
