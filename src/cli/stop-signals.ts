import { EXIT } from '../shared/errors.js';
import type { Clock } from '../shared/clock.js';

const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/**
 * A terminal's Ctrl-C reaches the whole process group, and npm forwards it once more to its child.
 * Two interrupts within this time are one key press when npm stands in between.
 */
const ECHO_MS = 500;

/** Waits for the operator to end the process: the first signal asks for a graceful end, the second ends at once. */
export class StopSignals {
  private firstAtMs: number | undefined;
  private wake: () => void = () => undefined;
  private readonly requestedPromise = new Promise<void>((resolve) => (this.wake = resolve));
  private readonly listener = (signal: NodeJS.Signals) => this.receive(signal);

  /** `onForce` runs synchronously before the process exits on the second signal. */
  constructor(
    private readonly clock: Clock,
    private readonly underNpm: boolean,
    private readonly onForce: () => void = () => undefined,
  ) {
    for (const signal of STOP_SIGNALS) process.on(signal, this.listener);
  }

  /** Resolves with the first signal. */
  requested(): Promise<void> {
    return this.requestedPromise;
  }

  /** Asks for a graceful end, as the first signal does. */
  request(): void {
    this.firstAtMs ??= this.clock.monotonicMs();
    this.wake();
  }

  get isRequested(): boolean {
    return this.firstAtMs !== undefined;
  }

  /** Gives the signals back their default effect. */
  dispose(): void {
    for (const signal of STOP_SIGNALS) process.off(signal, this.listener);
  }

  private receive(signal: NodeJS.Signals): void {
    const now = this.clock.monotonicMs();
    if (this.firstAtMs === undefined) {
      this.firstAtMs = now;
      this.wake();
      return;
    }
    if (signal === 'SIGINT' && this.underNpm && now - this.firstAtMs < ECHO_MS) return;
    this.onForce();
    process.exit(EXIT.interrupted);
  }
}
