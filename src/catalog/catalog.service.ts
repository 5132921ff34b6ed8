import { Inject, Injectable } from '@nestjs/common';
import { SERVER_CONFIG, type ModelConfig, type ServerConfig } from '../config/server-config.js';
import { diffCatalog, type ModelChange } from '../domain/catalog/catalog-diff.js';
import type { ModelSpec } from '../domain/cluster.js';
import { STATE_STORE, type StateStore, type StoreOp } from '../store/ports.js';
import { modelSpec, type ModelOverride } from './model-spec.js';

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

  /** What another configuration would change; nothing is done. */
  diff(models: readonly ModelConfig[]): readonly ModelChange[] {
    return diffCatalog(this.models(), this.build(models));
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
    change: Pick<ModelOverride, 'replicas' | 'restartedWallMs'>,
    by: Pick<ModelOverride, 'actor' | 'atWallMs'>,
  ): StoreOp {
    const value: ModelOverride = { ...this.override(name), ...change, ...by };
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
