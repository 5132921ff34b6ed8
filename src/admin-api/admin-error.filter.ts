import { Catch, HttpException, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ADMIN_ERRORS, errorChain, OperatorError, type AdminErrorCode } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import { StoreError } from '../store/ports.js';
import { formatSize } from '../config/units.js';
import { ADMIN_BODY_LIMIT_BYTES } from './json-body.js';
import type { RouteIndex } from './route-index.js';
import type { ErrorView } from './views/answers.js';

/** Every failed call of the admin listener in one shape. */
@Catch()
export class AdminErrorFilter implements ExceptionFilter {
  constructor(
    private readonly logger: Logger,
    private readonly routes: RouteIndex,
  ) {}

  catch(error: unknown, host: ArgumentsHost): void {
    const request = host.switchToHttp().getRequest<FastifyRequest>();
    const reply = host.switchToHttp().getResponse<FastifyReply>();
    const failure = this.asOperatorError(error, request);
    // A stream of events that has begun cannot be answered a second time.
    if (reply.sent || reply.raw.headersSent) return;
    if (failure.code === 'method_not_allowed') {
      void reply.header('allow', this.routes.methodsFor(request.url).join(', '));
    }
    if (failure.code === 'unauthenticated') void reply.header('www-authenticate', 'Bearer');
    void reply
      .status(ADMIN_ERRORS[failure.code].status)
      .type('application/json')
      .send(JSON.stringify(errorView(failure)));
  }

  private asOperatorError(error: unknown, request: FastifyRequest): OperatorError {
    if (error instanceof OperatorError) return error;
    if (error instanceof StoreError) {
      return new OperatorError('store_unavailable', errorChain(error).join(': '), {
        hint: 'nothing was changed; routing goes on',
        cause: error,
      });
    }
    const status = statusOf(error);
    if (status === 404) return this.notFound(request);
    if (status !== undefined && status >= 400 && status < 500) return callersFault(error, status);
    this.logger.error({ causes: errorChain(error), path: pathOf(request.url) }, 'an admin call failed');
    return new OperatorError('internal_error', 'the server failed to answer; its log has the reason', {
      cause: error,
    });
  }

  private notFound(request: FastifyRequest): OperatorError {
    const methods = this.routes.methodsFor(request.url);
    if (methods.length > 0 && !methods.includes(request.method)) {
      const message = `${request.method} is not possible here; ${methods.join(' or ')} is`;
      return new OperatorError('method_not_allowed', message);
    }
    return new OperatorError('not_found', `there is nothing at ${pathOf(request.url)}`);
  }
}

/** What the HTTP library refused by itself, in our words. */
function callersFault(error: unknown, status: number): OperatorError {
  if (status === 413)
    return new OperatorError(
      'request_too_large',
      `the body is larger than ${formatSize(ADMIN_BODY_LIMIT_BYTES)}`,
    );
  const message = error instanceof Error ? error.message : 'the call failed';
  return new OperatorError(status === 415 ? 'unsupported_media_type' : 'invalid_argument', message);
}

/** What is wrong before any route is found: an address that cannot be decoded, or one that is too long. */
export function answerBadAddress(_error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const failure = new OperatorError(
    'invalid_argument',
    `the address cannot be read or is too long: ${pathOf(request.url)}`,
  );
  void reply
    .status(ADMIN_ERRORS[failure.code].status)
    .type('application/json')
    .send(JSON.stringify(errorView(failure)));
}

/** The body of a failed call. */
export function errorView(error: OperatorError): ErrorView {
  const { field, hint, problems } = error.details;
  return {
    error: {
      code: error.code satisfies AdminErrorCode,
      message: error.message,
      ...(field === undefined ? {} : { field }),
      ...(hint === undefined ? {} : { hint }),
      ...(problems === undefined ? {} : { problems }),
    },
  };
}

/** Status of Nest's and Fastify's own errors. */
function statusOf(error: unknown): number | undefined {
  if (error instanceof HttpException) return error.getStatus();
  const status = (error as { statusCode?: unknown } | null)?.statusCode;
  return typeof status === 'number' ? status : undefined;
}

function pathOf(url: string): string {
  return url.split('?')[0]?.slice(0, 200) ?? '';
}
