import type { FastifyInstance } from 'fastify';

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
      else void parse(request, body as string, done);
    },
  );
}
