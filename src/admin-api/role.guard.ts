import { Inject, Injectable, type CanActivate, type ExecutionContext } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import type { FastifyRequest } from 'fastify';
import { TOKEN_RING } from '../access/ports.js';
import { SECRET_PREFIXES } from '../access/secrets.js';
import type { TokenRing } from '../access/token-ring.js';
import { OperatorError } from '../shared/errors.js';
import { allows, LOCAL_CALLER, ROLE_METADATA, type Caller, type Role } from './roles.js';

const CALLER = Symbol('Caller');
type WithCaller = FastifyRequest & { [CALLER]?: Caller };

/** Lets a call through when its token allows what the route needs. A route that says nothing is closed to all. */
@Injectable()
export class RoleGuard implements CanActivate {
  constructor(
    @Inject(Reflector) private readonly reflector: Reflector,
    @Inject(TOKEN_RING) private readonly tokens: TokenRing,
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
    const { authorization } = request.headers;
    const token = this.tokens.findAdmin(authorization);
    if (token !== undefined) return { ...token, from };
    // Whoever brings a token that was revoked must hear of it, even where he would get in without.
    const meant = authorization?.includes(SECRET_PREFIXES.admin) === true;
    if (!this.tokens.adminRequired && !meant) return { name: LOCAL_CALLER, role: 'admin', from };
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
