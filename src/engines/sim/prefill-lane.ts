import type { Due, Ticker } from './ticker.js';

/** A prompt to be read. */
export interface PrefillJob {
  readonly costMs: number;
  /** Called once when the prompt has been read. */
  onPrefilled(nowMs: number): void;
}

/**
 * Reads prompts one after another, as one GPU does: a long prompt delays the first token of those behind it.
 * That is what makes load-aware and prefix-aware routing pay, so the simulated engine must not read all prompts at once.
 */
export class PrefillLane implements Due {
  dueMs = 0;
  heapIndex = -1;

  private readonly jobs = new Set<PrefillJob>();

  constructor(
    private readonly ticker: Ticker,
    private readonly nowMs: () => number,
  ) {}

  add(job: PrefillJob): void {
    this.jobs.add(job);
    if (this.jobs.size === 1) this.start(job, this.nowMs());
  }

  /** Takes a job out, also while it is being read; the next one starts. */
  remove(job: PrefillJob): void {
    const [first] = this.jobs;
    if (!this.jobs.delete(job) || first !== job) return;
    this.ticker.cancel(this);
    this.startNext(this.nowMs());
  }

  onDue(): void {
    const [job] = this.jobs;
    if (job === undefined) return;
    const doneMs = this.dueMs;
    this.jobs.delete(job);
    // From the moment it was due, not from now: a late timer must not slow the simulated GPU.
    this.startNext(doneMs);
    job.onPrefilled(doneMs);
  }

  private startNext(fromMs: number): void {
    const [next] = this.jobs;
    if (next !== undefined) this.start(next, fromMs);
  }

  private start(job: PrefillJob, fromMs: number): void {
    this.ticker.schedule(this, fromMs + job.costMs);
  }
}
