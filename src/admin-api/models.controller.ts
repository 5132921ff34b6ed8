import { Controller, Get, Inject, Param, Query } from '@nestjs/common';
import { IsOptional, IsString } from 'class-validator';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';
import { ReconcilerService } from '../reconciler/reconciler.service.js';
import { ROUTER_PORT, type EndpointStatus, type RouterPort } from '../router/ports.js';
import { Doc } from './api-doc.js';
import { ClusterReader } from './cluster-reader.js';
import { modelDetail, modelSummary, type ModelExtras } from './model-views.js';
import { replicaDetail, replicaSummary } from './replica-views.js';
import { RequireRole } from './roles.js';
import { staticModelDetail, staticModelNames, staticModelSummary } from './static-model-views.js';
import type { ListView } from './views/answers.js';
import type { ModelDetailView, ModelSummaryView } from './views/models.js';
import type { ReplicaDetailView, ReplicaSummaryView } from './views/replicas.js';

class ReplicasQuery {
  /** Name or alias. */
  @IsOptional()
  @IsString()
  model?: string;
}

/** What clients ask for, and the copies of it that run. */
@Controller('admin/v1')
@RequireRole('viewer')
export class ModelsController {
  constructor(
    @Inject(ClusterReader) private readonly cluster: ClusterReader,
    @Inject(ReconcilerService) private readonly reconciler: ReconcilerService,
    @Inject(ROUTER_PORT) private readonly router: RouterPort,
    @Inject(SERVER_CONFIG) private readonly config: ServerConfig,
  ) {}

  @Get('models')
  @Doc({ summary: 'The models that can be asked for.', returns: 'ModelSummaryView', list: true })
  models(): ListView<ModelSummaryView> {
    const reading = this.cluster.read();
    const { models } = reading.snapshot;
    const endpoints = this.staticEndpoints();
    const others = staticModelNames(endpoints, new Set(models.map(({ name }) => name)));
    return {
      items: [
        ...models.map((model) => modelSummary(reading, model, this.extras(model.name))),
        ...others.map((name) => staticModelSummary(name, endpoints, this.config)),
      ],
    };
  }

  /** Names may hold slashes and colons; they come percent-encoded. */
  @Get('models/:name')
  @Doc({ summary: 'One model, by name or alias.', returns: 'ModelDetailView' })
  model(@Param('name') name: string): ModelDetailView {
    const endpoints = this.staticEndpoints();
    const catalog = this.cluster.catalog.models();
    const placed = new Set(catalog.flatMap((model) => [model.name, ...model.aliases]));
    if (staticModelNames(endpoints, placed).includes(name))
      return staticModelDetail(name, endpoints, this.config);
    const model = this.cluster.model(name);
    return modelDetail(this.cluster.read(), model, this.extras(model.name));
  }

  @Get('replicas')
  @Doc({
    summary: 'The running copies, of one model when asked for.',
    returns: 'ReplicaSummaryView',
    list: true,
  })
  replicas(@Query() { model }: ReplicasQuery): ListView<ReplicaSummaryView> {
    const reading = this.cluster.read();
    const wanted =
      model === undefined ? reading.replicas : reading.replicasOf(this.cluster.model(model).name);
    return { items: wanted.map((replica) => replicaSummary(reading, replica)) };
  }

  @Get('replicas/:id')
  @Doc({ summary: 'One copy, by id or unique beginning.', returns: 'ReplicaDetailView' })
  replica(@Param('id') id: string): ReplicaDetailView {
    const reading = this.cluster.read();
    return replicaDetail(reading, this.cluster.replica(reading, id));
  }

  private staticEndpoints(): readonly EndpointStatus[] {
    return this.router.endpoints().filter(({ endpoint }) => endpoint.nodeId === undefined);
  }

  private extras(name: string): ModelExtras {
    return {
      declared: this.cluster.catalog.declaredReplicas(name),
      defaultProfile: this.config.router.defaultProfile,
      staticEndpoints: this.config.endpoints
        .filter((endpoint) => endpoint.models.includes(name))
        .map((endpoint) => endpoint.id),
      settling: this.reconciler.settling,
    };
  }
}
