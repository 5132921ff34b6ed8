import { Injectable, type CanActivate, type ExecutionContext } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import { didYouMean } from '../shared/nearest.js';
import { OperatorError } from '../shared/errors.js';
import { DOC_METADATA } from './api-doc.js';
import { queryNamesOf } from './openapi.js';

/**
 * Refuses query parameters that a route does not take: one that is overlooked makes a change of what was meant to be a look
 * (`scale?plan=true`), and everything of what was meant to be a choice. Paths for probes and scrapers take what comes.
 */
@Injectable()
export class QueryGuard implements CanActivate {
  private readonly known = new WeakMap<object, ReadonlySet<string>>();

  canActivate(context: ExecutionContext): boolean {
    if (context.getType() !== 'http') return true;
    const { url, query } = context.switchToHttp().getRequest<FastifyRequest>();
    const handler = context.getHandler();
    if (!url.startsWith('/admin/') || !Reflect.hasMetadata(DOC_METADATA, handler)) return true;
    const known = this.namesOf(context);
    for (const name of Object.keys(query as object)) {
      if (known.has(name)) continue;
      const message = `there is no parameter ${JSON.stringify(name.slice(0, 100))} here${didYouMean(name, known)}`;
      throw new OperatorError('invalid_argument', message, { field: name.slice(0, 100) });
    }
    return true;
  }

  private namesOf(context: ExecutionContext): ReadonlySet<string> {
    const handler = context.getHandler();
    const kept = this.known.get(handler);
    if (kept !== undefined) return kept;
    const names = queryNamesOf(context.getClass(), handler.name);
    this.known.set(handler, names);
    return names;
  }
}
