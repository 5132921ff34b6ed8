import { Controller, Get, Inject, Param } from '@nestjs/common';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';
import { ROUTER_PORT, type RouterPort } from '../router/ports.js';
import { Doc } from './api-doc.js';
import { findNamed } from './find.js';
import { RequireRole } from './roles.js';
import { staticModelDetail, staticModelNames, staticModelSummary } from './static-model-views.js';
import type { ListView } from './views/answers.js';
import type { ModelDetailView, ModelSummaryView } from './views/models.js';

/** The models of a server without a control plane: what its static endpoints serve. */
@Controller('admin/v1/models')
@RequireRole('viewer')
export class StaticModelsController {
  constructor(
    @Inject(ROUTER_PORT) private readonly router: RouterPort,
    @Inject(SERVER_CONFIG) private readonly config: ServerConfig,
  ) {}

  @Get()
  @Doc({ summary: 'The models that can be asked for.', returns: 'ModelSummaryView', list: true })
  models(): ListView<ModelSummaryView> {
    const endpoints = this.router.endpoints();
    return {
      items: staticModelNames(endpoints).map((name) => staticModelSummary(name, endpoints, this.config)),
    };
  }

  @Get(':name')
  @Doc({ summary: 'One model, by name or alias.', returns: 'ModelDetailView' })
  model(@Param('name') given: string): ModelDetailView {
    const endpoints = this.router.endpoints();
    const names = (name: string) => [
      name,
      ...(this.config.models.find((model) => model.name === name)?.aliases ?? []),
    ];
    return staticModelDetail(
      findNamed('model', given, staticModelNames(endpoints), names),
      endpoints,
      this.config,
    );
  }
}
