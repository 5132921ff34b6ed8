import { Body, Controller, Delete, Get, Header, Inject, Param, Post, Req } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import { matchesModel } from '../access/api-key.js';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';
import { Doc } from './api-doc.js';
// oxlint-disable-next-line typescript/consistent-type-imports -- the validation reads this class at run time
import { CreateKeyDto } from './credentials.dto.js';
import { KeysService } from './keys.service.js';
import { callerOf } from './role.guard.js';
import { RequireRole } from './roles.js';
// oxlint-disable-next-line typescript/consistent-type-imports -- the validation reads this class at run time
import { EmptyDto } from './validation.js';
import type { ListView } from './views/answers.js';
import type { CreatedKeyView, KeyView } from './views/credentials.js';

/** Keys of the client API. */
@Controller('admin/v1/keys')
@RequireRole('admin')
export class KeysController {
  constructor(
    @Inject(KeysService) private readonly keys: KeysService,
    @Inject(SERVER_CONFIG) private readonly config: ServerConfig,
  ) {}

  @Get()
  @Doc({ summary: 'API keys, revoked ones too; never their secrets.', returns: 'KeyView', list: true })
  list(): ListView<KeyView> {
    return { items: this.keys.list() };
  }

  @Post()
  @Header('cache-control', 'no-store')
  @Doc({
    summary: 'Makes an API key; the answer is the only place its secret ever is.',
    returns: 'CreatedKeyView',
  })
  create(@Req() request: FastifyRequest, @Body() body: CreateKeyDto): CreatedKeyView {
    return this.keys.create(
      callerOf(request),
      body as Parameters<KeysService['create']>[1],
      this.notes(body),
    );
  }

  @Delete(':id')
  @Doc({ summary: 'Revokes an API key, by id or unique beginning.', returns: 'KeyView' })
  revoke(@Req() request: FastifyRequest, @Param('id') id: string, @Body() _nothing: EmptyDto): KeyView {
    return this.keys.revoke(callerOf(request), id);
  }

  /** A model may be declared later, so its absence is no error, but mostly it is a slip of the hand. */
  private notes({ models = [] }: CreateKeyDto): readonly string[] {
    const served = this.config.endpoints.flatMap(({ models: names }) =>
      names.map((name) => ({ name, aliases: [] })),
    );
    const known = [...this.config.models, ...served];
    return models
      .filter((pattern) => !known.some((model) => matchesModel(pattern, model)))
      .map((pattern) => `no model is named ${pattern} now`);
  }
}
