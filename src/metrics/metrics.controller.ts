import { Controller, Get, Res } from '@nestjs/common';
import { PrometheusController } from '@willsoto/nestjs-prometheus';
import { RequireRole } from '../admin-api/roles.js';

/** `/metrics`, closed to those without a token once tokens are configured: model and node names are in it. */
@Controller()
@RequireRole('viewer')
export class MetricsController extends PrometheusController {
  @Get()
  override async index(@Res({ passthrough: true }) response: unknown): Promise<string> {
    return super.index(response);
  }
}
