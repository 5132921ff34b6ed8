/** SIGHUP, which ends a process that says nothing about it: from the first moment on it is caught, and obeyed once somebody can. */
export class ReloadSignals {
  private wake: (() => void) | undefined;
  private asked = false;
  private readonly listener = () => {
    this.asked = true;
    this.wake?.();
  };

  constructor() {
    process.on('SIGHUP', this.listener);
  }

  /** Calls `obey` for each signal, also for one that came before. */
  follow(obey: () => void): void {
    this.wake = obey;
    if (this.asked) obey();
  }

  /** Gives the signal back its default effect. */
  dispose(): void {
    process.off('SIGHUP', this.listener);
  }
}
