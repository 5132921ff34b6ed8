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
import { because } from './reasons.js';
import { fillModels, keepBoth, reviveReplicas, scaleModels } from './scale.js';
import { noteSpread } from './spread.js';
import { forgetObsolete } from './tidy.js';
import { noteYields, reviewRooms } from './yields.js';

/** Models make room for others, and need some themselves: each round goes one step down in priority. */
const ROUNDS_MAX = 8;

/** Decides. The plan's `memory` belongs into the next snapshot once the plan was carried out. */
export function reconcile(snapshot: Snapshot, policy: ControlPolicy, context: PassContext): Plan {
  const { nowMs, nowWallMs } = context;
  const pass = new Pass(snapshot, policy, context, judgeLiveness(snapshot, policy, nowMs, nowWallMs));
  // First what is true, then what should be, then what to do about it.
  adoptReports(pass);
  reviewRooms(pass);
  reviveReplicas(pass);
  progressReplicas(pass);
  // A replica that has just lost its place waits for its room again.
  reviewRooms(pass);
  scaleModels(pass);
  // Whoever is asked to make room begins to in the same pass, which may need places or room itself.
  for (let round = 1; ; round += 1) {
    const mark = pass.mark();
    const { roomsAsked: asked, roomsUsed: used } = pass;
    moveReplicas(pass);
    fillModels(pass);
    stopReplicas(pass);
    placeReplicas(pass);
    if (round === ROUNDS_MAX || (pass.roomsAsked === asked && pass.roomsUsed === used)) break;
    pass.rewind(mark);
    // Whoever was to leave for a room that has found another place stays, and what was to replace it is one too many; where one
    // is now to leave, another that was one too many stays in its stead.
    scaleModels(pass);
  }
  keepBoth(pass);
  noteConditions(pass);
  forgetObsolete(pass);
  publishReplicas(pass);
  startShards(pass);
  noteDrains(pass);
  return pass.plan();
}

/** What holds without anything to be done by itself; events tell when it begins and ends. */
function noteConditions(pass: Pass): void {
  if (pass.settling || pass.braking) return pass.keepConditions();
  noteSpread(pass);
  noteYields(pass);
  pass.endConditions(({ code }) =>
    code === 'yielded'
      ? because('yield_over', 'it is no longer short of what it yielded')
      : because('spread_met', 'its replicas stand apart again'),
  );
}
