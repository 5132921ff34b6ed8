/** An operator beside the load: asks the admin listener on schedule and keeps how promptly it answers. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Pause between two questions, ms. */
const PAUSE_MS = 50;

export class AdminWatch {
  readonly livezMs: number[] = [];
  readonly metricsMs: number[] = [];
  readonly depths: number[] = [];
  failures = 0;
  private stopped = false;
  private readonly running: Promise<void>;

  constructor(private readonly admin: string) {
    this.running = this.run();
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await this.running;
  }

  private async run(): Promise<void> {
    while (!this.stopped) {
      await this.ask('livez', this.livezMs);
      const text = await this.ask('metrics', this.metricsMs);
      this.depths.push(gauge(text, 'llmgw_queue_depth'));
      await sleep(PAUSE_MS);
    }
  }

  private async ask(path: string, into: number[]): Promise<string> {
    const fromMs = performance.now();
    try {
      const answer = await fetch(`${this.admin}/${path}`, { signal: AbortSignal.timeout(10_000) });
      const text = await answer.text();
      if (!answer.ok) this.failures += 1;
      into.push(performance.now() - fromMs);
      return text;
    } catch {
      this.failures += 1;
      return '';
    }
  }
}

/** Sum of a gauge over its labels. */
export function gauge(metrics: string, name: string): number {
  let sum = 0;
  for (const line of metrics.split('\n'))
    if (line.startsWith(`${name}{`)) sum += Number(line.split(' ').at(-1));
  return sum;
}

/** How long until nothing waits and nothing is in flight, ms, asked as fast as answers come. */
export async function msUntilEmpty(
  admin: string,
  patienceMs: number,
): Promise<{ queue: number; all: number }> {
  const fromMs = performance.now();
  let queue = Number.NaN;
  while (performance.now() - fromMs < patienceMs) {
    const text = await (await fetch(`${admin}/metrics`)).text();
    const passedMs = performance.now() - fromMs;
    if (Number.isNaN(queue) && gauge(text, 'llmgw_queue_depth') === 0) queue = passedMs;
    if (!Number.isNaN(queue) && gauge(text, 'llmgw_inflight') === 0) return { queue, all: passedMs };
  }
  return { queue, all: Number.NaN };
}
