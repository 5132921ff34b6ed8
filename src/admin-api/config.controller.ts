import { Body, Controller, Get, HttpCode, Inject, Post, Query, Req } from '@nestjs/common';
import { Type } from 'class-transformer';
import { IsInt, IsOptional, IsString, Max, MaxLength, Min } from 'class-validator';
import type { FastifyRequest } from 'fastify';
import { MAX_FILE_BYTES } from '../config/load.js';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';
import { maskConfig } from '../config/written.js';
import { Doc } from './api-doc.js';
import { AuditLog } from './audit-log.js';
import { ConfigPlanService } from './config-plan.service.js';
import { ConfigReloadService } from './config-reload.service.js';
import { callerOf } from './role.guard.js';
import { RequireRole } from './roles.js';
import { SERVER_FACTS, type ServerFacts } from './server-facts.js';
import { configStatus } from './status.controller.js';
// oxlint-disable-next-line typescript/consistent-type-imports -- the validation reads this class at run time
import { EmptyDto } from './validation.js';
import type { ListView } from './views/answers.js';
import type { ConfigPlanView, ConfigView, ReloadResultView } from './views/configuration.js';
import type { AuditView } from './views/status.js';

class AuditQuery {
  @IsOptional()
  @Type(() => Number)
  @IsInt()
  @Min(1)
  @Max(10_000)
  limit = 200;
}

/** A configuration that is not on the server's disk. */
class PlanDto {
  /** The content of the file. */
  @IsString({ message: 'text: expected the text of a configuration file' })
  @MaxLength(MAX_FILE_BYTES)
  text!: string;

  /** What problems call it. */
  @IsOptional()
  @IsString()
  @MaxLength(4_096)
  name = 'configuration';
}

/** What is configured, and who changed what. */
@Controller('admin/v1')
export class ConfigController {
  constructor(
    @Inject(SERVER_CONFIG) private readonly config: ServerConfig,
    @Inject(SERVER_FACTS) private readonly facts: ServerFacts,
    @Inject(AuditLog) private readonly audit: AuditLog,
    @Inject(ConfigReloadService) private readonly reloads: ConfigReloadService,
    @Inject(ConfigPlanService) private readonly plans: ConfigPlanService,
  ) {}

  @Get('config')
  @Doc({ summary: 'The configuration in force, secrets masked.', returns: 'ConfigView' })
  @RequireRole('viewer')
  show(): ConfigView {
    return { config: maskConfig(this.config), status: configStatus(this.facts) };
  }

  /** What is not valid is answered with every problem and changes nothing. */
  @Post('config/reload')
  @Doc({ summary: 'Reads the configuration again and puts it in force.', returns: 'ReloadResultView' })
  @RequireRole('operator')
  @HttpCode(200)
  reload(@Req() request: FastifyRequest, @Body() _nothing: EmptyDto): ReloadResultView {
    return this.reloads.reload(callerOf(request));
  }

  /** Flags and environment of this server count as they would in a reload. */
  @Post('config/plan')
  @Doc({ summary: 'What a configuration would change; nothing is done.', returns: 'ConfigPlanView' })
  @RequireRole('operator')
  @HttpCode(200)
  async plan(@Body() body: PlanDto): Promise<ConfigPlanView> {
    return this.plans.plan(body);
  }

  /** Newest first. */
  @Get('audit')
  @Doc({ summary: 'Who changed what, newest first.', returns: 'AuditView', list: true })
  @RequireRole('admin')
  audited(@Query() query: AuditQuery): ListView<AuditView> {
    return { items: this.audit.list(query.limit) };
  }
}
