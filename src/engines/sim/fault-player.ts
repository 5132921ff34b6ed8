import type { Exchange } from '../http1/http1-server.js';
import { type Fault, FaultBook, type FaultSet, parseFaults } from './faults.js';
import type { Route } from './generation-request.js';
import type { Responder } from './responder.js';

/** Collects what a request is to suffer and plays the faults that take the place of an answer. */
export class FaultPlayer {
  readonly book = new FaultBook();

  constructor(
    private readonly responder: Responder,
    /** Refuses new connections for so many milliseconds. */
    private readonly refuseConnections: (ms: number) => void,
  ) {}

  /** Faults asked for by header or admin call; undefined when a spec was wrong and that has been answered. */
  collect(exchange: Exchange, path: string, generates: boolean): Fault[] | undefined {
    const spec = exchange.request.headers.get('x-sim-fault');
    const standing = this.book.take(path, generates);
    if (spec === undefined) return [...standing];
    const parsed = parseFaults(spec);
    if ('faults' in parsed) return [...standing, ...parsed.faults];
    this.responder.refuse(exchange, undefined, { status: 400, message: `x-sim-fault: ${parsed.problem}` });
    return undefined;
  }

  /** Plays faults that replace the answer. True when one did. */
  play(exchange: Exchange, route: Route | undefined, faults: FaultSet): boolean {
    if (faults.empty) return false;
    if (faults.has('close-after')) exchange.closeAfter = true;
    if (faults.has('hang')) return true;
    if (faults.has('refuse')) {
      this.refuseConnections(faults.number('refuse', 0, 1000) ?? 0);
      exchange.reset();
      return true;
    }
    if (faults.has('reset-before-headers')) {
      exchange.reset();
      return true;
    }
    return this.redirect(exchange, faults) || this.answerStatus(exchange, route, faults);
  }

  private redirect(exchange: Exchange, faults: FaultSet): boolean {
    const args = faults.args('redirect');
    if (args === undefined) return false;
    const [status, url] = args.length > 1 ? args : ['307', args[0]];
    exchange.respond(Number(status), `location: ${url ?? '/'}\r\n`, '');
    return true;
  }

  private answerStatus(exchange: Exchange, route: Route | undefined, faults: FaultSet): boolean {
    const retryAfter = faults.args('retry-after');
    const status = faults.number('status', 0, 500) ?? (retryAfter === undefined ? undefined : 429);
    if (status === undefined) return false;
    const headerLines = retryAfter === undefined ? '' : `retry-after: ${retryAfter.join(',')}\r\n`;
    const message = faults.args('status')?.slice(1).join(',') || `scripted status ${status}`;
    this.responder.refuse(exchange, route, { status, message }, headerLines);
    return true;
  }
}
