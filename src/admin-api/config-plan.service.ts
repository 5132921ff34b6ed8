import { Inject, Injectable, Optional } from '@nestjs/common';
import { CatalogService } from '../catalog/catalog.service.js';
import { replicaKey } from '../domain/cluster.js';
import type { Snapshot } from '../domain/snapshot.js';
import { ForecastRun, type Forecast } from '../domain/reconcile/forecast.js';
import { controlPolicy } from '../reconciler/control-policy.js';
import { ReconcilerService } from '../reconciler/reconciler.service.js';
import { RoutePublisher } from '../reconciler/route-publisher.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { ConfigError } from '../shared/errors.js';
import {
  ConfigReloadService,
  hasChanges,
  invalidConfiguration,
  type Candidate,
} from './config-reload.service.js';
import type { ConfigPlanView, ConfigStepView } from './views/configuration.js';

const NOTHING_MOVES: Forecast = { steps: [], service: [], stuck: [], endMs: 0, unmeasured: [], cut: false };

/** What a configuration would change, down to which copy starts where and when. Nothing is done, nothing is remembered. */
@Injectable()
export class ConfigPlanService {
  constructor(
    @Inject(ConfigReloadService) private readonly reloads: ConfigReloadService,
    @Inject(CLOCK) private readonly clock: Clock,
    @Optional() @Inject(CatalogService) private readonly catalog: CatalogService | null,
    @Optional() @Inject(ReconcilerService) private readonly reconciler: ReconcilerService | null,
    @Optional() @Inject(RoutePublisher) private readonly publisher: RoutePublisher | null,
  ) {}

  /** Throws `invalid_configuration` with every problem. */
  async plan(given: { readonly name: string; readonly text: string }): Promise<ConfigPlanView> {
    const candidate = this.candidate(given);
    const snapshot = this.reconciler?.snapshot();
    const forecast = snapshot === undefined ? NOTHING_MOVES : await this.forecast(candidate, snapshot);
    const { changes } = candidate;
    const changed = hasChanges(changes) || changes.needsRestart.length > 0;
    return {
      ...changes,
      changed,
      steps: stepViews(forecast, snapshot),
      service: forecast.service.filter(({ model }) => forecast.steps.some((step) => step.model === model)),
      notDone: forecast.stuck,
      expectedMs: Math.round(forecast.endMs),
      unmeasured: forecast.unmeasured,
      cut: forecast.cut,
      notes: changed ? notes(candidate, forecast) : ['nothing would change', ...this.reloads.alreadyTaken()],
    };
  }

  private candidate(given: { readonly name: string; readonly text: string }): Candidate {
    try {
      return this.reloads.candidate(given);
    } catch (error) {
      if (error instanceof ConfigError) throw invalidConfiguration(error.problems, error);
      throw error;
    }
  }

  private async forecast({ config, changes }: Candidate, snapshot: Snapshot): Promise<Forecast> {
    if (this.catalog === null || changes.models.length === 0) return NOTHING_MOVES;
    const published = new Set(this.publisher?.replicas().map(({ replicaId }) => replicaId));
    const now = { nowMs: this.clock.monotonicMs(), nowWallMs: this.clock.wallMs() };
    const models = this.catalog.preview(config.models);
    const run = new ForecastRun(snapshot, models, controlPolicy(config.control), now, published);
    // Requests are served between the passes: a plan of a large change must not be felt by any.
    while (run.step()) await new Promise<void>((resolve) => this.clock.setTimer(0, resolve));
    return run.result();
  }
}

function stepViews({ steps }: Forecast, snapshot: Snapshot | undefined): readonly ConfigStepView[] {
  const names = new Map((snapshot?.replicas ?? []).map((record) => [record.id, record.id]));
  const news = new Map<string, number>();
  for (const { replicaId, model } of steps) {
    if (names.has(replicaId)) continue;
    const number = (news.get(model) ?? 0) + 1;
    news.set(model, number);
    names.set(replicaId, `${model} (new ${number})`);
  }
  const nameOf = (id: string): string => names.get(id) ?? id;
  const inflightOf = (id: string): number => {
    const record = snapshot?.replicas.find((one) => one.id === id);
    return record === undefined ? 0 : (snapshot?.inflight.get(replicaKey(id, record.generation)) ?? 0);
  };
  return steps.map(({ atMs, kind, replicaId, model, profile, nodeIds, reason, replaces }) => ({
    atMs: Math.round(atMs),
    kind,
    replica: nameOf(replicaId),
    model,
    profile,
    nodes: nodeIds,
    // New copies have made-up ids, which nobody should look for.
    reason: { ...reason, message: renamed(reason.message, names) },
    ...(replaces === undefined ? {} : { replaces: nameOf(replaces) }),
    ...(kind === 'leaves' ? { inflight: inflightOf(replicaId) } : {}),
  }));
}

function renamed(text: string, names: ReadonlyMap<string, string>): string {
  let said = text;
  for (const [id, name] of names) if (id !== name) said = said.replaceAll(id, name);
  return said;
}

function notes({ changes }: Candidate, forecast: Forecast): readonly string[] {
  const blocked = forecast.stuck.filter(({ reason }) => reason.code === 'no_surge');
  const gaps = forecast.service.filter(({ gapMs }) => gapMs > 0).map(({ model }) => model);
  return [
    'nothing was changed; this is what would happen',
    ...(changes.needsRestart.length === 0 ? [] : [`needs a restart: ${changes.needsRestart.join(', ')}`]),
    ...(blocked.length === 0
      ? []
      : [
          'without room beside the old copies they stay: free a place, or set onNoSurge: swap to stop one first',
        ]),
    ...(gaps.length === 0 ? [] : [`${gaps.join(', ')} would be without a serving replica for a while`]),
  ];
}
