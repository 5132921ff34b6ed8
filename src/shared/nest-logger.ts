import type { LoggerService } from '@nestjs/common';
import type { Logger } from './logger.js';

/** Nest's own messages, in our log's form. Nest's start-up chatter is debug: operators want to hear of their cluster. */
export class NestLogger implements LoggerService {
  constructor(private readonly logger: Logger) {}

  log(message: unknown, ...params: unknown[]): void {
    this.logger.debug({ component: contextOf(params) }, String(message));
  }
  debug(message: unknown, ...params: unknown[]): void {
    this.logger.debug({ component: contextOf(params) }, String(message));
  }
  verbose(message: unknown, ...params: unknown[]): void {
    this.logger.debug({ component: contextOf(params) }, String(message));
  }
  warn(message: unknown, ...params: unknown[]): void {
    this.logger.warn({ component: contextOf(params) }, String(message));
  }
  error(message: unknown, ...params: unknown[]): void {
    this.logger.error({ component: contextOf(params), detail: params[0] }, String(message));
  }
  fatal(message: unknown, ...params: unknown[]): void {
    this.logger.fatal({ component: contextOf(params) }, String(message));
  }
}

/** Nest passes its context as the last parameter. */
function contextOf(params: readonly unknown[]): string {
  const last = params.at(-1);
  return typeof last === 'string' ? last : 'nest';
}
