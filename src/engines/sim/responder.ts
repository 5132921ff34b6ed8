import type { Exchange } from '../http1/http1-server.js';
import { DIALECT_TRAITS, type DialectTraits, type EngineError, errorBody } from './dialect.js';
import type { Route } from './generation-request.js';
import type { Dialect } from './options.js';
import type { SimStats } from './stats.js';

/** Writes whole answers that are not generated: JSON, text and refusals in the dialect's shape. */
export class Responder {
  readonly traits: DialectTraits;

  constructor(
    readonly dialect: Dialect,
    private readonly stats: SimStats,
  ) {
    this.traits = DIALECT_TRAITS[dialect];
  }

  json(exchange: Exchange, value: unknown, status = 200): void {
    exchange.respond(status, this.traits.headerLines, JSON.stringify(value));
  }

  text(exchange: Exchange, text: string): void {
    exchange.respond(200, 'content-type: text/plain; version=0.0.4; charset=utf-8\r\n', text);
  }

  /** A refusal; `route` decides the API's shape, undefined = the dialect's usual one. */
  refuse(exchange: Exchange, route: Route | undefined, error: EngineError, headerLines = ''): void {
    this.stats.rejected++;
    const body = errorBody(this.dialect, route, error);
    exchange.respond(error.status, this.traits.headerLines + headerLines, body);
  }
}
