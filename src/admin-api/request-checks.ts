import { isIP } from 'node:net';
import { hostname } from 'node:os';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { parseAddress } from '../config/address.js';
import type { ServerConfig } from '../config/server-config.js';
import { OperatorError } from '../shared/errors.js';

const CHANGING = new Set(['POST', 'PUT', 'PATCH', 'DELETE']);

/**
 * What a web page in an operator's browser must not be able to do: reach this listener under a name of its own (DNS
 * rebinding), or send changes across sites. Tokens alone do not stop the first while none are configured, which is the
 * default on loopback.
 */
export function checkRequest(request: FastifyRequest, hosts: AllowedHosts): void {
  if (!hosts.allows(request.headers.host)) {
    throw new OperatorError(
      'forbidden',
      `the Host header ${shown(request.headers.host)} is not one of this listener`,
      {
        hint: 'call it by IP address or as localhost',
      },
    );
  }
  if (!CHANGING.has(request.method)) return;
  checkOrigin(request);
  const hasBody =
    request.headers['content-length'] !== undefined || request.headers['transfer-encoding'] !== undefined;
  // A browser asks first before it sends a DELETE across sites, so one without a body needs no type.
  if (request.method === 'DELETE' && !hasBody) return;
  if (!/^application\/json\s*(;|$)/i.test(request.headers['content-type'] ?? '')) {
    throw new OperatorError('unsupported_media_type', 'changes need the content type application/json');
  }
}

function checkOrigin(request: FastifyRequest): void {
  const { origin, host } = request.headers;
  const site = request.headers['sec-fetch-site'];
  const foreign = origin !== undefined && origin !== `${request.protocol}://${host ?? ''}`;
  if (foreign || site === 'cross-site' || site === 'same-site') {
    throw new OperatorError('forbidden', `changes from the web page ${shown(origin)} are not taken`);
  }
}

/** Names under which the admin listener may be called. */
export class AllowedHosts {
  private readonly names: ReadonlySet<string>;

  constructor(private readonly config: Pick<ServerConfig, 'adminListen' | 'insecure' | 'auth'>) {
    const bound = parseAddress(config.adminListen);
    this.names = new Set(['localhost', hostname().toLowerCase(), ...(bound.ok ? [bound.value.host] : [])]);
  }

  allows(host: string | undefined): boolean {
    // With tokens a page under another name gets nowhere, and behind TLS the listener has names we do not know.
    if (this.config.insecure || this.config.auth.admin.tokens.length > 0) return true;
    const name = /^(?:\[([^\]]+)\]|([^:]*))(?::\d+)?$/.exec(host ?? '');
    const bare = (name?.[1] ?? name?.[2] ?? '').toLowerCase();
    // Rebinding needs a name that an attacker's DNS answers for; an address literal is none.
    return isIP(bare) !== 0 || this.names.has(bare);
  }
}

/** Installs the checks before anything else looks at a request. */
export function installRequestChecks(fastify: FastifyInstance, config: ServerConfig): void {
  const hosts = new AllowedHosts(config);
  fastify.addHook('onRequest', (request, _reply, done) => {
    try {
      checkRequest(request, hosts);
      done();
    } catch (error) {
      done(error as Error);
    }
  });
}

function shown(value: string | undefined): string {
  return value === undefined ? '(none)' : JSON.stringify(value.slice(0, 100));
}
