import { Controller, Get, Inject, type Type } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { Doc } from './api-doc.js';
import { buildOpenApi, declaredRoutes } from './openapi.js';
import { RequireRole } from './roles.js';
import { SERVER_FACTS, type ServerFacts } from './server-facts.js';

/** The API's description of itself. */
@Controller('admin/v1/openapi.json')
@RequireRole('viewer')
export class OpenApiController {
  private document: object | undefined;

  constructor(
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
    @Inject(SERVER_FACTS) private readonly facts: ServerFacts,
  ) {}

  @Get()
  @Doc({ summary: 'This document.', foreign: 'An OpenAPI 3.1 document.' })
  openApi(): object {
    return (this.document ??= buildOpenApi(declaredRoutes(this.controllers()), this.facts.version));
  }

  private controllers(): readonly Type[] {
    const wrappers = [...this.modules.values()].flatMap((module) => [...module.controllers.values()]);
    return wrappers.flatMap((wrapper) =>
      typeof wrapper.metatype === 'function' ? [wrapper.metatype as Type] : [],
    );
  }
}
