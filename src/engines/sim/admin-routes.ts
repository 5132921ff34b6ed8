import type { Exchange } from '../http1/http1-server.js';
import { type JsonObject, numberOf, parseJsonObject, stringOf } from '../json-fields.js';
import type { StandingFault } from './faults.js';
import type { Responder } from './responder.js';
import type { SimRequestRecord, SimStats } from './stats.js';

/** What the admin routes may do to the engine. */
export interface SimAdmin {
  stats(): SimStats;
  requests(requestId?: string): SimRequestRecord[];
  standingFaults(): readonly StandingFault[];
  setFault(spec: string, options?: { count?: number; path?: string }): void;
  clearFaults(): void;
  reset(): void;
}

/**
 * `GET /sim/stats` · `GET /sim/requests[?id=X-Request-Id]` · `POST /sim/reset` ·
 * `GET|POST|DELETE /sim/faults` (`{"fault": SPEC, "count"?: N, "path"?: P, "clear"?: true}`).
 */
export class AdminRoutes {
  constructor(
    private readonly engine: SimAdmin,
    private readonly responder: Responder,
  ) {}

  handle(exchange: Exchange, path: string): void {
    const { method, target, body } = exchange.request;
    switch (path) {
      case '/sim/stats':
        return this.responder.json(exchange, this.engine.stats());
      case '/sim/requests': {
        const id = new URLSearchParams(target.slice(path.length)).get('id');
        return this.responder.json(exchange, { requests: this.engine.requests(id ?? undefined) });
      }
      case '/sim/reset':
        if (method !== 'POST') return this.fail(exchange, 405, 'use POST');
        this.engine.reset();
        return this.responder.json(exchange, this.engine.stats());
      case '/sim/faults': {
        const problem = this.changeFaults(method, body);
        if (problem !== undefined) return this.fail(exchange, 400, problem);
        return this.responder.json(exchange, { faults: this.engine.standingFaults() });
      }
      default:
        return this.fail(exchange, 404, 'no such simulator route');
    }
  }

  private fail(exchange: Exchange, status: number, message: string): void {
    this.responder.json(exchange, { error: { message } }, status);
  }

  /** What is wrong with the call, undefined when it was carried out. */
  private changeFaults(method: string, body: Buffer): string | undefined {
    if (method === 'GET') return undefined;
    if (method === 'DELETE') {
      this.engine.clearFaults();
      return undefined;
    }
    const parsed = parseJsonObject(body);
    return 'problem' in parsed ? parsed.problem : this.addFault(parsed.object);
  }

  private addFault(body: JsonObject): string | undefined {
    const clear = body['clear'] === true;
    if (clear) this.engine.clearFaults();
    const spec = stringOf(body['fault']);
    if (spec === undefined) return clear ? undefined : 'expected {"fault": SPEC} or {"clear": true}';
    const count = numberOf(body['count']);
    const path = stringOf(body['path']);
    try {
      this.engine.setFault(spec, {
        ...(count === undefined ? {} : { count }),
        ...(path === undefined ? {} : { path }),
      });
      return undefined;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }
}
