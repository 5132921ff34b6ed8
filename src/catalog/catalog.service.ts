import { Inject, Injectable } from '@nestjs/common';
import { SERVER_CONFIG, type ModelConfig, type ServerConfig } from '../config/server-config.js';
import { diffCatalog, type ModelChange } from '../domain/catalog/catalog-diff.js';
import type { ModelSpec } from '../domain/model-spec.js';
import { STATE_STORE, type StateStore, type StoreOp } from '../store/ports.js';
import { maskArguments } from '../config/written.js';
import { LOOKS_SECRET } from '../config/check-server.js';
import { isOverruled, modelSpec, type ModelOverride } from './model-spec.js';

/** An operator's replica count that the configuration has overruled. */
export interface OverruledScale {
  readonly model: string;
  readonly scaled: number;
  /** What the configuration says; undefined when it no longer has the model. */
  readonly declared: number | undefined;
  readonly override: ModelOverride;
}

/** What is wanted: the models of the configuration, with the replica counts and restarts operators asked for. */
@Injectable()
export class CatalogService {
  private declared: readonly ModelConfig[];
  private specs: readonly ModelSpec[] | undefined;

  constructor(
    @Inject(SERVER_CONFIG) config: ServerConfig,
    @Inject(STATE_STORE) private readonly store: StateStore,
  ) {
    this.declared = config.models;
  }

  /** In the order of the configuration. */
  models(): readonly ModelSpec[] {
    return (this.specs ??= this.build(this.declared));
  }

  /** By name or alias. */
  model(name: string): ModelSpec | undefined {
    const models = this.models();
    return (
      models.find((model) => model.name === name) ?? models.find((model) => model.aliases.includes(name))
    );
  }

  /** Replica count of the configuration, whatever operators set since. */
  declaredReplicas(name: string): number | undefined {
    return this.declared.find((model) => model.name === name)?.replicas;
  }

  /** The models as another configuration would have them; nothing is done. */
  preview(models: readonly ModelConfig[]): readonly ModelSpec[] {
    return this.build(models);
  }

  /** What another configuration would change, secrets masked; nothing is done. */
  diff(models: readonly ModelConfig[]): readonly ModelChange[] {
    return diffCatalog(this.models(), this.build(models), withoutSecrets);
  }

  /** Replica counts of operators that no longer count under these models. */
  overruled(models: readonly ModelConfig[] = this.declared): readonly OverruledScale[] {
    return this.store.list<ModelOverride>('scales').flatMap(({ key, value }) => {
      const config = models.find((model) => model.name === key);
      if (value.replicas === undefined || !isOverruled(config, value)) return [];
      return [{ model: key, scaled: value.replicas, declared: config?.replicas, override: value }];
    });
  }

  /** What forgets an overruled count; the mark of a restart stays, or forgetting it would be another restart. */
  forgetScaleOp({ model, override }: OverruledScale): StoreOp {
    const { replicas: _replicas, declaredReplicas: _declared, ...rest } = override;
    if (rest.restartedWallMs === undefined) return { op: 'delete', collection: 'scales', key: model };
    return { op: 'put', collection: 'scales', key: model, value: rest };
  }

  /** Puts another configuration's models in force and says what changed. */
  replace(models: readonly ModelConfig[]): readonly ModelChange[] {
    const changes = this.diff(models);
    this.declared = models;
    this.specs = undefined;
    return changes;
  }

  /** What stores a change of an operator; {@link overridesStored} must follow when it is on disk. */
  overrideOp(
    name: string,
    change: Pick<ModelOverride, 'replicas' | 'restartedWallMs' | 'restartedBy' | 'restartAllowsGap'>,
    by: Pick<ModelOverride, 'actor' | 'atWallMs'>,
  ): StoreOp {
    const declaredReplicas = this.declaredReplicas(name);
    const scaled = change.replicas !== undefined && declaredReplicas !== undefined;
    const value: ModelOverride = {
      ...this.override(name),
      ...change,
      ...by,
      ...(scaled ? { declaredReplicas } : {}),
    };
    return { op: 'put', collection: 'scales', key: name, value };
  }

  overridesStored(): void {
    this.specs = undefined;
  }

  private override(name: string): ModelOverride | undefined {
    return this.store.get<ModelOverride>('scales', name);
  }

  private build(models: readonly ModelConfig[]): readonly ModelSpec[] {
    return models.map((config) => modelSpec(config, this.override(config.name)));
  }
}

/** Arguments and variables of engines may hold keys although they should not. */
function withoutSecrets(field: string, value: unknown): unknown {
  if (field === 'args') return maskArguments(value as readonly unknown[]);
  if (field !== 'env') return value;
  const entries = Object.entries(value as ModelSpec['profiles'][number]['env']).map(([name, one]) => [
    name,
    'value' in one && LOOKS_SECRET.test(name) ? '[masked]' : one,
  ]);
  return Object.fromEntries(entries) as unknown;
}
