import { EXIT } from '../shared/errors.js';
import type { Clock } from '../shared/clock.js';

const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/**
 * A terminal's Ctrl-C reaches the whole process group, and npm forwards it once more to its child.
 * Two interrupts within this time are one key press when npm stands in between.
 */
const ECHO_MS = 500;

/** Longest that the end in a hurry may take, ms; whatever it does, nobody waits longer for it. */
const HURRY_MS = 1_000;

/**
 * Waits for the operator to end the process: the first signal asks for a graceful end, the second for one in a hurry,
 * the third ends at once.
 */
export class StopSignals {
  private firstAtMs: number | undefined;
  private hurrying = false;
  private wake: () => void = () => undefined;
  private readonly requestedPromise = new Promise<void>((resolve) => (this.wake = resolve));
  private readonly listener = (signal: NodeJS.Signals) => this.receive(signal);

  /** `onForce` is called on the second signal; the process exits when what it returns has settled. */
  constructor(
    private readonly clock: Clock,
    private readonly underNpm: boolean,
    private readonly onForce: () => Promise<void> = () => Promise.resolve(),
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
    if (this.hurrying) process.exit(EXIT.interrupted);
    this.hurrying = true;
    this.clock.setTimer(HURRY_MS, exitInterrupted);
    this.onForce().then(exitInterrupted, exitInterrupted);
  }
}

const exitInterrupted = (): void => process.exit(EXIT.interrupted);
