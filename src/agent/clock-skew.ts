/** How far this machine's clock is from the server's. Only ever told: what is decided is judged by monotonic time. */
import type { Welcome } from '../agent-protocol/messages.js';
import { CLOCK_SKEW_WARN_MS } from '../agent-protocol/proto.js';
import type { NodeCondition } from '../domain/cluster.js';
import type { Clock } from '../shared/clock.js';

/** In words when it is worth a word; positive = this clock is ahead. */
export function skewText(skewMs: number): string | undefined {
  if (Math.abs(skewMs) < CLOCK_SKEW_WARN_MS) return undefined;
  const seconds = Math.round(Math.abs(skewMs) / 1000);
  return `the clock of this machine is ${seconds} s ${skewMs > 0 ? 'ahead of' : 'behind'} the server's`;
}

export class ClockSkew {
  private text: string | undefined;

  constructor(private readonly clock: Clock) {}

  /** Judged once per stream: a clock that is set later is right at the next one. */
  welcomed({ wallMs }: Pick<Welcome, 'wallMs'>): void {
    this.text = wallMs === undefined ? undefined : skewText(this.clock.wallMs() - wallMs);
  }

  conditions(): readonly NodeCondition[] {
    if (this.text === undefined) return [];
    const reason = `${this.text}; times in logs and events will not agree`;
    return [{ type: 'ClockSkewed', reason, blocksPlacement: false }];
  }
}
