import type { LogChunk } from '../agent-protocol/messages.js';
import { logRequestToWire } from '../agent-protocol/to-wire.js';
import type { WireServerMessage } from '../agent-protocol/wire.js';
import type { LogQuery } from './ports.js';

/** Open log requests per agent; operators read logs, they do not collect them. */
const REQUESTS_MAX = 64;

/** The log requests one agent has not yet answered in full. */
export class LogRequests {
  private readonly open = new Map<string, (chunk: LogChunk) => void>();
  private last = 0;

  constructor(private readonly send: (message: WireServerMessage) => boolean) {}

  /** Asks; undefined when the agent takes no message now. */
  ask(query: LogQuery, listener: (chunk: LogChunk) => void): (() => void) | undefined {
    if (this.open.size >= REQUESTS_MAX) return undefined;
    const requestId = `log-${++this.last}`;
    if (!this.send(logRequestToWire({ requestId, ...query, stop: false }))) return undefined;
    this.open.set(requestId, listener);
    return () => {
      if (!this.open.delete(requestId)) return;
      // Without this the agent of a follow would go on reading the file for nobody.
      this.send(logRequestToWire({ requestId, ...query, stop: true }));
    };
  }

  take(chunk: LogChunk): void {
    const listener = this.open.get(chunk.requestId);
    if (chunk.end) this.open.delete(chunk.requestId);
    listener?.(chunk);
  }

  /** The agent's stream is gone: every reader is told. */
  closeAll(reason: string): void {
    for (const [requestId, listener] of this.open) {
      listener({ requestId, data: new Uint8Array(), end: true, error: reason, lost: true });
    }
    this.open.clear();
  }
}
