import { Controller, Get, Inject, Param } from '@nestjs/common';
import { RouterService } from '../router/router.service.js';
import type { RequestExplanation } from '../router/explanation.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { Doc } from './api-doc.js';
import { endpointView } from './endpoint-views.js';
import { RequireRole } from './roles.js';
import type { ListView } from './views/answers.js';
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

  @Get('requests/:id/explain')
  @Doc({ summary: 'Where a recent request went, and why there.', returns: 'RequestExplanation' })
  request(@Param('id') id: string): RequestExplanation {
    const explanation = this.router.explainRequest(id);
    if (explanation !== undefined) return explanation;
    throw new OperatorError('not_found', `request "${id}" is not among the last ones`, {
      hint: 'the id is in the x-request-id header of the answer; only recent requests are kept',
    });
  }
}
