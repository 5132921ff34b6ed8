import { Inject, Injectable, type CanActivate, type ExecutionContext } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import type { FastifyRequest } from 'fastify';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';
import { OperatorError } from '../shared/errors.js';
import { AdminTokens } from './admin-tokens.js';
import { allows, ROLE_METADATA, type Caller, type Role } from './roles.js';

const CALLER = Symbol('Caller');
type WithCaller = FastifyRequest & { [CALLER]?: Caller };

/** Lets a call through when its token allows what the route needs. A route that says nothing is closed to all. */
@Injectable()
export class RoleGuard implements CanActivate {
  private tokens = new AdminTokens([]);
  private readFrom: ServerConfig['auth']['admin']['tokens'] | undefined;

  constructor(
    @Inject(Reflector) private readonly reflector: Reflector,
    @Inject(SERVER_CONFIG) private readonly config: ServerConfig,
  ) {}

  canActivate(context: ExecutionContext): boolean {
    const needs = this.reflector.getAllAndOverride<Role | 'open' | undefined>(ROLE_METADATA, [
      context.getHandler(),
      context.getClass(),
    ]);
    if (needs === 'open') return true;
    if (needs === undefined) throw new OperatorError('forbidden', 'nobody may call this');
    const request = context.switchToHttp().getRequest<WithCaller>();
    const caller = this.callerOf(request);
    if (!allows(caller.role, needs)) {
      throw new OperatorError(
        'forbidden',
        `this needs the role ${needs}; the token ${caller.name} is a ${caller.role}'s`,
      );
    }
    request[CALLER] = caller;
    return true;
  }

  private callerOf(request: FastifyRequest): Caller {
    const from = request.ip;
    const { tokens } = this.config.auth.admin;
    if (this.readFrom !== tokens) {
      this.tokens = new AdminTokens(tokens);
      this.readFrom = tokens;
    }
    if (!this.tokens.required) return { name: 'local', role: 'admin', from };
    const token = this.tokens.find(request.headers.authorization);
    if (token !== undefined) return { ...token, from };
    throw new OperatorError('unauthenticated', 'a token is needed and none, or an unknown one, was given', {
      hint: 'give one with --token-file, or in LLMGW_TOKEN_FILE',
    });
  }
}

/** Who makes the call; set by {@link RoleGuard}. */
export function callerOf(request: FastifyRequest): Caller {
  const caller = (request as WithCaller)[CALLER];
  if (caller === undefined) throw new Error('the route has no role guard');
  return caller;
}
