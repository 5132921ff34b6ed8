/**
 * Is a start getting anywhere? A fixed deadline kills a slow download over and over from zero; so the deadline counts
 * from the last sign of progress. An engine that only repeats that it waits makes none.
 */
import type { LoadStep } from './engines/driver.js';

/** Different kinds of lines remembered; older ones would count as new again, which only grants a little more time. */
const TEMPLATES_MAX = 512;

export class LoadProgress {
  private readonly seen = new Set<string>();
  private step: LoadStep | undefined;

  constructor(
    private readonly readStep: (line: string) => LoadStep | undefined,
    private movedMs: number,
  ) {}

  /** The last step read from the output; undefined before the first. */
  get current(): LoadStep | undefined {
    return this.step;
  }

  /** Milliseconds without any sign of progress. */
  stillMs(nowMs: number): number {
    return nowMs - this.movedMs;
  }

  /** Something else than output showed progress, e.g. the port opened. */
  moved(nowMs: number): void {
    this.movedMs = nowMs;
  }

  /** Takes in new output; true when the step changed. */
  take(lines: readonly string[], unfinished: string, nowMs: number): boolean {
    const before = this.step;
    for (const line of unfinished === '' ? lines : [...lines, unfinished]) {
      const step = this.readStep(line);
      if (step !== undefined && step.detail !== this.step?.detail) {
        this.step = step;
        this.movedMs = nowMs;
      }
      if (this.isNewKind(line)) this.movedMs = nowMs;
    }
    return this.step !== before;
  }

  private isNewKind(line: string): boolean {
    const template = line.replaceAll(/[0-9a-f]*\d[0-9a-f.:]*/gi, '#');
    if (this.seen.has(template)) return false;
    if (this.seen.size >= TEMPLATES_MAX) {
      const [oldest] = this.seen;
      if (oldest !== undefined) this.seen.delete(oldest);
    }
    this.seen.add(template);
    return true;
  }
}
