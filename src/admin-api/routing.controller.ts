import { Controller, Get, Inject, Param } from '@nestjs/common';
import { RouterService } from '../router/router.service.js';
import type { RequestExplanation } from '../router/explanation.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { Doc } from './api-doc.js';
import { endpointView } from './endpoint-views.js';
import { findByPrefix } from './find.js';
import { RequireRole } from './roles.js';
import type { ListView } from './views/answers.js';
import type { ModelTrafficView } from './views/models.js';
import type { EndpointView } from './views/replicas.js';

/** What the router has and what it did with a request. */
@Controller('admin/v1')
@RequireRole('viewer')
export class RoutingController {
  constructor(
    @Inject(RouterService) private readonly router: RouterService,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  @Get('endpoints')
  @Doc({ summary: 'What the router can send to.', returns: 'EndpointView', list: true })
  endpoints(): ListView<EndpointView> {
    const nowMs = this.clock.monotonicMs();
    return { items: this.router.endpoints().map((status) => endpointView(status, nowMs)) };
  }

  @Get('traffic')
  @Doc({ summary: 'What passes for each model.', returns: 'ModelTrafficView', list: true })
  traffic(): ListView<ModelTrafficView> {
    const items = [...this.router.traffic()].map(([model, counts]) => ({ model, ...counts }));
    return { items: items.toSorted((a, b) => (a.model < b.model ? -1 : 1)) };
  }

  @Get('requests/:id/explain')
  @Doc({ summary: 'Where a recent request went, and why there.', returns: 'RequestExplanation' })
  request(@Param('id') id: string): RequestExplanation {
    const explanation = this.router.explainRequest(id) ?? this.router.explainRequest(this.onlyIdWith(id));
    if (explanation !== undefined) return explanation;
    throw new OperatorError('not_found', `request "${id}" is not among the last ones`, {
      hint: 'the id is in the x-request-id header of the answer; only recent requests are kept',
    });
  }

  /** The only id that begins as given; as given where none does. Throws where several do. */
  private onlyIdWith(given: string): string {
    const ids = this.router.requestIds(given);
    return ids.length === 0 ? given : findByPrefix('request', given, ids, (id) => id);
  }
}
