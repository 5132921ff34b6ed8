/** An operator beside the load: asks the admin listener on schedule and keeps how promptly it answers. */
import { setTimeout as sleep } from 'node:timers/promises';
import { secondsOf } from './fleet.js';

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

/** How often it is asked how long a process was kept from running, ms. */
const SAMPLE_EVERY_MS = 10;

/** How long a process was ready to run while others had the processors, by the moment. */
export class StarvationWatch {
  private readonly atMs: number[] = [];
  private readonly waitedMs: number[] = [];
  private readonly timer: NodeJS.Timeout;

  constructor(private readonly pid: number | undefined) {
    this.timer = setInterval(() => this.sample(), SAMPLE_EVERY_MS);
    this.sample();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  /** Of the time between two moments of the wall clock, ms; what lies between two samples is spread evenly. */
  between(fromMs: number, toMs: number): number {
    return this.until(toMs) - this.until(fromMs);
  }

  private sample(): void {
    try {
      this.waitedMs.push(1_000 * secondsOf(this.pid).waited);
      this.atMs.push(Date.now());
    } catch {
      this.stop(); // It has ended.
    }
  }

  private until(wallMs: number): number {
    const { atMs, waitedMs } = this;
    const after = atMs.findIndex((at) => at >= wallMs);
    if (after <= 0) return waitedMs.at(after) ?? 0;
    const [from, to] = [atMs[after - 1] ?? 0, atMs[after] ?? 0];
    const [low, high] = [waitedMs[after - 1] ?? 0, waitedMs[after] ?? 0];
    return low + ((high - low) * (wallMs - from)) / Math.max(1, to - from);
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
