import { maskArguments } from '../config/written.js';
import type { Reason } from '../domain/cluster.js';
import type { ModelSpec } from '../domain/model-spec.js';
import { modelProspects } from '../reconciler/prospects.js';
import { outlookOf } from '../reconciler/routing-table.js';
import type { ClusterReading } from './cluster-reader.js';
import { backoffView, replicaSummary } from './replica-views.js';
import { countBy, known } from './view-times.js';
import type { ModelDetailView, ModelSummaryView } from './views/models.js';

/** What of a model the cluster itself does not know. */
export interface ModelExtras {
  readonly declared: number | undefined;
  readonly defaultProfile: string;
  /** Ids of static endpoints that serve it. */
  readonly staticEndpoints: readonly string[];
  readonly settling: boolean;
}

export function modelSummary(
  reading: ClusterReading,
  model: ModelSpec,
  extras: ModelExtras,
): ModelSummaryView {
  const replicas = reading.replicasOf(model.name);
  const ready = replicas.filter((replica) => reading.published.get(replica.record.id) !== undefined).length;
  const prospect = modelProspects({
    replicas,
    learned: reading.snapshot.learned,
    memory: reading.snapshot.memory,
    plan: reading.pass?.plan,
    settling: extras.settling,
    nowMs: reading.times.nowMs,
  }).get(model.name);
  const outlook = ready > 0 || extras.staticEndpoints.length > 0 ? 'ready' : outlookOf(prospect);
  return {
    name: model.name,
    aliases: model.aliases,
    desired: model.replicas,
    ready,
    byState: countBy(replicas.map((replica) => replica.state)),
    outlook,
    routingProfile: model.routing ?? extras.defaultProfile,
    staticEndpoints: extras.staticEndpoints,
    conditions: reading.conditions(model.name),
    ...known('source', model.source),
    ...known('declared', extras.declared === model.replicas ? undefined : extras.declared),
    ...known('expectedReadyMs', outlook === 'coming' ? prospect?.expectedReadyMs : undefined),
    ...known('reason', ready >= model.replicas ? undefined : whyFewer(reading, model)),
  };
}

export function modelDetail(reading: ClusterReading, model: ModelSpec, extras: ModelExtras): ModelDetailView {
  const replicas = reading.replicasOf(model.name);
  const subjects = new Set([
    `model/${model.name}`,
    ...replicas.map((replica) => `replica/${replica.record.id}`),
  ]);
  return {
    ...modelSummary(reading, model, extras),
    // Literal values may be secrets that somebody wrote into the file; names are enough to see what is set.
    profiles: model.profiles.map((profile) => ({
      ...profile,
      args: maskArguments(profile.args).map(String),
      env: maskedEnv(profile.env),
    })),
    fallback: model.fallback,
    priority: model.priority,
    replicas: replicas.map((replica) => replicaSummary(reading, replica)),
    learned: reading.snapshot.learned.filter((fact) => fact.model === model.name),
    backoffs: reading.snapshot.backoffs
      .filter((record) => record.model === model.name)
      .map((record) => backoffView(reading.times, record)),
    notDone: (reading.pass?.plan.notDone ?? []).filter((one) => subjects.has(one.subject)),
  };
}

function maskedEnv(env: ModelSpec['profiles'][number]['env']) {
  return Object.fromEntries(
    Object.entries(env).map(([name, value]) => [name, 'value' in value ? { value: '***' } : value]),
  );
}

/** The first reason found: the model's own, then that of a replica that is not Ready. */
function whyFewer(reading: ClusterReading, model: ModelSpec): Reason | undefined {
  const own = reading.notDone(`model/${model.name}`)[0];
  if (own !== undefined) return own;
  const unplaced = reading.pass?.plan.explanations.find((one) => one.model === model.name);
  if (unplaced !== undefined && unplaced.chosen === undefined) {
    const why = unplaced.blocked ?? unplaced.counterfactual;
    if (why !== undefined) return why;
  }
  for (const replica of reading.replicasOf(model.name)) {
    if (replica.state === 'ready') continue;
    const why = replica.reason ?? reading.notDone(`replica/${replica.record.id}`)[0];
    if (why !== undefined) return why;
  }
  return undefined;
}
