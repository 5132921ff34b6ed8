import { Inject, Injectable } from '@nestjs/common';
import { CatalogService } from '../catalog/catalog.service.js';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';
import type { Action, PublishedReplica } from '../domain/plan.js';
import { ROUTER_PORT, type RouterPort } from '../router/ports.js';
import { buildRoutingTable, type ModelProspect } from './routing-table.js';

/** Tells the router what it may use. When `publish` returns, nothing new goes to what is no longer in the list. */
@Injectable()
export class RoutePublisher {
  private version = 0;
  private last = '';
  private list: readonly PublishedReplica[] = [];

  constructor(
    @Inject(ROUTER_PORT) private readonly router: RouterPort,
    @Inject(CatalogService) private readonly catalog: CatalogService,
    @Inject(SERVER_CONFIG) private readonly config: ServerConfig,
  ) {}

  /** Whether the router was given a table by this control plane yet. */
  get published(): boolean {
    return this.version > 0;
  }

  /** What the router may use now. */
  replicas(): readonly PublishedReplica[] {
    return this.list;
  }

  /** Calls back when the data path saw something that the loop should look at. */
  onEvidence(listener: () => void): void {
    this.router.onEvidence(listener);
  }

  /** Ends what still runs on a generation whose grace is over. */
  abort(action: Extract<Action, { kind: 'abortInflight' }>): void {
    this.router.abortInflight(action.replicaId, action.generation, 'shutting_down');
  }

  publish(published: readonly PublishedReplica[], prospects: ReadonlyMap<string, ModelProspect>): void {
    this.list = published;
    const table = buildRoutingTable({
      version: this.version + 1,
      models: this.catalog.models(),
      published,
      prospects,
      defaultProfile: this.config.router.defaultProfile,
      staticModels: new Set(this.config.endpoints.flatMap((endpoint) => endpoint.models)),
    });
    const content = JSON.stringify([table.models.map(steadyParts), table.endpoints]);
    // An equal table is not applied again: applying costs the router work and its log a line, every two seconds.
    if (content === this.last) return;
    this.last = content;
    this.version = table.version;
    this.router.applyTable(table);
  }
}

/** Expected times shrink with every pass; they count as changed only by whole five seconds. */
function steadyParts<T extends { readonly expectedReadyMs?: number }>(model: T): T {
  if (model.expectedReadyMs === undefined) return model;
  return { ...model, expectedReadyMs: Math.ceil(model.expectedReadyMs / 5_000) };
}
