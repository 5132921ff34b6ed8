import { Injectable, type CanActivate, type ExecutionContext } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import { isLoopbackHost } from '../config/address.js';
import { OperatorError } from '../shared/errors.js';
import { callerOf } from './role.guard.js';
import { LOCAL_CALLER, type Caller } from './roles.js';

/**
 * A heap snapshot holds every prompt and every secret of the process. Where no tokens are configured everybody is an
 * administrator, which `insecure: true` may extend to a network; this part stays on the machine.
 */
@Injectable()
export class DebugGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const caller = callerOf(context.switchToHttp().getRequest<FastifyRequest>());
    if (mayDebug(caller)) return true;
    throw new OperatorError('forbidden', `without tokens this is for callers on the server's own machine`, {
      hint: 'call it through 127.0.0.1 there, or configure auth.admin.tokens',
    });
  }
}

/** Proven by a token, or on this machine. */
export function mayDebug({ name, from }: Pick<Caller, 'name' | 'from'>): boolean {
  // A listener on [::] sees IPv4 callers as mapped addresses.
  return name !== LOCAL_CALLER || isLoopbackHost(from.replace(/^::ffff:/i, ''));
}
