/** What a check found. */
export interface CheckResult {
  readonly name: string;
  readonly ok: boolean;
  readonly reason?: string;
  /** What is worth knowing although all is well. */
  readonly detail?: string;
}

/** Whether this server should get traffic. Each part that matters adds its check. */
export class Readiness {
  private readonly checks: (() => CheckResult)[] = [];
  private drainingSince: string | undefined;

  /** Since when the server is stopping, ISO 8601; undefined while it is not. */
  get stoppingSince(): string | undefined {
    return this.drainingSince;
  }

  add(name: string, check: () => true | string): void {
    this.checks.push(() => {
      const result = check();
      return result === true ? { name, ok: true } : { name, ok: false, reason: result };
    });
  }

  /** Something to be seen beside the checks, which never makes the server unready: traffic elsewhere would not help. */
  note(name: string, detail: () => string): void {
    this.checks.push(() => ({ name, ok: true, detail: detail() }));
  }

  /** From now on not ready: load balancers should look elsewhere while what runs is finished. */
  drain(atText: string): void {
    this.drainingSince ??= atText;
  }

  results(): readonly CheckResult[] {
    const draining: CheckResult =
      this.drainingSince === undefined
        ? { name: 'not-draining', ok: true }
        : { name: 'not-draining', ok: false, reason: `stopping since ${this.drainingSince}` };
    return [...this.checks.map((check) => check()), draining];
  }
}

export const READINESS = Symbol('Readiness');
