import { Body, Controller, Delete, Get, Header, Inject, Param, Post, Req } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import { Doc } from './api-doc.js';
// oxlint-disable-next-line typescript/consistent-type-imports -- the validation reads this class at run time
import { CreateTokenDto } from './credentials.dto.js';
import { callerOf } from './role.guard.js';
import { RequireRole } from './roles.js';
import { TokensService } from './tokens.service.js';
// oxlint-disable-next-line typescript/consistent-type-imports -- the validation reads this class at run time
import { EmptyDto } from './validation.js';
import type { ListView } from './views/answers.js';
import type { CreatedTokenView, RevokedTokenView, TokenView } from './views/credentials.js';

/** Tokens of operators and agents. */
@Controller('admin/v1/tokens')
@RequireRole('admin')
export class TokensController {
  constructor(@Inject(TokensService) private readonly tokens: TokensService) {}

  @Get()
  @Doc({
    summary: 'Tokens of the admin API and of agents, revoked ones too; never their secrets.',
    returns: 'TokenView',
    list: true,
  })
  list(): ListView<TokenView> {
    return { items: this.tokens.list() };
  }

  @Post()
  @Header('cache-control', 'no-store')
  @Doc({
    summary: 'Makes a token; the answer is the only place its secret ever is.',
    returns: 'CreatedTokenView',
  })
  create(@Req() request: FastifyRequest, @Body() body: CreateTokenDto): CreatedTokenView {
    return this.tokens.create(callerOf(request), body as Parameters<TokensService['create']>[1]);
  }

  @Delete(':id')
  @Doc({ summary: 'Revokes a token, by id or unique beginning.', returns: 'RevokedTokenView' })
  revoke(
    @Req() request: FastifyRequest,
    @Param('id') id: string,
    @Body() _nothing: EmptyDto,
  ): RevokedTokenView {
    return this.tokens.revoke(callerOf(request), id);
  }
}
