/** Waiting until a model is as it was asked to be. */
import type { ModelDetailView } from '../../admin-api/views/models.js';
import type { Clock } from '../../shared/clock.js';
import { EXIT, OperatorError } from '../../shared/errors.js';
import { plain } from '../render/values.js';
import type { AdminClient } from './admin-client.js';
import { getModel } from './detail.commands.js';
import { Patience } from './patience.js';

const LOOK_EVERY_MS = 1_000;

export interface ModelGoal {
  readonly model: string;
  /** What was asked for, told when the wait is interrupted. */
  readonly what: string;
  /** Undefined when it is reached, else how far it is. Throws when it will never be. */
  readonly left: (model: ModelDetailView) => string | undefined;
}

/** Tells each step once, and returns when the goal is reached; interrupting cancels nothing. */
export async function waitForModel(client: AdminClient, clock: Clock, goal: ModelGoal): Promise<void> {
  const say = (line: string) => void process.stderr.write(`${line}\n`);
  const interrupted = () => {
    say(`${goal.what} goes on`);
    process.exit(EXIT.interrupted);
  };
  process.once('SIGINT', interrupted);
  const patience = new Patience(clock, say);
  try {
    let told = '';
    for (;;) {
      const model = await patience.ask(() => getModel(client, goal.model));
      const left = model === undefined ? told : goal.left(model);
      if (left === undefined) return;
      const why = model?.notDone.map(({ reason }) => reason.message)[0];
      const said = model === undefined || why === undefined ? left : `${left}: ${why}`;
      if (said !== told) say(`${plain(goal.model)}: ${plain(said)}`);
      told = said;
      await new Promise<void>((resolve) => clock.setTimer(LOOK_EVERY_MS, resolve));
    }
  } finally {
    process.off('SIGINT', interrupted);
  }
}

/** The whole number of copies wanted by somebody else meanwhile. */
export function overruled(model: string, desired: number): OperatorError {
  return new OperatorError('conflict', `${model} was scaled by somebody else: it now wants ${desired}`);
}
