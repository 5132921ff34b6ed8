import type { Clock } from '../shared/clock.js';

/**
 * Work that takes milliseconds, one piece per turn of the event loop. Twenty large bodies that arrive together would
 * otherwise be read in one go, and every stream would stand still for the sum of it.
 */
export class Turns {
  private readonly line: (() => void)[] = [];
  private running = false;

  constructor(private readonly clock: Clock) {}

  add(work: () => void): void {
    this.line.push(work);
    if (this.running) return;
    this.running = true;
    this.clock.setTimer(0, this.next);
  }

  private readonly next = (): void => {
    const work = this.line.shift();
    this.running = this.line.length > 0;
    if (this.running) this.clock.setTimer(0, this.next);
    work?.();
  };
}
