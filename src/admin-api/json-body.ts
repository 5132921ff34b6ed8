import type { FastifyInstance } from 'fastify';
import { OperatorError } from '../shared/errors.js';

/** Largest body of an admin call, bytes. The largest honest one is a configuration to plan with. */
export const ADMIN_BODY_LIMIT_BYTES = 1024 * 1024;

/** JSON bodies, where an empty one is none: `POST .../restart` has nothing to say. Poisoned keys are refused. */
export function installJsonBody(fastify: FastifyInstance): void {
  const parse = fastify.getDefaultJsonParser('error', 'error');
  fastify.removeContentTypeParser('application/json');
  fastify.addContentTypeParser(
    'application/json',
    { parseAs: 'string', bodyLimit: ADMIN_BODY_LIMIT_BYTES },
    (request, body, done) => {
      if (body.length === 0) done(null, {});
      else void parse(request, body as string, (error, value) => done(error ?? notAnObject(value), value));
    },
  );
}

/** A list or a bare value has no fields that could be right or wrong, so it would pass where none are needed. */
function notAnObject(value: unknown): OperatorError | null {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return null;
  return new OperatorError('invalid_argument', 'the body: expected a JSON object');
}
