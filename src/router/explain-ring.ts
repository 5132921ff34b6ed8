import type { RequestExplanation } from './explanation.js';
import { RequestTrace } from './request-trace.js';

/** Requests remembered; older ones are forgotten. About 1 KiB each with a few endpoints. */
export const EXPLAIN_RING_MAX = 2_048;

/** The last requests, running ones included; bounded. A repeated id shows its newest request. */
export class ExplainRing {
  private readonly slots: (RequestTrace | undefined)[];
  private at = 0;

  constructor(size = EXPLAIN_RING_MAX) {
    this.slots = Array.from<RequestTrace | undefined>({ length: size });
  }

  /** The trace of a request that begins, in place of the oldest one. */
  begin(requestId: string, receivedWallMs: number, route: string): RequestTrace {
    const old = this.slots[this.at];
    // A request that still runs keeps writing into its own; it only is no longer found.
    const trace = old?.ended === true ? old : new RequestTrace();
    this.slots[this.at] = trace;
    this.at = (this.at + 1) % this.slots.length;
    return trace.begin(requestId, receivedWallMs, route);
  }

  /** Looks through all of them: asked by people, seldom, where an index would be kept up by every request. */
  get(requestId: string): RequestExplanation | undefined {
    const { length } = this.slots;
    for (let back = 1; back <= length; back++) {
      const trace = this.slots[(this.at - back + length) % length];
      if (trace?.requestId === requestId) return trace.explanation();
    }
    return undefined;
  }

  /** Ids that begin so, each once, the newest first. */
  idsWith(beginning: string): readonly string[] {
    const ids = new Set<string>();
    const { length } = this.slots;
    for (let back = 1; back <= length; back++) {
      const id = this.slots[(this.at - back + length) % length]?.requestId;
      if (id?.startsWith(beginning) === true) ids.add(id);
    }
    return [...ids];
  }
}
