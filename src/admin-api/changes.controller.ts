import { Body, Controller, Delete, HttpCode, Inject, Param, Post, Put, Query, Req } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import { Doc } from './api-doc.js';
import { OperationsService } from './operations.service.js';
import { callerOf } from './role.guard.js';
import { RequireRole } from './roles.js';
// oxlint-disable-next-line typescript/consistent-type-imports -- the validation reads these classes at run time
import { PlanQuery, RestartDto, ScaleDto, SchedulingDto, schedulingRequest } from './scheduling.dto.js';
// oxlint-disable-next-line typescript/consistent-type-imports -- the validation reads this class at run time
import { EmptyDto } from './validation.js';
import type { RemovedView } from './views/answers.js';
import type { ModelResultView } from './views/models.js';
import type { SchedulingResultView } from './views/nodes.js';

/** What operators change. */
@Controller('admin/v1')
@RequireRole('operator')
export class ChangesController {
  constructor(@Inject(OperationsService) private readonly operations: OperationsService) {}

  /** One endpoint with three targets; asking twice changes nothing. */
  @Put('nodes/:id/scheduling')
  @Doc({
    summary: 'Cordon, uncordon or drain; with `plan` only shows what would happen.',
    returns: 'SchedulingResultView',
  })
  schedule(
    @Req() request: FastifyRequest,
    @Param('id') id: string,
    @Body() body: SchedulingDto,
    @Query() query: PlanQuery,
  ): SchedulingResultView {
    return this.operations.setScheduling(callerOf(request), id, schedulingRequest(body), query.plan);
  }

  @Delete('nodes/:id')
  @Doc({ summary: 'Forgets a node that will not come back.', returns: 'RemovedView' })
  @RequireRole('admin')
  remove(@Req() request: FastifyRequest, @Param('id') id: string, @Body() _nothing: EmptyDto): RemovedView {
    return { removed: this.operations.removeNode(callerOf(request), id) };
  }

  @Put('models/:name/scale')
  @Doc({ summary: 'Changes how many copies run.', returns: 'ModelResultView' })
  scale(
    @Req() request: FastifyRequest,
    @Param('name') name: string,
    @Body() body: ScaleDto,
  ): ModelResultView {
    return this.operations.scale(callerOf(request), name, body.replicas);
  }

  @Post('models/:name/restart')
  @Doc({ summary: 'Replaces the copies one after another.', returns: 'ModelResultView' })
  @HttpCode(200)
  restart(
    @Req() request: FastifyRequest,
    @Param('name') name: string,
    @Body() body: RestartDto,
  ): ModelResultView {
    return this.operations.restart(callerOf(request), name, body.allowGap === true);
  }

  @Post('replicas/:id/restart')
  @Doc({ summary: 'Replaces one copy, the new one first.', returns: 'ModelResultView' })
  @HttpCode(200)
  restartReplica(
    @Req() request: FastifyRequest,
    @Param('id') id: string,
    @Body() body: RestartDto,
  ): ModelResultView {
    return this.operations.restartReplica(callerOf(request), id, body.allowGap === true);
  }
}
