import type { Clock } from '../../shared/clock.js';
import { OperatorError } from '../../shared/errors.js';

/** A server that restarts is back within this; what is waited for goes on meanwhile. */
const AWAY_MAX_MS = 120_000;
/** Said of a server that ends, is gone, or hangs. */
const AWAY: ReadonlySet<string> = new Set(['unreachable', 'timed_out']);

/** Asks a server that may be restarted meanwhile: that ends neither what is waited for nor the wait. */
export class Patience {
  #awaySinceMs: number | undefined;

  constructor(
    private readonly clock: Clock,
    private readonly say: (line: string) => void,
  ) {}

  /** What `ask` gives, or undefined while the server is away. Throws what has other causes, and when it stays away. */
  async ask<T>(ask: () => Promise<T>): Promise<T | undefined> {
    try {
      const answer = await ask();
      if (this.#awaySinceMs !== undefined) this.say('the server is back');
      this.#awaySinceMs = undefined;
      return answer;
    } catch (error) {
      if (!(error instanceof OperatorError) || !AWAY.has(error.code)) throw error;
      const nowMs = this.clock.monotonicMs();
      if (this.#awaySinceMs === undefined) this.say(`${error.message}; trying on, what was asked goes on`);
      this.#awaySinceMs ??= nowMs;
      if (nowMs - this.#awaySinceMs > AWAY_MAX_MS) throw error;
      return undefined;
    }
  }
}
