/** Waits until what was started can serve, and tells what is happening meanwhile. */
import type { ListView } from '../../admin-api/views/answers.js';
import type { ModelSummaryView } from '../../admin-api/views/models.js';
import type { ReplicaSummaryView } from '../../admin-api/views/replicas.js';
import type { Clock } from '../../shared/clock.js';
import { OperatorError } from '../../shared/errors.js';
import type { AdminClient } from '../ctl/admin-client.js';

const LOOK_EVERY_MS = 100;

/** A model of any size loads within this on one machine; beyond it the operator looks for himself. */
const GIVE_UP_MS = 30 * 60_000;

/** Names of models. */
export interface Served {
  readonly served: readonly string[];
  readonly notServed: readonly string[];
}

export interface ReadinessWait {
  readonly client: AdminClient;
  readonly clock: Clock;
  readonly tell: (line: string) => void;
  /** Ends the wait early, e.g. on Ctrl-C. */
  readonly stopped: () => boolean;
}

/**
 * Returns when every model that has launch profiles is served, or cannot be for a reason that waiting does not change.
 */
export async function waitUntilReady({ client, clock, tell, stopped }: ReadinessWait): Promise<Served> {
  const told = new Map<string, string>();
  const deadlineMs = clock.monotonicMs() + GIVE_UP_MS;
  for (;;) {
    const { models, replicas } = await look(client);
    for (const line of news(models, replicas, told)) tell(line);
    const waiting = models.filter((model) => !isServed(model));
    const open = waiting.filter((model) => !isStuck(model, replicas));
    if (open.length === 0 || stopped() || clock.monotonicMs() > deadlineMs) {
      const served = models.filter((model) => model.outlook === 'ready');
      return { served: served.map(({ name }) => name), notServed: waiting.map(({ name }) => name) };
    }
    await new Promise<void>((resolve) => clock.setTimer(LOOK_EVERY_MS, resolve));
  }
}

interface Look {
  readonly models: readonly ModelSummaryView[];
  readonly replicas: readonly ReplicaSummaryView[];
}

async function look(client: AdminClient): Promise<Look> {
  const [models, replicas] = await Promise.all([
    client.get<ListView<ModelSummaryView>>('models'),
    replicasOf(client),
  ]);
  return { models: models.items, replicas };
}

async function replicasOf(client: AdminClient): Promise<readonly ReplicaSummaryView[]> {
  try {
    return (await client.get<ListView<ReplicaSummaryView>>('replicas')).items;
  } catch (error) {
    // A router-only server has none.
    if (error instanceof OperatorError && error.code === 'not_found') return [];
    throw error;
  }
}

const isServed = (model: ModelSummaryView): boolean => model.outlook === 'ready' || model.desired === 0;

/** Failed for good: nothing is tried any more. */
function isStuck(model: ModelSummaryView, replicas: readonly ReplicaSummaryView[]): boolean {
  const own = replicas.filter((replica) => replica.model === model.name);
  return own.length > 0 && own.every(({ state }) => state === 'failed');
}

/** One line for each replica or model of which something new can be said. */
function news(
  models: readonly ModelSummaryView[],
  replicas: readonly ReplicaSummaryView[],
  told: Map<string, string>,
): string[] {
  const sayings = models.map((model): [string, string] => {
    const own = replicas.filter((replica) => replica.model === model.name);
    const placed = own.map(({ state, progress, reason }) =>
      // Known from an earlier run, and its agent is only just starting.
      state === 'unreachable' || reason?.code === 'awaits_agent' || reason?.code === 'no_nodes'
        ? 'waiting for the agent'
        : [state, progress ?? reason?.message].filter(Boolean).join(': '),
    );
    const waiting = model.reason === undefined ? 'waiting' : `waiting: ${model.reason.message}`;
    return [model.name, placed.length === 0 ? waiting : placed.join(', ')];
  });
  return sayings.flatMap(([name, saying]) => {
    if (told.get(name) === saying) return [];
    told.set(name, saying);
    return [`${name}: ${saying}`];
  });
}
