import type { Clock, Timer } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';

/** Agents told of one by one within a window; more come and go at once only when a whole fleet does. */
export const SINGLY_MAX = 16;
/** ms */
export const WINDOW_MS = 1_000;
/** Nodes named in a line for many. */
const NAMED_MAX = 16;

/**
 * Tells the log of agents that come and go: each in a line of its own while they are few, the rest of a second in one. The
 * log is written synchronously, and a line for each of a fleet that comes back costs as much as taking it in. At level debug
 * everyone has a line.
 */
export class LinkLog {
  private timer: Timer | undefined;
  private told = 0;
  private connectedNodes: string[] = [];
  private disconnectedNodes: string[] = [];

  constructor(
    private readonly logger: Logger,
    private readonly clock: Clock,
  ) {}

  connected(node: string, from: string, build: string): void {
    const singly = this.tellSingly();
    this.logger[singly ? 'info' : 'debug']({ node, from, build }, 'agent connected');
    if (!singly) this.connectedNodes.push(node);
  }

  disconnected(node: string, from: string, reason: string): void {
    const singly = this.tellSingly();
    this.logger[singly ? 'info' : 'debug']({ node, from, reason }, 'agent disconnected');
    if (!singly) this.disconnectedNodes.push(node);
  }

  /** Tells what is left. */
  flush(): void {
    this.timer?.cancel();
    this.timer = undefined;
    this.told = 0;
    const { connectedNodes, disconnectedNodes } = this;
    this.connectedNodes = [];
    this.disconnectedNodes = [];
    if (connectedNodes.length > 0) this.logger.info(many(connectedNodes), 'more agents connected');
    if (disconnectedNodes.length > 0) this.logger.info(many(disconnectedNodes), 'more agents disconnected');
  }

  private tellSingly(): boolean {
    this.timer ??= this.clock.setTimer(WINDOW_MS, () => this.flush());
    this.told += 1;
    return this.told <= SINGLY_MAX;
  }
}

function many(nodes: readonly string[]): Record<string, unknown> {
  const more = nodes.length - NAMED_MAX;
  return { count: nodes.length, nodes: nodes.slice(0, NAMED_MAX), ...(more > 0 ? { unnamed: more } : {}) };
}
