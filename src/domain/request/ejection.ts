import type { HealthVerdict } from '../balancing/candidate.js';

/** Bounds of taking an endpoint out and letting it back. */
export interface EjectionPolicy {
  /** Faults in a row that eject. */
  readonly consecutiveFaults: number;
  /** First-token timeouts in a row, without any byte from the engine meanwhile, that prove death. */
  readonly consecutiveTimeouts: number;
  /** Failed probes in a row that eject an endpoint with nothing in flight. */
  readonly consecutiveProbeFailures: number;
  /** First time out; doubles with each ejection until the endpoint has stayed in for `maxMs`. */
  readonly baseMs: number;
  readonly maxMs: number;
  /** Share of the time out that is drawn by lot, so that a fleet does not come back in step. */
  readonly jitter: number;
  /** A trial that shows nothing for this long lets another one go, up to `maxTrials`. */
  readonly trialPatienceMs: number;
  readonly maxTrials: number;
}

export const DEFAULT_EJECTION: EjectionPolicy = {
  consecutiveFaults: 5,
  consecutiveTimeouts: 3,
  consecutiveProbeFailures: 3,
  baseMs: 5_000,
  maxMs: 30_000,
  jitter: 0.2,
  trialPatienceMs: 5_000,
  maxTrials: 3,
};

/** What convinced the gateway that an endpoint is out of order. */
export type EjectionCause = 'faults' | 'first_token_timeouts' | 'probes' | 'failed_trial';

/** Outcome of a piece of bad evidence. */
export type EvidenceOutcome =
  | { readonly outcome: 'counted' }
  | { readonly outcome: 'ejected'; readonly cause: EjectionCause; readonly untilMs: number }
  /** It would have been ejected, but nothing else of a model of its would remain. */
  | { readonly outcome: 'kept_last'; readonly cause: EjectionCause }
  /** The evidence does not speak against it: it was alive meanwhile, or is out already. */
  | { readonly outcome: 'ignored' };

/** Circumstances of bad evidence. */
export interface EvidenceContext {
  readonly nowMs: number;
  /** Uniform in [0, 1), for the jitter. */
  readonly random: number;
  /**
   * Other endpoints in good standing: the smallest number over the models this one serves. At 0 it is never ejected.
   */
  readonly othersServing: number;
  /** The evidence comes from a trial request, see `EndpointHealth.trialStarted`. */
  readonly trial: boolean;
}

const COUNTED: EvidenceOutcome = { outcome: 'counted' };
const IGNORED: EvidenceOutcome = { outcome: 'ignored' };

/**
 * What one endpoint generation has shown of itself. Evidence of work decides: bytes of live streams prove life,
 * first-token timeouts in a row prove death although `/health` answers, and a probe alone never judges a busy engine,
 * because a probe that waits behind a long compile says nothing about the streams that flow.
 */
export class EndpointHealth {
  private faults = 0;
  private timeouts = 0;
  private probeFailures = 0;
  private ejections = 0;
  private ejectedAtMs = Number.NEGATIVE_INFINITY;
  private ejectedUntilMs: number | undefined;
  private cause: EjectionCause | undefined;
  private trials = 0;
  private trialAtMs = 0;
  private coolUntilMs = Number.NEGATIVE_INFINITY;
  private lifeAtMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly policy: EjectionPolicy = DEFAULT_EJECTION) {}

  verdict(nowMs: number): HealthVerdict {
    if (this.ejectedUntilMs === undefined) return nowMs < this.coolUntilMs ? 'cooling_down' : 'serving';
    if (nowMs < this.ejectedUntilMs) return 'ejected';
    if (this.trials === 0) return 'trial_due';
    const patient = nowMs - this.trialAtMs < this.policy.trialPatienceMs;
    return patient || this.trials >= this.policy.maxTrials ? 'trial_running' : 'trial_due';
  }

  /** Why it is out, for explain and events; undefined in good standing. */
  get ejectedBecause(): EjectionCause | undefined {
    return this.ejectedUntilMs === undefined ? undefined : this.cause;
  }

  /** When its time out ends, monotonic; undefined in good standing. */
  get outUntilMs(): number | undefined {
    return this.ejectedUntilMs;
  }

  /** Faults in a row so far. */
  get consecutiveFaults(): number {
    return this.faults;
  }

  /** A request goes to it to see whether it works again. */
  trialStarted(nowMs: number): void {
    if (this.ejectedUntilMs === undefined) return;
    this.trials += 1;
    this.trialAtMs = nowMs;
  }

  /** A trial ended without evidence either way: its client left, or it was refused as busy. */
  trialAbandoned(): void {
    this.trials = Math.max(0, this.trials - 1);
  }

  /** An answer began to come, or came whole: the engine works. True when this brought it back. */
  worked(nowMs: number): boolean {
    const returned = this.ejectedUntilMs !== undefined;
    this.faults = 0;
    this.timeouts = 0;
    this.probeFailures = 0;
    if (nowMs - this.ejectedAtMs > this.policy.maxMs) this.ejections = 0;
    this.ejectedUntilMs = undefined;
    this.cause = undefined;
    this.trials = 0;
    this.coolUntilMs = Number.NEGATIVE_INFINITY;
    this.lifeAtMs = nowMs;
    return returned;
  }

  /** Bytes of a running stream came. Cheap: called per event. */
  showedLife(nowMs: number): void {
    this.lifeAtMs = nowMs;
    this.timeouts = 0;
    this.probeFailures = 0;
    // It was slow, not dead: let a trial show it now instead of sitting out the whole time.
    if (this.cause === 'first_token_timeouts' && this.ejectedUntilMs !== undefined)
      this.ejectedUntilMs = nowMs;
  }

  /** The engine said "busy" (429, 503): a short pause, not a fault. */
  busy(nowMs: number, coolDownMs: number): void {
    this.coolUntilMs = Math.max(this.coolUntilMs, nowMs + coolDownMs);
  }

  /** An attempt failed through the endpoint's fault. */
  faulted(context: EvidenceContext): EvidenceOutcome {
    this.faults += 1;
    if (this.ejectedUntilMs !== undefined) return this.failedTrial(context);
    return this.faults < this.policy.consecutiveFaults ? COUNTED : this.eject('faults', context);
  }

  /**
   * No first token came in time for a request sent at `sentAtMs`. Bytes of other streams since then show an engine
   * with a long queue, not a dead one.
   */
  timedOut(sentAtMs: number, context: EvidenceContext): EvidenceOutcome {
    if (this.ejectedUntilMs !== undefined) return this.failedTrial(context);
    if (this.lifeAtMs >= sentAtMs) return IGNORED;
    this.timeouts += 1;
    return this.timeouts < this.policy.consecutiveTimeouts
      ? COUNTED
      : this.eject('first_token_timeouts', context);
  }

  /**
   * A probe ended. Success brings an endpoint whose *probes* failed to its trial at once, and says nothing for one
   * that proved dead by its work: `/health` was fine all along. Failure counts only while nothing is in flight.
   */
  probed(healthy: boolean, inFlight: number, context: EvidenceContext): EvidenceOutcome {
    if (healthy) {
      this.probeFailures = 0;
      if (this.cause === 'probes' && this.ejectedUntilMs !== undefined) this.ejectedUntilMs = context.nowMs;
      return IGNORED;
    }
    if (inFlight > 0 || this.ejectedUntilMs !== undefined) return IGNORED;
    this.probeFailures += 1;
    return this.probeFailures < this.policy.consecutiveProbeFailures
      ? COUNTED
      : this.eject('probes', context);
  }

  /** While out, only the failure of a trial means anything: older requests still failing are the same old news. */
  private failedTrial(context: EvidenceContext): EvidenceOutcome {
    return context.trial ? this.eject('failed_trial', context) : IGNORED;
  }

  private eject(cause: EjectionCause, context: EvidenceContext): EvidenceOutcome {
    if (context.othersServing <= 0 && this.ejectedUntilMs === undefined)
      return { outcome: 'kept_last', cause };
    const growing = Math.min(this.policy.maxMs, this.policy.baseMs * 2 ** this.ejections);
    const untilMs = context.nowMs + growing * (1 + this.policy.jitter * (2 * context.random - 1));
    this.ejections += 1;
    this.ejectedAtMs = context.nowMs;
    this.ejectedUntilMs = untilMs;
    this.cause = cause;
    this.trials = 0;
    return { outcome: 'ejected', cause, untilMs };
  }
}
